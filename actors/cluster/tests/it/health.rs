//! The writer of ProviderHealth objects against the real API server (provider-health.md §6).

use std::sync::Arc;
use std::time::Duration;

use egress_cluster::health::{self, HealthArgs};
use egress_kube::Request;
use egress_protocol::leadership::Fence;
use egress_protocol::message::Never;
use egress_protocol::metrics::Metrics;
use egress_protocol::monitor::{PUBLISHER_ID, PublisherMessage};
use egress_protocol::resource::ProviderHealthStatus;
use egress_protocol::{Clock, InstallationId};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Root, System};
use serde_json::{Value, json};

use crate::account::{Account, manager};
use crate::bed::{Bed, SOON, eventually};
use crate::relay::Relay;

const ALL: &str = "/apis/crawl.example.com/v1alpha1/providerhealths";

struct TestRoot;

impl Actor for TestRoot {
    type Message = Never;
    type Internal = Never;
    type Args = HealthArgs;
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, args: HealthArgs) -> Result<Self, Failure> {
        ctx.start_child_and_wait(health::spec(args)).await?;
        Ok(Self)
    }
    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> Value {
        Value::Null
    }
}

struct Publisher {
    system: System,
    root: Root,
}

impl Publisher {
    async fn start(args: HealthArgs) -> Self {
        let system = System::new(Clock::system(), Metrics::default().shared());
        let root = system.start_root(ChildSpec::<TestRoot>::essential("root", args)).await.unwrap();
        Self { system, root }
    }

    fn send(&self, message: PublisherMessage) {
        self.system.address(PUBLISHER_ID).send(message).unwrap();
    }

    fn publish(&self, name: &str, status: &Value) {
        let status: ProviderHealthStatus = serde_json::from_value(status.clone()).unwrap();
        self.send(PublisherMessage::Publish { name: name.into(), status: Arc::new(status) });
    }

    fn clean_up(&self, keep: &[&str]) {
        self.send(PublisherMessage::Cleanup { keep: keep.iter().map(|name| Arc::from(*name)).collect() });
    }
}

/// Two targets, checked at minute `minute`, the second of them ready or not.
fn round(minute: u8, second: bool) -> Value {
    let at = format!("2026-01-02T03:{minute:02}:00Z");
    let target = |name: &str, ready: bool| {
        let mut target = json!({"name": name, "ready": ready, "lastTransitionTime": at, "latencyMillis": 3});
        if !ready {
            target["message"] = json!("refused");
        }
        target
    };
    json!({
        "type": "local",
        "conditions": [{"type": "Ready", "status": if second { "True" } else { "False" }, "reason": "AllTargetsReady", "message": "", "lastTransitionTime": at}],
        "targets": [target("a", true), target("b", second)],
        "targetsReady": if second { "2/2" } else { "1/2" },
        "lastCheckTime": at,
    })
}

struct Names<'a> {
    bed: &'a Bed,
    args: HealthArgs,
}

impl<'a> Names<'a> {
    /// Objects of no namespace: each test has names and an installation of its own.
    fn of(bed: &'a Bed) -> Self {
        let installation = InstallationId::new(bed.namespace.as_str());
        Self { bed, args: HealthArgs { client: bed.admin.clone(), installation, fence: Fence::open() } }
    }

    fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.bed.namespace)
    }

    async fn get(&self, name: &str) -> Option<Value> {
        match self.bed.send(&Request::get("test", &format!("{ALL}/{}", self.name(name)))).await {
            Err(error) if error.code() == Some(404) => None,
            found => Some(found.unwrap()),
        }
    }

    async fn until(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(what, SOON, || async { self.get(name).await.filter(|object| is(object)) }).await
    }

    async fn make(&self, name: &str, labels: Value) {
        let object = json!({"apiVersion": "crawl.example.com/v1alpha1", "kind": "ProviderHealth", "metadata": {"name": self.name(name), "labels": labels}});
        self.bed.create(ALL, &object).await.unwrap();
    }

    fn ours(&self) -> Value {
        json!({"app.kubernetes.io/managed-by": "egress-proxies-operator", "crawl.example.com/installation": self.bed.namespace})
    }

    /// Writes to that object, as the audit log has them: `create`, `patch status`.
    fn writes(&self, name: &str) -> Vec<String> {
        let name = self.name(name);
        let verb = |entry: Value| {
            format!("{} {}", entry["verb"].as_str().unwrap(), entry["objectRef"]["subresource"].as_str().unwrap_or_default())
        };
        let entries = self.bed.audit_where(|entry| entry["objectRef"]["name"] == name.as_str() && entry["verb"] != "get");
        entries.into_iter().map(verb).map(|verb| verb.trim_end().to_owned()).collect()
    }
}

