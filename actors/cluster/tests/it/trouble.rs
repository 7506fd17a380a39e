//! The source when the network, the API server or an object is not as it should be. Between it and the real API server stands
//! a [`Relay`].

use std::time::Duration;

use egress_cluster::source::{Pace, SourceArgs};
use egress_protocol::leadership::Fence;
use egress_protocol::object::CloudInit;
use egress_protocol::resource::{FINALIZER, LABEL_CLOUD_INIT, Phase, ProxyStatus};
use egress_protocol::source::SourceError;
use serde_json::{Value, json};

use crate::bed::{Bed, SOON, eventually, external};
use crate::relay::Relay;
use crate::tree::Tree;

/// Everything sooner than usual.
pub fn quick() -> Pace {
    Pace {
        retry: (Duration::from_millis(20), Duration::from_millis(200)),
        lasting: Duration::from_millis(50),
        secrets: Duration::from_secs(1),
        patience: Duration::from_millis(100),
        ..Pace::default()
    }
}

fn args(bed: &Bed, relay: &Relay) -> SourceArgs {
    SourceArgs { pace: quick(), ..SourceArgs::new(relay.client(), bed.scope(), Fence::open(), "pod-1") }
}

fn status(phase: Phase) -> ProxyStatus {
    ProxyStatus { phase: Some(phase), ..ProxyStatus::default() }
}

const LIST: &str = "/proxies?limit";
const WATCH: &str = "/proxies?watch=true";

async fn no_faults(tree: &Tree) {
    eventually("nothing is wrong any more", SOON, || async { tree.faults().await.is_empty().then_some(()) }).await;
}

async fn a_fault(tree: &Tree, part: &str) -> String {
    let found = || async { tree.faults().await.into_iter().find(|fault| fault.contains(part)) };
    eventually(&format!("a fault says {part:?}"), SOON, found).await
}

async fn watching(relay: &Relay, count: usize) {
    eventually("the watches are open", SOON, || async { (relay.watches("watch=true") == count).then_some(()) }).await;
}

#[tokio::test]
async fn a_watch_that_is_cut_is_resumed_where_it_ended_and_misses_nothing() {
    let Some(bed) = Bed::get("a_watch_that_is_cut_is_resumed_where_it_ended_and_misses_nothing").await else { return };
    let relay = Relay::start(&bed.admin).await;
    let tree = Tree::start(args(&bed, &relay)).await;
    tree.synced().await;
    bed.create_proxy("px", external()).await;
    let px = tree.until("px", "is told", |_| true).await;
    for port in 1000..1010 {
        relay.cut();
        bed.patch(&bed.proxy("px"), json!({"spec": {"port": port}})).await;
        if port % 2 == 0 {
            tree.until("px", "is as edited", |object| object.spec.port == port).await;
        }
    }
    relay.cut();
    bed.delete(&bed.proxy("px")).await;
    eventually("it is told to be gone", SOON, || async { (tree.gone(&px.uid) == 1).then_some(()) }).await;
    assert_eq!(relay.passed("GET", LIST).len(), 1, "nothing was listed again");
    assert_eq!(tree.syncs(), 1);
    no_faults(&tree).await;
}

#[tokio::test]
async fn after_a_410_everything_is_listed_again_and_what_went_meanwhile_is_told() {
    let Some(bed) = Bed::get("after_a_410_everything_is_listed_again_and_what_went_meanwhile_is_told").await else { return };
    let relay = Relay::start(&bed.admin).await;
    for name in ["stays", "goes", "returns"] {
        bed.create_proxy(name, external()).await;
    }
    let tree = Tree::start(args(&bed, &relay)).await;
    tree.synced().await;
    watching(&relay, 3).await;
    // As an answer, and as an event of a running watch.
    relay.refuse("GET", WATCH, usize::MAX, 503, "not now");
    relay.cut();
    let (goes, returns) = (tree.last("goes").unwrap().uid.clone(), tree.last("returns").unwrap().uid.clone());
    for name in ["goes", "returns"] {
        bed.delete(&bed.proxy(name)).await;
    }
    bed.create_proxy("returns", external()).await;
    a_fault(&tree, "not now").await;
    let place = relay.passed("GET", WATCH).last().unwrap().uri.rsplit('=').next().unwrap().to_owned();
    relay.clear();
    relay.refuse("GET", &format!("resourceVersion={place}"), usize::MAX, 410, "too old resource version");
    eventually("what went is told", SOON, || async { (tree.gone(&goes) == 1 && tree.gone(&returns) == 1).then_some(()) }).await;
    tree.until("returns", "is another one", |object| object.uid != returns).await;
    assert_eq!(tree.applied("stays"), 1, "what did not change is not told again");
    watching(&relay, 3).await;
    let lists = relay.passed("GET", LIST).len();
    relay.inject(WATCH, &json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}));
    eventually("it is listed again", SOON, || async { (relay.passed("GET", LIST).len() > lists).then_some(()) }).await;
    no_faults(&tree).await;
}

