//! The wire tier of the log (GC-29): target `gcp::wire`, level TRACE. Bodies are left out unless `--gcp-wire-log-full-payloads`
//! is on, and even then user-data is replaced by its length. Token answers and the `Authorization` header never get here.

use serde_json::Value;

use crate::client::Answer;
use crate::request::ApiRequest;

const TARGET: &str = "gcp::wire";

/// A request, right before it is sent.
pub(crate) fn sent(request: &ApiRequest, full: bool) {
    if !tracing::enabled!(target: TARGET, tracing::Level::TRACE) {
        return;
    }
    let body = request.body.as_ref().map(|body| body.expose().as_slice()).unwrap_or_default();
    tracing::trace!(
        target: TARGET,
        method = %request.method,
        path = request.url.path(),
        query = request.url.query(),
        bytes = body.len(),
        body = full.then(|| shown(body)),
        "request"
    );
}

/// An answer.
pub(crate) fn received(request: &ApiRequest, answer: &Answer, full: bool) {
    if !tracing::enabled!(target: TARGET, tracing::Level::TRACE) {
        return;
    }
    tracing::trace!(
        target: TARGET,
        method = %request.method,
        path = request.url.path(),
        httpStatus = answer.status,
        bytes = answer.body.len(),
        body = full.then(|| shown(&answer.body)),
        "answer"
    );
}

/// A body without what is secret in it. What is no JSON is not shown: nobody can say what is in it.
fn shown(body: &[u8]) -> String {
    if body.is_empty() {
        return String::new();
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            redact(&mut value);
            value.to_string()
        }
        Err(_) => format!("<{} bytes that are no JSON>", body.len()),
    }
}

/// Replaces the value of each metadata item `user-data` by its length, however deep it stands, and of every other item as
/// well: others put secrets there too.
fn redact(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.contains_key("key")
                && let Some(item) = object.get_mut("value")
            {
                *item = Value::String(format!("<{} bytes>", item.as_str().map_or(0, str::len)));
            }
            object.values_mut().for_each(redact);
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// GC-29.
    #[test]
    fn user_data_is_a_length_wherever_it_stands() {
        let item = json!({"key": "user-data", "value": "sentinel"});
        for body in [
            json!({"metadata": {"items": [item]}}),
            json!({"items": {"zones/a": {"instances": [{"metadata": {"items": [{"key": "ssh-keys", "value": "sentinel"}, item]}}]}}}),
        ] {
            let shown = shown(body.to_string().as_bytes());
            assert!(shown.contains("<8 bytes>") && !shown.contains("sentinel"), "{shown}");
        }
        assert_eq!(shown(b"sentinel"), "<8 bytes that are no JSON>");
        assert_eq!(shown(b""), "");
    }
}
