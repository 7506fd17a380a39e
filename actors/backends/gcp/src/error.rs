//! Why a call came to nothing (GC-16).

use std::time::Duration;

use egress_protocol::leadership::Fenced;

use crate::model::ErrorBody;

/// One failed call of the API.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum CallError {
    /// Compute Engine answered so.
    #[error("{}", refusal(*.status, .reasons, .message))]
    Refused {
        status: u16,
        /// `error.errors[].reason`.
        reasons: Vec<String>,
        /// `error.message`.
        message: String,
        retry_after: Option<Duration>,
    },
    /// Something answered, and it was not Compute Engine: a proxy, a load balancer, a portal.
    #[error("HTTP {status} without an API error")]
    NoApiError { status: u16, retry_after: Option<Duration> },
    /// An answer that cannot be read.
    #[error("the answer cannot be read: {0}")]
    Garbled(String),
    /// No token, so nothing was sent.
    #[error("no token: {0}")]
    Token(#[from] TokenError),
    /// No answer.
    #[error("no answer: {0}")]
    Unanswered(String),
    /// Not within its budget.
    #[error("no answer within {0:?}")]
    OutOfBudget(Duration),
    /// The caller gave up, or its deadline passed.
    #[error("the call was cancelled or its time is over")]
    Ended,
    /// The actor that carries the calls went away under this one.
    #[error("{0}")]
    HostWentAway(String),
    /// Leadership does not hold.
    #[error(transparent)]
    Fenced(#[from] Fenced),
}

/// Why there is no token.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum TokenError {
    /// A file is not there. The Secret may still land (PC-57).
    #[error("{0}")]
    Missing(String),
    /// A file does not say what it must.
    #[error("{0}")]
    Unreadable(String),
    /// The one who gives tokens does not, or cannot be reached.
    #[error("{0}")]
    Refused(String),
}

fn refusal(status: u16, reasons: &[String], message: &str) -> String {
    let reasons = if reasons.is_empty() { String::new() } else { format!(", {}", reasons.join(", ")) };
    if message.is_empty() { format!("HTTP {status}{reasons}") } else { format!("{message} (HTTP {status}{reasons})") }
}

impl CallError {
    /// Of an answer that is no success.
    pub(crate) fn of_answer(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(ErrorBody { error }) => Self::Refused {
                status,
                reasons: error.errors.into_iter().map(|item| item.reason).filter(|reason| !reason.is_empty()).collect(),
                message: error.message,
                retry_after,
            },
            Err(_) => Self::NoApiError { status, retry_after },
        }
    }

    /// The HTTP status of an answer that Compute Engine itself gave.
    pub(crate) const fn api_status(&self) -> Option<u16> {
        if let Self::Refused { status, .. } = self { Some(*status) } else { None }
    }

    /// Status and `Retry-After` of whatever answered.
    const fn answer(&self) -> Option<(u16, Option<Duration>)> {
        match self {
            Self::Refused { status, retry_after, .. } | Self::NoApiError { status, retry_after } => Some((*status, *retry_after)),
            Self::Garbled(_)
            | Self::Token(_)
            | Self::Unanswered(_)
            | Self::OutOfBudget(_)
            | Self::Ended
            | Self::HostWentAway(_)
            | Self::Fenced(_) => None,
        }
    }

    /// The HTTP status of whatever answered.
    pub(crate) fn http_status(&self) -> Option<u16> {
        self.answer().map(|(status, _)| status)
    }

    /// What it asks to be waited.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.answer().and_then(|(_, after)| after)
    }

    /// The instance, or whatever the request names, does not exist.
    pub(crate) const fn is_absent(&self) -> bool {
        matches!(self.api_status(), Some(404))
    }
}
