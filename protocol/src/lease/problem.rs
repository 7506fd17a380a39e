//! Errors of the API as RFC 9457 problem documents (LS-4, LS-13, LS-20).

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::Timestamp;

/// What went wrong, as a name that stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the codes of LS-20; `title` says each in words")]
pub enum ProblemCode {
    InvalidRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    UnknownLease,
    MethodNotAllowed,
    NoCapacity,
    NoMatch,
    NoneHealthy,
    SessionUnavailable,
    IdempotencyKeyReused,
    LeaseEnded,
    BodyTooLarge,
    UnsupportedMediaType,
    HostNotAllowed,
    Internal,
    Overloaded,
    QueueFull,
    NoLeader,
    StoreUnavailable,
    Stopping,
}

impl ProblemCode {
    /// Every code.
    pub const ALL: [Self; 21] = [
        Self::InvalidRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::UnknownLease,
        Self::MethodNotAllowed,
        Self::NoCapacity,
        Self::NoMatch,
        Self::NoneHealthy,
        Self::SessionUnavailable,
        Self::IdempotencyKeyReused,
        Self::LeaseEnded,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::HostNotAllowed,
        Self::Internal,
        Self::Overloaded,
        Self::QueueFull,
        Self::NoLeader,
        Self::StoreUnavailable,
        Self::Stopping,
    ];

    /// The code as it is written, HTTP status and title.
    const fn words(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::InvalidRequest => ("invalid-request", 400, "The request is not valid"),
            Self::Unauthorized => ("unauthorized", 401, "A valid token is needed"),
            Self::Forbidden => ("forbidden", 403, "The token may not do this"),
            Self::NotFound => ("not-found", 404, "There is no such thing"),
            Self::UnknownLease => ("unknown-lease", 404, "There is no such lease"),
            Self::MethodNotAllowed => ("method-not-allowed", 405, "The method is not allowed here"),
            Self::NoCapacity => ("no-capacity", 409, "No proxy can be leased now"),
            Self::NoMatch => ("no-match", 409, "No proxy matches the selector"),
            Self::NoneHealthy => ("none-healthy", 409, "No proxy that matches is healthy"),
            Self::SessionUnavailable => ("session-unavailable", 409, "The session's proxy cannot be leased now"),
            Self::IdempotencyKeyReused => ("idempotency-key-reused", 409, "The idempotency key was used for another request"),
            Self::LeaseEnded => ("lease-ended", 410, "The lease has ended"),
            Self::BodyTooLarge => ("body-too-large", 413, "The body is too large"),
            Self::UnsupportedMediaType => ("unsupported-media-type", 415, "The body must be JSON"),
            Self::HostNotAllowed => ("host-not-allowed", 421, "The host is not served here"),
            Self::Internal => ("internal", 500, "The request failed inside"),
            Self::Overloaded => ("overloaded", 503, "The service cannot answer now"),
            Self::QueueFull => ("queue-full", 503, "The queue is full"),
            Self::NoLeader => ("no-leader", 503, "No replica leads now"),
            Self::StoreUnavailable => ("store-unavailable", 503, "The lease store does not answer"),
            Self::Stopping => ("stopping", 503, "The process is stopping"),
        }
    }

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        self.words().0
    }

    /// The HTTP status.
    pub const fn status(self) -> u16 {
        self.words().1
    }

    /// In words.
    pub const fn title(self) -> &'static str {
        self.words().2
    }
}

/// One fault of a request: where and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Path in the body, query parameter or header; `body` for the body as a whole.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl FieldError {
    /// From its two parts.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// Any answer that is not a success: `type`, `title`, `status`, `code`, `detail`, and what the code adds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `https://crawl.example.com/problems/<code>`: a name, not a page.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The code.
    pub code: ProblemCode,
    /// What happened this time.
    pub detail: String,
    /// 400: every fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Vec<FieldError>>,
    /// 410: why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// 410: since when it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub granted_at: Option<Timestamp>,
    /// 410: until when it was to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// 410: when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// 409 of a grant: how many proxies match; the next five add up to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<u32>,
    /// Could be leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u32>,
    /// No new grants: `maxLeases` 0, cordoned, being deleted or replaced, credentials withheld.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<u32>,
    /// Not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy: Option<u32>,
    /// Blocked by the target or in general.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooling_down: Option<u32>,
    /// Every place is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_capacity: Option<u32>,
    /// The same as the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

