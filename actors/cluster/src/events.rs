//! Kubernetes Events (OP-9): what to send of what is announced. Pure.
//!
//! What must stay true: the same cause again soon is a count in the Event that is there; another cause is another Event; one
//! object cannot flood the API server.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use egress_kube::{PatchKind, Request, segment};
use egress_protocol::resource::conditions::cut_bytes;
use egress_protocol::resource::{GROUP, VERSION};
use egress_protocol::source::{EventReason, ProxyEvent};
use egress_protocol::{Timestamp, Uid};
use serde_json::{Value, json};

const KIND: &str = "events";
/// Who says so, as the API asks for it.
const CONTROLLER: &str = "crawl.example.com/egress-proxies-operator";
/// Bytes of a note that the API takes.
const NOTE: usize = 1024;
/// The same again after this long is an Event of its own.
const SERIES: Duration = Duration::from_secs(6 * 60);
/// So many Events of one object at once, and one more each time this has passed.
const BURST: u32 = 20;
const REFILL: Duration = Duration::from_secs(30);
/// So many are remembered; beyond that the old ones are forgotten first.
const REMEMBERED: usize = 20_000;

/// What happened, to whom and why; of the note only what tells it from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Cause(Uid, EventReason, u64);

#[derive(Debug)]
struct Recent {
    name: String,
    count: u32,
    last: Timestamp,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    refilled: Timestamp,
}

/// What was sent of late.
#[derive(Debug, Default)]
pub(crate) struct Events {
    recent: HashMap<Cause, Recent>,
    buckets: HashMap<Uid, Bucket>,
    pruned: Timestamp,
}

impl Events {
    /// What to send for it, if anything; `id` makes its name unique.
    pub(crate) fn announce(&mut self, event: &ProxyEvent, reporter: &str, id: u64, now: Timestamp) -> Option<Request> {
        self.prune(now);
        let bucket = self.buckets.entry(event.uid.clone()).or_insert(Bucket { left: BURST, refilled: now });
        while bucket.left < BURST && now.since(bucket.refilled) >= REFILL {
            (bucket.left, bucket.refilled) = (bucket.left + 1, bucket.refilled + REFILL);
        }
        if bucket.left == BURST {
            bucket.refilled = now;
        }
        bucket.left = bucket.left.checked_sub(1)?;
        let mut hasher = DefaultHasher::new();
        event.note.hash(&mut hasher);
        let cause = Cause(event.uid.clone(), event.reason, hasher.finish());
        if let Some(recent) = self.recent.get_mut(&cause) {
            (recent.count, recent.last) = (recent.count.saturating_add(1), now);
            let path = format!("{}/{}", path(&event.key.namespace), segment(&recent.name));
            let series = json!({"series": {"count": recent.count, "lastObservedTime": micro(event.at)}});
            return Some(Request::patch(KIND, &path, PatchKind::Merge, &series));
        }
        let name = name(&event.key.name, id);
        let body = body(event, &name, reporter);
        self.recent.insert(cause, Recent { name, count: 1, last: now });
        Some(Request::create(KIND, &path(&event.key.namespace), &body))
    }

    /// Now and then: what is old counts no more.
    fn prune(&mut self, now: Timestamp) {
        if now.since(self.pruned) < SERIES / 6 && self.recent.len() < REMEMBERED {
            return;
        }
        self.pruned = now;
        self.recent.retain(|_, recent| now.since(recent.last) < SERIES);
        if self.recent.len() >= REMEMBERED {
            self.recent.clear();
        }
        self.buckets.retain(|_, bucket| now.since(bucket.refilled) < REFILL * BURST);
    }
}

fn path(namespace: &str) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{}/events", segment(namespace))
}

/// At most 253 bytes, and a DNS name like the object's own.
fn name(object: &str, id: u64) -> String {
    let object = object.get(..236).unwrap_or(object).trim_end_matches(['.', '-']);
    format!("{object}.{id:016x}")
}

fn micro(at: Timestamp) -> String {
    format!("{:.6}", at.to_jiff())
}

fn body(event: &ProxyEvent, name: &str, reporter: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": event.key.namespace},
        "eventTime": micro(event.at),
        "reportingController": CONTROLLER,
        "reportingInstance": cut_bytes(reporter, 128),
        "type": type_of(event.reason),
        "reason": event.reason.as_str(),
        "action": event.reason.as_str(),
        "note": cut_bytes(&event.note, NOTE),
        "regarding": {
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "Proxy",
            "namespace": event.key.namespace,
            "name": event.key.name,
            "uid": event.uid,
        },
    })
}

