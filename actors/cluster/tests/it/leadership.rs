//! Replicas that contend for a Lease of the real API server (SV-4, OP-1, O6, O7). What a leader does is written down with the
//! instant at which it looked at its fence: no two may ever be at it at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_cluster::leadership::{LeaderSettings, LeadershipArgs};
use egress_kube::{ApiClient, PatchKind, Request};
use egress_protocol::Clock;
use egress_protocol::leadership::{ACTOR_ID, BRANCH_ID, Fence, LeadershipMessage, Standing, StandingCell};
use egress_protocol::message::{Message, Never};
use egress_protocol::metrics::Metrics;
use egress_supervision::{Actor, ChildSpec, Context, Failure, Root, System, Timer};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::account::Account;
use crate::bed::{Bed, SOON, eventually};
use crate::relay::Relay;

const LEASE: Duration = Duration::from_secs(3);
const RENEW: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(500);
/// Between two acts of a leader.
const ACT: Duration = Duration::from_millis(10);
/// A busy machine's.
const SLACK: Duration = Duration::from_millis(1500);

/// Who acted when, of all replicas of a test.
#[derive(Clone, Default)]
struct Acts(Arc<Mutex<Vec<(&'static str, Instant)>>>);

impl Acts {
    fn last(&self, who: &str) -> Option<Instant> {
        self.0.lock().unwrap().iter().rev().find(|(actor, _)| *actor == who).map(|(_, at)| *at)
    }

    /// How often one came after another: whoever acted again after another had begun makes it more than the turns there were.
    fn turns(&self) -> Vec<&'static str> {
        let mut acts = self.0.lock().unwrap().clone();
        acts.sort_by_key(|(_, at)| *at);
        let mut turns: Vec<&'static str> = acts.into_iter().map(|(who, _)| who).collect();
        turns.dedup();
        turns
    }
}

/// What a leader runs: it acts as long as its fence is open.
struct Leader {
    who: &'static str,
    fence: Fence,
    acts: Acts,
    next: Timer,
}

struct Act;

impl Message for Act {
    fn kind(&self) -> &'static str {
        "Act"
    }
}

impl Actor for Leader {
    type Message = Never;
    type Internal = Act;
    type Args = (&'static str, Fence, Acts);
    const KIND: &'static str = "leader";

    async fn start(ctx: &Context<Self>, (who, fence, acts): Self::Args) -> Result<Self, Failure> {
        Ok(Self { who, fence, acts, next: ctx.after(ACT, Act) })
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, Act: Act) -> Result<(), Failure> {
        let now = Instant::now();
        if self.fence.holds() {
            self.acts.0.lock().unwrap().push((self.who, now));
        }
        self.next = ctx.after(ACT, Act);
        Ok(())
    }

    fn describe(&self) -> Value {
        Value::Null
    }
}

struct Replica {
    who: &'static str,
    system: System,
    root: Root,
    fence: Fence,
    standing: StandingCell,
    acts: Acts,
}

fn identity(who: &str) -> String {
    format!("{who}_uid-of-{who}")
}

impl Replica {
    async fn start(bed: &Bed, client: ApiClient, who: &'static str, acts: &Acts) -> Self {
        let settings = LeaderSettings {
            namespace: bed.namespace.clone(),
            name: "egress".to_owned(),
            identity: identity(who),
            lease_duration: LEASE,
            renew_deadline: RENEW,
            retry_period: RETRY,
            address: format!("{who}.example:8090"),
        };
        let (fence, standing) = (Fence::closed(), StandingCell::new(Standing::Follower { leader: None, address: None }));
        let args = (who, fence.clone(), acts.clone());
        let branch = move |ctx: &Context<_>| drop(ctx.start_child(ChildSpec::<Leader>::essential(BRANCH_ID, args.clone())));
        let args = LeadershipArgs::new(client, settings, fence.clone(), standing.clone(), Arc::new(branch));
        let system = System::new(Clock::system(), Arc::new(Metrics::default()));
        let root = system.start_root(args.spec()).await.unwrap();
        Self { who, system, root, fence, standing, acts: acts.clone() }
    }

