//! What a failed call or a failed operation means (GC-16…18): the one classification, pure.

use egress_protocol::provider::ErrorClass;
use egress_provider::{BackendError, Verdict};

use crate::error::{CallError, TokenError};
use crate::model::OperationError;

/// Reasons of a 403 that speak of a limit, not of a permission.
const LIMITS: [&str; 3] = ["quotaExceeded", "rateLimitExceeded", "userRateLimitExceeded"];
/// GC-17. `creating`: a 404 speaks of something that the request names, not of the instance.
pub(crate) fn classify(error: &CallError, creating: bool) -> Verdict {
    match error {
        CallError::Refused { status, reasons, .. } => match status {
            404 if creating => Verdict::of(ErrorClass::Permanent),
            404 => Verdict::of(ErrorClass::NotFound),
            429 => Verdict::of(ErrorClass::QuotaExceeded),
            403 if reasons.iter().any(|reason| LIMITS.contains(&reason.as_str())) => Verdict::of(ErrorClass::QuotaExceeded),
            400 => Verdict::of(ErrorClass::Permanent),
            401 | 403 => Verdict { class: ErrorClass::Permanent, environment: true },
            _ => Verdict::of(ErrorClass::Transient),
        },
        CallError::Token(TokenError::Unreadable(_)) => Verdict { class: ErrorClass::Permanent, environment: true },
        CallError::NoApiError { .. }
        | CallError::Garbled(_)
        | CallError::Token(TokenError::Missing(_) | TokenError::Refused(_))
        | CallError::Unanswered(_)
        | CallError::OutOfBudget(_)
        | CallError::Ended
        | CallError::HostWentAway(_)
        | CallError::Fenced(_) => Verdict::of(ErrorClass::Transient),
    }
}

/// A failed step of any operation but `create`.
pub(crate) fn failed(step: impl std::fmt::Display, error: CallError) -> BackendError {
    let after = error.retry_after();
    classify(&error, false).told(step, error, after)
}

/// A failed step of `create`.
pub(crate) fn not_created(step: impl std::fmt::Display, error: CallError) -> BackendError {
    let after = error.retry_after();
    classify(&error, true).told(step, error, after)
}

/// GC-18: the class of an operation that ended in errors, and the error that decides it. `None`: there are none.
pub(crate) fn classify_operation(errors: &[OperationError]) -> Option<(ErrorClass, &OperationError)> {
    // Where several stand, Permanent decides before Quota, and Quota before Transient: what cannot work is not tried for
    // its quota's sake.
    let by = |class| errors.iter().find(|error| operation_code(&error.code) == class).map(|error| (class, error));
    by(ErrorClass::Permanent).or_else(|| by(ErrorClass::QuotaExceeded)).or_else(|| by(ErrorClass::Transient))
}

