//! Answers, and calls that came to none.

use std::time::Duration;

use bytes::Bytes;
use egress_kube::ApiError;
use egress_protocol::leadership::Fenced;
use egress_provider::{CallEnd, HostError};
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Why a call came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// The API server answered so.
    #[error("{}", refusal(.status))]
    Refused { status: Box<Status>, retry_after: Option<Duration> },
    /// Something answered, and it was not the API server: a proxy, a load balancer, its overload protection.
    #[error("HTTP {code} without an API status")]
    NoStatus { code: u16, retry_after: Option<Duration> },
    /// An answer that cannot be read.
    #[error("the API server's answer cannot be read: {0}")]
    Garbled(String),
    /// No answer.
    #[error(transparent)]
    Unanswered(#[from] ApiError),
    /// Not within its budget.
    #[error("the API server did not answer within {0:?}")]
    OutOfBudget(Duration),
    /// The caller gave up.
    #[error("the call was cancelled")]
    Cancelled,
    /// The caller's deadline passed.
    #[error("the call's deadline passed")]
    Deadline,
    /// The actor that carries the calls is not up, or went away under this one.
    #[error("{0}")]
    HostDied(HostError),
    /// Leadership does not hold.
    #[error(transparent)]
    Fenced(#[from] Fenced),
}

impl From<CallEnd> for CallError {
    fn from(end: CallEnd) -> Self {
        match end {
            CallEnd::Cancelled => Self::Cancelled,
            CallEnd::Overdue => Self::Deadline,
        }
    }
}

impl From<HostError> for CallError {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Ended(end) => end.into(),
            HostError::Down(_) | HostError::WentAway(_) => Self::HostDied(error),
        }
    }
}

fn refusal(status: &Status) -> String {
    let message = if status.message.is_empty() { &status.reason } else { &status.message };
    format!("{message} ({})", status.code)
}

impl CallError {
    /// The API server's own answer.
    pub(crate) fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused { status, .. } => Some(status),
            Self::Unanswered(error) => error.status(),
            Self::NoStatus { .. }
            | Self::Garbled(_)
            | Self::OutOfBudget(_)
            | Self::Cancelled
            | Self::Deadline
            | Self::HostDied(_)
            | Self::Fenced(_) => None,
        }
    }

    /// What it asks to be waited.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } | Self::NoStatus { retry_after, .. } => *retry_after,
            Self::Garbled(_)
            | Self::Unanswered(_)
            | Self::OutOfBudget(_)
            | Self::Cancelled
            | Self::Deadline
            | Self::HostDied(_)
            | Self::Fenced(_) => None,
        }
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) code: u16,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Bytes,
}

impl Answer {
    /// The API server's word for it, if it is one. Where it runs out of time itself it leaves `kind` away.
    pub(super) fn status(&self) -> Option<Box<Status>> {
        #[derive(Deserialize)]
        struct Shape {
            kind: Option<String>,
        }
        let shape: Shape = serde_json::from_slice(&self.body).ok()?;
        let mut status: Status = serde_json::from_slice(&self.body).ok()?;
        let told = shape.kind.map_or(status.is_failure(), |kind| kind == "Status");
        status.code = self.code;
        told.then(|| Box::new(status))
    }

    pub(super) fn refused(&self) -> Option<CallError> {
        if (200..300).contains(&self.code) {
            return None;
        }
        Some(match self.status() {
            Some(status) => {
                let told = status.details.as_ref().map(|details| u64::from(details.retry_after_seconds)).filter(|seconds| *seconds > 0);
                CallError::Refused { retry_after: self.retry_after.or(told.map(Duration::from_secs)), status }
            }
            None => CallError::NoStatus { code: self.code, retry_after: self.retry_after },
        })
    }

    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        // Where it stops making sense, without what stands there.
        let unreadable = |error: serde_json::Error| CallError::Garbled(format!("line {} column {}", error.line(), error.column()));
        serde_json::from_slice(&self.body).map_err(unreadable)
    }
}