    fn acts_now(&self) -> bool {
        self.fence.holds() && self.acts.last(self.who).is_some_and(|last| last.elapsed() < SLACK)
    }

    async fn until_it_acts(&self) {
        eventually("it leads and acts", SOON, || async { self.acts_now().then_some(()) }).await;
    }

    async fn until_it_follows(&self, leader: &str) {
        let leader = Standing::Follower { leader: Some(identity(leader).into()), address: Some(format!("{leader}.example:8090").into()) };
        eventually("it follows", SOON, || async { (*self.standing.get() == leader).then_some(()) }).await;
    }

    async fn faults(&self) -> Vec<String> {
        let address = self.system.address::<LeadershipMessage>(ACTOR_ID);
        address.call(SOON, |reply_to| LeadershipMessage::State { reply_to }).await.unwrap().faults
    }
}

fn path(bed: &Bed) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases/egress", bed.namespace)
}

async fn lease(bed: &Bed) -> Value {
    bed.send(&Request::get("test", &path(bed))).await.unwrap()
}

/// By hand, as `kubectl patch` does it.
async fn edit(bed: &Bed, spec: Value) {
    bed.send(&Request::patch("test", &path(bed), PatchKind::Merge, &json!({"spec": spec}))).await.unwrap();
}

/// The rules of IN-5 for Leases, less the verb that is not used.
fn rules() -> Value {
    json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}])
}

#[tokio::test]
async fn one_of_two_leads_under_the_rules_of_the_chart_and_gives_the_lease_up_when_it_stops_in_5() {
    let Some(bed) = Bed::get("one_of_two_leads_under_the_rules_of_the_chart_and_gives_the_lease_up_when_it_stops_in_5").await else {
        return;
    };
    let (account, acts) = (Account::new(&bed, "op", &rules()).await, Acts::default());
    let a = Replica::start(&bed, account.client(), "a", &acts).await;
    a.until_it_acts().await;
    let b = Replica::start(&bed, account.client(), "b", &acts).await;
    b.until_it_follows("a").await;
    let held = lease(&bed).await;
    assert_eq!(held["metadata"]["annotations"], json!({"crawl.example.com/discovery-address": "a.example:8090"}));
    let spec = &held["spec"];
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseDurationSeconds"], &spec["leaseTransitions"]),
        (&json!(identity("a")), &json!(3), &json!(0))
    );
    sleep(LEASE * 2).await;
    assert!(a.acts_now() && !b.fence.holds(), "renewed for longer than it lasts");
    let renewed = lease(&bed).await;
    assert_eq!(renewed["spec"]["acquireTime"], spec["acquireTime"]);
    assert_ne!(renewed["spec"]["renewTime"], spec["renewTime"]);

    a.root.stop().await;
    let begun = Instant::now();
    b.until_it_acts().await;
    let took = begun.elapsed();
    println!("released and taken over in {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(acts.turns(), ["a", "b"]);
    assert_eq!(lease(&bed).await["spec"]["leaseTransitions"], 1);
    b.root.stop().await;
    let left = lease(&bed).await;
    assert_eq!((&left["spec"]["holderIdentity"], &left["metadata"]["annotations"]), (&Value::Null, &Value::Null), "{left}");
    assert_eq!(account.forbidden(&bed), Vec::<String>::new());
}

