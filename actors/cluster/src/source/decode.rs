//! Objects out of the API server's JSON, one by one: a bad one spoils no other. Pure. What is not needed is not kept: managed
//! fields, other annotations, a second copy of inline user data (IN-10).

use std::collections::BTreeMap;
use std::sync::Arc;

use egress_protocol::object::Annotations;
use egress_protocol::resource::secrets::{Bytes, SecretContent};
use egress_protocol::resource::{FINALIZER, ProxySpec, ProxyStatus};
use egress_protocol::{ObjectKey, Secret, Uid};
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::Value;

use super::version::Version;

/// What is known of every object, whatever else is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Meta {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Uid,
    pub(crate) version: Version,
    pub(crate) annotations: Annotations,
    pub(crate) deleting: bool,
    /// All of them: ours is one among others.
    pub(crate) finalizers: Arc<[String]>,
}

impl Meta {
    /// Whether our finalizer is on it.
    pub(crate) fn finalizer(&self) -> bool {
        self.finalizers.iter().any(|name| name == FINALIZER)
    }

    /// Nothing holds it any more.
    pub(crate) fn released(&self) -> bool {
        self.deleting && self.finalizers.is_empty()
    }
}

/// What is declared and was reported, as far as it could be read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Body {
    pub(crate) generation: i64,
    /// Without the text of inline user data.
    pub(crate) spec: Arc<ProxySpec>,
    /// That text.
    pub(crate) inline: Option<Bytes>,
    pub(crate) status: Arc<ProxyStatus>,
}

/// A `Proxy` as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) meta: Meta,
    /// `metadata.generation`.
    pub(crate) generation: i64,
    /// The error is in words, without what the object holds.
    pub(crate) body: Result<Body, String>,
}

/// A Secret as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenSecret {
    pub(crate) key: ObjectKey,
    pub(crate) content: Arc<SecretContent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMeta {
    name: String,
    #[serde(default)]
    namespace: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    finalizers: Option<Vec<String>>,
}

fn metadata(object: &mut Value) -> Result<RawMeta, String> {
    let metadata = object.get_mut("metadata").map(Value::take).unwrap_or_default();
    serde_json::from_value(metadata).map_err(|error| format!("an object without readable metadata: {}", redacted(&error)))
}

/// Reads a `Proxy`; the error is for one that cannot even be named.
pub(crate) fn proxy(mut object: Value) -> Result<Seen, String> {
    let raw = metadata(&mut object)?;
    let meta = Meta {
        key: ObjectKey::new(raw.namespace, raw.name),
        uid: Uid::new(raw.uid),
        version: Version::new(&raw.resource_version),
        annotations: raw.annotations.as_ref().map(Annotations::of).unwrap_or_default(),
        deleting: raw.deletion_timestamp.is_some(),
        finalizers: raw.finalizers.unwrap_or_default().into(),
    };
    Ok(Seen { meta, generation: raw.generation, body: body(raw.generation, &mut object) })
}

fn body(generation: i64, object: &mut Value) -> Result<Body, String> {
    let mut part = |name: &str| object.get_mut(name).map(Value::take).filter(|value| !value.is_null());
    let spec = part("spec").ok_or("it has no spec")?;
    let mut spec: ProxySpec = serde_json::from_value(spec).map_err(|error| format!("spec: {}", redacted(&error)))?;
    let status = part("status").map(serde_json::from_value).transpose();
    let status: Option<ProxyStatus> = status.map_err(|error| format!("status: {}", redacted(&error)))?;
    let inline = spec.cloud_init.as_mut().and_then(|declared| declared.inline.as_mut()).map(std::mem::take);
    let inline = inline.map(|text| Arc::new(Secret::new(text.into_bytes())));
    Ok(Body { generation, spec: Arc::new(spec), inline, status: Arc::new(status.unwrap_or_default()) })
}

/// Reads a Secret. The error holds nothing of it.
pub(crate) fn secret(mut object: Value) -> Result<SeenSecret, String> {
    let raw = metadata(&mut object)?;
    let key = ObjectKey::new(raw.namespace, raw.name);
    let data = object.get_mut("data").map(Value::take).filter(|value| !value.is_null());
    let data = data.map(serde_json::from_value::<BTreeMap<String, ByteString>>).transpose();
    let data = data.map_err(|_| format!("the data of Secret {key} cannot be read"))?.unwrap_or_default();
    let data = data.into_iter().map(|(name, value)| (name, Arc::new(Secret::new(value.0))));
    Ok(SeenSecret { key, content: Arc::new(SecretContent::new(&raw.labels.unwrap_or_default(), data)) })
}

/// What is wrong, without the texts that the object holds: user data may be where it does not belong (PC-75).
fn redacted(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match (text.find('"'), text.rfind('"')) {
        (Some(first), Some(last)) if first < last => format!("{}\"…\"{}", &text[..first], &text[last + 1..]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(spec: Value) -> Value {
        json!({"metadata": {"name": "px-1", "namespace": "team", "uid": "u1", "resourceVersion": "7", "generation": 3,
            "managedFields": [{"manager": "kubectl"}], "finalizers": ["a.example.com/x", FINALIZER],
            "annotations": {"crawl.example.com/retry": "1", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": spec})
    }

    #[test]
    fn inline_user_data_is_held_once_in_10() {
        let seen = proxy(object(json!({"mode": "Managed", "provider": "lab", "cloudInit": {"inline": "#cloud-config"}}))).unwrap();
        let body = seen.body.unwrap();
        assert_eq!(body.inline.unwrap().expose(), b"#cloud-config");
        assert_eq!(body.spec.cloud_init.as_ref().and_then(|declared| declared.inline.as_deref()), Some(""));
        assert_eq!((seen.meta.annotations.retry.as_deref(), seen.meta.finalizer(), body.generation), (Some("1"), true, 3));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_still_named_and_says_nothing_of_what_it_holds_pc_75() {
        for (spec, why) in [
            (
                json!({"mode": "Managed", "provider": "lab", "cloudInit": "password: \"hunter2\""}),
                "spec: invalid type: string \"…\", expected struct CloudInitSpec",
            ),
            (json!({"mode": "Managed", "provider": "lab", "colour": "red"}), "spec: unknown field `colour`"),
            (json!({"mode": "Managed", "port": 70000}), "spec: invalid value: integer `70000`, expected u16"),
            (Value::Null, "it has no spec"),
        ] {
            let seen = proxy(object(spec)).unwrap();
            let told = seen.body.unwrap_err();
            assert!(told.starts_with(why) && !told.contains("hunter2"), "{told}");
            assert_eq!(seen.meta.key.to_string(), "team/px-1");
        }
        assert!(proxy(json!({"metadata": {"name": "x"}})).unwrap_err().contains("missing field `uid`"));
    }

    #[test]
    fn a_secret_s_bytes_are_read_and_never_told() {
        let object = |data: Value| {
            json!({"metadata": {"name": "boot", "namespace": "team", "uid": "u", "resourceVersion": "1",
            "labels": {"crawl.example.com/cloud-init": "true"}}, "data": data})
        };
        let seen = secret(object(json!({"user-data": "aHVudGVyMg=="}))).unwrap();
        assert_eq!(seen.content.data["user-data"].expose(), b"hunter2");
        assert!(!format!("{seen:?}").contains("hunter2"));
        assert_eq!(secret(object(json!({"user-data": "hunter2!"}))).unwrap_err(), "the data of Secret team/boot cannot be read");
        assert!(secret(object(Value::Null)).unwrap().content.data.is_empty());
    }
}