#[tokio::test]
async fn a_half_open_connection_is_noticed_and_left_o11_op_29() {
    let Some(bed) = Bed::get("a_half_open_connection_is_noticed_and_left_o11_op_29").await else { return };
    let relay = Relay::start(&bed.admin).await;
    let pace = Pace { idle: Duration::from_secs(2), ..quick() };
    let tree = Tree::start(SourceArgs { pace, ..args(&bed, &relay) }).await;
    tree.synced().await;
    bed.create_proxy("px", external()).await;
    let px = tree.until("px", "is told", |_| true).await;
    watching(&relay, 3).await;
    relay.freeze();
    bed.patch(&bed.proxy("px"), json!({"spec": {"port": 8080}})).await;
    a_fault(&tree, "the watch was silent for 2s").await;
    let began = tokio::time::Instant::now();
    let written = tree.write(&px.key, &px.uid, status(Phase::Ready)).await;
    assert!(matches!(&written, Err(SourceError::Unavailable(why)) if why.contains("did not answer within 10s")), "{written:?}");
    assert!(began.elapsed() < Duration::from_secs(12), "a write has a deadline");
    a_fault(&tree, "does not take writes").await;
    relay.thaw();
    tree.until("px", "is as edited", |object| object.spec.port == 8080).await;
    assert_eq!(tree.write(&px.key, &px.uid, status(Phase::Ready)).await, Ok(2));
}

#[tokio::test]
async fn an_api_server_that_goes_and_comes_back_is_followed_again() {
    let Some(bed) = Bed::get("an_api_server_that_goes_and_comes_back_is_followed_again").await else { return };
    let mut relay = Relay::start(&bed.admin).await;
    let tree = Tree::start(args(&bed, &relay)).await;
    tree.synced().await;
    bed.create_proxy("px", external()).await;
    let px = tree.until("px", "is told", |_| true).await;
    relay.stop();
    a_fault(&tree, "Proxies are not told for").await;
    assert!(matches!(tree.write(&px.key, &px.uid, status(Phase::Ready)).await, Err(SourceError::Unavailable(_))));
    assert!(matches!(tree.live().await, Err(SourceError::Unavailable(_))), "no answer is no evidence (OG-3)");
    bed.patch(&bed.proxy("px"), json!({"spec": {"port": 8080}})).await;
    relay.start_again().await;
    tree.until("px", "is as edited", |object| object.spec.port == 8080).await;
    assert_eq!(tree.write(&px.key, &px.uid, status(Phase::Ready)).await, Ok(2));
    no_faults(&tree).await;
    assert_eq!(tree.gone(&px.uid), 0);
}

