//! The seam that every backend implements, and how it says what went wrong.
//!
//! A backend does the work and nothing else: order per instance name, deadlines, admission, measurement, spans and the
//! conversion of its errors are the actor's ([`crate::ProviderActor`]).

mod call;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::InstanceId;
use egress_protocol::provider::{CreateRequest, DeleteOutcome, ErrorClass, Instance, InstanceKey, ListResult, Settings, TargetVerdict};
use futures::future::BoxFuture;

pub use call::{Call, CallEnd};

/// One configured backend (provider-contract.md §3). Safe for concurrent use.
///
/// A constructor neither dials nor panics (PC-73); it fails on faults of the configuration only. Every future may be
/// dropped at any await and the call repeated: each step is resumable (PC-12).
///
/// When a create is cancelled or out of time the caller has its answer already; the future is polled on for at most
/// [`crate::CLEANUP_BUDGET`], with the instance's name still locked, so that it can see [`Call::cancel`], remove what it
/// made (PC-23) and return. All other futures are dropped.
pub trait Backend: Send + Sync + 'static {
    /// The type in the providers file.
    fn type_name(&self) -> &'static str;

    /// Where the call goes, for admission (PC-67): the host, zone or node whose slots it takes. Reads nothing but its
    /// arguments and the configuration. Calls whose place is not known yet share one.
    fn location_of(&self, subject: Subject<'_>) -> Location;

    /// Called once, before or beside the first calls: bring back what the last process ran. Calls must not rely on its end.
    fn start(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Called once on an orderly stop: let running traffic end for at most `grace`.
    fn stop(&self, _grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The entry changed in nothing that needs a restart (OP-26): take the new settings over without dropping anything.
    /// `false`: they are not of this type's own, and the backend is built anew. A type without such keys has nothing to do.
    fn reconfigure(&self, _settings: &Settings) -> bool {
        true
    }

    /// Make or adopt (PC-11…24).
    fn create<'a>(&'a self, request: &'a CreateRequest, call: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>>;

    /// Read one (PC-25…35).
    fn get<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>>;

    /// Remove (PC-36…42).
    fn delete<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>>;

    /// All of ours (PC-43…45).
    fn list_managed<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>>;

    /// One verdict per target (PH-27); `None`: this type implements no check.
    fn check<'a>(&'a self, _call: &'a Call) -> Option<BoxFuture<'a, Vec<TargetVerdict>>> {
        None
    }
}

/// What a call is about, for [`Backend::location_of`].
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    /// `create`.
    Create(&'a CreateRequest),
    /// `get` or `delete`.
    Instance(&'a InstanceKey),
}

/// A place with slots of its own (PC-67).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location(Arc<str>);

impl Location {
    /// By name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A failed backend call. The actor adds operation and configured name. It is no [`std::error::Error`] itself, so that `?`
/// turns any error into one without a class, which counts as Transient (PC-56).
#[derive(Debug, Clone)]
pub struct BackendError {
    /// What happens next.
    pub class: ErrorClass,
    /// Redacted (PC-75), naming the step that failed.
    pub message: String,
    /// If known.
    pub id: Option<InstanceId>,
    /// The cause lies in the environment (PC-59).
    pub environment: bool,
    /// Try again no later than this.
    pub retry_after: Option<Duration>,
    /// The backend's own error.
    pub cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl BackendError {
    /// With a class from where it arose.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), id: None, environment: false, retry_after: None, cause: None }
    }

    /// Network, timeout, cancellation, lock, unknown.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Transient, message)
    }

    /// Bad configuration or argument, refused permission, malformed id, foreign instance.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, message)
    }

    /// Quota, rate limit, out of capacity.
    pub fn quota(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::QuotaExceeded, message)
    }

    /// Our instance does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::NotFound, message)
    }

    /// The cause lies in the environment, not in the Proxy (PC-59).
    #[must_use]
    pub fn environment(mut self) -> Self {
        self.environment = true;
        self
    }

    /// Try again no later than this, instead of the setting of the class.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// About this instance.
    #[must_use]
    pub fn about(mut self, id: InstanceId) -> Self {
        self.id = Some(id);
        self
    }

    /// The backend's own error.
    #[must_use]
    pub fn caused_by(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(cause));
        self
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for BackendError {
    fn from(cause: E) -> Self {
        Self::transient(cause.to_string()).caused_by(cause)
    }
}
