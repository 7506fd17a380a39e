//! Requests in the API server's own words, for those to whom the library's are too few: answers are read by the caller, so
//! that one bad object spoils no list and nothing of an answer is ever printed (PC-75).

use std::fmt::Write as _;

use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

/// One request: what it does, to which kind, where.
#[derive(Clone)]
pub struct Request {
    pub(crate) verb: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) inner: http::Request<Vec<u8>>,
}

/// Without the body, which may hold what nobody may see.
impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.inner.method(), self.inner.uri())
    }
}

/// What a patch is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 7386: `null` deletes.
    Merge,
    /// RFC 6902: operations, all or none.
    Json,
}

/// Only metadata of the objects of a list.
const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const JSON: &str = "application/json";

impl Request {
    /// Reads one object.
    pub fn get(kind: &'static str, path: &str) -> Self {
        Self::new("get", kind, http::Method::GET, path, JSON, None)
    }

    /// Reads a page of objects.
    pub fn list(kind: &'static str, path: &str, query: &[(&str, &str)]) -> Self {
        Self::new("list", kind, http::Method::GET, &with_query(path, query), JSON, None)
    }

    /// Reads a page of objects, of each its metadata only.
    pub fn list_metadata(kind: &'static str, path: &str, query: &[(&str, &str)]) -> Self {
        Self::new("list", kind, http::Method::GET, &with_query(path, query), METADATA_ONLY, None)
    }

    /// Follows the objects; the answer does not end.
    pub fn watch(kind: &'static str, path: &str, query: &[(&str, &str)]) -> Self {
        Self::new("watch", kind, http::Method::GET, &with_query(path, query), JSON, None)
    }

    /// Makes an object.
    pub fn create(kind: &'static str, path: &str, object: &Value) -> Self {
        Self::new("create", kind, http::Method::POST, path, JSON, Some((JSON, object)))
    }

    /// Changes an object.
    pub fn patch(kind: &'static str, path: &str, patch: PatchKind, body: &Value) -> Self {
        let content = match patch {
            PatchKind::Merge => "application/merge-patch+json",
            PatchKind::Json => "application/json-patch+json",
        };
        Self::new("patch", kind, http::Method::PATCH, path, JSON, Some((content, body)))
    }

    /// Deletes an object; `options` may hold preconditions.
    pub fn delete(kind: &'static str, path: &str, options: &Value) -> Self {
        Self::new("delete", kind, http::Method::DELETE, path, JSON, Some((JSON, options)))
    }

    fn new(
        verb: &'static str,
        kind: &'static str,
        method: http::Method,
        path: &str,
        accept: &'static str,
        body: Option<(&'static str, &Value)>,
    ) -> Self {
        let mut inner = http::Request::new(body.map(|(_, body)| body.to_string().into_bytes()).unwrap_or_default());
        *inner.method_mut() = method;
        // What `segment` and `with_query` make is a path and query always; the fallback is answered 404.
        *inner.uri_mut() = path.parse().unwrap_or_default();
        inner.headers_mut().insert(ACCEPT, http::HeaderValue::from_static(accept));
        if let Some((content, _)) = body {
            inner.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content));
        }
        Self { verb, kind, inner }
    }
}

fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = query.iter().map(|(key, value)| format!("{key}={}", segment(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

/// A text as one segment of a path, or one value of a query.
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded_and_bodies_are_not_printed() {
        let list = Request::list("secrets", "/api/v1/secrets", &[("labelSelector", "crawl.example.com/cloud-init=true"), ("limit", "5")]);
        assert_eq!(list.inner.uri(), "/api/v1/secrets?labelSelector=crawl.example.com%2Fcloud-init%3Dtrue&limit=5");
        let patch = Request::patch("proxies", "/apis/x/y", PatchKind::Json, &serde_json::json!([{"value": "hunter2"}]));
        assert_eq!(format!("{patch:?}"), "PATCH /apis/x/y");
        assert_eq!(patch.inner.headers()[CONTENT_TYPE], "application/json-patch+json");
        assert_eq!(segment("ü/?"), "%C3%BC%2F%3F");
    }
}
