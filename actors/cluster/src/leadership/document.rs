//! The Lease as Kubernetes has it: what of it matters to the election, and how it is written. What others put on it
//! (labels, annotations of their own) stays.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::leadership::ADDRESS_ANNOTATION;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

use super::LeaderSettings;
use super::elector::{RELEASED, Record, Write};

/// What the election reads of it.
pub(super) fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let annotations = lease.metadata.annotations.as_ref();
    Record {
        version: lease.metadata.resource_version.as_deref().unwrap_or_default().into(),
        holder: spec.holder_identity.map(Arc::from),
        lasts: seconds.map(Duration::from_secs),
        renewed: spec.renew_time.map(|at| at.0.as_microsecond()),
        transitions: spec.lease_transitions.unwrap_or_default(),
        address: annotations.and_then(|all| all.get(ADDRESS_ANNOTATION)).filter(|text| !text.is_empty()).map(|text| text.as_str().into()),
    }
}

/// The Lease with us as its holder; `seen` is the one that is written over.
pub(super) fn held(seen: Option<&Lease>, write: &Write, settings: &LeaderSettings) -> Lease {
    let mut lease = seen.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta { name: Some(settings.name.clone()), namespace: Some(settings.namespace.clone()), ..ObjectMeta::default() },
        spec: None,
    });
    lease.metadata.managed_fields = None;
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(ADDRESS_ANNOTATION.to_owned(), settings.address.clone());
    let before = lease.spec.take().unwrap_or_default();
    let now = time(write.stamp);
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(settings.identity.clone()),
        lease_duration_seconds: Some(seconds(settings.lease_duration)),
        acquire_time: before.acquire_time.filter(|_| !write.takes).or_else(|| Some(now.clone())),
        renew_time: Some(now),
        lease_transitions: Some(before.lease_transitions.map_or(0, |count| count.saturating_add(i32::from(write.takes)))),
        ..before
    });
    lease
}

/// The Lease given up: without a holder and without an address, for whoever comes first.
pub(super) fn given_up(held: &Lease, now: i64) -> Lease {
    let mut lease = held.clone();
    lease.metadata.managed_fields = None;
    if let Some(annotations) = &mut lease.metadata.annotations {
        annotations.remove(ADDRESS_ANNOTATION);
    }
    let before = lease.spec.take().unwrap_or_default();
    lease.spec =
        Some(LeaseSpec { holder_identity: None, lease_duration_seconds: Some(seconds(RELEASED)), renew_time: Some(time(now)), ..before });
    lease
}

/// Up to whole ones, which is all that a Lease can say.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis().div_ceil(1000)).unwrap_or(i32::MAX)
}

fn time(micros: i64) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(micros).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> LeaderSettings {
        LeaderSettings {
            namespace: "ns".into(),
            name: "egress".into(),
            identity: "pod-a_1".into(),
            lease_duration: Duration::from_millis(14_500),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            address: "192.0.2.1:8090".into(),
        }
    }

    const STAMP: i64 = 1_767_323_045_000_001;

    #[test]
    fn a_lease_is_made_taken_renewed_and_given_up() {
        let write = |base: Option<&str>, stamp, takes| Write { base: base.map(Arc::from), stamp, takes };
        let made = held(None, &write(None, STAMP, true), &settings());
        let expected = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "egress", "namespace": "ns", "annotations": {"crawl.example.com/discovery-address": "192.0.2.1:8090"}},
            "spec": {"holderIdentity": "pod-a_1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                "acquireTime": "2026-01-02T03:04:05.000001Z", "renewTime": "2026-01-02T03:04:05.000001Z"},
        });
        assert_eq!(serde_json::to_value(&made).unwrap(), expected);

        let renewed = held(Some(&made), &write(Some("1"), STAMP + 7, false), &settings());
        let spec = renewed.spec.clone().unwrap();
        assert_eq!((spec.acquire_time, spec.renew_time), (Some(time(STAMP)), Some(time(STAMP + 7))));

        let mut others = renewed;
        others.metadata.resource_version = Some("42".into());
        others.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
        others.spec.as_mut().unwrap().holder_identity = Some("pod-b_1".into());
        let taken = held(Some(&others), &write(Some("42"), STAMP + 9, true), &settings());
        let spec = taken.spec.clone().unwrap();
        assert_eq!((spec.acquire_time, spec.lease_transitions), (Some(time(STAMP + 9)), Some(1)));
        assert_eq!(
            (&taken.metadata.resource_version, &taken.metadata.labels),
            (&others.metadata.resource_version, &others.metadata.labels)
        );

        let left = given_up(&taken, STAMP + 11);
        let read = record(&left);
        assert_eq!((read.holder, read.lasts, read.address, read.transitions), (None, Some(RELEASED), None, 1));
        assert_eq!(left.metadata.resource_version.as_deref(), Some("42"), "over this version only");
    }

    #[test]
    fn what_is_missing_in_a_lease_is_no_fault() {
        let read = record(&serde_json::from_value(json!({"metadata": {"name": "egress"}})).unwrap());
        let empty = Record { version: "".into(), holder: None, lasts: None, renewed: None, transitions: 0, address: None };
        assert_eq!(read, empty);
    }
}