/// One that cannot be read beside one that can: in a list, as an event, and with nothing to name it by.
#[tokio::test]
async fn a_malformed_object_is_a_named_fault_and_stops_nothing() {
    let Some(bed) = Bed::get("a_malformed_object_is_a_named_fault_and_stops_nothing").await else { return };
    let relay = Relay::start(&bed.admin).await;
    let never = bed.create_proxy("never", external()).await["metadata"]["uid"].clone();
    bed.create_proxy("px", external()).await;
    relay.rewrite(|uri, mut answer| {
        for item in answer["items"].as_array_mut().into_iter().flatten().filter(|_| uri.contains(LIST)) {
            if item["metadata"]["name"] == "never" {
                item["spec"]["port"] = json!("a password");
            }
        }
        answer
    });
    let tree = Tree::start(args(&bed, &relay)).await;
    tree.synced().await;
    watching(&relay, 3).await;
    let fault = a_fault(&tree, "/never cannot be read").await;
    assert!(fault.contains("spec: invalid type") && !fault.contains("password"), "{fault}");
    assert_eq!((tree.applied("never"), tree.applied("px")), (0, 1));
    let live = tree.heard().into_iter().find_map(|message| match message {
        egress_protocol::proxies::ProxiesMessage::Synced { live } => Some(live),
        _ => None,
    });
    assert!(live.unwrap().iter().any(|uid| never == uid.as_str()), "it counts as live: nothing of it is an orphan");

    let mut bad = bed.get_proxy("px").await;
    let version: u64 = bad["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    bad["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    bad["metadata"]["annotations"] = json!({"crawl.example.com/retry": "now"});
    bad["spec"]["colour"] = json!("red");
    relay.inject(WATCH, &json!({"type": "MODIFIED", "object": bad}));
    a_fault(&tree, "/px cannot be read: spec: unknown field `colour`").await;
    let px = tree.until("px", "keeps its spec with the new annotation", |object| object.annotations.retry.is_some()).await;
    assert_eq!(px.spec.port, 3128);
    relay.inject(WATCH, &json!({"type": "MODIFIED", "object": {"metadata": {}}}));
    a_fault(&tree, "an object without readable metadata").await;
    // The watch goes on; the real object is newer than what was put into it.
    for _ in 0..3 {
        bed.patch(
            &bed.proxy("px"),
            json!({"spec": {"port": 8080}, "metadata": {"annotations": {"x": format!("{}", rand::random::<u32>())}}}),
        )
        .await;
    }
    tree.until("px", "is well again", |object| object.spec.port == 8080).await;
    bed.patch(&bed.proxy("never"), json!({"spec": {"port": 8081}})).await;
    tree.until("never", "is well", |object| object.spec.port == 8081).await;
    eventually("both are well", SOON, || async {
        (!tree.faults().await.iter().any(|fault| fault.contains("cannot be read: spec"))).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_late_event_does_not_take_back_what_a_write_has_shown_o2() {
    let Some(bed) = Bed::get("a_late_event_does_not_take_back_what_a_write_has_shown_o2").await else { return };
    let relay = Relay::start(&bed.admin).await;
    let before = bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed, &relay)).await;
    tree.synced().await;
    watching(&relay, 3).await;
    let px = tree.last("px").unwrap();
    // The watch is silent; the answers to writes are all there is.
    relay.refuse("GET", WATCH, usize::MAX, 503, "not now");
    relay.cut();
    a_fault(&tree, "not now").await;
    tree.add_finalizer(&px.key, &px.uid).await.unwrap();
    assert!(tree.last("px").unwrap().finalizer, "told with the answer, without the watch");
    bed.patch(&bed.proxy("px"), json!({"spec": {"port": 8080}})).await;
    assert_eq!(tree.write(&px.key, &px.uid, status(Phase::Running)).await, Err(SourceError::Conflict));
    let told = tree.last("px").unwrap();
    assert_eq!((told.generation, told.spec.port), (2, 8080), "a conflict is read again, and told before it is answered");
    assert_eq!(tree.write(&px.key, &px.uid, status(Phase::Running)).await, Ok(2));
    relay.clear();
    watching(&relay, 3).await;
    // What the watch said before all that comes again.
    relay.inject(WATCH, &json!({"type": "MODIFIED", "object": before}));
    relay.inject(
        WATCH,
        &json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": bed.get_proxy("px").await["metadata"]["resourceVersion"]}}}),
    );
    bed.create_proxy("later", external()).await;
    tree.until("later", "is told", |_| true).await;
    let told = tree.last("px").unwrap();
    assert_eq!((told.generation, told.finalizer, told.spec.port), (2, true, 8080));
}

#[tokio::test]
async fn a_write_that_is_meant_for_an_object_never_lands_on_its_successor() {
    let Some(bed) = Bed::get("a_write_that_is_meant_for_an_object_never_lands_on_its_successor").await else { return };
    let relay = Relay::start(&bed.admin).await;
    bed.create_proxy("px", external()).await;
    bed.create_proxy("held", external()).await;
    let tree = Tree::start(args(&bed, &relay)).await;
    tree.synced().await;
    watching(&relay, 3).await;
    let (px, held) = (tree.last("px").unwrap(), tree.last("held").unwrap());
    tree.add_finalizer(&held.key, &held.uid).await.unwrap();
    relay.refuse("GET", WATCH, usize::MAX, 503, "not now");
    relay.cut();
    a_fault(&tree, "not now").await;
    let successor = |name: &'static str| {
        let bed = &bed;
        async move {
            bed.patch(&bed.proxy(name), json!({"metadata": {"finalizers": null}})).await;
            bed.delete(&bed.proxy(name)).await;
            bed.create_proxy(name, external()).await;
            bed.patch(&bed.proxy(name), json!({"metadata": {"finalizers": (name == "held").then_some([FINALIZER])}})).await
        }
    };
    let other = successor("px").await;
    assert_eq!(tree.write(&px.key, &px.uid, status(Phase::Ready)).await, Err(SourceError::Gone));
    assert_eq!(bed.get_proxy("px").await, other);
    let other = successor("px").await;
    assert_eq!(tree.add_finalizer(&px.key, &px.uid).await, Err(SourceError::Gone));
    assert_eq!(bed.get_proxy("px").await, other);
    let other = successor("held").await;
    assert_eq!(tree.remove_finalizer(&held.key, &held.uid).await, Ok(()));
    assert_eq!(bed.get_proxy("held").await, other);
    bed.patch(&bed.proxy("held"), json!({"metadata": {"finalizers": null}})).await;
}

#[tokio::test]
async fn what_the_api_server_answers_to_a_write_decides_what_the_writer_hears() {
    let Some(bed) = Bed::get("what_the_api_server_answers_to_a_write_decides_what_the_writer_hears").await else { return };
    let relay = Relay::start(&bed.admin).await;
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed, &relay)).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    let write = || tree.write(&px.key, &px.uid, status(Phase::Ready));
    for (code, fault) in
        [(422, "what is written to Proxy"), (500, "does not take writes"), (429, "does not take writes"), (403, "what is written to Proxy")]
    {
        relay.refuse("PATCH", "/px/status", 1, code, "because of this");
        relay.forget();
        let told = write().await;
        assert!(matches!(&told, Err(SourceError::Unavailable(why)) if why.contains("because of this")), "{code}: {told:?}");
        assert_eq!(relay.passed("PATCH", "/px").len(), 1, "{code}: nothing is tried again here, the writer does that");
        assert!(a_fault(&tree, fault).await.contains("because of this"));
        assert_eq!(write().await, Ok(1));
        no_faults(&tree).await;
    }
    relay.refuse("PATCH", "/px/status", 1, 409, "the object has been modified");
    assert_eq!(write().await, Err(SourceError::Conflict));
    relay.refuse("PATCH", "/px/status", 1, 404, "not found");
    assert_eq!(write().await, Err(SourceError::Gone));
    relay.answer("PATCH", "/px/status", 1, 200, json!({"kind": "no Proxy at all"}));
    assert!(matches!(write().await, Err(SourceError::Unavailable(_))));
    assert_eq!(write().await, Ok(1));
    // A finalizer that is refused for good is not tried for ever.
    relay.forget();
    relay.refuse("PATCH", "/proxies/px", usize::MAX, 422, "the schema does not allow it");
    assert!(matches!(tree.add_finalizer(&px.key, &px.uid).await, Err(SourceError::Unavailable(why)) if why.contains("schema")));
    assert!(relay.passed("PATCH", "/px").len() <= 3);
    no_faults_but(&tree, "what is written to Proxy").await;
}

