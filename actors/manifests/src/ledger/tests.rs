//! The order of writes, who is answered when, and what is told.

use egress_protocol::object::{Annotations, CloudInit, CredentialsState};
use egress_protocol::resource::ProxyStatus;
use serde_json::json;

use super::*;
use crate::folder::Home;

fn record(finalizer: bool) -> Record {
    Record {
        key: ObjectKey::new("default", "px-1"),
        uid: Uid::new("uid-1"),
        generation: 1,
        spec: Arc::new(serde_json::from_value(json!({"mode": "Managed", "provider": "lab"})).unwrap()),
        status: Arc::default(),
        annotations: Annotations::default(),
        deleting: false,
        finalizer,
        home: Home::new("/m", "a.yaml"),
    }
}

fn status(id: &str) -> Arc<ProxyStatus> {
    Arc::new(ProxyStatus { provider_id: Some(id.to_owned()), ..ProxyStatus::default() })
}

fn write_status(ledger: &mut Ledger<u32>, waiter: u32, id: &str) -> Taken<u32> {
    let record = record(true);
    ledger.request(&record.key, &record.uid, waiter, |record| {
        record.status = status(id);
        Ok(())
    })
}

fn ids(batch: &[Change]) -> Vec<Option<String>> {
    let id = |change: &Change| match change {
        Change::Put(record) => record.status.provider_id.clone(),
        Change::Remove(_) => Some("removed".to_owned()),
    };
    batch.iter().map(id).collect()
}

fn outcome(written: &[Written<u32>]) -> Vec<(Option<i64>, bool, Vec<u32>)> {
    written.iter().map(|written| (written.result.as_ref().ok().copied(), written.removed, written.waiters.clone())).collect()
}

#[test]
fn a_newer_status_takes_the_place_of_one_that_waits_and_both_are_answered_when_it_is_recorded_op_24() {
    let mut ledger = Ledger::new(vec![record(true)]);
    assert_eq!(write_status(&mut ledger, 1, "a"), Taken::Waits);
    assert_eq!(ids(&ledger.take_batch().unwrap()), [Some("a".to_owned())]);
    assert_eq!(write_status(&mut ledger, 2, "b"), Taken::Waits);
    assert_eq!(write_status(&mut ledger, 3, "c"), Taken::Waits);
    assert!(ledger.take_batch().is_none(), "one batch at a time");
    assert_eq!(outcome(&ledger.finish_batch(vec![Ok(())])), [(Some(1), false, vec![1])]);
    assert_eq!(ids(&ledger.take_batch().unwrap()), [Some("c".to_owned())]);
    assert_eq!(outcome(&ledger.finish_batch(vec![Ok(())])), [(Some(1), false, vec![2, 3])]);
    assert!(ledger.take_batch().is_none());
}

#[test]
fn what_is_recorded_already_is_answered_at_once_and_costs_no_write_op_24() {
    let mut ledger = Ledger::new(vec![record(true)]);
    write_status(&mut ledger, 1, "a");
    ledger.take_batch();
    assert_eq!(write_status(&mut ledger, 2, "a"), Taken::Waits, "not recorded yet");
    ledger.finish_batch(vec![Ok(())]);
    ledger.take_batch();
    ledger.finish_batch(vec![Ok(())]);
    assert_eq!(write_status(&mut ledger, 3, "a"), Taken::Already(3, 1));
    assert!(ledger.take_batch().is_none());
}

#[test]
fn an_answer_carries_the_generation_on_disk_op_16() {
    let mut ledger = Ledger::new(vec![record(true)]);
    ledger.change(&record(true).key, |record| record.generation = 2);
    write_status(&mut ledger, 1, "a");
    ledger.take_batch();
    ledger.change(&record(true).key, |record| record.generation = 3);
    assert_eq!(outcome(&ledger.finish_batch(vec![Ok(())])), [(Some(2), false, vec![1])]);
    write_status(&mut ledger, 2, "b");
    ledger.take_batch();
    assert_eq!(outcome(&ledger.finish_batch(vec![Ok(())])), [(Some(3), false, vec![2])]);
}

