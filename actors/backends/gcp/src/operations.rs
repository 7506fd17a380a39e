//! The last operation of each instance, and what it makes of a 404 (GC-10…12): pure.
//!
//! Compute Engine accepts an insert and fails later. The instance is then simply not there, and only its operation says
//! why. So before `get` may answer NotFound, the operation decides.

use std::collections::HashMap;
use std::time::Duration;

use egress_protocol::InstanceName;
use egress_protocol::provider::ErrorClass;
use tokio::time::Instant;

use crate::class::classify_operation;
use crate::model::Operation;

/// How long an operation says anything about its instance (GC-10, GC-11).
pub(crate) const MEMORY: Duration = Duration::from_secs(60 * 60);

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Insert,
    Delete,
}

/// An operation that was started here, or found at the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) zone: String,
    pub(crate) operation: String,
    pub(crate) kind: Kind,
    /// Its failure was told to a caller: it decides nothing any more.
    pub(crate) reported: bool,
}

/// The last operation per instance name.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    known: HashMap<InstanceName, (Instant, Known)>,
}

impl Operations {
    /// A newer operation of an instance takes the place of the one before.
    pub(crate) fn keep(&mut self, now: Instant, name: InstanceName, known: Known) {
        self.forget_old(now);
        self.known.insert(name, (now, known));
    }

    /// The last operation of an instance, unless it is too old to say anything.
    pub(crate) fn of(&self, now: Instant, name: &InstanceName) -> Option<&Known> {
        self.known.get(name).filter(|(at, _)| now.duration_since(*at) < MEMORY).map(|(_, known)| known)
    }

    /// The operation with that name ended and nothing is left to say of it.
    pub(crate) fn settled(&mut self, name: &InstanceName, operation: &str) {
        if self.known.get(name).is_some_and(|(_, known)| known.operation == operation) {
            self.known.remove(name);
        }
    }

    /// Its failure is told now. It stays known, so that it is not found again at the backend and told twice.
    /// `false`: it was told before.
    pub(crate) fn report(&mut self, now: Instant, name: InstanceName, known: Known) -> bool {
        let before = self.of(now, &name).is_some_and(|before| before.operation == known.operation && before.reported);
        self.keep(now, name, Known { reported: true, ..known });
        !before
    }

    /// How many are known.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    fn forget_old(&mut self, now: Instant) {
        self.known.retain(|_, (at, _)| now.duration_since(*at) < MEMORY);
    }
}

/// What a 404 on an instance means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Absence {
    /// It does not exist.
    Gone,
    /// It is being made.
    InTheMaking,
    /// It could not be made. Told once (GC-12).
    Failed { class: ErrorClass, message: String },
}

/// GC-11: the last operation on an instance that is not there; `None`: there is none.
pub(crate) fn absence(operation: Option<(Kind, &Operation)>) -> Absence {
    match operation {
        Some((Kind::Insert, operation)) if !operation.is_done() => Absence::InTheMaking,
        Some((Kind::Insert, operation)) => match classify_operation(operation.errors()) {
            Some((class, error)) => Absence::Failed { class, message: error.to_string() },
            None => Absence::Gone,
        },
        Some((Kind::Delete, _)) | None => Absence::Gone,
    }
}

/// The kind of an operation that was found at the backend. Any other kind says nothing about whether the instance exists.
pub(crate) fn kind_of(operation: &Operation) -> Option<Kind> {
    match operation.operation_type.as_str() {
        "insert" => Some(Kind::Insert),
        "delete" => Some(Kind::Delete),
        _ => None,
    }
}

/// Whether an operation that the backend listed is about that instance: the filter is the backend's, the check is ours.
pub(crate) fn is_about(operation: &Operation, zone: &str, name: &InstanceName) -> bool {
    let suffix = format!("/zones/{zone}/instances/{name}");
    operation.target_link.as_deref().is_some_and(|link| link.ends_with(&suffix))
}

#[cfg(test)]
mod tests {
    use egress_protocol::Uid;

    use super::*;

    fn name(uid: &str) -> InstanceName {
        InstanceName::of(&Uid::new(uid))
    }

    fn known(operation: &str, kind: Kind) -> Known {
        Known { zone: "z".to_owned(), operation: operation.to_owned(), kind, reported: false }
    }

    fn operation(status: &str, codes: &[&str]) -> Operation {
        let errors: Vec<_> = codes.iter().map(|code| serde_json::json!({"code": code, "message": "why"})).collect();
        let mut json = serde_json::json!({"name": "operation-1", "operationType": "insert", "status": status});
        if !errors.is_empty() {
            json["error"] = serde_json::json!({ "errors": errors });
        }
        serde_json::from_value(json).unwrap()
    }

    /// GC-11.
    #[test]
    fn the_operation_decides_what_a_404_means() {
        let insert = |operation: &Operation| absence(Some((Kind::Insert, operation)));
        assert_eq!(absence(None), Absence::Gone);
        assert_eq!(insert(&operation("PENDING", &[])), Absence::InTheMaking);
        assert_eq!(insert(&operation("RUNNING", &[])), Absence::InTheMaking);
        assert_eq!(insert(&operation("DONE", &[])), Absence::Gone);
        assert_eq!(
            insert(&operation("DONE", &["QUOTA_EXCEEDED"])),
            Absence::Failed { class: ErrorClass::QuotaExceeded, message: "QUOTA_EXCEEDED: why".to_owned() }
        );
        assert_eq!(absence(Some((Kind::Delete, &operation("RUNNING", &[])))), Absence::Gone);
        assert_eq!(absence(Some((Kind::Delete, &operation("DONE", &["INTERNAL_ERROR"])))), Absence::Gone);
    }

    /// GC-12.
    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_once_even_when_it_is_found_again() {
        let mut operations = Operations::default();
        let now = Instant::now();
        operations.keep(now, name("u"), known("op-1", Kind::Insert));
        assert!(operations.report(now, name("u"), known("op-1", Kind::Insert)));
        assert!(!operations.report(now, name("u"), known("op-1", Kind::Insert)));
        // The next attempt is another operation.
        operations.keep(now, name("u"), known("op-2", Kind::Insert));
        assert!(operations.report(now, name("u"), known("op-2", Kind::Insert)));
    }

    /// GC-10.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_known_of_an_operation_after_an_hour_and_nothing_is_kept_of_it() {
        let mut operations = Operations::default();
        let now = Instant::now();
        operations.keep(now, name("u"), known("op-1", Kind::Insert));
        assert!(operations.of(now + MEMORY - Duration::from_secs(1), &name("u")).is_some());
        assert!(operations.of(now + MEMORY, &name("u")).is_none());
        operations.keep(now + MEMORY, name("v"), known("op-2", Kind::Delete));
        assert_eq!(operations.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_operation_that_is_named_is_settled() {
        let mut operations = Operations::default();
        let now = Instant::now();
        operations.keep(now, name("u"), known("op-2", Kind::Delete));
        operations.settled(&name("u"), "op-1");
        assert!(operations.of(now, &name("u")).is_some());
        operations.settled(&name("u"), "op-2");
        assert!(operations.of(now, &name("u")).is_none());
    }

    #[test]
    fn a_listed_operation_is_checked_for_its_target() {
        let mut operation = operation("DONE", &[]);
        let at = name("u");
        operation.target_link = Some(format!("https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/{at}"));
        assert!(is_about(&operation, "z", &at));
        assert!(!is_about(&operation, "y", &at));
        assert!(!is_about(&operation, "z", &name("v")));
        operation.target_link = None;
        assert!(!is_about(&operation, "z", &at));
    }
}
