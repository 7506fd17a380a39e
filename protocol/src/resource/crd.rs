//! The two CustomResourceDefinitions, made of the Rust types and the rules.
//!
//! What must stay true: nothing is written here that a type or a rule could say. This module only says the same in
//! the API server's words (number formats it knows, no `nullable`, so that null means absent) and adds the limits
//! of the library's own `Condition`.

use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use super::{ProviderHealth, Proxy, rules};

/// The CRD of `Proxy`.
pub fn proxy() -> Value {
    let mut crd = serde_json::to_value(Proxy::crd()).unwrap_or_default();
    if let Some(spec) = crd.pointer_mut(&format!("{SCHEMA}/properties/spec")).and_then(Value::as_object_mut) {
        spec.insert("x-kubernetes-validations".to_owned(), rules::RULES.iter().map(rules::Rule::to_json).collect());
    }
    finished(crd)
}

/// The CRD of `ProviderHealth`.
pub fn provider_health() -> Value {
    finished(serde_json::to_value(ProviderHealth::crd()).unwrap_or_default())
}

/// The schema of a `Proxy`'s spec.
pub(super) fn proxy_spec_schema() -> Value {
    proxy().pointer(&format!("{SCHEMA}/properties/spec")).cloned().unwrap_or_default()
}

const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

fn finished(mut crd: Value) -> Value {
    if let Some(schema) = crd.pointer_mut(SCHEMA) {
        walk(schema);
        if let Some(condition) = schema.pointer_mut("/properties/status/properties/conditions/items/properties") {
            limit_condition(condition);
        }
    }
    crd
}

/// Every object of the schema, whether a schema itself or a map of them.
fn walk(value: &mut Value) {
    match value {
        Value::Object(map) => {
            tidy(map);
            map.values_mut().for_each(walk);
        }
        Value::Array(list) => list.iter_mut().for_each(walk),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn tidy(schema: &mut Map<String, Value>) {
    if schema.get("nullable").is_some_and(Value::is_boolean) {
        schema.remove("nullable");
    }
    if let Some(format) = schema.get_mut("format") {
        match format.as_str() {
            Some("uint8" | "uint16" | "uint32") => *format = json!("int32"),
            Some("uint64") => *format = json!("int64"),
            _ => {}
        }
    }
    for bound in ["minimum", "maximum"] {
        if let Some(whole) = schema.get(bound).and_then(Value::as_f64).filter(|n| n.fract() == 0.0) {
            #[expect(clippy::cast_possible_truncation, reason = "a bound of ours, far below 2^53")]
            schema.insert(bound.to_owned(), json!(whole as i64));
        }
    }
}

/// The limits of a standard condition (PH-5), which the library's type leaves out.
fn limit_condition(properties: &mut Value) {
    let limits = json!({
        "type": { "maxLength": 316 },
        "status": { "enum": ["True", "False", "Unknown"] },
        "reason": { "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$" },
        "message": { "maxLength": 32768 },
        "observedGeneration": { "minimum": 0 },
    });
    for (field, limit) in limits.as_object().into_iter().flatten() {
        if let (Some(Value::Object(schema)), Some(limit)) = (properties.get_mut(field), limit.as_object()) {
            schema.extend(limit.clone());
        }
    }
}