const fn type_of(reason: EventReason) -> &'static str {
    match reason {
        EventReason::Created
        | EventReason::Running
        | EventReason::Replacing
        | EventReason::Recovered
        | EventReason::Deleted
        | EventReason::Cordoned
        | EventReason::Uncordoned
        | EventReason::Draining => "Normal",
        EventReason::Failed
        | EventReason::Unhealthy
        | EventReason::Paused
        | EventReason::CleanupSkipped
        | EventReason::CheckUrlSuspect
        | EventReason::EgressShared => "Warning",
    }
}

#[cfg(test)]
mod tests {
    use egress_protocol::ObjectKey;

    use super::*;

    fn event(uid: &str, reason: EventReason, note: &str) -> ProxyEvent {
        let at = Timestamp::from_millis(1_767_323_045_678);
        ProxyEvent { key: ObjectKey::new("team", "px-1"), uid: Uid::new(uid), reason, note: note.to_owned(), at }
    }

    fn sent(events: &mut Events, event: &ProxyEvent, now: i64) -> Option<String> {
        events.announce(event, "pod-1", 7, Timestamp::from_millis(now)).map(|request| format!("{request:?}"))
    }

    const POST: &str = "POST /apis/events.k8s.io/v1/namespaces/team/events";
    const PATCH: &str = "PATCH /apis/events.k8s.io/v1/namespaces/team/events/px-1.0000000000000007";

    #[test]
    fn the_same_cause_is_counted_and_another_cause_is_another_event_op_9() {
        let mut events = Events::default();
        let down = |note: &str| event("u", EventReason::Unhealthy, note);
        assert_eq!(sent(&mut events, &down("Timeout"), 0).as_deref(), Some(POST));
        assert_eq!(sent(&mut events, &down("Timeout"), 1000).as_deref(), Some(PATCH));
        assert_eq!(sent(&mut events, &down("ConnectFailed"), 2000).as_deref(), Some(POST));
        assert_eq!(sent(&mut events, &event("other", EventReason::Unhealthy, "Timeout"), 3000).as_deref(), Some(POST));
        assert_eq!(sent(&mut events, &down("Timeout"), 400_000).as_deref(), Some(POST), "long after, it is news again");
    }

    #[test]
    fn one_object_cannot_flood_the_api_server_and_delays_no_other_op_9() {
        let mut events = Events::default();
        let count = |events: &mut Events, uid: &str, now: i64| {
            (0..100).filter(|n| sent(events, &event(uid, EventReason::Failed, &n.to_string()), now).is_some()).count()
        };
        assert_eq!(count(&mut events, "a", 0), 20);
        assert_eq!((count(&mut events, "a", 29_000), count(&mut events, "b", 29_000)), (0, 20));
        assert_eq!(count(&mut events, "a", 90_000), 3);
        assert_eq!(count(&mut events, "a", 10_000_000), 20);
    }

    #[test]
    fn memory_is_bounded() {
        let mut events = Events::default();
        for n in 0..50_000 {
            sent(&mut events, &event(&n.to_string(), EventReason::Created, ""), 1000);
        }
        assert!(events.recent.len() <= REMEMBERED);
        sent(&mut events, &event("x", EventReason::Created, ""), 100_000_000);
        assert_eq!((events.recent.len(), events.buckets.len()), (1, 1));
    }

    #[test]
    fn texts_are_cut_to_what_the_api_takes_at_a_character_boundary_op_9() {
        let body = body(&event("u", EventReason::Failed, &"é".repeat(600)), "n", &"p".repeat(200));
        let length = |field: &str| body[field].as_str().unwrap().len();
        assert_eq!((length("note"), length("reportingInstance")), (1024, 128));
        assert_eq!(cut_bytes(&"€".repeat(400), 1024).len(), 1023);
        assert_eq!(body["eventTime"], "2026-01-02T03:04:05.678000Z");
        assert_eq!((body["type"].as_str(), body["regarding"]["uid"].as_str()), (Some("Warning"), Some("u")));
        assert!(name(&"a.".repeat(150), u64::MAX).len() <= 253);
        assert_eq!(name("px", 255), "px.00000000000000ff");
    }
}
