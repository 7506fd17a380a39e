use serde_json::{Value, json};

use super::*;
use crate::source::decode;

fn seen(name: &str, uid: &str, version: &str, port: Value) -> Seen {
    decode::proxy(json!({"metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": version, "generation": 1},
        "spec": {"mode": "External", "endpoint": {"host": "192.0.2.1"}, "port": port}}))
    .unwrap()
}

fn px(uid: &str, version: &str, port: u16) -> Seen {
    seen("px", uid, version, json!(port))
}

fn released(uid: &str, version: &str) -> Seen {
    let mut seen = px(uid, version, 1);
    seen.meta.deleting = true;
    seen
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn port(store: &Store) -> Option<u16> {
    store.get(&key("px")).and_then(|entry| entry.body.as_ref()).map(|body| body.spec.port)
}

fn changed() -> Vec<News> {
    vec![News::Changed(key("px"))]
}

fn gone(uid: &str) -> Vec<News> {
    vec![News::Gone(key("px"), Uid::new(uid))]
}

#[test]
fn a_watch_that_lags_behind_our_own_write_is_not_taken_for_news_o2() {
    let mut store = Store::default();
    assert_eq!(store.observe(px("a", "9", 1), Origin::Watch), changed());
    assert_eq!(store.observe(px("a", "12", 3), Origin::Answer), changed());
    assert_eq!(store.observe(px("a", "10", 2), Origin::Watch), []);
    assert_eq!(store.observe(px("a", "12", 3), Origin::Watch), []);
    assert_eq!(port(&store), Some(3));
    assert_eq!(store.observe(px("a", "100", 4), Origin::Watch), changed());
    assert_eq!(store.observe(px("a", "99", 9), Origin::Answer), [], "an answer may be late as well");
    assert_eq!(port(&store), Some(4));
}

#[test]
fn where_versions_are_no_numbers_nothing_is_taken_until_the_watch_has_come_as_far_as_the_write_o2() {
    let mut store = Store::default();
    store.observe(px("a", "x1", 1), Origin::Watch);
    assert_eq!(store.observe(px("a", "x3", 3), Origin::Answer), changed());
    assert_eq!(store.observe(px("a", "x2", 2), Origin::Watch), []);
    assert_eq!(store.observe(px("a", "x3", 3), Origin::Watch), []);
    assert_eq!(store.observe(px("a", "x4", 4), Origin::Watch), changed());
    store.observe(px("a", "x6", 6), Origin::Answer);
    assert_eq!(store.listed(&Version::new("x9"), vec![px("a", "x8", 8)]), changed(), "a list ends the wait");
    assert_eq!(store.observe(px("a", "x9", 9), Origin::Watch), changed());
}

#[test]
fn a_recreated_object_replaces_the_one_whose_end_was_missed() {
    let mut store = Store::default();
    store.observe(px("a", "5", 1), Origin::Watch);
    assert_eq!(store.observe(px("b", "9", 2), Origin::Watch), [gone("a"), changed()].concat());
    assert_eq!(store.observe(px("a", "6", 1), Origin::Watch), [], "what is told of the old one is late");
    assert_eq!(store.gone(&key("px"), &Uid::new("a")), []);
    assert_eq!(store.gone(&key("px"), &Uid::new("b")), gone("b"));
}

#[test]
fn an_object_that_was_released_does_not_come_back_with_a_late_event() {
    let mut store = Store::default();
    store.observe(px("a", "5", 1), Origin::Watch);
    assert_eq!(store.observe(released("a", "7"), Origin::Answer), gone("a"));
    assert_eq!(store.observe(released("a", "6"), Origin::Watch), []);
    assert_eq!(store.listed(&Version::new("7"), vec![released("a", "7")]), [], "the list was made before it was gone");
    assert_eq!(store.gone(&key("px"), &Uid::new("a")), []);
    assert!(store.buried.is_empty());
    store.observe(px("b", "8", 1), Origin::Watch);
    store.observe(released("b", "9"), Origin::Answer);
    store.listed(&Version::new("12"), vec![]);
    assert!(store.buried.is_empty(), "a list without it ends the wait");
}

#[test]
fn a_list_tells_what_a_watch_missed_and_spares_what_was_seen_later() {
    let mut store = Store::default();
    store.observe(px("a", "5", 1), Origin::Watch);
    store.observe(seen("lost", "c", "6", json!(1)), Origin::Watch);
    store.observe(seen("young", "d", "30", json!(1)), Origin::Answer);
    let news = store.listed(&Version::new("20"), vec![px("a", "5", 1), seen("new", "e", "19", json!(1))]);
    assert_eq!(news, [News::Gone(key("lost"), Uid::new("c")), News::Changed(key("new"))]);
    assert_eq!(store.keys(), [key("new"), key("px"), key("young")]);
}

#[test]
fn a_bad_object_keeps_its_last_good_body_with_new_metadata_and_one_that_never_was_good_is_known_too() {
    let mut store = Store::default();
    store.observe(px("a", "5", 1), Origin::Watch);
    let mut bad = seen("px", "a", "6", json!("x"));
    bad.meta.deleting = true;
    assert_eq!(store.observe(bad, Origin::Watch), changed());
    let entry = store.get(&key("px")).unwrap();
    assert!(entry.fault.as_ref().unwrap().starts_with("spec: ") && entry.meta.deleting);
    assert_eq!(port(&store), Some(1));
    store.observe(px("a", "7", 2), Origin::Watch);
    assert_eq!((port(&store), store.get(&key("px")).unwrap().fault.as_ref()), (Some(2), None));
    store.observe(seen("worse", "b", "8", json!("x")), Origin::Watch);
    assert!(store.get(&key("worse")).unwrap().body.is_none());
}

#[test]
fn what_did_not_change_stays_the_same_piece_of_memory_in_10() {
    let mut store = Store::default();
    store.observe(px("a", "5", 1), Origin::Watch);
    let spec = Arc::clone(&store.get(&key("px")).unwrap().body.as_ref().unwrap().spec);
    store.observe(px("a", "6", 1), Origin::Watch);
    assert!(Arc::ptr_eq(&spec, &store.get(&key("px")).unwrap().body.as_ref().unwrap().spec));
}