#[test]
fn a_failed_write_is_answered_and_stays_to_be_written() {
    let mut ledger = Ledger::new(vec![record(true)]);
    write_status(&mut ledger, 1, "a");
    ledger.take_batch();
    assert_eq!(outcome(&ledger.finish_batch(vec![Err("disk full".to_owned())])), [(None, false, vec![1])]);
    assert_eq!(ids(&ledger.take_batch().unwrap()), [Some("a".to_owned())]);
    assert_eq!(outcome(&ledger.finish_batch(vec![])), [(None, false, vec![])], "no answer is a failure");
    assert_eq!(write_status(&mut ledger, 2, "a"), Taken::Waits, "in memory only is not recorded");
}

#[test]
fn a_deleted_object_stays_until_its_finalizer_is_released_and_is_then_gone_op_11() {
    let mut ledger = Ledger::new(vec![record(true)]);
    let (key, uid) = (record(true).key, record(true).uid);
    ledger.change(&key, |record| record.deleting = true);
    ledger.take_batch();
    assert_eq!(outcome(&ledger.finish_batch(vec![Ok(())])), [(Some(1), false, vec![])]);
    assert!(ledger.recorded_of(&key).is_some_and(|record| record.deleting));
    let release = |record: &mut Record| {
        record.finalizer = false;
        Ok(())
    };
    assert_eq!(ledger.request(&key, &uid, 1, release), Taken::Waits);
    assert!(ledger.recorded_of(&key).is_none(), "on its way out");
    assert_eq!(write_status(&mut ledger, 2, "late"), Taken::Gone(2));
    assert_eq!(ids(&ledger.take_batch().unwrap()), [Some("removed".to_owned())]);
    assert_eq!(outcome(&ledger.finish_batch(vec![Ok(())])), [(Some(1), true, vec![1])]);
    assert_eq!(ledger.recorded().count(), 0);
    assert_eq!(ledger.request(&key, &uid, 3, release), Taken::Gone(3));
}

#[test]
fn a_deleted_object_without_a_finalizer_is_gone_at_once() {
    let mut ledger = Ledger::<u32>::new(vec![record(false)]);
    ledger.change(&record(false).key, |record| record.deleting = true);
    assert_eq!(ids(&ledger.take_batch().unwrap()), [Some("removed".to_owned())]);
    assert_eq!(outcome(&ledger.finish_batch(vec![Ok(())])), [(Some(1), true, vec![])]);
}

#[test]
fn a_removal_decided_while_a_write_is_under_way_follows_it() {
    let mut ledger = Ledger::new(vec![record(false)]);
    write_status(&mut ledger, 1, "a");
    ledger.take_batch();
    ledger.change(&record(false).key, |record| record.deleting = true);
    assert_eq!(outcome(&ledger.finish_batch(vec![Ok(())])), [(Some(1), false, vec![1])]);
    assert_eq!(ids(&ledger.take_batch().unwrap()), [Some("removed".to_owned())]);
}

#[test]
fn another_uid_is_another_object() {
    let mut ledger = Ledger::new(vec![record(true)]);
    assert_eq!(ledger.request(&record(true).key, &Uid::new("uid-2"), 1, |_| Ok(())), Taken::Gone(1));
}

#[test]
fn a_new_object_is_not_recorded_before_it_is_written() {
    let mut ledger = Ledger::<u32>::new(Vec::new());
    ledger.create(record(false));
    assert_eq!(ledger.recorded().count(), 0);
    ledger.take_batch();
    ledger.finish_batch(vec![Ok(())]);
    assert_eq!(ledger.recorded().count(), 1);
}

#[test]
fn a_status_alone_is_no_news_for_the_directory() {
    let mut ledger = Ledger::<u32>::new(vec![record(true)]);
    let object = |id: &str, generation: i64| {
        let record = record(true);
        Arc::new(ProxyObject {
            key: record.key,
            uid: record.uid,
            generation,
            spec: record.spec,
            status: status(id),
            annotations: record.annotations,
            deleting: false,
            finalizer: true,
            suspended: false,
            cloud_init: CloudInit::None,
            credentials: CredentialsState::NotNeeded,
        })
    };
    assert!(ledger.tell(&object("a", 1)));
    assert!(!ledger.tell(&object("b", 1)));
    assert!(ledger.tell(&object("b", 2)));
    ledger.forget_told();
    assert!(ledger.tell(&object("b", 2)));
}
