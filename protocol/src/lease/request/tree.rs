//! The thorough way to read a body: a tree that keeps what a map would lose (a field given twice), walked field by
//! field, every fault with its path.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::lease::problem::FieldError;

/// A JSON value; an object keeps its fields as they came.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }
            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Bool(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Number(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Number(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(serde_json::Number::from_f64(value).map_or(Node::Null, Node::Number))
            }
            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Text(value.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Node::Object(fields))
            }
        }
        d.deserialize_any(Any)
    }
}

/// The fields of one object that were not looked at yet, and the faults found so far.
pub(super) struct Fields {
    path: String,
    fields: Vec<(String, Node)>,
    faults: Vec<FieldError>,
}

impl Fields {
    /// Reads a body. Fields that are `null` are dropped at once.
    pub(super) fn read(bytes: &[u8], empty_is_none_given: bool) -> Result<Self, Vec<FieldError>> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            let empty = Self { path: String::new(), fields: Vec::new(), faults: Vec::new() };
            return if empty_is_none_given { Ok(empty) } else { Err(vec![FieldError::new("body", "is empty, must be a JSON object")]) };
        }
        match serde_json::from_slice(bytes) {
            Ok(Node::Object(fields)) => Ok(Self::new(String::new(), fields)),
            Ok(Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::List(_)) => {
                Err(vec![FieldError::new("body", "must be a JSON object")])
            }
            Err(error) => Err(vec![FieldError::new("body", format!("is not JSON: {error}"))]),
        }
    }

    fn new(path: String, fields: Vec<(String, Node)>) -> Self {
        let mut this = Self { path, fields, faults: Vec::new() };
        let mut names: Vec<&str> = this.fields.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let mut twice: Vec<String> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].to_owned()).collect();
        twice.dedup();
        if !twice.is_empty() {
            // The first of them stands for all, so that no other fault is made of the rest.
            let mut seen = HashSet::new();
            this.fields.retain(|(name, _)| seen.insert(name.clone()));
        }
        for name in twice {
            this.fault(&name, "is given twice");
        }
        this.fields.retain(|(_, node)| *node != Node::Null);
        this
    }

    /// A field without a name is shown as `""`.
    fn path_of(&self, field: &str) -> String {
        let name = if field.is_empty() { "\"\"".to_owned() } else { super::excerpt(field) };
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }

    /// Records a fault of a field.
    pub(super) fn fault(&mut self, field: &str, message: &str) {
        let path = self.path_of(field);
        self.faults.push(FieldError::new(path, message));
    }

    /// Records a fault of the object itself.
    pub(super) fn fault_of_all(&mut self, message: &str) {
        self.faults.push(FieldError::new(self.path.clone(), message));
    }

    /// Takes a field that has a value.
    pub(super) fn take(&mut self, field: &str) -> Option<Node> {
        let at = self.fields.iter().position(|(name, _)| name == field)?;
        Some(self.fields.swap_remove(at).1)
    }

    /// Takes all fields.
    pub(super) fn take_all(&mut self) -> Vec<(String, Node)> {
        std::mem::take(&mut self.fields)
    }

    /// Takes a field and reads it with `check`.
    pub(super) fn checked<T>(&mut self, field: &str, check: impl FnOnce(&Node) -> Result<T, String>) -> Option<T> {
        let node = self.take(field)?;
        match check(&node) {
            Ok(value) => Some(value),
            Err(message) => {
                self.fault(field, &message);
                None
            }
        }
    }

    /// Takes a field that must be a string.
    pub(super) fn text<T>(&mut self, field: &str, check: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.checked(field, |node| match node {
            Node::Text(text) => check(text),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::List(_) | Node::Object(_) => Err("must be a string".to_owned()),
        })
    }

    /// As [`Fields::text`]; its absence is a fault.
    pub(super) fn required<T>(&mut self, field: &str, check: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        if !self.fields.iter().any(|(name, _)| name == field) {
            self.fault(field, "is required");
            return None;
        }
        self.text(field, check)
    }

    /// A field that must not be there.
    pub(super) fn refuse(&mut self, field: &str, message: &str) {
        if self.take(field).is_some() {
            self.fault(field, message);
        }
    }

    /// The fields of an object inside this one.
    pub(super) fn inner(&mut self, field: &str, node: Node) -> Option<Self> {
        if let Node::Object(fields) = node {
            return Some(Self::new(self.path_of(field), fields));
        }
        self.fault(field, "must be an object");
        None
    }

    /// Takes over the faults of an inner object.
    pub(super) fn absorb(&mut self, inner: Self) {
        self.faults.extend(inner.faults);
    }

    /// What is left is unknown.
    pub(super) fn close(&mut self) {
        for (name, _) in self.take_all() {
            self.fault(&name, "is not a known field");
        }
    }

    /// The verdict.
    pub(super) fn finish(mut self) -> Result<(), Vec<FieldError>> {
        self.close();
        if self.faults.is_empty() { Ok(()) } else { Err(self.faults) }
    }
}