async fn no_faults_but(tree: &Tree, part: &str) {
    let faults = tree.faults().await;
    assert!(faults.iter().all(|fault| fault.contains(part)), "{faults:?}");
}

#[tokio::test]
async fn a_write_that_hangs_delays_no_other_object_and_the_next_of_its_own_waits_op_23() {
    let Some(bed) = Bed::get("a_write_that_hangs_delays_no_other_object_and_the_next_of_its_own_waits_op_23").await else { return };
    let relay = Relay::start(&bed.admin).await;
    for n in 0..5 {
        bed.create_proxy(&format!("px-{n}"), external()).await;
    }
    let pace = Pace { writes: 2, ..quick() };
    let tree = Tree::start(SourceArgs { pace, ..args(&bed, &relay) }).await;
    tree.synced().await;
    relay.hang("PATCH", "/px-0/status");
    let px = |n: u8| tree.last(&format!("px-{n}")).unwrap();
    let (slow, next) = (px(0), px(0));
    let first = tree.write(&slow.key, &slow.uid, status(Phase::Ready));
    let second = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        tree.write(&next.key, &next.uid, status(Phase::Unhealthy)).await
    };
    let others = async {
        for n in 1..5 {
            assert_eq!(tree.write(&px(n).key, &px(n).uid, status(Phase::Ready)).await, Ok(1));
        }
        assert_eq!(relay.passed("PATCH", "/px-0/").len(), 1);
        relay.thaw();
    };
    let (first, second, ()) = tokio::join!(first, second, others);
    assert_eq!((first, second), (Ok(1), Ok(1)), "in order, each by what the one before has made of the object");
    assert_eq!(bed.get_proxy("px-0").await["status"]["phase"], "Unhealthy");
}

