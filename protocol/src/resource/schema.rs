//! A reader of the generated schema: the judgement an API server makes before any rule, every fault at once.
//!
//! What must stay true: [`Node::read`] knows every keyword the schema uses and refuses any other, so that a new
//! attribute on a type cannot be overlooked here. Like an API server it takes null for absent and fills in defaults.
//! A fault never shows a text it found: it may be a password in the wrong place.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Map, Value};

use super::validate::{FieldFault, join};

/// One schema.
#[derive(Debug, Default)]
pub(super) struct Node {
    kind: Kind,
    properties: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    required: Vec<String>,
    default: Option<Value>,
    minimum: Option<i64>,
    maximum: Option<i64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    max_properties: Option<usize>,
    pattern: Option<Regex>,
    one_of: Vec<Value>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Kind {
    #[default]
    Object,
    String,
    Integer,
    Boolean,
}

impl Kind {
    const fn words(self) -> &'static str {
        match self {
            Self::Object => "a map",
            Self::String => "a string",
            Self::Integer => "a whole number",
            Self::Boolean => "true or false",
        }
    }
}

impl Node {
    /// Reads a schema; the error names a keyword that is not known here.
    pub(super) fn read(schema: &Value) -> Result<Self, String> {
        let mut node = Self::default();
        let map = schema.as_object().ok_or("a schema is a map")?;
        for (keyword, value) in map {
            let bad = || format!("{keyword}: {value}");
            let size = || value.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or_else(bad);
            match keyword.as_str() {
                "description" | "format" | "x-kubernetes-validations" => {}
                "type" => {
                    node.kind = match value.as_str() {
                        Some("object") => Kind::Object,
                        Some("string") => Kind::String,
                        Some("integer") => Kind::Integer,
                        Some("boolean") => Kind::Boolean,
                        _ => return Err(bad()),
                    }
                }
                "properties" => {
                    for (name, schema) in value.as_object().ok_or_else(bad)? {
                        node.properties.insert(name.clone(), Self::read(schema)?);
                    }
                }
                "additionalProperties" => node.additional = Some(Box::new(Self::read(value)?)),
                "required" => {
                    node.required = value.as_array().ok_or_else(bad)?.iter().filter_map(|v| Some(v.as_str()?.to_owned())).collect();
                }
                "default" => node.default = Some(value.clone()),
                "minimum" => node.minimum = Some(value.as_i64().ok_or_else(bad)?),
                "maximum" => node.maximum = Some(value.as_i64().ok_or_else(bad)?),
                "minLength" => node.min_length = Some(size()?),
                "maxLength" => node.max_length = Some(size()?),
                "maxProperties" => node.max_properties = Some(size()?),
                "pattern" => node.pattern = Some(Regex::new(value.as_str().ok_or_else(bad)?).map_err(|_| bad())?),
                "enum" => node.one_of = value.as_array().ok_or_else(bad)?.clone(),
                _ => return Err(bad()),
            }
        }
        Ok(node)
    }

    /// Judges a value, reporting every fault, and fills in what it leaves out.
    pub(super) fn check(&self, value: &mut Value, path: &str, faults: &mut Vec<FieldFault>) {
        let before = faults.len();
        match (self.kind, &mut *value) {
            (Kind::Object, Value::Object(map)) => self.check_map(map, path, faults),
            (Kind::String, Value::String(text)) => self.check_text(text, path, faults),
            (Kind::Boolean, Value::Bool(_)) => {}
            (Kind::Integer, Value::Number(number)) => self.check_number(number, path, faults),
            (kind, found) => faults.push(FieldFault::new(path, wrong_type(kind, found))),
        }
        if faults.len() == before && !self.one_of.is_empty() && !self.one_of.contains(value) {
            let known: Vec<_> = self.one_of.iter().filter_map(Value::as_str).collect();
            faults.push(FieldFault::new(path, format!("must be {}", known.join(" or "))));
        }
    }

    fn check_map(&self, map: &mut Map<String, Value>, path: &str, faults: &mut Vec<FieldFault>) {
        map.retain(|name, value| !value.is_null() || !self.properties.contains_key(name));
        for name in &self.required {
            if !map.contains_key(name) {
                faults.push(FieldFault::new(join(path, name), "is required"));
            }
        }
        for (name, schema) in &self.properties {
            if let Some(default) = schema.default.as_ref().filter(|_| !map.contains_key(name)) {
                map.insert(name.clone(), default.clone());
            }
        }
        if let Some(most) = self.max_properties.filter(|most| map.len() > *most) {
            faults.push(FieldFault::new(path, format!("must have at most {most} entries, has {}", map.len())));
        }
        for (name, value) in map.iter_mut() {
            match self.properties.get(name).or(self.additional.as_deref()) {
                Some(schema) => schema.check(value, &join(path, name), faults),
                None => faults.push(FieldFault::new(join(path, name), self.unknown(name))),
            }
        }
    }

    /// Why a field is not known, with the field that was meant if only its case is wrong.
    fn unknown(&self, name: &str) -> String {
        match self.properties.keys().find(|known| known.eq_ignore_ascii_case(name)) {
            Some(meant) => format!("is not a known field: write {meant}"),
            None => "is not a known field".to_owned(),
        }
    }

    fn check_text(&self, text: &str, path: &str, faults: &mut Vec<FieldFault>) {
        let length = text.chars().count();
        if let Some(least) = self.min_length.filter(|least| length < *least) {
            faults.push(FieldFault::new(path, format!("must have at least {least} characters, has {length}")));
        } else if let Some(most) = self.max_length.filter(|most| length > *most) {
            faults.push(FieldFault::new(path, format!("must have at most {most} characters, has {length}")));
        } else if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            faults.push(FieldFault::new(path, format!("must match {pattern}")));
        }
    }

    fn check_number(&self, number: &serde_json::Number, path: &str, faults: &mut Vec<FieldFault>) {
        let Some(value) = number.as_i64() else {
            // Beyond 63 bits is beyond every bound; a fraction is not a whole number.
            let reason = match (number.as_u64(), self.maximum) {
                (Some(_), Some(most)) => format!("must be at most {most}, is {number}"),
                _ => format!("must be a whole number, is {number}"),
            };
            return faults.push(FieldFault::new(path, reason));
        };
        if let Some(least) = self.minimum.filter(|least| value < *least) {
            faults.push(FieldFault::new(path, format!("must be at least {least}, is {value}")));
        } else if let Some(most) = self.maximum.filter(|most| value > *most) {
            faults.push(FieldFault::new(path, format!("must be at most {most}, is {value}")));
        }
    }
}

fn wrong_type(kind: Kind, found: &Value) -> String {
    let (found, quotes) = match found {
        Value::Null => ("null", false),
        Value::Bool(_) => ("a boolean", true),
        Value::Number(_) => ("a number", true),
        Value::String(_) => ("a string", false),
        Value::Array(_) => ("a list", false),
        Value::Object(_) => ("a map", false),
    };
    let hint = if kind == Kind::String && quotes { ": put it in quotes" } else { "" };
    format!("must be {}, is {found}{hint}", kind.words())
}
