//! The conditions of a `Proxy` and the one way to build them (OP-7).
//!
//! What must stay true: one condition per type; `lastTransitionTime` moves when the status flips and at no other
//! time; a message has at most [`MESSAGE_LIMIT`] characters. Nothing else in the project builds a condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::time::Timestamp;

/// Condition types.
pub mod kind {
    /// An instance exists and is usable. Managed only.
    pub const PROVISIONED: &str = "Provisioned";
    /// Traffic flows.
    pub const HEALTHY: &str = "Healthy";
    /// Both.
    pub const READY: &str = "Ready";
}

/// Reasons.
pub mod reason {
    #![allow(missing_docs, reason = "the words of OP-7 and HE-3; the spec says what each means")]
    pub const PROVISIONED: &str = "Provisioned";
    pub const PROVISIONING: &str = "Provisioning";
    pub const REPLACING: &str = "Replacing";
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    pub const TRANSIENT_ERROR: &str = "TransientError";
    pub const PAUSED: &str = "Paused";
    pub const PERMANENT_ERROR: &str = "PermanentError";
    pub const PROVIDER_NOT_CONFIGURED: &str = "ProviderNotConfigured";
    pub const CLOUD_INIT_UNRESOLVED: &str = "CloudInitUnresolved";
    pub const PROVISIONING_TIMEOUT: &str = "ProvisioningTimeout";
    pub const PROBE_SUCCEEDED: &str = "ProbeSucceeded";
    pub const PROBE_FAILED: &str = "ProbeFailed";
    pub const CREDENTIALS_UNRESOLVED: &str = "CredentialsUnresolved";
    pub const NOT_PROBED: &str = "NotProbed";
    pub const READY: &str = "Ready";
}

/// Characters a condition's message may have (OP-7).
pub const MESSAGE_LIMIT: usize = 1024;

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the words of the Kubernetes API")]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// Writes one condition, replacing the one of the same type. Says whether anything but `observedGeneration` changed.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    status: Status,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
    generation: i64,
) -> bool {
    let message = cut(message.into(), MESSAGE_LIMIT);
    let fresh = |since: Time, message: String| Condition {
        type_: kind.to_owned(),
        status: status.as_str().to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since,
        observed_generation: Some(generation),
    };
    let Some(old) = conditions.iter_mut().find(|c| c.type_ == kind) else {
        conditions.push(fresh(Time(now.to_jiff()), message));
        return true;
    };
    let since = if old.status == status.as_str() { old.last_transition_time.clone() } else { Time(now.to_jiff()) };
    let changed = old.status != status.as_str() || old.reason != reason || old.message != message;
    *old = fresh(since, message);
    changed
}

/// Takes a condition away; `false` when there was none of that type.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|c| c.type_ != kind);
    conditions.len() != before
}

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == kind)
}

/// Its status; a condition that is missing, or says something else, is `Unknown`.
pub fn status(conditions: &[Condition], kind: &str) -> Status {
    match find(conditions, kind).map(|c| c.status.as_str()) {
        Some("True") => Status::True,
        Some("False") => Status::False,
        _ => Status::Unknown,
    }
}

/// Keeps the first `limit` characters of a text.
pub fn cut(mut text: String, limit: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(limit) {
        text.truncate(end);
    }
    text
}

/// Keeps the whole characters within the first `limit` bytes of a text.
pub fn cut_bytes(text: &str, limit: usize) -> &str {
    let end = (0..=text.len().min(limit)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// Whether two texts say the same but for their numbers: such a text is rewritten at most every 5 minutes (OP-7).
/// `12`, `1.5` and `1,500` are one number each.
pub fn same_but_for_numbers(a: &str, b: &str) -> bool {
    Shape(a.as_bytes()).eq(Shape(b.as_bytes()))
}

/// The bytes of a text with every number replaced by one `0`.
struct Shape<'a>(&'a [u8]);

impl Iterator for Shape<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&first, mut rest) = self.0.split_first()?;
        if first.is_ascii_digit() {
            loop {
                match rest {
                    [d, tail @ ..] if d.is_ascii_digit() => rest = tail,
                    [b'.' | b',', d, tail @ ..] if d.is_ascii_digit() => rest = tail,
                    _ => break,
                }
            }
        }
        self.0 = rest;
        Some(if first.is_ascii_digit() { b'0' } else { first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T1: Timestamp = Timestamp::from_millis(1_000);
    const T2: Timestamp = Timestamp::from_millis(2_000);

    fn healthy(conditions: &mut Vec<Condition>, status: Status, message: &str, now: Timestamp) -> bool {
        set(conditions, kind::HEALTHY, status, reason::PROBE_FAILED, message, now, 1)
    }

    #[test]
    fn the_transition_time_moves_only_when_the_status_flips() {
        let mut conditions = Vec::new();
        assert!(healthy(&mut conditions, Status::False, "connection refused", T1));
        assert!(healthy(&mut conditions, Status::False, "timed out", T2), "a new message is a change");
        assert_eq!(conditions[0].last_transition_time, Time(T1.to_jiff()));
        assert!(!healthy(&mut conditions, Status::False, "timed out", T2), "a repeat is none");
        assert!(healthy(&mut conditions, Status::True, "timed out", T2));
        assert_eq!(conditions[0].last_transition_time, Time(T2.to_jiff()));
        assert_eq!(conditions.len(), 1);
        assert_eq!(status(&conditions, kind::HEALTHY), Status::True);
        assert_eq!(status(&conditions, kind::READY), Status::Unknown);
        assert!(remove(&mut conditions, kind::HEALTHY) && !remove(&mut conditions, kind::HEALTHY));
    }

    #[test]
    fn a_message_is_cut_to_1024_characters_not_bytes() {
        let mut conditions = Vec::new();
        healthy(&mut conditions, Status::False, &"é".repeat(2000), T1);
        assert_eq!(conditions[0].message.chars().count(), 1024);
        healthy(&mut conditions, Status::False, &"é".repeat(1024), T1);
        assert_eq!(conditions[0].message.chars().count(), 1024);
    }

    #[test]
    fn texts_that_differ_only_in_numbers_are_told_from_others() {
        for (a, b, same) in [
            ("fetched 5 of 900 MB", "fetched 12 of 1,024 MB", true),
            ("took 1.5s", "took 12s", true),
            ("no number", "no number", true),
            ("", "", true),
            ("exit 1", "exit ", false),
            ("exit 1.", "exit 1", false),
            ("node 1 down", "node 1 up", false),
            ("é1", "é22", true),
        ] {
            assert_eq!(same_but_for_numbers(a, b), same, "{a:?} {b:?}");
        }
    }
}