#[tokio::test]
async fn nothing_is_told_before_the_secrets_are_known_so_that_none_is_shown_as_missing() {
    let Some(bed) = Bed::get("nothing_is_told_before_the_secrets_are_known_so_that_none_is_shown_as_missing").await else { return };
    let relay = Relay::start(&bed.admin).await;
    bed.create_secret("boot", Some(LABEL_CLOUD_INIT), &[("user-data", "one")]).await;
    bed.create_proxy("px", json!({"mode": "Managed", "provider": "lab", "cloudInit": {"secretRef": {"name": "boot"}}})).await;
    relay.refuse("GET", "/secrets?limit", 6, 500, "not yet");
    let pace = Pace { secrets: SOON, ..quick() };
    let tree = Tree::start(SourceArgs { pace, ..args(&bed, &relay) }).await;
    tree.synced().await;
    assert_eq!(relay.passed("GET", "/secrets?limit").len(), 8, "both were refused, and listed in the end");
    let told = tree.heard();
    let egress_protocol::proxies::ProxiesMessage::Apply { object } = &told[0] else { panic!("{told:?}") };
    assert!(matches!(object.cloud_init, CloudInit::Resolved { .. }), "{:?}", object.cloud_init);
}

#[tokio::test]
async fn a_long_list_is_read_page_by_page_op_29() {
    let Some(bed) = Bed::get("a_long_list_is_read_page_by_page_op_29").await else { return };
    let relay = Relay::start(&bed.admin).await;
    for n in 0..5 {
        bed.create_proxy(&format!("px-{n}"), external()).await;
    }
    let pace = Pace { page: 2, ..quick() };
    let tree = Tree::start(SourceArgs { pace, ..args(&bed, &relay) }).await;
    tree.synced().await;
    assert_eq!((tree.list().await.unwrap().len(), relay.passed("GET", "/proxies?limit=2").len()), (5, 3));
    relay.forget();
    assert_eq!(tree.live().await.unwrap().uids.len(), 5);
    let reads = relay.passed("GET", "/proxies?limit=500");
    assert!(reads.len() == 1 && !reads[0].uri.contains("resourceVersion"), "from the store, not from a cache: {reads:?}");
    let continued = json!({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []});
    relay.answer("GET", "/proxies?limit=500", 1, 200, continued);
    relay.refuse("GET", "continue=more", 1, 410, "the list was too old");
    assert!(matches!(tree.live().await, Err(SourceError::Unavailable(why)) if why.contains("too old")), "half a list is none (OG-6)");
}

#[tokio::test]
async fn a_rotated_token_is_read_again_and_a_refused_one_makes_no_storm_o21() {
    let Some(bed) = Bed::get("a_rotated_token_is_read_again_and_a_refused_one_makes_no_storm_o21").await else { return };
    let relay = Relay::start(&bed.admin).await;
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed, &relay)).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    relay.require_token("second");
    relay.cut();
    a_fault(&tree, "Unauthorized").await;
    assert!(matches!(tree.write(&px.key, &px.uid, status(Phase::Ready)).await, Err(SourceError::Unavailable(_))));
    relay.forget();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let tries = relay.passed("GET", "").len();
    assert!(tries < 100, "{tries} tries in 2 s by three watches that wait 100 to 200 ms between them");
    relay.write_token("second");
    tree.until("px", "is known", |_| true).await;
    no_faults_within(&tree, Duration::from_secs(10)).await;
    assert_eq!(tree.write(&px.key, &px.uid, status(Phase::Ready)).await, Ok(1));
    let used: Vec<Option<String>> = relay.passed("PATCH", "/px").into_iter().map(|passed| passed.token).collect();
    assert_eq!(used.last().unwrap().as_deref(), Some("second"));
}

async fn no_faults_within(tree: &Tree, limit: Duration) {
    eventually("nothing is wrong any more", limit, || async {
        // A write clears what only a write can.
        let faults = tree.faults().await;
        faults.iter().all(|fault| fault.contains("does not take writes")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn nothing_of_what_a_secret_holds_is_ever_said_pc_75() {
    let Some(bed) = Bed::get("nothing_of_what_a_secret_holds_is_ever_said_pc_75").await else { return };
    let relay = Relay::start(&bed.admin).await;
    bed.create_secret("boot", Some(LABEL_CLOUD_INIT), &[("user-data", "hunter2")]).await;
    relay.rewrite(|uri, mut answer| {
        for item in answer["items"].as_array_mut().into_iter().flatten().filter(|_| uri.contains("/secrets?")) {
            item["data"]["user-data"] = Value::String("hunter2".to_owned());
        }
        answer
    });
    let tree = Tree::start(args(&bed, &relay)).await;
    tree.synced().await;
    let fault = a_fault(&tree, "cannot be read").await;
    assert!(fault.contains("the data of Secret") && !fault.contains("hunter2"), "{fault}");
    bed.create_proxy("px", external()).await;
    tree.until("px", "is told all the same", |_| true).await;
}
