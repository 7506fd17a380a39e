//! The provider contract as types (provider-contract.md §2, §5) and the messages of a provider's actor.

use std::any::Any;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::ids::{InstallationId, InstanceId, InstanceName, Uid};
use crate::message::{Message, Reply};
use crate::resource::Placement;
use crate::secret::Secret;
use crate::time::Timestamp;

/// What `create` is asked for.
#[derive(Debug, Clone)]
pub struct CreateRequest {
    /// Derived from `uid` (PC-49).
    pub name: InstanceName,
    /// The Proxy's UID; empty is refused before any call (PC-50).
    pub uid: Uid,
    /// Who we are.
    pub installation: InstallationId,
    /// The Proxy's namespace.
    pub namespace: Arc<str>,
    /// The Proxy's name.
    pub proxy_name: Arc<str>,
    /// Copied one to one.
    pub placement: Placement,
    /// Byte for byte; may be empty.
    pub cloud_init: Arc<Secret<Vec<u8>>>,
    /// The proxy port.
    pub port: u16,
}

/// Which instance `get` and `delete` speak of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceKey {
    /// Required for `get`, optional for `delete`.
    pub id: Option<InstanceId>,
    /// Derived from the UID.
    pub name: InstanceName,
    /// The Proxy's UID; empty only when a leftover is deleted (PC-40).
    pub uid: Uid,
    /// Who we are.
    pub installation: InstallationId,
    /// The Proxy's namespace.
    pub namespace: Arc<str>,
    /// A hint where to look when there is no id.
    pub placement: Placement,
}

/// What `get` and `list_managed` tell of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The providerID.
    pub id: InstanceId,
    /// As in the request.
    pub name: InstanceName,
    /// Where it stands.
    pub state: InstanceState,
    /// The backend's own word for it.
    pub state_detail: Option<String>,
    /// A delete is in progress.
    pub deleting: bool,
    /// Required when `Running` (PC-28).
    pub ip: Option<Ipv4Addr>,
    /// Read from the backend; may be empty in a list (PC-43).
    pub uid: Uid,
    /// Read from the backend.
    pub installation: InstallationId,
    /// Read from the backend.
    pub created_at: Option<Timestamp>,
}

/// Where an instance stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InstanceState {
    /// Not usable yet.
    Provisioning,
    /// Usable, with an address.
    Running,
    /// Suspended with its memory kept; never deleted for it (PC-31).
    Paused,
    /// Down unless someone acts.
    Stopped,
    /// Final at the backend.
    Terminated,
}

/// What `list_managed` answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListResult {
    /// Ours only (PC-43).
    pub instances: Vec<Instance>,
    /// Parts of the scope that could not be read, each with a reason; empty when complete.
    pub left_out: Vec<(String, String)>,
    /// Secondary resources without an instance (PC-55).
    pub leftovers: Vec<Leftover>,
}

/// A secondary resource without an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Of the instance it was made for.
    pub name: InstanceName,
    /// If known.
    pub created_at: Option<Timestamp>,
}

/// What `delete` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// Nothing of ours is left.
    Gone,
    /// `get` keeps answering until then (PC-41).
    InProgress,
}

/// One verdict of `check` (PH-27).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetVerdict {
    /// Unique in the provider.
    pub name: String,
    /// No user info in it.
    pub address: String,
    /// Whether it passed.
    pub ready: bool,
    /// PH-31.
    pub reason: &'static str,
    /// Empty when ready.
    pub message: String,
    /// Clock stopped before teardown.
    pub latency: Duration,
    /// An unknown value is absent.
    pub details: Vec<(String, String)>,
}

/// The class of an error decides what happens next (PC-56).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Our instance does not exist.
    NotFound,
    /// Quota, rate limit, out of capacity.
    QuotaExceeded,
    /// Network, timeout, cancellation, lock, unknown.
    Transient,
    /// Bad configuration or argument, refused permission, malformed id, foreign instance.
    Permanent,
}

impl ErrorClass {
    /// The value of the label `result` (PC-85).
    pub const fn result_label(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::QuotaExceeded => "quota_exceeded",
            Self::Transient => "transient",
            Self::Permanent => "permanent",
        }
    }
}

/// The operations of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Make or adopt.
    Create,
    /// Read one.
    Get,
    /// Remove.
    Delete,
    /// Read all of ours.
    List,
}

impl Op {
    /// As in spans, metrics and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Get => "get",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }

    /// How long a call may take unless the caller says otherwise (PC-63).
    pub const fn deadline(self) -> Duration {
        match self {
            Self::Create => Duration::from_secs(30 * 60),
            Self::Get => Duration::from_secs(2 * 60),
            Self::Delete => Duration::from_secs(12 * 60),
            Self::List => Duration::from_secs(5 * 60),
        }
    }
}

/// A failed call: class, op, configured provider name, id if known, a redacted message and the cause (PC-56).
#[derive(Debug, Clone)]
pub struct ProviderError {
    /// What happens next.
    pub class: ErrorClass,
    /// Which call.
    pub op: Op,
    /// The configured name, never the type.
    pub provider: Arc<str>,
    /// If known.
    pub id: Option<InstanceId>,
    /// Redacted, without the op and the provider, which `Display` adds.
    pub message: String,
    /// A Permanent error whose cause lies in the environment is tried again every 5 min (PC-59).
    pub environment: bool,
    /// Try again no later than this, instead of the setting of the class (`local`'s ports: LO-3).
    pub retry_after: Option<Duration>,
    /// The backend's own error, inspectable.
    pub cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.provider, self.op.as_str(), self.message)
    }
}