#[tokio::test]
async fn a_lease_whose_holder_died_is_taken_when_it_has_expired_and_a_restarted_container_takes_its_own_at_once() {
    let Some(bed) = Bed::get("a_lease_whose_holder_died_is_taken_when_it_has_expired").await else { return };
    let acts = Acts::default();
    let a = Replica::start(&bed, bed.admin.clone(), "a", &acts).await;
    a.until_it_acts().await;
    // The container dies and is started again.
    drop(a.root);
    eventually("nothing is left of it", SOON, || async { a.system.left_of(ACTOR_ID).is_empty().then_some(()) }).await;
    let begun = Instant::now();
    let again = Replica::start(&bed, bed.admin.clone(), "a", &acts).await;
    again.until_it_acts().await;
    assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());

    let b = Replica::start(&bed, bed.admin.clone(), "b", &acts).await;
    b.until_it_follows("a").await;
    sleep(RETRY * 2).await;
    drop(again.root);
    let died = Instant::now();
    b.until_it_acts().await;
    let took = died.elapsed();
    println!("died and taken over in {took:?}");
    assert!(took > LEASE - RETRY && took < LEASE + RETRY + SLACK, "{took:?}");
    assert_eq!(acts.turns(), ["a", "b"]);
}

/// O7: renewals fail for 20 s; the other takes over, and the first learns of it when it is let through again.
#[tokio::test]
async fn a_leader_whose_renewals_fail_stops_before_another_begins_and_follows_it_afterwards() {
    let Some(bed) = Bed::get("a_leader_whose_renewals_fail_stops_before_another_begins_and_follows_it_afterwards").await else { return };
    let (relay, acts) = (Relay::start(&bed.admin).await, Acts::default());
    let a = Replica::start(&bed, relay.client(), "a", &acts).await;
    a.until_it_acts().await;
    let b = Replica::start(&bed, bed.admin.clone(), "b", &acts).await;
    b.until_it_follows("a").await;
    let failing = Instant::now();
    for method in ["GET", "PUT"] {
        relay.refuse(method, "/leases/", usize::MAX, 500, "etcdserver: request timed out");
    }
    b.until_it_acts().await;
    let (last, first) = (acts.last("a").unwrap(), acts.0.lock().unwrap().iter().find(|(who, _)| *who == "b").unwrap().1);
    println!("last act {:?} after the errors began, the other's first {:?}", last - failing, first - failing);
    assert!(last < first && last - failing < RENEW + RETRY, "{:?}", last - failing);
    assert_eq!(*a.standing.get(), Standing::Leader, "it is fenced: it has not seen the other");
    let faults = a.faults().await.join("; ");
    assert!(faults.contains("could not be renewed in time") && faults.contains("etcdserver: request timed out"), "{faults}");
    sleep(Duration::from_secs(20).saturating_sub(failing.elapsed())).await;
    relay.clear();
    a.until_it_follows("b").await;
    eventually("its branch has ended", SOON, || async { a.system.left_of(BRANCH_ID).is_empty().then_some(()) }).await;
    assert!(b.acts_now());
    assert_eq!(acts.turns(), ["a", "b"]);
}

/// O7: for 20 s no answer comes; then the leader, which is alone, goes on where it was.
#[tokio::test]
async fn a_leader_that_nobody_could_replace_goes_on_with_the_branch_it_had() {
    let Some(bed) = Bed::get("a_leader_that_nobody_could_replace_goes_on_with_the_branch_it_had").await else { return };
    let (relay, acts) = (Relay::start(&bed.admin).await, Acts::default());
    let a = Replica::start(&bed, relay.client(), "a", &acts).await;
    a.until_it_acts().await;
    let since = a.system.inspect(Some(BRANCH_ID), None).await.unwrap().since;
    let frozen = Instant::now();
    relay.freeze();
    sleep(RENEW + RETRY + ACT * 2).await;
    assert!(!a.fence.holds() && acts.last("a").unwrap() - frozen < RENEW + ACT, "{:?}", acts.last("a").unwrap() - frozen);
    sleep(Duration::from_secs(20).saturating_sub(frozen.elapsed())).await;
    relay.thaw();
    let thawed = Instant::now();
    a.until_it_acts().await;
    println!("acts again {:?} after the API server is back", thawed.elapsed());
    assert_eq!(a.system.inspect(Some(BRANCH_ID), None).await.unwrap().since, since, "the branch it had");
    assert_eq!(lease(&bed).await["spec"]["leaseTransitions"], 0);
}

