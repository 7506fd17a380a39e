//! Whether the API server can be worked with (K8-15, PH-37): one list of one Pod with the verb and scope of
//! `list_managed`. It proves neither create nor delete rights.

use std::time::Duration;

use egress_protocol::provider::TargetVerdict;
use egress_provider::Call;
use tokio::time::Instant;

use crate::api::{Api, CallError};

/// The only target.
const TARGET: &str = "apiserver";

/// Rows in order; what the error itself is decides, not when it came (PH-33).
pub(crate) fn reason(error: &CallError) -> &'static str {
    match error {
        CallError::Cancelled
        | CallError::Deadline
        | CallError::OutOfBudget(_)
        | CallError::Unanswered(egress_kube::ApiError::Timeout(_)) => "Timeout",
        // Its overload protection says no more than that.
        CallError::NoStatus { code: 429, .. } => "APIError",
        CallError::Refused { .. }
        | CallError::NoStatus { .. }
        | CallError::Garbled(_)
        | CallError::Unanswered(_)
        | CallError::HostDied(_)
        | CallError::Fenced(_) => match error.status() {
            Some(status) if matches!(status.reason.as_str(), "Timeout" | "ServerTimeout") => "Timeout",
            Some(status) if status.code == 401 => "Unauthorized",
            Some(status) if status.code == 403 => "Forbidden",
            Some(_) => "APIError",
            None => "Unreachable",
        },
    }
}

/// Always one verdict.
pub(crate) async fn check(api: &Api, namespace: Option<&str>, call: &Call) -> Vec<TargetVerdict> {
    let started = Instant::now();
    let listed = api.list_pods(namespace, 1, None, call).await;
    let latency = started.elapsed();
    let mut verdict = TargetVerdict {
        name: TARGET.to_owned(),
        address: String::new(),
        ready: listed.is_ok(),
        reason: listed.as_ref().err().map_or("Reachable", reason),
        message: listed.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        latency,
        details: Vec::new(),
    };
    // Known by now without asking anybody, unless there is nobody to ask.
    verdict.address = tokio::time::timeout(Duration::from_millis(100), api.server(call)).await.ok().flatten().unwrap_or_default();
    if verdict.ready
        && let Ok(version) = api.version(call).await
        && !version.is_empty()
    {
        verdict.details.push(("serverVersion".to_owned(), version));
    }
    vec![verdict]
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn refused(code: u16, reason: &str) -> CallError {
        CallError::Refused { status: Status::failure("", reason).with_code(code).boxed(), retry_after: None }
    }

    /// K8-15, PH-33.
    #[test]
    fn each_error_has_its_reason() {
        for (error, expected) in [
            (CallError::Cancelled, "Timeout"),
            (CallError::Deadline, "Timeout"),
            (CallError::OutOfBudget(Duration::from_secs(30)), "Timeout"),
            (CallError::Unanswered(egress_kube::ApiError::Timeout(Duration::from_secs(30))), "Timeout"),
            (refused(504, "Timeout"), "Timeout"),
            (refused(500, "ServerTimeout"), "Timeout"),
            (refused(401, "Unauthorized"), "Unauthorized"),
            (refused(403, "Forbidden"), "Forbidden"),
            (refused(500, "InternalError"), "APIError"),
            (refused(429, "TooManyRequests"), "APIError"),
            (refused(404, "NotFound"), "APIError"),
            (CallError::NoStatus { code: 502, retry_after: None }, "Unreachable"),
            (CallError::NoStatus { code: 429, retry_after: None }, "APIError"),
            (CallError::Garbled("line 1 column 1".to_owned()), "Unreachable"),
            (CallError::Unanswered(egress_kube::ApiError::Transport("connection refused".to_owned())), "Unreachable"),
            (CallError::Unanswered(egress_kube::AccessError("no kubeconfig".to_owned()).into()), "Unreachable"),
        ] {
            assert_eq!(reason(&error), expected, "{error}");
        }
    }
}
