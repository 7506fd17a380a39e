//! A `Proxy` as the source hands it to its actor: spec, last written status, and its Secrets resolved.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{ObjectKey, Uid};
use crate::resource::{ANNOTATION_REPLACE, ANNOTATION_RETRY, ANNOTATION_SKIP_CLEANUP, Mode, ProxySpec, ProxyStatus};
use crate::secret::Secret;

/// Everything an object's actor needs to decide. The source sends a new one whenever any part of it changed,
/// a Secret it refers to included; receivers compare, they do not count.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyObject {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.generation`.
    pub generation: i64,
    /// What is declared, defaults applied.
    pub spec: Arc<ProxySpec>,
    /// The status as last written; read when the actor starts, ignored afterwards.
    pub status: Arc<ProxyStatus>,
    /// The annotations that steer the operator.
    pub annotations: Annotations,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Our finalizer is on the object.
    pub finalizer: bool,
    /// The folder that declares it was not given this time (OP-30): no call, no probe, no lease.
    pub suspended: bool,
    /// User data, resolved.
    pub cloud_init: CloudInit,
    /// Credentials of an External proxy, resolved.
    pub credentials: CredentialsState,
}

impl ProxyObject {
    /// Whether this operator runs the instance.
    pub fn is_managed(&self) -> bool {
        self.spec.mode == Mode::Managed
    }
}

/// Values of the annotations that mean something to us.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Annotations {
    /// `crawl.example.com/skip-cleanup` is `"true"`.
    pub skip_cleanup: bool,
    /// `crawl.example.com/retry`.
    pub retry: Option<String>,
    /// `crawl.example.com/replace`.
    pub replace: Option<String>,
}

impl Annotations {
    /// Out of all of an object's.
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        Self {
            skip_cleanup: annotations.get(ANNOTATION_SKIP_CLEANUP).is_some_and(|value| value == "true"),
            retry: annotations.get(ANNOTATION_RETRY).cloned(),
            replace: annotations.get(ANNOTATION_REPLACE).cloned(),
        }
    }
}

/// User data as far as it could be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloudInit {
    /// None declared.
    None,
    /// The bytes, and the Secret they came from if they did.
    Resolved {
        /// Byte for byte what the instance gets (PC-22).
        bytes: Arc<Secret<Vec<u8>>>,
        /// Name of the Secret, which bounds a rollout (OP-16).
        secret: Option<Arc<str>>,
    },
    /// What is missing, in words without secrets (OP-21).
    Unresolved {
        /// Which Secret, label or key.
        message: String,
    },
}

/// User name and password of a forward proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Handed to a lease holder.
    pub username: Secret,
    /// Handed to a lease holder.
    pub password: Secret,
}

/// Credentials as far as they could be resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialsState {
    /// None declared.
    NotNeeded,
    /// There.
    Resolved(Arc<Credentials>),
    /// What is missing, in words without secrets (HE-12).
    Unresolved {
        /// Which Secret, label or key.
        message: String,
    },
}
