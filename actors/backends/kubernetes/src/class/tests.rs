//! The pure part of the table; what the backend makes of each captured answer is in `tests/it/classes.rs`.

use std::time::Duration;

use super::*;
use crate::api::tests::captured;

macro_rules! answer {
    ($name:literal) => {
        captured(include_str!(concat!("../../tests/captured/", $name, ".json")))
    };
}

/// K8-13: one status, seven meanings; the texts are captured.
#[test]
fn forbidden_is_told_apart_by_its_text_alone() {
    let environment = Verdict { class: ErrorClass::Permanent, environment: true };
    for (error, expected) in [
        (answer!("quota-exceeded"), Verdict::of(ErrorClass::QuotaExceeded)),
        (answer!("quota-unstated"), environment),
        (answer!("namespace-terminating"), Verdict::of(ErrorClass::Transient)),
        (answer!("service-account-absent"), Verdict::of(ErrorClass::Transient)),
        (answer!("pod-security"), environment),
        (answer!("limit-range"), environment),
        (answer!("rbac-create"), environment),
        (answer!("anonymous"), environment),
    ] {
        assert_eq!(error.status().map(|status| (status.code, status.reason.as_str())), Some((403, "Forbidden")), "{error}");
        assert_eq!(classify(&error, true), expected, "{error}");
    }
}

/// K8-13, PC-24, PC-25: only a Pod that is not there is NotFound, and never in create.
#[test]
fn a_404_is_the_pods_or_nobodys() {
    assert!(is_absent(&answer!("pod-absent")));
    assert_eq!(classify(&answer!("pod-absent"), true).class, ErrorClass::Transient);
    for other in [answer!("path-absent"), answer!("namespace-absent")] {
        assert!(!is_absent(&other), "{other}");
        assert_eq!(classify(&other, false).class, ErrorClass::Transient, "{other}");
    }
    assert!(!is_absent(&CallError::NoStatus { code: 404, retry_after: None }));
}

#[test]
fn conflicts_and_expiry_are_known() {
    let taken = |message: &str| CallError::Refused {
        status: Status::failure(message, kube::core::response::reason::ALREADY_EXISTS).with_code(409).boxed(),
        retry_after: None,
    };
    assert!(is_taken(&taken("pods \"a\" already exists")) && is_taken(&taken("object is being deleted: pods \"a\" already exists")));
    let conflict = answer!("conflict");
    assert!(is_conflict(&conflict) && !is_taken(&conflict) && !is_expired(&conflict));
    assert!(is_expired(&answer!("expired")) && !is_expired(&answer!("timed-out")));
}

/// PC-58: what a person reads names the step, and waits no longer than it makes sense.
#[test]
fn a_failure_names_its_step_and_keeps_its_cause() {
    let error = not_created("making Pod team-a/p", answer!("quota-exceeded"));
    assert!(error.message.starts_with("making Pod team-a/p: pods \""), "{}", error.message);
    assert!(error.message.contains("exceeded quota: q") && error.message.ends_with("(403)"), "{}", error.message);
    assert!(error.cause.is_some() && error.retry_after.is_none());
    assert_eq!(failed("x", answer!("too-many")).retry_after, Some(Duration::from_secs(1)));
    for (asked, honoured) in [(0, 1), (7, 7), (3600, 10)] {
        let error = CallError::NoStatus { code: 429, retry_after: Some(Duration::from_secs(asked)) };
        assert_eq!(failed("x", error).retry_after, Some(Duration::from_secs(honoured)));
    }
}
