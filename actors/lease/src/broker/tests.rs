//! Broker and journal as actors, through their messages, on a paused clock.

mod storm;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_protocol::lease::{
    BROKER_ID, BrokerMessage, Caller, Entry, GrantRequest, JOURNAL_ID, JournalMessage, LeaseError, LeaseFilter, LeaseId, LeaseState,
    LeaseView, ProblemCode, ProxyAvailability, ProxyFilter, ReportRequest, ReportResult, Selector, SelectorAttribute,
};
use egress_protocol::message::Never;
use egress_protocol::metrics::{Metrics, Reason, Report};
use egress_protocol::object::Credentials;
use egress_protocol::proxies::ProxiesMessage;
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::resource::{Mode, Phase};
use egress_protocol::{Clock, ObjectKey, Secret, Timestamp, Uid};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Root, System};
use serde_json::json;

use super::{BrokerActor, BrokerArgs};
use crate::{BookSettings, JournalActor, JournalArgs};

const SOON: Duration = Duration::from_secs(5);

fn proxy(name: &str, max_leases: u32) -> ProxyAvailability {
    ProxyAvailability {
        key: ObjectKey::new("default", name),
        uid: Uid::new(format!("uid-{name}")),
        mode: Mode::Managed,
        provider: Some("lab".into()),
        phase: Phase::Ready,
        healthy: true,
        awaited: false,
        unready: None,
        check_url_suspect: false,
        draining: false,
        drain_by: None,
        host: Some("192.0.2.7".into()),
        ip: None,
        egress_ip: None,
        port: 3128,
        attributes: Arc::new(BTreeMap::new()),
        max_leases,
        latency_millis: None,
        checked_at: None,
        credentials: None,
    }
}

/// What there is to publish, shared with the stand-in for the directory; and what was asked of it and of the proxies.
#[derive(Debug, Clone, Default)]
struct Stage {
    proxies: Arc<Mutex<Vec<ProxyAvailability>>>,
    /// Those that exist and publish nothing.
    live: Arc<Mutex<Vec<Uid>>>,
    republished: Arc<Mutex<usize>>,
    probed: Arc<Mutex<Vec<String>>>,
}

struct Directory(Stage);

impl Actor for Directory {
    type Message = ProxiesMessage;
    type Internal = Never;
    type Args = Stage;
    const KIND: &'static str = "proxies";

    async fn start(_: &Context<Self>, stage: Stage) -> Result<Self, Failure> {
        Ok(Self(stage))
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProxiesMessage) -> Result<(), Failure> {
        if matches!(message, ProxiesMessage::Republish) {
            *self.0.republished.lock().unwrap() += 1;
            for proxy in self.0.proxies.lock().unwrap().iter() {
                let _ = ctx.system().address(BROKER_ID).send(BrokerMessage::Publish { proxy: Arc::new(proxy.clone()) });
            }
            let live = self.0.live.lock().unwrap().clone();
            let _ = ctx.system().address(BROKER_ID).send(BrokerMessage::Expect { live });
        }
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        json!({})
    }
}

/// Stands in for the actor of one proxy.
struct Probed(Stage, String);

impl Actor for Probed {
    type Message = ProxyMessage;
    type Internal = Never;
    type Args = Stage;
    const KIND: &'static str = "proxy";

    async fn start(ctx: &Context<Self>, stage: Stage) -> Result<Self, Failure> {
        Ok(Self(stage, ctx.id().to_owned()))
    }

    fn handle(&mut self, _: &Context<Self>, message: ProxyMessage) -> Result<(), Failure> {
        if matches!(message, ProxyMessage::ProbeNow) {
            self.0.probed.lock().unwrap().push(self.1.clone());
        }
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        json!({})
    }
}

/// The part of the tree that leases need, in the order of the whole one: the directory comes last.
struct Top;

