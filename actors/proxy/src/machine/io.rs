//! What the machine is told and what it wants done.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::judge::Suspicion;
use egress_protocol::lease::ProxyAvailability;
use egress_protocol::object::ProxyObject;
use egress_protocol::prober::{ProbeReport, ProbeTarget};
use egress_protocol::provider::{CreateRequest, DeleteOutcome, ErrorClass, Instance, InstanceKey, Op, ProviderError};
use egress_protocol::resource::ProxyStatus;
use egress_protocol::source::{EventReason, SourceError};
use egress_protocol::{InstanceId, Timestamp};

use crate::rollout::{Member, Place};

/// Something happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// The object as it is now.
    Object(Arc<ProxyObject>),
    /// A provider call was answered.
    Answered {
        /// Of the call.
        epoch: u64,
        /// How.
        answer: Answer,
    },
    /// A running call says what it is doing (PC-98).
    Progress {
        /// Of the call.
        epoch: u64,
        /// In words.
        text: String,
    },
    /// A status write was answered; `Ok` with the generation that was current then.
    StatusWritten {
        /// Of the write.
        epoch: u64,
        /// How.
        result: Result<i64, SourceError>,
    },
    /// The finalizer was added or removed, or not.
    FinalizerWritten(Result<(), SourceError>),
    /// A probe ended.
    Probed(ProbeReport),
    /// The judge's view of the check URL changed (HE-9).
    CheckUrl(Suspicion),
    /// The fingerprint of the provider's entry, `None` when it is not configured.
    Provider(Option<Arc<str>>),
    /// Whether the target at the provider that this proxy depends on is down (OP-33).
    ProviderDown(bool),
    /// The provider freed capacity (OP-18).
    CapacityFreed,
    /// Where this proxy stands in a rollout.
    Place(Place),
    /// No lease runs any more of the proxy that is drained until then.
    Drained(Timestamp),
    /// The broker knows nothing: say it again.
    Republish,
    /// The timer that was asked for is due.
    TimerDue,
}

impl Input {
    /// For the transitions of `/debug/proxies`.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Object(_) => "Object",
            Self::Answered { .. } => "Answered",
            Self::Progress { .. } => "Progress",
            Self::StatusWritten { .. } => "StatusWritten",
            Self::FinalizerWritten(_) => "FinalizerWritten",
            Self::Probed(_) => "Probed",
            Self::CheckUrl(_) => "CheckUrl",
            Self::Provider(_) => "Provider",
            Self::ProviderDown(_) => "ProviderDown",
            Self::CapacityFreed => "CapacityFreed",
            Self::Place(_) => "Place",
            Self::Drained(_) => "Drained",
            Self::Republish => "Republish",
            Self::TimerDue => "TimerDue",
        }
    }
}

/// How a provider call ended.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "one variant per operation")]
pub enum Answer {
    Created(Result<InstanceId, Fault>),
    Got(Result<Instance, Fault>),
    Deleted(Result<DeleteOutcome, Fault>),
}

impl Answer {
    /// The answer to a call whose provider could not be asked, or went away before it answered.
    pub fn lost(op: Op, message: &str) -> Self {
        let fault = Fault { class: ErrorClass::Transient, message: message.to_owned(), environment: false, retry_after: None };
        match op {
            Op::Create => Self::Created(Err(fault)),
            Op::Delete => Self::Deleted(Err(fault)),
            Op::Get | Op::List => Self::Got(Err(fault)),
        }
    }
}

/// What the machine needs of a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Decides what happens next (PC-56).
    pub class: ErrorClass,
    /// Redacted, with provider and operation.
    pub message: String,
    /// PC-59.
    pub environment: bool,
    /// Instead of the class's own wait.
    pub retry_after: Option<Duration>,
}

impl From<ProviderError> for Fault {
    fn from(error: ProviderError) -> Self {
        Self { class: error.class, message: error.to_string(), environment: error.environment, retry_after: error.retry_after }
    }
}

/// A provider call.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "one variant per operation")]
pub enum Call {
    Create(CreateRequest),
    Get(InstanceKey),
    Delete(InstanceKey),
}

impl Call {
    /// Which operation.
    pub const fn op(&self) -> Op {
        match self {
            Self::Create(_) => Op::Create,
            Self::Get(_) => Op::Get,
            Self::Delete(_) => Op::Delete,
        }
    }
}

/// Something is to be done, in this order.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Ask the provider; answered by [`Input::Answered`]. Never while another call runs.
    Call {
        /// Comes back with the answer.
        epoch: u64,
        /// What.
        call: Call,
    },
    /// Cancel the running call; it is answered all the same.
    Cancel {
        /// Which.
        epoch: u64,
    },
    /// Persist the status; answered by [`Input::StatusWritten`]. Never while another write runs.
    WriteStatus {
        /// Comes back with the answer.
        epoch: u64,
        /// All of it.
        status: Arc<ProxyStatus>,
    },
    /// Answered by [`Input::FinalizerWritten`].
    AddFinalizer,
    /// Answered by [`Input::FinalizerWritten`].
    RemoveFinalizer,
    /// Probe this, starting the prober if there is none.
    Probe(Arc<ProbeTarget>),
    /// End the prober.
    StopProber,
    /// Tell the lease broker.
    Publish(Arc<ProxyAvailability>),
    /// A transition a person would look for: an Event (OP-9) and a log line (OB-2).
    Announce {
        /// Which.
        reason: EventReason,
        /// In words.
        note: String,
    },
    /// The object belongs to another installation (OP-34): one WARNING.
    Foreign {
        /// Whose it is.
        owner: String,
    },
    /// Tell the directory where this proxy stands: the rollout's book (OP-16, OP-33).
    Member(Member),
    /// Wake up then; replaces the timer before.
    SetTimer(Option<Timestamp>),
}

impl Effect {
    /// Whether it changes something outside this process's books.
    pub(crate) const fn acts(&self) -> bool {
        match self {
            Self::Call { .. }
            | Self::Cancel { .. }
            | Self::WriteStatus { .. }
            | Self::AddFinalizer
            | Self::RemoveFinalizer
            | Self::Probe(_)
            | Self::StopProber
            | Self::Announce { .. }
            | Self::Foreign { .. } => true,
            Self::Publish(_) | Self::Member(_) | Self::SetTimer(_) => false,
        }
    }
}
