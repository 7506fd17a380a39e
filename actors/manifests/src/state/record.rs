//! One object as it is kept: a JSON file, written whole, checked when read.

use std::collections::BTreeMap;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use egress_protocol::object::Annotations;
use egress_protocol::resource::{ANNOTATION_REPLACE, ANNOTATION_RETRY, ANNOTATION_SKIP_CLEANUP, ProxySpec, ProxyStatus};
use egress_protocol::{ObjectKey, Uid};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::folder::Home;

const VERSION: u32 = 1;

/// What is known of an object, all of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Given at first sight, at random.
    pub uid: Uid,
    /// Counts accepted changes of the spec, from 1.
    pub generation: i64,
    /// The last accepted spec, inline cloud-init included.
    pub spec: Arc<ProxySpec>,
    /// The status as last written.
    pub status: Arc<ProxyStatus>,
    /// The annotations that steer the operator.
    pub annotations: Annotations,
    /// Its document is gone; the object stays until its finalizer is released.
    pub deleting: bool,
    /// Our finalizer is on it.
    pub finalizer: bool,
    /// Where its document was last seen.
    pub home: Home,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Stored {
    version: u32,
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Uid,
    generation: i64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleting: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    finalizer: bool,
    folder: Arc<str>,
    file: Arc<str>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// SHA-256 of the spec, so that a damaged one is not taken for a declared one.
    spec_digest: String,
    spec: Value,
    #[serde(default)]
    status: ProxyStatus,
}

fn plain(annotations: &Annotations) -> BTreeMap<String, String> {
    let skip = annotations.skip_cleanup.then(|| (ANNOTATION_SKIP_CLEANUP, "true".to_owned()));
    let retry = annotations.retry.clone().map(|value| (ANNOTATION_RETRY, value));
    let replace = annotations.replace.clone().map(|value| (ANNOTATION_REPLACE, value));
    [skip, retry, replace].into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Independent of the order of fields and of blanks.
fn digest(value: &Value) -> String {
    fn feed(hash: &mut Sha256, value: &Value) {
        match value {
            Value::Object(fields) => {
                let sorted: BTreeMap<_, _> = fields.iter().collect();
                hash.update(b"{");
                for (key, value) in sorted {
                    feed(hash, &Value::String(key.clone()));
                    feed(hash, value);
                }
                hash.update(b"}");
            }
            Value::Array(items) => {
                hash.update(b"[");
                items.iter().for_each(|item| feed(hash, item));
                hash.update(b"]");
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                hash.update(value.to_string().as_bytes());
                hash.update(b",");
            }
        }
    }
    let mut hash = Sha256::new();
    feed(&mut hash, value);
    HEXLOWER.encode(&hash.finalize())
}

impl Record {
    /// The file's content.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let spec = serde_json::to_value(&*self.spec).map_err(|error| error.to_string())?;
        let stored = Stored {
            version: VERSION,
            namespace: Arc::clone(&self.key.namespace),
            name: Arc::clone(&self.key.name),
            uid: self.uid.clone(),
            generation: self.generation,
            deleting: self.deleting,
            finalizer: self.finalizer,
            folder: Arc::clone(&self.home.folder),
            file: Arc::clone(&self.home.file),
            annotations: plain(&self.annotations),
            spec_digest: digest(&spec),
            spec,
            status: (*self.status).clone(),
        };
        let mut bytes = serde_json::to_vec_pretty(&stored).map_err(|error| error.to_string())?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a file's content; the error says what is wrong with it, without quoting it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        // A syntax error's text has line and column only; what a wrong value holds could be user data, so the
        // category is all that is told of it.
        let describe = |error: &serde_json::Error| {
            let what = if error.is_eof() { "it ends too early" } else { "it is not the record of an object" };
            format!("{what} (line {}, column {})", error.line(), error.column())
        };
        let stored: Stored = serde_json::from_slice(bytes).map_err(|error| describe(&error))?;
        if stored.version != VERSION {
            return Err(format!("it has version {}, this program knows version {VERSION}", stored.version));
        }
        if digest(&stored.spec) != stored.spec_digest {
            return Err("its spec is not the one that was recorded (specDigest differs)".to_owned());
        }
        let spec: ProxySpec = serde_json::from_value(stored.spec).map_err(|_| "its spec is not that of a Proxy".to_owned())?;
        Ok(Self {
            key: ObjectKey { namespace: stored.namespace, name: stored.name },
            uid: stored.uid,
            generation: stored.generation,
            spec: Arc::new(spec),
            status: Arc::new(stored.status),
            annotations: Annotations::of(&stored.annotations),
            deleting: stored.deleting,
            finalizer: stored.finalizer,
            home: Home { folder: stored.folder, file: stored.file },
        })
    }
}