impl Actor for Top {
    type Message = Never;
    type Internal = Never;
    type Args = Stage;
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, stage: Stage) -> Result<Self, Failure> {
        let settings = BookSettings::default();
        ctx.start_child_and_wait(ChildSpec::<JournalActor>::irreplaceable(JOURNAL_ID, JournalArgs::from(&settings))).await?;
        ctx.start_child_and_wait(ChildSpec::<BrokerActor>::essential(BROKER_ID, BrokerArgs { settings })).await?;
        ctx.start_child_and_wait(ChildSpec::<Probed>::retried("proxy/default/a", stage.clone())).await?;
        ctx.start_child_and_wait(ChildSpec::<Directory>::retried("proxies", stage)).await?;
        Ok(Self)
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        json!({})
    }
}

struct Tree {
    system: System,
    root: Root,
    stage: Stage,
    caller: Caller,
}

impl Tree {
    async fn with(proxies: &[ProxyAvailability]) -> Self {
        let clock = Clock::starting_at(Timestamp::from_millis(1_767_323_045_000));
        let system = System::new(clock, Metrics::new(true).shared());
        let stage = Stage::default();
        stage.proxies.lock().unwrap().extend(proxies.iter().cloned());
        let root = system.start_root(ChildSpec::<Top>::essential("root", stage.clone())).await.unwrap();
        let tree = Self { system, root, stage, caller: Caller::admin("default") };
        tree.known(proxies.len()).await;
        tree
    }

    /// Waits until the broker knows so many proxies.
    async fn known(&self, count: usize) {
        loop {
            let listed = self
                .system
                .address(BROKER_ID)
                .call(SOON, |reply_to| BrokerMessage::ListProxies {
                    filter: Box::new(ProxyFilter::default()),
                    after: None,
                    limit: 1000,
                    caller: self.caller.clone(),
                    reply_to,
                })
                .await;
            if listed.is_ok_and(|page| page.items.len() == count) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn grant(&self, request: GrantRequest) -> Result<LeaseView, LeaseError> {
        let (request, caller) = (Box::new(request), self.caller.clone());
        self.system.address(BROKER_ID).call(SOON, |reply_to| BrokerMessage::Grant { request, caller, reply_to }).await.unwrap()
    }

    async fn get(&self, id: LeaseId) -> Result<LeaseView, LeaseError> {
        let caller = self.caller.clone();
        self.system.address(BROKER_ID).call(SOON, |reply_to| BrokerMessage::Get { id, caller, reply_to }).await.unwrap()
    }

    async fn release(&self, id: LeaseId) {
        let caller = self.caller.clone();
        self.system.address(BROKER_ID).call(SOON, |reply_to| BrokerMessage::Release { id, caller, reply_to }).await.unwrap().unwrap();
    }

    async fn report(&self, id: LeaseId, result: ReportResult) {
        let (request, caller) = (Box::new(ReportRequest { result, target: None, cooldown: None, message: None }), self.caller.clone());
        self.system
            .address(BROKER_ID)
            .call(SOON, |reply_to| BrokerMessage::Report { id, request, caller, reply_to })
            .await
            .unwrap()
            .unwrap();
    }

    async fn kept(&self) -> Vec<(LeaseId, Option<LeaseState>)> {
        let kept = self.system.address(JOURNAL_ID).call(SOON, |reply_to| JournalMessage::Load { reply_to }).await.unwrap();
        let mut leases: Vec<_> = kept.leases.iter().map(|l| (l.record.id, l.ending.map(|ending| ending.state))).collect();
        leases.sort_by_key(|lease| lease.0);
        leases
    }
}

fn lasting(seconds: u64) -> GrantRequest {
    GrantRequest { ttl: Some(Duration::from_secs(seconds)), ..GrantRequest::default() }
}

#[tokio::test(start_paused = true)]
async fn forty_concurrent_acquires_on_capacity_n_give_exactly_n_grants_a_thousand_times_m17() {
    let tree = Tree::with(&[proxy("a", 1)]).await;
    for round in 0..1000u32 {
        let capacity = [1, 7, 39, 40][round as usize % 4];
        tree.system.address(BROKER_ID).send(BrokerMessage::Publish { proxy: Arc::new(proxy("a", capacity)) }).unwrap();
        let answers = futures_of(&tree, 40).await;
        let granted: Vec<LeaseId> = answers.iter().filter_map(|answer| answer.as_ref().ok()).map(|view| view.record.id).collect();
        assert_eq!(granted.len(), capacity as usize, "round {round}");
        for refused in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            assert_eq!(refused.code(), ProblemCode::NoCapacity);
            assert_eq!(refused.problem().at_capacity, Some(1));
        }
        for id in granted {
            tree.release(id).await;
        }
    }
}

/// So many grants asked at once, each by a task of its own.
async fn futures_of(tree: &Tree, count: usize) -> Vec<Result<LeaseView, LeaseError>> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (address, caller) = (tree.system.address(BROKER_ID), tree.caller.clone());
        tasks.spawn(async move {
            let request = Box::new(lasting(60));
            address.call(SOON, |reply_to| BrokerMessage::Grant { request, caller, reply_to }).await.unwrap()
        });
    }
    tasks.join_all().await
}

