//! The actor among scripted providers and a scripted source, on a paused clock.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use egress_protocol::message::Reply;
use egress_protocol::metrics::Metrics;
use egress_protocol::provider::{
    DeleteOutcome, ErrorClass, Instance, InstanceState, Leftover, ListResult, Op, ProviderError, ProviderMessage,
};
use egress_protocol::source::{LiveSet, SourceError, SourceMessage};
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Uid};
use egress_supervision::{Root as Tree, System};

use super::*;

const INTERVAL: Duration = Duration::from_secs(600);

/// What the world around the sweeper is like.
#[derive(Default)]
struct World {
    /// By provider.
    instances: HashMap<&'static str, Vec<Instance>>,
    leftovers: Vec<Leftover>,
    live: HashSet<Uid>,
    live_fails: bool,
    live_incomplete: bool,
    live_hangs: bool,
    /// Read that long before it is asked for.
    live_stale: Duration,
    hang: HashSet<&'static str>,
    list_fails: HashSet<&'static str>,
    delete_fails: bool,
    /// A UID that is listed, and live only once the list is out.
    born_meanwhile: Option<Uid>,
    deletes: Vec<(Duration, &'static str, Uid)>,
    waiting: Vec<Reply<Result<ListResult, ProviderError>>>,
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap()
}

struct Providers(Vec<&'static str>);

impl Actor for Providers {
    type Message = ProvidersMessage;
    type Internal = Never;
    type Args = Vec<&'static str>;
    const KIND: &'static str = "providers";

    async fn start(_: &Context<Self>, entries: Self::Args) -> Result<Self, Failure> {
        Ok(Self(entries))
    }
    fn handle(&mut self, _: &Context<Self>, message: ProvidersMessage) -> Result<(), Failure> {
        if let ProvidersMessage::List { reply_to } = message {
            let _ = reply_to.send(self.0.iter().map(|name| (Arc::from(*name), "scripted")).collect());
        }
        Ok(())
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

struct Provider {
    name: &'static str,
    world: Shared,
    started: Instant,
}

fn failure(op: Op) -> ProviderError {
    ProviderError {
        class: ErrorClass::Transient,
        op,
        provider: "p".into(),
        id: None,
        message: "no".into(),
        environment: false,
        retry_after: None,
        cause: None,
    }
}

impl Actor for Provider {
    type Message = ProviderMessage;
    type Internal = Never;
    type Args = (&'static str, Shared);
    const KIND: &'static str = "provider";

    async fn start(_: &Context<Self>, (name, world): Self::Args) -> Result<Self, Failure> {
        Ok(Self { name, world, started: Instant::now() })
    }

    fn handle(&mut self, _: &Context<Self>, message: ProviderMessage) -> Result<(), Failure> {
        let mut world = lock(&self.world);
        match message {
            ProviderMessage::List { call, reply_to } => {
                assert!(call.deadline <= DEADLINE, "OG-1");
                if world.hang.contains(self.name) {
                    world.waiting.push(reply_to);
                } else if world.list_fails.contains(self.name) {
                    let _ = reply_to.send(Err(failure(Op::List)));
                } else {
                    let instances = world.instances.get(self.name).cloned().unwrap_or_default();
                    let leftovers = world.leftovers.clone();
                    if let Some(uid) = world.born_meanwhile.clone() {
                        world.live.insert(uid);
                    }
                    let _ = reply_to.send(Ok(ListResult { instances, leftovers, ..ListResult::default() }));
                }
            }
            ProviderMessage::Delete { key, reply_to, .. } => {
                assert_eq!(key.installation.as_str(), "ours");
                assert_eq!(key.id.is_none(), key.uid.as_str().is_empty(), "only a leftover has no UID (PC-40)");
                world.deletes.push((self.started.elapsed(), self.name, key.uid.clone()));
                if world.delete_fails {
                    let _ = reply_to.send(Err(failure(Op::Delete)));
                } else {
                    world.instances.get_mut(self.name).unwrap().retain(|instance| Some(&instance.id) != key.id.as_ref());
                    if key.id.is_none() {
                        world.leftovers.retain(|leftover| leftover.name != key.name);
                    }
                    let _ = reply_to.send(Ok(DeleteOutcome::Gone));
                }
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

#[derive(Default)]
struct Source(Shared, Vec<Reply<Result<LiveSet, SourceError>>>);

impl Actor for Source {
    type Message = SourceMessage;
    type Internal = Never;
    type Args = Shared;
    const KIND: &'static str = "source";

    async fn start(_: &Context<Self>, world: Shared) -> Result<Self, Failure> {
        Ok(Self(world, Vec::new()))
    }
    fn handle(&mut self, ctx: &Context<Self>, message: SourceMessage) -> Result<(), Failure> {
        let SourceMessage::LiveUids { reply_to } = message else { panic!("{message:?}") };
        let world = lock(&self.0);
        if world.live_hangs {
            self.1.push(reply_to);
            return Ok(());
        }
        let set = LiveSet { uids: Arc::new(world.live.clone()), complete: !world.live_incomplete, as_of: ctx.now() - world.live_stale };
        let _ = reply_to.send(if world.live_fails { Err(SourceError::Unavailable("forbidden".into())) } else { Ok(set) });
        Ok(())
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

struct TestRoot;

impl Actor for TestRoot {
    type Message = Never;
    type Internal = Never;
    type Args = (Vec<&'static str>, Shared, SweeperArgs);
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, (entries, world, args): Self::Args) -> Result<Self, Failure> {
        ctx.start_child_and_wait(ChildSpec::<Providers>::essential(provider::PROVIDERS_ID, entries.clone())).await?;
        for entry in entries {
            let id = provider::actor_id(entry);
            ctx.start_child_and_wait(ChildSpec::<Provider>::essential(id, (entry, Arc::clone(&world)))).await?;
        }
        ctx.start_child_and_wait(ChildSpec::<Source>::essential(source::ACTOR_ID, world)).await?;
        ctx.start_child_and_wait(spec(args)).await?;
        Ok(Self)
    }
    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

struct Bed {
    system: System,
    world: Shared,
    _root: Tree,
}

fn args() -> SweeperArgs {
    let rules = Rules { installation: InstallationId::new("ours"), min_age: Duration::from_secs(600), max_deletes: 10 };
    SweeperArgs { interval: INTERVAL, rules, dry_run: false }
}

fn instance(uid: &str) -> Instance {
    let uid = Uid::new(uid);
    let name = InstanceName::of(&uid);
    Instance {
        id: InstanceId::new(format!("lab/{name}")),
        name,
        state: InstanceState::Running,
        state_detail: None,
        deleting: false,
        ip: None,
        uid,
        installation: InstallationId::new("ours"),
        created_at: None,
    }
}

impl Bed {
    async fn start(entries: &[&'static str], args: SweeperArgs, set: impl FnOnce(&mut World)) -> Self {
        let mut world = World::default();
        set(&mut world);
        let world = Arc::new(Mutex::new(world));
        let system = System::new(Clock::starting_at(Timestamp::from_millis(1_767_323_045_000)), Metrics::default().shared());
        let spec = ChildSpec::<TestRoot>::essential("root", (entries.to_vec(), Arc::clone(&world), args));
        let root = system.start_root(spec).await.unwrap();
        // A second after the first round.
        tokio::time::sleep(FIRST + Duration::from_secs(1)).await;
        Self { system, world, _root: root }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// Passes rounds, and tells which deletes were asked for in each.
    async fn rounds(&self, n: usize) -> Vec<usize> {
        let mut seen = Vec::new();
        for _ in 0..n {
            let before = self.world().deletes.len();
            tokio::time::sleep(INTERVAL).await;
            seen.push(self.world().deletes.len() - before);
        }
        seen
    }

    fn deleted(&self) -> BTreeSet<String> {
        self.world().deletes.iter().map(|(_, _, uid)| uid.to_string()).collect()
    }

    fn counted(&self, provider: &str, result: &'static str) -> u64 {
        self.system.metrics().gc_deletions.get_or_create(&GcDeletion { provider: provider.to_owned(), result }).get()
    }

    async fn state(&self) -> serde_json::Value {
        self.system.inspect(Some(crate::ACTOR_ID), Some(0)).await.unwrap().state.unwrap()
    }
}

/// Live ones `live-N`, orphans `orphan-N`, twenty each.
fn twenty_and_twenty(world: &mut World) {
    let both = (0..20).flat_map(|n| [format!("live-{n}"), format!("orphan-{n}")]);
    world.instances.insert("lab", both.map(|uid| instance(&uid)).collect());
    world.live = (0..20).map(|n| Uid::new(format!("live-{n}"))).collect();
}

fn orphans() -> BTreeSet<String> {
    (0..20).map(|n| format!("orphan-{n}")).collect()
}

#[tokio::test(start_paused = true)]
async fn exactly_the_twenty_orphans_go_ten_a_round_after_one_round_of_evidence_og_4_og_6() {
    let bed = Bed::start(&["lab"], args(), twenty_and_twenty).await;
    assert_eq!(bed.world().deletes, [], "the first round is evidence only");
    assert_eq!(bed.rounds(4).await, [10, 10, 0, 0]);
    assert_eq!(bed.deleted(), orphans());
    assert_eq!(bed.world().instances["lab"].len(), 20);
    assert_eq!(bed.counted("lab", "ok"), 20);
    let state = bed.state().await;
    assert_eq!(
        (&state["rounds"], &state["providers"]["lab"]["orphans"], &state["providers"]["lab"]["listed"]),
        (&5.into(), &0.into(), &20.into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_hanging_list_of_one_provider_delays_no_other_pc_47() {
    let bed = Bed::start(&["lab", "stuck", "third"], args(), |world| {
        twenty_and_twenty(world);
        world.instances.insert("third", vec![instance("orphan-x")]);
        world.hang.insert("stuck");
    })
    .await;
    assert_eq!(bed.rounds(2).await, [11, 10]);
    let at: Vec<Duration> = bed.world().deletes.iter().map(|(at, ..)| *at).collect();
    assert!(at[..11].iter().all(|at| *at < FIRST + INTERVAL + Duration::from_secs(1)), "at once: {at:?}");
    let state = bed.state().await;
    assert!(state["providers"]["stuck"]["skipped"].as_str().unwrap().contains("no answer in time"), "{state}");
    {
        let mut world = bed.world();
        world.waiting.clear();
        world.hang.clear();
        world.instances.insert("stuck", vec![instance("orphan-y")]);
    }
    assert_eq!(bed.rounds(2).await, [0, 1], "it needs evidence of its own");
}

/// O4: an API read that fails, is empty without being complete, is stale or does not end deletes nothing.
#[tokio::test(start_paused = true)]
async fn a_live_set_that_cannot_be_trusted_deletes_nothing_o4() {
    type Spoil = fn(&mut World);
    let spoilt: [(&str, Spoil); 5] = [
        ("fails", |world| world.live_fails = true),
        ("is empty by lack of permission", |world| (world.live, world.live_incomplete) = (HashSet::new(), true)),
        ("is incomplete", |world| world.live_incomplete = true),
        ("is stale", |world| world.live_stale = Duration::from_millis(1)),
        ("hangs", |world| world.live_hangs = true),
    ];
    for (what, spoil) in spoilt {
        let bed = Bed::start(&["lab"], args(), |world| {
            twenty_and_twenty(world);
            world.live.clear();
            world.live.extend((0..20).flat_map(|n| [format!("live-{n}"), format!("orphan-{n}")]).map(Uid::new));
            spoil(world);
        })
        .await;
        bed.world().live.retain(|uid| uid.as_str().starts_with("live"));
        assert_eq!(bed.rounds(3).await, [0, 0, 0], "{what}");
        assert!(bed.state().await["providers"]["lab"]["skipped"].is_string(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_live_set_after_a_full_one_is_believed_when_it_is_complete_og_6() {
    let bed = Bed::start(&["lab"], args(), twenty_and_twenty).await;
    bed.world().live.clear();
    assert_eq!(bed.rounds(4).await, [10, 10, 10, 10]);
    assert!(bed.world().instances["lab"].is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_proxy_created_while_the_list_ran_is_no_orphan_og_3() {
    let bed = Bed::start(&["lab"], args(), |world| {
        world.instances.insert("lab", vec![instance("newborn")]);
        world.born_meanwhile = Some(Uid::new("newborn"));
    })
    .await;
    for _ in 0..3 {
        assert_eq!(bed.rounds(1).await, [0]);
        bed.world().live.clear();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_skips_the_round_and_takes_its_evidence_along_og_4() {
    let bed = Bed::start(&["lab"], args(), twenty_and_twenty).await;
    bed.world().list_fails.insert("lab");
    assert_eq!(bed.rounds(1).await, [0]);
    bed.world().list_fails.clear();
    assert_eq!(bed.rounds(2).await, [0, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_the_same_list_and_deletes_nothing_og_4() {
    let real = Bed::start(&["lab"], args(), twenty_and_twenty).await;
    let dry = Bed::start(&["lab"], SweeperArgs { dry_run: true, ..args() }, twenty_and_twenty).await;
    // One clock for both.
    assert_eq!(real.rounds(1).await, [10]);
    let chosen = |state: serde_json::Value| state["providers"]["lab"]["chosen"].clone();
    assert_eq!(chosen(dry.state().await), chosen(real.state().await));
    assert_eq!(chosen(dry.state().await).as_array().unwrap().len(), 10);
    dry.rounds(2).await;
    assert_eq!(dry.world().deletes, []);
    assert_eq!((dry.counted("lab", "dry_run"), dry.counted("lab", "ok")), (30, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_deletes_are_counted_and_tried_again_after_the_others() {
    let bed = Bed::start(&["lab"], args(), |world| {
        twenty_and_twenty(world);
        world.delete_fails = true;
    })
    .await;
    assert_eq!(bed.rounds(2).await, [10, 10]);
    assert_eq!((bed.deleted(), bed.counted("lab", "transient")), (orphans(), 20), "each had its turn");
    bed.world().delete_fails = false;
    assert_eq!(bed.rounds(3).await, [10, 10, 0]);
    assert_eq!(bed.counted("lab", "ok"), 20);
}

#[tokio::test(start_paused = true)]
async fn leftovers_are_collected_too_og_5() {
    let bed = Bed::start(&["lab"], args(), |world| {
        world.instances.insert("lab", vec![instance("live-1")]);
        world.live.insert(Uid::new("live-1"));
        world.leftovers = ["live-2", "gone"].map(|uid| Leftover { name: InstanceName::of(&Uid::new(uid)), created_at: None }).into();
        world.live.insert(Uid::new("live-2"));
    })
    .await;
    assert_eq!(bed.rounds(2).await, [1, 0]);
    assert_eq!(bed.world().leftovers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_crash_forgets_all_evidence_sv_2() {
    let bed = Bed::start(&["lab"], args(), twenty_and_twenty).await;
    assert!(bed.system.crash(crate::ACTOR_ID));
    tokio::time::sleep(FIRST + Duration::from_secs(1)).await;
    assert_eq!(bed.world().deletes, [], "one round only");
    assert_eq!(bed.rounds(1).await, [10]);
}