impl Problem {
    /// A problem with nothing beyond its code. A 503 always has `Retry-After` (LS-20).
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("https://crawl.example.com/problems/{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: detail.into(),
            errors: None,
            reason: None,
            granted_at: None,
            expires_at: None,
            ended_at: None,
            matched: None,
            available: None,
            drained: None,
            unhealthy: None,
            cooling_down: None,
            at_capacity: None,
            retry_after_seconds: (code.status() == 503).then_some(1),
        }
    }

    /// A 400 that names every fault.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let detail = errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect::<Vec<_>>().join("; ");
        Self { errors: Some(errors), ..Self::new(ProblemCode::InvalidRequest, detail) }
    }
}

/// Why no lease was granted, in numbers: the last five add up to `matched` (LS-4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// `NoMatch`, `NoneHealthy` or `NoCapacity`.
    pub code: ProblemCode,
    /// For which target, for the words.
    pub target: Option<Arc<str>>,
    /// How many the selector matches.
    pub matched: u32,
    /// Could be leased.
    pub available: u32,
    /// No new grants.
    pub drained: u32,
    /// Not healthy.
    pub unhealthy: u32,
    /// Cooling for the target or in general.
    pub cooling_down: u32,
    /// Every place is taken.
    pub at_capacity: u32,
    /// When to try again, if that is known.
    pub retry_after_seconds: Option<u64>,
}

impl Refusal {
    fn detail(&self) -> String {
        if self.matched == 0 {
            return "0 proxies match".to_owned();
        }
        let mut text = if self.matched == 1 { "1 proxy matches: ".to_owned() } else { format!("{} proxies match: ", self.matched) };
        let cooling = self.target.as_ref().map_or_else(|| "cooling down".to_owned(), |target| format!("cooling down for {target}"));
        let parts = [
            (self.available, "available"),
            (self.at_capacity, "at capacity"),
            (self.cooling_down, cooling.as_str()),
            (self.unhealthy, "unhealthy"),
            (self.drained, "drained"),
        ];
        for (at, (count, words)) in parts.iter().filter(|(count, _)| *count > 0).enumerate() {
            let _infallible = write!(text, "{}{count} {words}", if at > 0 { ", " } else { "" });
        }
        text
    }
}

/// Why the broker did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseError {
    /// 400.
    Invalid(Vec<FieldError>),
    /// 401: only a token may do this (LS-22).
    Unauthorized,
    /// 403: only a token that may do all.
    Forbidden,
    /// 404: no such proxy, or not for this token.
    UnknownProxy,
    /// 404: no such lease, none any more, or another token's.
    UnknownLease,
    /// 409.
    Refused(Box<Refusal>),
    /// 410.
    Ended {
        /// `expired`, `released`, `deleted`, `replaced`.
        reason: &'static str,
        /// Since when it ran.
        granted_at: Timestamp,
        /// Until when it was to run.
        expires_at: Timestamp,
        /// When it ended.
        ended_at: Timestamp,
    },
    /// 503: a book that has just begun does not know its proxies yet.
    Opening,
    /// 503: too many new selectors at once.
    Busy,
    /// 503: the journal took nothing, so nothing was done.
    StoreUnavailable,
}