/// HT-03, HT-09: PH-17, PH-20, PH-21.
#[tokio::test]
async fn an_object_is_made_once_with_its_labels_and_patched_once_a_round_ht_03_ht_09() {
    let Some(bed) = Bed::get("an_object_is_made_once_with_its_labels_and_patched_once_a_round_ht_03_ht_09").await else { return };
    let account = Account::new(&bed, "manager", &manager()).await;
    let mut names = Names::of(&bed);
    names.args.client = account.client();
    let publisher = Publisher::start(names.args.clone()).await;
    publisher.publish(&names.name("lab"), &round(1, true));
    let made = names.until("lab", "round one is written", |object| object["status"]["lastCheckTime"] == "2026-01-02T03:01:00Z").await;
    assert_eq!((&made["metadata"]["labels"], &made["status"]), (&names.ours(), &round(1, true)));
    publisher.publish(&names.name("lab"), &round(2, false));
    let second = names.until("lab", "round two is written", |object| object["status"]["lastCheckTime"] == "2026-01-02T03:02:00Z").await;
    let time = |target: usize| &second["status"]["targets"][target]["lastTransitionTime"];
    assert_eq!(
        (time(0), time(1)),
        (&json!("2026-01-02T03:01:00Z"), &json!("2026-01-02T03:02:00Z")),
        "only the flipped target's time moves"
    );
    assert_eq!(second["status"]["conditions"][0]["lastTransitionTime"], "2026-01-02T03:02:00Z");
    publisher.publish(&names.name("lab"), &json!({"type": "local", "targetsReady": "0/0"}));
    let third = names.until("lab", "round three is written", |object| object["status"]["targetsReady"] == "0/0").await;
    assert_eq!(third["status"], json!({"type": "local", "targetsReady": "0/0"}), "nothing stale survives");
    // A new incarnation goes by the object, not by what it remembers.
    publisher.root.stop().await;
    let publisher = Publisher::start(names.args.clone()).await;
    publisher.publish(&names.name("lab"), &round(3, true));
    names.until("lab", "round four is written", |object| object["status"]["targetsReady"] == "2/2").await;
    publisher.publish(&names.name("lab"), &round(4, true));
    let last = names.until("lab", "round five is written", |object| object["status"]["lastCheckTime"] == "2026-01-02T03:04:00Z").await;
    assert_eq!(last["status"]["targets"][0]["lastTransitionTime"], "2026-01-02T03:03:00Z");
    assert_eq!(names.writes("lab"), ["create", "patch status", "patch status", "patch status", "patch status", "patch status"]);
    let verbs: Vec<String> = account.asked(&bed).iter().map(|entry| entry["verb"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        verbs,
        ["get", "create", "patch", "get", "patch", "get", "patch", "get", "patch", "get", "patch"],
        "one read and one patch a round, and no watch (PH-20)"
    );
    assert_eq!(account.forbidden(&bed), Vec::<String>::new(), "PH-45");
}

/// HT-06: PH-23, PH-25, PH-26.
#[tokio::test]
async fn a_cleanup_deletes_what_is_ours_and_not_configured_and_nothing_else_ht_06() {
    let Some(bed) = Bed::get("a_cleanup_deletes_what_is_ours_and_not_configured_and_nothing_else_ht_06").await else { return };
    let names = Names::of(&bed);
    for name in ["kept", "gone"] {
        names.make(name, names.ours()).await;
    }
    names.make("unlabelled", json!({})).await;
    names.make("by-hand", json!({"crawl.example.com/installation": bed.namespace})).await;
    names
        .make("foreign", json!({"app.kubernetes.io/managed-by": "egress-proxies-operator", "crawl.example.com/installation": "other"}))
        .await;
    let publisher = Publisher::start(names.args.clone()).await;
    publisher.clean_up(&[&names.name("kept"), "another"]);
    eventually("what is not configured is gone", SOON, || async { names.get("gone").await.is_none().then_some(()) }).await;
    for name in ["kept", "unlabelled", "by-hand", "foreign"] {
        assert!(names.get(name).await.is_some(), "{name} was deleted");
    }
    publisher.clean_up(&[]);
    eventually("all of ours are gone (PH-25)", SOON, || async { names.get("kept").await.is_none().then_some(()) }).await;
    for name in ["unlabelled", "by-hand", "foreign"] {
        assert!(names.get(name).await.is_some(), "{name} was deleted");
        assert_eq!(names.writes(name), ["create"]);
    }
}

/// PH-23.
#[tokio::test]
async fn an_object_of_another_installation_is_never_touched_ph_23() {
    let Some(bed) = Bed::get("an_object_of_another_installation_is_never_touched_ph_23").await else { return };
    let names = Names::of(&bed);
    names.make("theirs", json!({"crawl.example.com/installation": "other"})).await;
    names.make("nobodys", json!({})).await;
    let publisher = Publisher::start(names.args.clone()).await;
    publisher.publish(&names.name("theirs"), &round(1, true));
    publisher.publish(&names.name("nobodys"), &round(1, true));
    names.until("nobodys", "one without an owner is written", |object| object["status"]["targetsReady"] == "2/2").await;
    publisher.publish(&names.name("theirs"), &round(2, true));
    publisher.publish(&names.name("nobodys"), &round(2, true));
    names.until("nobodys", "round two is written", |object| object["status"]["lastCheckTime"] == "2026-01-02T03:02:00Z").await;
    assert_eq!(names.get("theirs").await.unwrap()["status"], Value::Null);
    assert_eq!(names.writes("theirs"), ["create"]);
    let system = &publisher.system;
    let tree = serde_json::to_string(&system.inspect(None, None).await).unwrap();
    assert!(tree.contains("\"foreign\":1"), "{tree}");
}

/// HT-08: PH-22.
#[tokio::test]
async fn a_failed_write_stops_nothing_and_is_repaired_by_the_next_round_ht_08() {
    let Some(bed) = Bed::get("a_failed_write_stops_nothing_and_is_repaired_by_the_next_round_ht_08").await else { return };
    let relay = Relay::start(&bed.admin).await;
    let mut names = Names::of(&bed);
    names.args.client = relay.client();
    let publisher = Publisher::start(names.args.clone()).await;
    relay.refuse("PATCH", &names.name("bad"), 1, 500, "not now");
    relay.refuse("GET", &names.name("unread"), 1, 403, "not you");
    relay.refuse("GET", &names.name("raced"), 1, 404, "not found");
    names.make("raced", names.ours()).await;
    for name in ["bad", "unread", "raced", "good"] {
        publisher.publish(&names.name(name), &round(1, true));
    }
    for name in ["good", "raced"] {
        names.until(name, "is written", |object| object["status"]["targetsReady"] == "2/2").await;
    }
    let bad = names
        .until("bad", "is made", |object| !object["metadata"]["uid"].is_null() && !relay.passed("PATCH", &names.name("bad")).is_empty());
    bad.await;
    assert_eq!(names.get("bad").await.unwrap()["status"], Value::Null);
    assert_eq!(names.get("unread").await, None);
    assert_eq!(relay.passed("PATCH", &names.name("bad")).len(), 1, "it is left to the next round");
    for name in ["bad", "unread"] {
        publisher.publish(&names.name(name), &round(2, true));
        names.until(name, "is repaired", |object| object["status"]["targetsReady"] == "2/2").await;
    }
    let patch = &relay.passed("PATCH", &names.name("good"))[0];
    assert_eq!(patch.body["status"].as_object().unwrap().len(), 5, "all five fields in full (PH-21)");
}

/// PH-11, SV-4.
#[tokio::test]
async fn behind_a_closed_fence_nothing_is_asked_and_nothing_piles_up_ph_11() {
    let Some(bed) = Bed::get("behind_a_closed_fence_nothing_is_asked_and_nothing_piles_up_ph_11").await else { return };
    let relay = Relay::start(&bed.admin).await;
    let fence = Fence::closed();
    let mut names = Names::of(&bed);
    names.args = HealthArgs { client: relay.client(), fence: fence.clone(), ..names.args };
    let publisher = Publisher::start(names.args.clone()).await;
    publisher.publish(&names.name("lab"), &round(1, true));
    publisher.clean_up(&[]);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(relay.passed("GET", "").len(), 0);
    // Of many rounds that could not be written while the API server was slow, the last one is.
    fence.extend(tokio::time::Instant::now() + SOON);
    relay.hang("GET", &names.name("lab"));
    for minute in 1..20 {
        publisher.publish(&names.name("lab"), &round(minute, true));
    }
    eventually("the first is on its way", SOON, || async { (!relay.passed("GET", &names.name("lab")).is_empty()).then_some(()) }).await;
    relay.thaw();
    names.until("lab", "the last round is written", |object| object["status"]["lastCheckTime"] == "2026-01-02T03:19:00Z").await;
    assert!(names.writes("lab").len() <= 3, "{:?}", names.writes("lab"));
}

/// HT-09: PH-4, PH-5, as the API server judges.
#[tokio::test]
async fn the_kind_is_as_specified_ht_09() {
    let Some(bed) = Bed::get("the_kind_is_as_specified_ht_09").await else { return };
    let names = Names::of(&bed);
    names.make("lab", names.ours()).await;
    let path = format!("{ALL}/{}", names.name("lab"));
    let patched = bed.patch(&path, json!({"status": {"type": "local"}})).await;
    assert_eq!(patched["status"], Value::Null, "the status is a subresource");
    let target = |target: Value| json!({"status": {"targets": [target]}});
    let good = json!({"name": "t", "ready": true, "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let with = |field: &str, value: Value| {
        let mut target = good.clone();
        target[field] = value;
        target
    };
    let details = |count: usize, length: usize| {
        json!((0..count).map(|n| (n.to_string(), "x".repeat(length).into())).collect::<serde_json::Map<_, _>>())
    };
    let status = |body: Value| {
        let path = format!("{path}/status");
        let bed = &bed;
        async move { bed.send(&Request::patch("test", &path, egress_kube::PatchKind::Merge, &body)).await }
    };
    for accepted in [with("message", json!("é".repeat(1024))), with("details", details(32, 256)), with("latencyMillis", json!(1i64 << 40))]
    {
        status(target(accepted)).await.unwrap();
    }
    for (refused, field) in [
        (json!({"name": "t", "ready": true}), "lastTransitionTime"),
        (json!({"ready": true, "lastTransitionTime": "2026-01-02T03:04:05Z"}), "name"),
        (with("name", json!("")), "name"),
        (with("message", json!("x".repeat(1025))), "message"),
        (with("details", details(33, 1)), "details"),
        (with("details", details(1, 257)), "details"),
    ] {
        let error = status(target(refused)).await.unwrap_err();
        assert!(error.code() == Some(422) && error.to_string().contains(field), "{field}: {error}");
    }
    let twice = status(json!({"status": {"targets": [good, good]}})).await.unwrap_err();
    assert!(twice.to_string().contains("Duplicate value"), "a list-map by name: {twice}");
    let namespaced = format!("/apis/crawl.example.com/v1alpha1/namespaces/{}/providerhealths", bed.namespace);
    assert_eq!(bed.send(&Request::list("test", &namespaced, &[])).await.unwrap_err().code(), Some(404), "of no namespace");
}
