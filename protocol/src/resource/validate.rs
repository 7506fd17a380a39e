//! What an API server would say to a `Proxy`'s spec, offline and all at once (OP-3, OP-30, OP-32).
//!
//! First the generated schema, then the rules over several fields; both are the ones the CRD carries. A path is
//! the one the API server names; a reason never shows a text it found.

use std::fmt;
use std::sync::LazyLock;

use serde_json::Value;

use super::conditions::cut;
use super::{ProxySpec, crd, rules, schema};

/// One fault of a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    /// The field, such as `spec.healthCheck.url`.
    pub path: String,
    /// What is wrong with it, without the value.
    pub reason: String,
}

impl FieldFault {
    /// A fault of a field.
    pub fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// A path with one more step; a name that is more than a plain word is put in brackets and quotes.
pub fn join(path: &str, name: &str) -> String {
    let name = cut(name.to_owned(), 100);
    if name.is_empty() || name.chars().any(|c| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')) {
        format!("{path}[{name:?}]")
    } else {
        format!("{path}.{name}")
    }
}

static SCHEMA: LazyLock<Result<schema::Node, String>> = LazyLock::new(|| schema::Node::read(&crd::proxy_spec_schema()));

/// Judges a spec and applies the defaults. On refusal every fault, in the order of the fields, then of the rules.
pub fn check_spec(raw: &Value) -> Result<ProxySpec, Vec<FieldFault>> {
    let mut spec = raw.clone();
    let mut faults = Vec::new();
    match &*SCHEMA {
        Ok(schema) => schema.check(&mut spec, "spec", &mut faults),
        Err(keyword) => faults.push(FieldFault::new("spec", format!("the schema has a keyword nobody reads: {keyword}"))),
    }
    if spec.is_object() {
        for rule in &rules::RULES {
            if let Some(reason) = rule.state_fault(&spec) {
                faults.push(FieldFault::new(format!("spec{}", rule.field), reason));
            }
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    // What passed the schema made from the type fits the type; the error is for the day it does not.
    serde_json::from_value(spec).map_err(|_| vec![FieldFault::new("spec", "does not fit the type Proxy")])
}

/// What of a change an API server would refuse: the immutable fields, coming and going included.
pub fn check_change(old: &ProxySpec, new: &ProxySpec) -> Vec<FieldFault> {
    let (Ok(old), Ok(new)) = (serde_json::to_value(old), serde_json::to_value(new)) else {
        return vec![FieldFault::new("spec", "cannot be written as JSON")];
    };
    let faults = rules::RULES.iter().filter_map(|rule| {
        let reason = rule.change_fault(&old, &new)?;
        Some(FieldFault::new(format!("spec{}", rule.field), reason))
    });
    faults.collect()
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
