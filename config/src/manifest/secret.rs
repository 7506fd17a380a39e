//! The content of a `Secret`: `data` in Base64 and `stringData` as it is.

use std::collections::BTreeMap;

use egress_protocol::Secret;
use egress_protocol::resource::grammar;
use egress_protocol::resource::validate::{FieldFault, join};
use serde_json::Value;

use super::SecretDocument;
use super::envelope::{self, Envelope, not_a_string};

/// All values of a Secret together, as the API server counts them.
const DATA_LIMIT: usize = 1 << 20;

pub(super) fn read(value: &Value, envelope: Option<Envelope>, faults: &mut Vec<FieldFault>) -> Option<SecretDocument> {
    let known = ["apiVersion", "kind", "metadata", "data", "stringData", "type", "immutable"];
    envelope::refuse_unknown(value, &known, faults);
    if !matches!(value["type"], Value::Null | Value::String(_)) {
        faults.push(FieldFault::new("type", not_a_string(&value["type"])));
    }
    if !matches!(value["immutable"], Value::Null | Value::Bool(_)) {
        faults.push(FieldFault::new("immutable", "must be true or false"));
    }
    let mut data = BTreeMap::new();
    each(value, "data", faults, |text| decode(text).ok_or("is not Base64"), &mut data);
    // As the API server merges them: stringData wins.
    each(value, "stringData", faults, |text| Ok(text.as_bytes().to_vec()), &mut data);
    if data.values().map(|value: &Secret<Vec<u8>>| value.expose().len()).sum::<usize>() > DATA_LIMIT {
        faults.push(FieldFault::new("data", format!("must have at most {DATA_LIMIT} bytes in all")));
    }
    let plain = value["stringData"].as_object().into_iter().flat_map(|map| map.keys().cloned()).collect();
    let Envelope { namespace, name, labels, .. } = envelope?;
    Some(SecretDocument { namespace, name, labels, data, plain })
}

fn each(
    value: &Value,
    field: &str,
    faults: &mut Vec<FieldFault>,
    decode: impl Fn(&str) -> Result<Vec<u8>, &'static str>,
    data: &mut BTreeMap<String, Secret<Vec<u8>>>,
) {
    let map = match &value[field] {
        Value::Object(map) => map,
        Value::Null => return,
        _ => return faults.push(FieldFault::new(field, "must be a map")),
    };
    for (key, value) in map {
        let bytes = match value {
            Value::String(text) => decode(text),
            Value::Null => Ok(Vec::new()),
            found => Err(not_a_string(found)),
        };
        if key.len() > grammar::NAME_LIMIT || !grammar::SECRET_KEY_GRAMMAR.matches(key) {
            faults.push(FieldFault::new(join(field, key), "a key is at most 253 letters, digits, -, _ and ."));
        }
        match bytes {
            Ok(bytes) => drop(data.insert(key.clone(), Secret::new(bytes))),
            Err(reason) => faults.push(FieldFault::new(join(field, key), reason)),
        }
    }
}

/// Base64 as the API server takes it: line breaks inside, such as those of a folded block, do not count.
fn decode(text: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    data_encoding::BASE64.decode(&text).ok()
}
