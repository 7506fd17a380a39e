//! What a failed call means (K8-13): the one classification, pure.
//!
//! Quota, Pod Security, limit ranges, ServiceAccounts and RBAC are all 403 with reason `Forbidden`: only the message tells
//! them apart, a terminating namespace by a cause of its own. The matched texts are held by answers captured from a real
//! API server.

use egress_protocol::provider::ErrorClass;
use egress_provider::{BackendError, Verdict};
use kube::core::Status;

use crate::api::CallError;

/// A quota that is used up, as opposed to one that asks for figures (`failed quota: … must specify …`).
const QUOTA: &str = "exceeded quota:";
/// A new namespace has no ServiceAccount for a moment.
const NO_ACCOUNT: &str = "error looking up service account";
/// The namespace is on its way out.
const TERMINATING: &str = "NamespaceTerminating";
/// The table. `creating`: that the namespace is gone must not read as if the instance were.
pub(crate) fn classify(error: &CallError, creating: bool) -> Verdict {
    // Whatever answered without an API status is not the API server, whose word alone counts.
    let Some(status) = error.status() else { return Verdict::of(ErrorClass::Transient) };
    match status.code {
        404 if !creating && is_no_pod(status) => Verdict::of(ErrorClass::NotFound),
        403 if status.message.contains(QUOTA) => Verdict::of(ErrorClass::QuotaExceeded),
        403 if status.message.contains(NO_ACCOUNT) || has_cause(status, TERMINATING) => Verdict::of(ErrorClass::Transient),
        401 | 403 => Verdict { class: ErrorClass::Permanent, environment: true },
        400 | 422 => Verdict::of(ErrorClass::Permanent),
        _ => Verdict::of(ErrorClass::Transient),
    }
}

/// Of a Pod, not of a path that nobody serves (PC-25).
fn is_no_pod(status: &Status) -> bool {
    status.reason == kube::core::response::reason::NOT_FOUND && status.details.as_ref().is_some_and(|details| details.kind == "pods")
}

fn has_cause(status: &Status, reason: &str) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == reason)
}

/// The Pod is not there.
pub(crate) fn is_absent(error: &CallError) -> bool {
    classify(error, false).class == ErrorClass::NotFound
}

/// The name is taken.
pub(crate) fn is_taken(error: &CallError) -> bool {
    error.status().is_some_and(|status| status.code == 409 && status.reason == kube::core::response::reason::ALREADY_EXISTS)
}

/// Something changed under the call.
pub(crate) fn is_conflict(error: &CallError) -> bool {
    error.status().is_some_and(|status| status.code == 409)
}

/// The continue token of a list is too old.
pub(crate) fn is_expired(error: &CallError) -> bool {
    error.status().is_some_and(|status| status.code == 410)
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

#[cfg(test)]
mod tests;