impl std::error::Error for ProviderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| -> &(dyn std::error::Error + 'static) { cause.as_ref() })
    }
}

/// Where a backend puts the latest text about a running call (PC-98). Lossy by design: only the latest counts.
#[derive(Debug, Clone, Default)]
pub struct Progress(Option<tokio::sync::watch::Sender<Option<String>>>);

impl Progress {
    /// A sink and the end to read it from.
    pub fn channel() -> (Self, tokio::sync::watch::Receiver<Option<String>>) {
        let (sender, receiver) = tokio::sync::watch::channel(None);
        (Self(Some(sender)), receiver)
    }

    /// Says what the call is doing now.
    pub fn set(&self, text: impl Into<String>) {
        if let Some(sender) = &self.0 {
            sender.send_replace(Some(text.into()));
        }
    }
}

/// What travels with every call (PC-63, PC-98).
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The call answers within 1 s of this being cancelled (PC-64).
    pub cancel: CancellationToken,
    /// Counted from the moment the provider actor receives the call, waiting included.
    pub deadline: Duration,
    /// The latest word on it.
    pub progress: Progress,
    /// What the call is part of: the parent of its span (OB-3).
    pub span: Span,
}

impl CallContext {
    /// The standard deadline of an operation, cancelled with `cancel`, as part of the span that the caller is in.
    pub fn new(op: Op, cancel: CancellationToken) -> Self {
        Self { cancel, deadline: op.deadline(), progress: Progress::default(), span: Span::current() }
    }
}

/// What a provider's actor (`provider/<entry>`) is asked. It orders calls per instance name (create and delete
/// of one name are serialised), bounds them per location, measures them and answers each exactly once, in time
/// whatever the backend does. A dropped reply means that the actor crashed: ask again.
#[derive(Debug)]
pub enum ProviderMessage {
    /// Make or adopt the instance of that name; answers with its id.
    Create {
        /// What to make.
        request: CreateRequest,
        /// Deadline, cancellation, progress.
        call: CallContext,
        /// Answered within 1 s of cancellation or deadline.
        reply_to: Reply<Result<InstanceId, ProviderError>>,
    },
    /// Read one instance.
    Get {
        /// Which; `id` is set.
        key: InstanceKey,
        /// Deadline, cancellation.
        call: CallContext,
        /// As above.
        reply_to: Reply<Result<Instance, ProviderError>>,
    },
    /// Remove an instance and everything made for it.
    Delete {
        /// Which; without an id it is looked up by name (PC-40).
        key: InstanceKey,
        /// Deadline, cancellation.
        call: CallContext,
        /// As above.
        reply_to: Reply<Result<DeleteOutcome, ProviderError>>,
    },
    /// All instances of ours.
    List {
        /// Deadline, cancellation.
        call: CallContext,
        /// As above.
        reply_to: Reply<Result<ListResult, ProviderError>>,
    },
    /// One verdict per target; never counted, never queued behind operations (PC-48).
    Check {
        /// Deadline, cancellation.
        call: CallContext,
        /// `None`: this type implements no check.
        reply_to: Reply<Option<Vec<TargetVerdict>>>,
    },
    /// For `/debug/providers`; must be answered at once.
    Describe {
        /// A summary without secrets.
        reply_to: Reply<ProviderSummary>,
    },
    /// From `providers`: its entry changed in nothing that needs a restart. The running backend must take this over
    /// without dropping anything (LO-3); a lost message is no harm, since the next incarnation is built from it.
    Reconfigure {
        /// What the entry says now.
        settings: Settings,
    },
}

/// The settings of an entry, in a type that its backend and the composition root agree on.
pub type Settings = Arc<dyn Any + Send + Sync>;

impl Message for ProviderMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Create { .. } => "Create",
            Self::Get { .. } => "Get",
            Self::Delete { .. } => "Delete",
            Self::List { .. } => "List",
            Self::Check { .. } => "Check",
            Self::Describe { .. } => "Describe",
            Self::Reconfigure { .. } => "Reconfigure",
        }
    }
}

/// An entry of `/debug/providers`, to which the last check adds the fields of PH-5.
#[derive(Debug, Clone, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderSummary {
    /// The configured name.
    pub name: Arc<str>,
    /// The provider type.
    #[serde(rename = "type")]
    pub type_: &'static str,
    /// Calls that have not been answered yet, waiting ones included.
    pub calls_in_flight: usize,
    /// The last call that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ProviderFault>,
}

/// A failed call in a summary.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ProviderFault {
    /// When it was answered.
    pub at: Timestamp,
    /// `<op>: <message>`, redacted.
    pub message: String,
}

/// The id of the actor above all providers.
pub const PROVIDERS_ID: &str = "providers";

/// What the actor above all providers (`providers`) is asked.
#[derive(Debug)]
pub enum ProvidersMessage {
    /// The directory started (again) and does not know the entries: send it one `ProviderChanged` for each.
    Announce,
    /// The configured entries; answered at once, whatever the providers do.
    List {
        /// Name and type of each, in the order of the file.
        reply_to: Reply<Vec<(Arc<str>, &'static str)>>,
    },
    /// What keeps the providers file on disk from being the one in force; answered at once.
    Faults {
        /// Empty when nothing does.
        reply_to: Reply<Vec<String>>,
    },
}

impl Message for ProvidersMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Announce => "Announce",
            Self::List { .. } => "List",
            Self::Faults { .. } => "Faults",
        }
    }
}

/// The providers as everybody else knows them: `provider/<entry>` in the tree.
pub fn actor_id(entry: &str) -> String {
    format!("provider/{entry}")
}