impl LeaseError {
    /// The code alone, for counters.
    pub fn code(&self) -> ProblemCode {
        match self {
            Self::Invalid(_) => ProblemCode::InvalidRequest,
            Self::Unauthorized => ProblemCode::Unauthorized,
            Self::Forbidden => ProblemCode::Forbidden,
            Self::UnknownProxy => ProblemCode::NotFound,
            Self::UnknownLease => ProblemCode::UnknownLease,
            Self::Refused(refusal) => refusal.code,
            Self::Ended { .. } => ProblemCode::LeaseEnded,
            Self::Opening | Self::Busy => ProblemCode::Overloaded,
            Self::StoreUnavailable => ProblemCode::StoreUnavailable,
        }
    }

    /// The document to answer with.
    pub fn problem(&self) -> Problem {
        let code = self.code();
        match self {
            Self::Invalid(errors) => Problem::invalid(errors.clone()),
            Self::Unauthorized => Problem::new(code, "without a configured token nobody may cordon a proxy or lift a cooldown"),
            Self::Forbidden => Problem::new(code, "this needs a token that may do all"),
            Self::UnknownProxy => Problem::new(code, "no such proxy"),
            Self::UnknownLease => Problem::new(code, "no lease of that id is known; leases are forgotten 10 minutes after their end"),
            Self::Refused(refusal) => Problem {
                matched: Some(refusal.matched),
                available: Some(refusal.available),
                drained: Some(refusal.drained),
                unhealthy: Some(refusal.unhealthy),
                cooling_down: Some(refusal.cooling_down),
                at_capacity: Some(refusal.at_capacity),
                retry_after_seconds: refusal.retry_after_seconds,
                ..Problem::new(code, refusal.detail())
            },
            Self::Ended { reason, granted_at, expires_at, ended_at } => Problem {
                reason: Some((*reason).to_owned()),
                granted_at: Some(*granted_at),
                expires_at: Some(*expires_at),
                ended_at: Some(*ended_at),
                ..Problem::new(code, format!("the lease ended at {ended_at}: {reason}"))
            },
            Self::Opening => Problem::new(code, "the proxies are being looked at after a start; try again"),
            Self::Busy => Problem::new(code, "too many new selectors are being looked at; try again"),
            Self::StoreUnavailable => Problem::new(code, "nothing was changed; try again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_shape_of_section_12() {
        let refusal = Refusal {
            code: ProblemCode::NoCapacity,
            target: Some("shop.example".into()),
            matched: 12,
            available: 0,
            drained: 0,
            unhealthy: 2,
            cooling_down: 3,
            at_capacity: 7,
            retry_after_seconds: Some(4),
        };
        let problem = LeaseError::Refused(Box::new(refusal)).problem();
        assert_eq!(
            serde_json::to_value(problem).unwrap(),
            serde_json::json!({"type": "https://crawl.example.com/problems/no-capacity", "title": "No proxy can be leased now", "status": 409,
                "code": "no-capacity", "detail": "12 proxies match: 7 at capacity, 3 cooling down for shop.example, 2 unhealthy",
                "matched": 12, "available": 0, "drained": 0, "unhealthy": 2, "coolingDown": 3, "atCapacity": 7, "retryAfterSeconds": 4})
        );
    }

    #[test]
    fn an_invalid_request_has_the_shape_of_section_12() {
        let problem = Problem::invalid(vec![FieldError::new("ttl", "90 is not a duration such as 90s or 5m")]);
        assert_eq!(
            serde_json::to_value(problem).unwrap(),
            serde_json::json!({"type": "https://crawl.example.com/problems/invalid-request", "title": "The request is not valid", "status": 400,
                "code": "invalid-request", "detail": "ttl: 90 is not a duration such as 90s or 5m",
                "errors": [{"field": "ttl", "message": "90 is not a duration such as 90s or 5m"}]})
        );
    }

    #[test]
    fn every_code_is_written_as_ls_20_names_it_and_every_503_says_when_to_retry() {
        for code in ProblemCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert_eq!(Problem::new(code, "").retry_after_seconds.is_some(), code.status() == 503, "{code:?}");
        }
    }
}
