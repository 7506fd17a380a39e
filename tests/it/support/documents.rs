//! Manifests, written as JSON, which is YAML.

use serde_json::{Value, json};

pub const CREDENTIALS: &str = "crawl.example.com/proxy-credentials";
pub const CLOUD_INIT: &str = "crawl.example.com/cloud-init";

/// A document of a Proxy; `key` is `NAMESPACE/NAME`.
pub fn proxy(key: &str, spec: &Value) -> String {
    let (namespace, name) = key.split_once('/').unwrap();
    let metadata = json!({"namespace": namespace, "name": name});
    format!("{}\n---\n", json!({"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": metadata, "spec": spec}))
}

/// A document of a Secret with one label.
pub fn secret(key: &str, label: &str, data: &Value) -> String {
    let (namespace, name) = key.split_once('/').unwrap();
    let metadata = json!({"namespace": namespace, "name": name, "labels": {label: "true"}});
    format!("{}\n---\n", json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}))
}

/// The spec of an External proxy at that port of loopback, and its check.
pub fn external(port: u16, max_leases: u32, credentials: Option<&str>, check: &Value) -> Value {
    let mut endpoint = json!({"host": "127.0.0.1"});
    if let Some(secret) = credentials {
        endpoint["credentialsSecretRef"] = json!({"name": secret});
    }
    json!({"mode": "External", "port": port, "maxLeases": max_leases, "endpoint": endpoint, "healthCheck": check})
}
