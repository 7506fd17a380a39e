//! Manifest files: `Proxy` and `Secret` documents, judged as an API server would (OP-30, OP-3).
//!
//! What must stay true: one document's fault never hides another document; a file that is not YAML at all says so
//! ([`Manifest::readable`]), so that its reader keeps the objects it defined last; nothing of a Secret, and no text of
//! a Proxy, shows in a fault.

mod envelope;
mod secret;

use std::collections::{BTreeMap, BTreeSet};

use egress_protocol::Secret;
use egress_protocol::resource::{GROUP, ProxySpec, VERSION, validate};
use serde_json::Value;

use crate::fault::{Fault, Sink, WHOLE};
use crate::yaml::{self, Data, Node};
use envelope::Envelope;

/// More faults of one file than this are counted, not listed.
const FAULT_LIMIT: usize = 1000;

/// What a file holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The documents in order that have no fault; of two with one name both.
    pub documents: Vec<Located<Document>>,
    /// What is wrong with the others.
    pub faults: Vec<Fault>,
    /// `false` when the file as a whole could not be parsed: then it says nothing about its objects.
    pub readable: bool,
}

/// A thing and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Located<T> {
    /// Which document of the file, from 1. The items of a `kind: List` share theirs.
    pub document: usize,
    /// The line it begins on.
    pub line: Option<usize>,
    /// The thing.
    pub value: T,
}

/// One object.
#[expect(clippy::large_enum_variant, reason = "nearly every document is a Proxy, the large one")]
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// A `Proxy`.
    Proxy(ProxyDocument),
    /// A `Secret`.
    Secret(SecretDocument),
}

impl Document {
    /// `Proxy default/px-1`.
    pub fn label(&self) -> String {
        match self {
            Self::Proxy(proxy) => format!("Proxy {}/{}", proxy.namespace, proxy.name),
            Self::Secret(secret) => format!("Secret {}/{}", secret.namespace, secret.name),
        }
    }
}

/// A declared proxy, defaults applied.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyDocument {
    /// `default` where the document gave none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// What it declares.
    pub spec: ProxySpec,
}

/// A declared Secret, `stringData` merged into `data`.
#[derive(Debug, Clone, PartialEq)]
pub struct SecretDocument {
    /// `default` where the document gave none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its labels, which say what it may be used for.
    pub labels: BTreeMap<String, String>,
    /// Its content.
    pub data: BTreeMap<String, Secret<Vec<u8>>>,
    /// The keys whose values stand in `stringData`.
    pub plain: BTreeSet<String>,
}

/// Reads a file. `file` is how faults name it.
pub fn parse(file: &str, bytes: &[u8]) -> Manifest {
    match yaml::documents(bytes) {
        Ok(nodes) => parse_nodes(file, &nodes),
        Err(unreadable) => {
            let mut sink = Sink::new(file, 0);
            sink.push(unreadable.line, WHOLE, unreadable.reason);
            Manifest { documents: Vec::new(), faults: sink.into_faults(), readable: false }
        }
    }
}

pub(crate) fn parse_nodes(file: &str, nodes: &[Node]) -> Manifest {
    let mut manifest = Manifest { documents: Vec::new(), faults: Vec::new(), readable: true };
    for (i, node) in nodes.iter().enumerate() {
        let mut reader = Reader { sink: Sink::new(file, i + 1), documents: &mut manifest.documents, document: i + 1 };
        reader.document(node, "");
        manifest.faults.append(&mut reader.sink.into_faults());
    }
    let more = manifest.faults.len().saturating_sub(FAULT_LIMIT);
    if more > 0 {
        manifest.faults.truncate(FAULT_LIMIT);
        let mut sink = Sink::new(file, 0);
        sink.push(None, WHOLE, format!("and {more} more faults"));
        manifest.faults.append(&mut sink.into_faults());
    }
    manifest
}

/// Reads one document into the list of documents or the list of faults.
struct Reader<'a> {
    sink: Sink<'a>,
    documents: &'a mut Vec<Located<Document>>,
    document: usize,
}

impl Reader<'_> {
    /// `own` is the path of the node in its document: empty, or an item of a List.
    fn document(&mut self, node: &Node, own: &str) {
        self.sink.about(envelope::label(node));
        let before = self.sink.len();
        let kind = node.get("kind").and_then(Node::text);
        let value = match (&node.data, kind) {
            (Data::Map(_), Some("List")) if own.is_empty() => return self.list(node),
            (Data::Map(_), _) => self.object(node, own),
            _ => {
                self.sink.push(node.line, whole(own), "a document must be a map with apiVersion, kind and metadata");
                None
            }
        };
        if let Some(value) = value.filter(|_| self.sink.len() == before) {
            self.documents.push(Located { document: self.document, line: node.line, value });
        }
    }

    /// `kind: List` is unpacked (OP-3).
    fn list(&mut self, node: &Node) {
        match node.get("apiVersion").and_then(Node::text) {
            Some("v1") => {}
            _ => self.sink.push(node.line_of("", ".apiVersion"), "apiVersion", "a List must be of apiVersion v1"),
        }
        match node.get("items").map(|items| &items.data) {
            Some(Data::List(items)) => {
                for (i, item) in items.iter().enumerate() {
                    self.document(item, &format!("items[{i}]"));
                }
            }
            Some(Data::Null) => {}
            _ => self.sink.push(node.line_of("", ".items"), "items", "a List must have items, a list of objects"),
        }
    }

    fn object(&mut self, node: &Node, own: &str) -> Option<Document> {
        let sink = &mut self.sink;
        let mut value = node.to_json(own, &mut |path, line| {
            sink.push(line, path.trim_start_matches('.'), "is there more than once");
        });
        let mut faults = Vec::new();
        let document = envelope::kind(&value, &mut faults).and_then(|kind| {
            let envelope = Envelope::read(&value, &mut faults);
            match kind {
                envelope::Kind::Proxy => proxy(&mut value, envelope, &mut faults).map(Document::Proxy),
                envelope::Kind::Secret => secret::read(&value, envelope, &mut faults).map(Document::Secret),
            }
        });
        for fault in faults {
            let dot = if fault.path.starts_with('[') { "" } else { "." };
            let path = format!("{own}{dot}{}", fault.path);
            sink.push(node.line_of(own, &path), path.trim_start_matches('.'), fault.reason);
        }
        document
    }
}

/// The path of a whole document, or of a whole item of a List.
const fn whole(own: &str) -> &str {
    if own.is_empty() { WHOLE } else { own }
}

fn proxy(value: &mut Value, envelope: Option<Envelope>, faults: &mut Vec<validate::FieldFault>) -> Option<ProxyDocument> {
    envelope::refuse_unknown(value, &["apiVersion", "kind", "metadata", "spec", "status"], faults);
    let spec = value.get_mut("spec").map(Value::take).unwrap_or_default();
    let spec = if spec.is_null() {
        faults.push(validate::FieldFault::new("spec", "is required"));
        None
    } else {
        validate::check_spec(&spec).map_err(|mut more| faults.append(&mut more)).ok()
    };
    let (envelope, spec) = (envelope?, spec?);
    let Envelope { namespace, name, annotations, labels } = envelope;
    Some(ProxyDocument { namespace, name, annotations, labels, spec })
}

/// `crawl.example.com/v1alpha1`.
fn proxy_api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

#[cfg(test)]
mod tests;