fn operation_code(code: &str) -> ErrorClass {
    const QUOTA: [&str; 2] = ["QUOTA_EXCEEDED", "RATE_LIMIT_EXCEEDED"];
    const QUOTA_PREFIXES: [&str; 2] = ["ZONE_RESOURCE_POOL_EXHAUSTED", "RESOURCE_POOL_EXHAUSTED"];
    const PERMANENT: [&str; 3] = ["RESOURCE_NOT_FOUND", "PERMISSIONS_ERROR", "CONDITION_NOT_MET"];
    const PERMANENT_PREFIXES: [&str; 2] = ["INVALID_", "UNSUPPORTED_"];
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| code.starts_with(prefix));
    if QUOTA.contains(&code) || starts(&QUOTA_PREFIXES) {
        ErrorClass::QuotaExceeded
    } else if PERMANENT.contains(&code) || starts(&PERMANENT_PREFIXES) {
        ErrorClass::Permanent
    } else {
        ErrorClass::Transient
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use egress_protocol::leadership::Fenced;

    use super::*;

    fn answer(status: u16, reason: &str) -> CallError {
        let body = serde_json::json!({"error": {
            "code": status, "message": "the message", "errors": [{"reason": reason, "domain": "global", "message": "the message"}],
        }});
        CallError::of_answer(status, body.to_string().as_bytes(), None)
    }

    /// GC-17: each row, in create and elsewhere.
    #[test]
    fn every_answer_has_its_class() {
        use ErrorClass::{NotFound, Permanent, QuotaExceeded, Transient};
        for (error, elsewhere, creating, environment) in [
            (answer(404, "notFound"), NotFound, Permanent, false),
            (answer(409, "alreadyExists"), Transient, Transient, false),
            (answer(429, "rateLimitExceeded"), QuotaExceeded, QuotaExceeded, false),
            (answer(403, "quotaExceeded"), QuotaExceeded, QuotaExceeded, false),
            (answer(403, "rateLimitExceeded"), QuotaExceeded, QuotaExceeded, false),
            (answer(403, "userRateLimitExceeded"), QuotaExceeded, QuotaExceeded, false),
            (answer(403, "forbidden"), Permanent, Permanent, true),
            (answer(403, "accessNotConfigured"), Permanent, Permanent, true),
            (answer(401, "authError"), Permanent, Permanent, true),
            (answer(400, "invalid"), Permanent, Permanent, false),
            (answer(412, "conditionNotMet"), Transient, Transient, false),
            (answer(500, "backendError"), Transient, Transient, false),
            (answer(503, "backendError"), Transient, Transient, false),
            (answer(418, ""), Transient, Transient, false),
            (CallError::of_answer(404, b"<html>not here</html>", None), Transient, Transient, false),
            (CallError::of_answer(403, b"", None), Transient, Transient, false),
            (CallError::Garbled("line 1".to_owned()), Transient, Transient, false),
            (CallError::Unanswered("connection refused".to_owned()), Transient, Transient, false),
            (CallError::OutOfBudget(Duration::from_secs(30)), Transient, Transient, false),
            (CallError::Ended, Transient, Transient, false),
            (CallError::HostWentAway("gone".to_owned()), Transient, Transient, false),
            (CallError::Fenced(Fenced), Transient, Transient, false),
            (TokenError::Missing("no file".to_owned()).into(), Transient, Transient, false),
            (TokenError::Refused("HTTP 500".to_owned()).into(), Transient, Transient, false),
            (TokenError::Unreadable("no JSON".to_owned()).into(), Permanent, Permanent, true),
        ] {
            assert_eq!(classify(&error, false), Verdict { class: elsewhere, environment }, "{error}");
            assert_eq!(classify(&error, true), Verdict { class: creating, environment }, "creating: {error}");
        }
    }

    /// GC-18.
    #[test]
    fn every_operation_code_has_its_class() {
        use ErrorClass::{Permanent, QuotaExceeded, Transient};
        for (code, class) in [
            ("QUOTA_EXCEEDED", QuotaExceeded),
            ("ZONE_RESOURCE_POOL_EXHAUSTED", QuotaExceeded),
            ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", QuotaExceeded),
            ("RESOURCE_POOL_EXHAUSTED", QuotaExceeded),
            ("RATE_LIMIT_EXCEEDED", QuotaExceeded),
            ("RESOURCE_NOT_FOUND", Permanent),
            ("INVALID_FIELD_VALUE", Permanent),
            ("INVALID_USAGE", Permanent),
            ("UNSUPPORTED_OPERATION", Permanent),
            ("PERMISSIONS_ERROR", Permanent),
            ("CONDITION_NOT_MET", Permanent),
            ("IP_SPACE_EXHAUSTED", Transient),
            ("INTERNAL_ERROR", Transient),
            ("SOMETHING_NEW", Transient),
            ("", Transient),
        ] {
            assert_eq!(operation_code(code), class, "{code}");
        }
    }

    #[test]
    fn of_several_errors_permanent_decides_then_quota() {
        let error = |code: &str| OperationError { code: code.to_owned(), message: String::new() };
        let several = [error("INTERNAL_ERROR"), error("QUOTA_EXCEEDED"), error("INVALID_FIELD_VALUE")];
        let decides = |errors: &[OperationError]| classify_operation(errors).map(|(class, error)| (class, error.code.clone()));
        assert_eq!(decides(&several), Some((ErrorClass::Permanent, "INVALID_FIELD_VALUE".to_owned())));
        assert_eq!(decides(&several[..2]), Some((ErrorClass::QuotaExceeded, "QUOTA_EXCEEDED".to_owned())));
        assert_eq!(decides(&several[..1]), Some((ErrorClass::Transient, "INTERNAL_ERROR".to_owned())));
        assert_eq!(decides(&[]), None);
    }

    #[test]
    fn a_message_says_step_status_and_reason() {
        let told = not_created("inserting zones/a/instances/b", answer(403, "accessNotConfigured"));
        assert_eq!(told.message, "inserting zones/a/instances/b: the message (HTTP 403, accessNotConfigured)");
    }
}