#[tokio::test]
async fn a_lease_that_somebody_deletes_or_clears_is_written_again_by_its_holder_whom_nobody_overtakes() {
    let Some(bed) = Bed::get("a_lease_that_somebody_deletes_or_clears_is_written_again_by_its_holder").await else { return };
    let acts = Acts::default();
    let a = Replica::start(&bed, bed.admin.clone(), "a", &acts).await;
    a.until_it_acts().await;
    let b = Replica::start(&bed, bed.admin.clone(), "b", &acts).await;
    b.until_it_follows("a").await;
    for by_hand in ["delete", "clear"] {
        match by_hand {
            "delete" => bed.delete(&path(&bed)).await,
            _ => edit(&bed, json!({"holderIdentity": null})).await,
        }
        let held = || async {
            let lease = bed.send(&Request::get("test", &path(&bed))).await.ok()?;
            (lease["spec"]["holderIdentity"] == identity("a")).then_some(())
        };
        eventually("its holder writes it again", SOON, held).await;
        sleep(LEASE * 2).await;
        assert!(a.acts_now() && !b.fence.holds(), "{by_hand}");
        assert_eq!(acts.turns(), ["a"], "{by_hand}");
        b.until_it_follows("a").await;
    }
}

/// O6: the Lease is given to another, which works at once with what it believes to be its own.
#[tokio::test]
async fn a_stolen_lease_ends_one_leader_before_the_other_begins() {
    let Some(bed) = Bed::get("a_stolen_lease_ends_one_leader_before_the_other_begins").await else { return };
    let acts = Acts::default();
    let a = Replica::start(&bed, bed.admin.clone(), "a", &acts).await;
    a.until_it_acts().await;
    let b = Replica::start(&bed, bed.admin.clone(), "b", &acts).await;
    b.until_it_follows("a").await;
    edit(&bed, json!({"holderIdentity": identity("b")})).await;
    let stolen = Instant::now();
    eventually("the first has lost it", SOON, || async { (!a.fence.holds()).then_some(()) }).await;
    assert!(stolen.elapsed() < RETRY + SLACK, "{:?}", stolen.elapsed());
    eventually("its branch has ended", SOON, || async { a.system.left_of(BRANCH_ID).is_empty().then_some(()) }).await;
    b.until_it_acts().await;
    println!("stolen and taken up in {:?}", stolen.elapsed());
    assert_eq!(acts.turns(), ["a", "b"]);
    // By a holder that does not exist: it is waited for as long as it says.
    edit(&bed, json!({"holderIdentity": "nobody_there", "leaseDurationSeconds": 5})).await;
    let stolen = Instant::now();
    eventually("the second has lost it", SOON, || async { (!b.fence.holds()).then_some(()) }).await;
    eventually("somebody acts again", SOON, || async { (a.acts_now() || b.acts_now()).then_some(()) }).await;
    let first = acts.0.lock().unwrap().iter().map(|(_, at)| *at).find(|at| *at > stolen + RETRY + SLACK).unwrap();
    assert!(first - stolen > Duration::from_millis(4500), "{:?}", first - stolen);
}

/// A crash on the way: the next life renews its own Lease, and no two branches overlap.
#[tokio::test]
async fn a_leadership_that_crashes_closes_its_fence_and_its_next_life_goes_on() {
    let Some(bed) = Bed::get("a_leadership_that_crashes_closes_its_fence_and_its_next_life_goes_on").await else { return };
    let acts = Acts::default();
    let mut a = Replica::start(&bed, bed.admin.clone(), "a", &acts).await;
    a.until_it_acts().await;
    assert!(a.system.crash(ACTOR_ID));
    a.root.failed().await;
    eventually("nothing is left of it", SOON, || async { a.system.left_of(ACTOR_ID).is_empty().then_some(()) }).await;
    assert!(!a.fence.holds());
    let crashed = Instant::now();
    sleep(ACT * 3).await;
    assert!(acts.last("a").unwrap() < crashed, "nothing of it acts any more");
    assert_eq!(lease(&bed).await["spec"]["holderIdentity"], identity("a"), "a crash gives nothing up");
}
