//! What every object has around its content: apiVersion, kind and the metadata that means something here.

use std::collections::BTreeMap;

use egress_protocol::resource::conditions::cut;
use egress_protocol::resource::grammar;
use egress_protocol::resource::validate::{FieldFault, join};
use serde_json::Value;

use crate::fault::{NO_TEXT, NO_TEXT_BUT_BOOLEAN, NO_TEXT_BUT_NUMBER};
use crate::yaml::Node;

/// All annotations of an object together, as the API server counts them.
const ANNOTATIONS_LIMIT: usize = 262_144;

/// The kinds that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Proxy,
    Secret,
}

/// The metadata that means something here; the rest of it is ignored.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) labels: BTreeMap<String, String>,
}

/// `Proxy default/px-1`, as far as the document says so.
pub(super) fn label(node: &Node) -> Option<String> {
    let kind = node.get("kind")?.text()?;
    let metadata = node.get("metadata");
    let part = |field: &str| metadata?.get(field)?.text();
    let name = part("name")?;
    Some(format!("{} {}/{}", cut(kind.to_owned(), 63), part("namespace").unwrap_or("default"), name))
}

/// Which of the kinds an object is.
pub(super) fn kind(value: &Value, faults: &mut Vec<FieldFault>) -> Option<Kind> {
    let mut text = |field: &str| match &value[field] {
        Value::String(text) => Some(text.clone()),
        Value::Null => {
            faults.push(FieldFault::new(field, "is required"));
            None
        }
        _ => {
            faults.push(FieldFault::new(field, "must be a string"));
            None
        }
    };
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (kind, wanted) = match kind?.as_str() {
        "Proxy" => (Kind::Proxy, super::proxy_api_version()),
        "Secret" => (Kind::Secret, "v1".to_owned()),
        other => {
            let known = format!("only Proxy ({}) and Secret (v1) are read", super::proxy_api_version());
            faults.push(FieldFault::new("kind", format!("{} is no kind known here: {known}", cut(other.to_owned(), 63))));
            return None;
        }
    };
    if version? != wanted {
        faults.push(FieldFault::new("apiVersion", format!("must be {wanted} for this kind")));
    }
    Some(kind)
}

/// Fields of an object that its kind does not have.
pub(super) fn refuse_unknown(value: &Value, known: &[&str], faults: &mut Vec<FieldFault>) {
    for field in value.as_object().into_iter().flatten().map(|(field, _)| field) {
        if !known.contains(&field.as_str()) {
            let path = join("", field);
            faults.push(FieldFault::new(path.trim_start_matches('.'), "is not a known field"));
        }
    }
}

impl Envelope {
    pub(super) fn read(value: &Value, faults: &mut Vec<FieldFault>) -> Option<Self> {
        let metadata = match &value["metadata"] {
            metadata @ Value::Object(_) => metadata,
            Value::Null => {
                faults.push(FieldFault::new("metadata.name", "is required"));
                return None;
            }
            _ => {
                faults.push(FieldFault::new("metadata", "must be a map"));
                return None;
            }
        };
        let name = text(metadata, "name", faults);
        match &name {
            Ok(Some(name)) if !grammar::is_object_name(name) => {
                let rule = "must be a DNS-1123 subdomain: at most 253 of a-z, 0-9, - and ., beginning and ending with a letter or digit";
                faults.push(FieldFault::new("metadata.name", rule));
            }
            Ok(None) => faults.push(FieldFault::new("metadata.name", "is required")),
            Ok(Some(_)) | Err(()) => {}
        }
        let namespace = text(metadata, "namespace", faults);
        match &namespace {
            Ok(Some(namespace)) if !grammar::is_dns_label(namespace) => {
                let rule = "must be a DNS-1123 label: at most 63 of a-z, 0-9 and -, beginning and ending with a letter or digit";
                faults.push(FieldFault::new("metadata.namespace", rule));
            }
            Ok(_) | Err(()) => {}
        }
        let labels = texts(metadata, "labels", faults);
        for (key, value) in &labels {
            if !grammar::is_label_key(key) || !grammar::is_label_value(value) {
                faults.push(FieldFault::new(join("metadata.labels", key), "is not a label"));
            }
        }
        let annotations = texts(metadata, "annotations", faults);
        for key in annotations.keys().filter(|key| !grammar::is_label_key(&key.to_ascii_lowercase())) {
            faults.push(FieldFault::new(join("metadata.annotations", key), "is not the key of an annotation"));
        }
        if annotations.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > ANNOTATIONS_LIMIT {
            faults.push(FieldFault::new("metadata.annotations", format!("must have at most {ANNOTATIONS_LIMIT} bytes in all")));
        }
        let namespace = namespace.ok()?.unwrap_or_else(|| "default".to_owned());
        Some(Self { namespace, name: name.ok()??, annotations, labels })
    }
}

fn text(metadata: &Value, field: &str, faults: &mut Vec<FieldFault>) -> Result<Option<String>, ()> {
    match &metadata[field] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        found => {
            faults.push(FieldFault::new(format!("metadata.{field}"), not_a_string(found)));
            Err(())
        }
    }
}

/// A map of texts.
fn texts(metadata: &Value, field: &str, faults: &mut Vec<FieldFault>) -> BTreeMap<String, String> {
    let path = format!("metadata.{field}");
    let mut read = BTreeMap::new();
    match &metadata[field] {
        Value::Null => {}
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) => drop(read.insert(key.clone(), text.clone())),
                    Value::Null => drop(read.insert(key.clone(), String::new())),
                    found => faults.push(FieldFault::new(join(&path, key), not_a_string(found))),
                }
            }
        }
        _ => faults.push(FieldFault::new(path, "must be a map")),
    }
    read
}

/// `kubectl` sends an unquoted `true` or `1` as what it looks like, and the API server refuses it.
pub(super) fn not_a_string(found: &Value) -> &'static str {
    match found {
        Value::Bool(_) => NO_TEXT_BUT_BOOLEAN,
        Value::Number(_) => NO_TEXT_BUT_NUMBER,
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => NO_TEXT,
    }
}