#[tokio::test(start_paused = true)]
async fn expiry_frees_a_place_within_a_second_without_being_asked_ls_8() {
    let tree = Tree::with(&[proxy("a", 300)]).await;
    for _ in 0..300 {
        tree.grant(lasting(10)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(9_900)).await;
    assert_eq!(tree.stats().await.active_leases, 300);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(tree.stats().await.active_leases, 0, "in bites");
    assert!(tree.kept().await.iter().all(|(_, state)| *state == Some(LeaseState::Expired)));
}

impl Tree {
    async fn stats(&self) -> egress_protocol::lease::BrokerStats {
        self.system.address(BROKER_ID).call(SOON, |reply_to| BrokerMessage::Stats { reply_to }).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_broker_loses_no_lease_and_capacity_holds_ls_9() {
    let tree = Tree::with(&[proxy("a", 3), proxy("b", 2)]).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(tree.grant(lasting(600)).await.unwrap());
    }
    let released = held.pop().unwrap().record.id;
    tree.release(released).await;
    for crash in 1..=3 {
        assert!(tree.system.crash(BROKER_ID));
        tokio::time::sleep(Duration::from_secs(2)).await;
        tree.known(2).await;
        assert_eq!(*tree.stage.republished.lock().unwrap(), 1 + crash);
        for lease in &held {
            let view = tree.get(lease.record.id).await.unwrap();
            assert_eq!((view.state(), view.expires_at, view.record.fence), (LeaseState::Active, lease.expires_at, lease.record.fence));
        }
        assert_eq!(tree.get(released).await.unwrap().state(), LeaseState::Released);
    }
    for _ in 0..2 {
        let fence = tree.grant(lasting(600)).await.unwrap().record.fence;
        assert!(held.iter().all(|lease| lease.record.fence < fence));
    }
    assert_eq!(tree.grant(lasting(600)).await.unwrap_err().problem().at_capacity, Some(2));
}

#[tokio::test(start_paused = true)]
async fn until_proxies_are_published_again_their_leases_stay_and_hold_their_places() {
    let tree = Tree::with(&[proxy("a", 1)]).await;
    let lease = tree.grant(lasting(3600)).await.unwrap();
    let all = std::mem::take(&mut *tree.stage.proxies.lock().unwrap());
    assert!(tree.system.crash(BROKER_ID));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let view = tree.get(lease.record.id).await.unwrap();
    assert!(view.ending.is_none() && view.proxy_unhealthy);
    tree.system.address(BROKER_ID).send(BrokerMessage::Publish { proxy: Arc::new(all[0].clone()) }).unwrap();
    assert_eq!(tree.grant(lasting(60)).await.unwrap_err().problem().at_capacity, Some(1));
    assert!(!tree.get(lease.record.id).await.unwrap().proxy_unhealthy);
}

#[tokio::test(start_paused = true)]
async fn three_failing_reports_probe_the_proxy_and_its_pass_lifts_the_suspicion_m4() {
    let tree = Tree::with(&[proxy("a", 9), proxy("b", 9)]).await;
    let mut leases = Vec::new();
    for _ in 0..6 {
        let request = GrantRequest { target: Some("b.example".into()), ..lasting(600) };
        leases.push(tree.grant(request).await.unwrap());
    }
    for lease in leases.iter().filter(|lease| &*lease.proxy.proxy().name == "a") {
        tree.report(lease.record.id, ReportResult::Error).await;
    }
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(*tree.stage.probed.lock().unwrap(), ["proxy/default/a"]);
    for lease in &leases {
        tree.release(lease.record.id).await;
    }
    assert_eq!(&*tree.grant(lasting(60)).await.unwrap().proxy.proxy().name, "b");
    let (key, uid) = (proxy("a", 9).key, proxy("a", 9).uid);
    tree.system.address(BROKER_ID).send(BrokerMessage::ProbePassed { key, uid }).unwrap();
    assert_eq!(&*tree.grant(lasting(60)).await.unwrap().proxy.proxy().name, "a");
    let series = Report { provider: "lab".into(), target: "b.example".into(), result: "error" };
    assert_eq!(tree.system.metrics().lease_reports.get_or_create(&series).get(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_waits_for_holds_no_place_ls_2() {
    let tree = Tree::with(&[proxy("a", 1)]).await;
    let (reply_to, answer) = egress_protocol::Reply::channel();
    drop(answer);
    let (request, caller) = (Box::new(lasting(600)), tree.caller.clone());
    tree.system.address(BROKER_ID).send(BrokerMessage::Grant { request, caller, reply_to }).unwrap();
    tree.grant(lasting(60)).await.unwrap();
    assert_eq!(tree.kept().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reading_changes_nothing_m27() {
    let tree = Tree::with(&[proxy("a", 2)]).await;
    let lease = tree.grant(lasting(600)).await.unwrap();
    let (before, active) = (tree.kept().await, tree.stats().await);
    let (broker, caller) = (tree.system.address(BROKER_ID), tree.caller.clone());
    for _ in 0..3 {
        tree.get(lease.record.id).await.unwrap();
        broker
            .call(SOON, |reply_to| BrokerMessage::GetProxy { key: proxy("a", 2).key, caller: caller.clone(), reply_to })
            .await
            .unwrap()
            .unwrap();
        broker.call(SOON, |reply_to| BrokerMessage::Explain { request: Box::default(), caller: caller.clone(), reply_to }).await.unwrap();
        let (page, next) = broker
            .call(SOON, |reply_to| BrokerMessage::ListLeases {
                filter: LeaseFilter::default(),
                after: None,
                limit: 10,
                caller: caller.clone(),
                reply_to,
            })
            .await
            .unwrap();
        assert_eq!((page.len(), next), (1, None));
    }
    assert_eq!((tree.kept().await, tree.stats().await), (before, active));
}

#[tokio::test(start_paused = true)]
async fn an_end_of_the_journal_is_the_end_of_the_tree() {
    let mut tree = Tree::with(&[proxy("a", 1)]).await;
    assert!(tree.system.crash(JOURNAL_ID));
    let failure = tokio::time::timeout(SOON, tree.root.failed()).await.unwrap();
    assert!(failure.0.contains(JOURNAL_ID), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn grants_and_refusals_are_counted_and_credentials_print_nowhere_ob_1_ls_22() {
    let secret = Some(Arc::new(Credentials { username: Secret::new("user".to_owned()), password: Secret::new("sentinel-7".to_owned()) }));
    let tree = Tree::with(&[ProxyAvailability { credentials: secret, ..proxy("a", 1) }]).await;
    let view = tree.grant(lasting(60)).await.unwrap();
    let mut json = Vec::new();
    view.write_json(&mut json);
    assert!(String::from_utf8(json).unwrap().contains("sentinel-7"), "the holder gets them");
    assert_eq!(tree.grant(lasting(60)).await.unwrap_err().code(), ProblemCode::NoCapacity);
    let metrics = tree.system.metrics();
    assert_eq!(metrics.lease_grants.get(), 1);
    assert_eq!(metrics.lease_refusals.get_or_create(&Reason { reason: "no-capacity" }).get(), 1);
    let node = tree.system.inspect(None, None).await.unwrap();
    let entry = Entry::Granted(Arc::clone(&view.record));
    for text in [serde_json::to_string(&node).unwrap(), format!("{view:?}"), format!("{entry:?}")] {
        assert!(!text.contains("sentinel-7"), "{text}");
    }
    let answer = tree.grant_anonymously().await;
    assert_eq!(answer.unwrap_err().problem().drained, Some(1));
}

impl Tree {
    async fn grant_anonymously(&self) -> Result<LeaseView, LeaseError> {
        let (request, caller) = (Box::default(), Caller::anonymous());
        self.system.address(BROKER_ID).call(SOON, |reply_to| BrokerMessage::Grant { request, caller, reply_to }).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_has_just_begun_refuses_nobody_for_good_until_every_proxy_has_spoken() {
    let tree = Tree::with(&[proxy("a", 1)]).await;
    tree.grant(lasting(600)).await.unwrap();
    tree.stage.live.lock().unwrap().push(Uid::new("uid-b"));
    assert!(tree.system.crash(BROKER_ID));
    tree.known(1).await;
    assert_eq!(tree.grant(lasting(600)).await.unwrap_err(), LeaseError::Opening);
    let refused = tree.system.metrics().lease_refusals.get_or_create(&Reason { reason: "overloaded" }).get();
    assert_eq!(refused, 0, "LS-4 counts refusals for good");
    let silent = ProxyAvailability { healthy: false, ..proxy("b", 1) };
    tree.system.address(BROKER_ID).send(BrokerMessage::Publish { proxy: Arc::new(silent) }).unwrap();
    assert_eq!(tree.grant(lasting(600)).await.unwrap_err().code(), ProblemCode::NoCapacity);
    tree.root.stop().await;
}

/// Issue 10, 5: it took further leases for the journal to forget old ones.
#[tokio::test(start_paused = true)]
async fn leases_that_ended_are_forgotten_by_time_alone() {
    let tree = Tree::with(&[proxy("a", 3000)]).await;
    let mut ids = Vec::new();
    for _ in 0..3000 {
        ids.push(tree.grant(lasting(60)).await.unwrap().record.id);
    }
    for id in &ids {
        tree.release(*id).await;
    }
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert_eq!(tree.kept().await.len(), 3000);
    assert!(tree.get(ids[0]).await.is_ok());
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(tree.kept().await, [], "what the journal keeps");
    assert_eq!(tree.get(ids[2999]).await.unwrap_err(), LeaseError::UnknownLease);
}

/// Issue 10, 12: heavy new selectors raised the grants of others from 0.6 to 92 ms. Whoever asks after eight of them is
/// answered before the first.
#[tokio::test(start_paused = true)]
async fn a_grant_does_not_wait_for_new_selectors_that_take_long() {
    let keys: Vec<String> = (0..32).map(|n| format!("key-{n:02}")).collect();
    let attributes: Arc<BTreeMap<String, String>> = Arc::new(keys.iter().map(|key| (key.clone(), "x".to_owned())).collect());
    let fleet: Vec<_> =
        (0..900).map(|n| ProxyAvailability { attributes: Arc::clone(&attributes), ..proxy(&format!("p{n:03}"), 9) }).collect();
    let tree = Tree::with(&fleet).await;
    tree.grant(lasting(60)).await.unwrap();
    let heavy = |n: usize| {
        let values: Box<[Box<str>]> = (0..99).map(|value| format!("{n}-{value:02}").into()).chain(["x".into()]).collect();
        let attributes = keys.iter().map(|key| SelectorAttribute { key: key.as_str().into(), values: values.clone() }).collect();
        GrantRequest { selector: Selector { attributes, ..Selector::default() }, ..lasting(60) }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..9 {
        let (address, caller) = (tree.system.address(BROKER_ID), tree.caller.clone());
        let request = Box::new(if n == 8 { lasting(60) } else { heavy(n) });
        tasks.spawn(async move {
            let granted = address.call(SOON, |reply_to| BrokerMessage::Grant { request, caller, reply_to }).await.unwrap();
            granted.map(|_| n).unwrap()
        });
    }
    assert_eq!(tasks.join_next().await.unwrap().unwrap(), 8);
    assert_eq!(tasks.join_all().await.len(), 8, "each is granted in the end");
}
