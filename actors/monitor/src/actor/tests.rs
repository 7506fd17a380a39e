//! The actor among scripted providers, a directory and a publisher that listen, on a paused clock.

use std::sync::{Mutex, MutexGuard};

use egress_protocol::message::Never;
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Timestamp};
use egress_supervision::{Root as Tree, System};

use super::*;

const INTERVAL: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(15);

/// What a provider's check does.
#[derive(Debug, Clone, PartialEq)]
enum Does {
    Ready,
    Down(&'static str),
    /// Answers after that long, ready.
    After(Duration),
    /// Answers after that long, down.
    DownAfter(Duration),
    /// Never answers.
    Hang,
    /// As the provider's actor does when the check panics: the reply is dropped at once.
    Panic,
    /// As the provider's actor does with one that does not stop: the reply is dropped when its grace is over.
    Overdue,
    None,
    NoTargets,
}

#[derive(Default)]
struct World {
    entries: Vec<&'static str>,
    does: HashMap<&'static str, Does>,
    /// Checks that were asked for, by provider.
    asked: Vec<&'static str>,
    hanging: Vec<Reply<Option<Vec<TargetVerdict>>>>,
    published: Vec<PublisherMessage>,
    told: Vec<(Arc<str>, Vec<bool>)>,
}

type Shared = Arc<Mutex<World>>;

fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap()
}

/// An actor that hands every message to a function, for as long as the world goes on.
macro_rules! stand_in {
    ($name:ident, $message:ty, $kind:literal, |$ctx:ident, $self_:ident, $received:ident| $body:expr) => {
        /// The world, and which of the world's actors of this kind it is.
        struct $name(Shared, &'static str);

        impl Actor for $name {
            type Message = $message;
            type Internal = Done;
            type Args = (Shared, &'static str);
            const KIND: &'static str = $kind;

            async fn start(_: &Context<Self>, (world, name): Self::Args) -> Result<Self, Failure> {
                Ok(Self(world, name))
            }
            fn handle(&mut self, $ctx: &Context<Self>, $received: $message) -> Result<(), Failure> {
                let $self_ = self;
                $body;
                Ok(())
            }
            fn handle_internal(&mut self, _: &Context<Self>, _: Done) -> Result<(), Failure> {
                Ok(())
            }
            fn describe(&self) -> serde_json::Value {
                json!(self.1)
            }
        }
    };
}

struct Done;

impl Message for Done {
    fn kind(&self) -> &'static str {
        "Done"
    }
}

stand_in!(Providers, ProvidersMessage, "providers", |_ctx, this, message| {
    if let ProvidersMessage::List { reply_to } = message {
        let _ = reply_to.send(lock(&this.0).entries.iter().map(|name| (Arc::from(*name), "scripted")).collect());
    }
});

stand_in!(Directory, ProxiesMessage, "proxies", |_ctx, this, message| {
    if let ProxiesMessage::ProviderHealth { name, targets } = message {
        lock(&this.0).told.push((name, targets.iter().map(|(_, ready)| *ready).collect()));
    }
});

stand_in!(Publisher, PublisherMessage, "publisher", |_ctx, this, message| lock(&this.0).published.push(message));

stand_in!(Provider, ProviderMessage, "provider", |ctx, this, message| {
    let ProviderMessage::Check { call, reply_to } = message else { panic!("{message:?}") };
    let mut world = lock(&this.0);
    world.asked.push(this.1);
    let does = world.does.get(this.1).cloned().unwrap_or(Does::Ready);
    let verdict = |ready, reason| TargetVerdict {
        name: format!("{}-1", this.1),
        address: String::new(),
        ready,
        reason,
        message: String::new(),
        latency: Duration::from_millis(3),
        details: Vec::new(),
    };
    let (after, answer) = match does {
        Does::Ready => (Duration::ZERO, Some(Some(vec![verdict(true, status::REACHABLE)]))),
        Does::Down(reason) => (Duration::ZERO, Some(Some(vec![verdict(false, reason)]))),
        Does::After(after) => (after, Some(Some(vec![verdict(true, status::REACHABLE)]))),
        Does::DownAfter(after) => (after, Some(Some(vec![verdict(false, "Timeout")]))),
        Does::None => (Duration::ZERO, Some(None)),
        Does::NoTargets => (Duration::ZERO, Some(Some(Vec::new()))),
        Does::Panic => (Duration::from_millis(1), None),
        Does::Overdue => (call.deadline + GRACE, None),
        Does::Hang => {
            world.hanging.push(reply_to);
            return Ok(());
        }
    };
    ctx.spawn(async move {
        tokio::time::sleep(after).await;
        if let Some(answer) = answer {
            let _ = reply_to.send(answer);
        }
        Done
    })
    .keep();
});

struct TestRoot;

impl Actor for TestRoot {
    type Message = Never;
    type Internal = Never;
    type Args = (Shared, MonitorArgs, Vec<&'static str>);
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, (world, args, all): Self::Args) -> Result<Self, Failure> {
        let own = |name| (Arc::clone(&world), name);
        ctx.start_child_and_wait(ChildSpec::<Providers>::essential(provider::PROVIDERS_ID, own(""))).await?;
        for name in all {
            ctx.start_child_and_wait(ChildSpec::<Provider>::essential(provider::actor_id(name), own(name))).await?;
        }
        ctx.start_child_and_wait(ChildSpec::<Directory>::essential(proxies::ACTOR_ID, own(""))).await?;
        ctx.start_child_and_wait(ChildSpec::<Publisher>::essential(PUBLISHER_ID, own(""))).await?;
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
    fence: Fence,
    _root: Tree,
}

impl Bed {
    /// The monitor has just been started.
    async fn start(entries: &[&'static str], interval: Duration, does: &[(&'static str, Does)]) -> Self {
        listen();
        let world = World { entries: entries.to_vec(), does: does.iter().cloned().collect(), ..World::default() };
        let world = Arc::new(Mutex::new(world));
        let system = System::new(Clock::starting_at(Timestamp::from_millis(1_767_323_045_000)), Metrics::default().shared());
        let fence = Fence::open();
        let args = MonitorArgs { interval, timeout: TIMEOUT, fence: fence.clone() };
        let spec = ChildSpec::<TestRoot>::essential("root", (Arc::clone(&world), args, entries.to_vec()));
        let root = system.start_root(spec).await.unwrap();
        let bed = Self { system, world, fence, _root: root };
        bed.pass(1).await;
        bed
    }

    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    fn set(&self, name: &'static str, does: Does) {
        self.world().does.insert(name, does);
    }

    async fn snapshot(&self) -> Arc<HealthSnapshot> {
        let monitor = self.system.address::<MonitorMessage>(monitor::ACTOR_ID);
        monitor.call(Duration::from_secs(1), |reply_to| MonitorMessage::Snapshot { reply_to }).await.unwrap()
    }

    /// Per provider: the reason of its first target, or of the condition.
    async fn reasons(&self) -> Vec<String> {
        let of = |checked: &ProviderChecked| {
            let target = checked.status.targets.first().and_then(|target| target.reason.clone());
            format!("{} {}", checked.name, target.unwrap_or_else(|| checked.status.conditions[0].reason.clone()))
        };
        self.snapshot().await.providers.iter().map(of).collect()
    }

    fn asked(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.world().asked)
    }

    fn published(&self) -> Vec<String> {
        let published = std::mem::take(&mut self.world().published);
        let names = |keep: Vec<Arc<str>>| keep.join(",");
        published
            .into_iter()
            .map(|message| match message {
                PublisherMessage::Publish { name, .. } => format!("publish {name}"),
                PublisherMessage::Cleanup { keep } => format!("cleanup {}", names(keep)),
            })
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn all_are_checked_at_once_and_then_every_interval_in_the_order_of_the_file_ph_11_ph_12() {
    let bed =
        Bed::start(&["b", "a", "c", "d"], INTERVAL, &[("a", Does::Down("Unauthorized")), ("c", Does::None), ("d", Does::NoTargets)]).await;
    assert_eq!(bed.reasons().await, ["b Reachable", "a Unauthorized", "c ChecksNotImplemented", "d NoTargets"]);
    assert_eq!(bed.asked(), ["b", "a", "c", "d"]);
    bed.pass(58).await;
    assert!(bed.asked().is_empty());
    bed.pass(2).await;
    assert_eq!(bed.asked().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn one_publication_per_provider_and_round_and_a_cleanup_when_the_entries_changed_ht_03_ph_20_ph_26() {
    let bed = Bed::start(&["a", "b"], INTERVAL, &[]).await;
    assert_eq!(bed.published(), ["cleanup a,b", "publish a", "publish b"]);
    bed.pass(60).await;
    assert_eq!(bed.published(), ["publish a", "publish b"]);
    bed.world().entries = vec!["a"];
    bed.world().told.clear();
    bed.pass(60).await;
    assert_eq!(bed.published(), ["cleanup a", "publish a"], "a reload counts from the next round on");
    assert_eq!(bed.world().told, [(Arc::from("b"), vec![]), (Arc::from("a"), vec![true])], "nothing holds the proxies of one that went");
    assert_eq!(bed.reasons().await, ["a Reachable"]);
}

#[tokio::test(start_paused = true)]
async fn without_leadership_no_round_begins_and_one_under_way_counts_for_nothing_sv_4() {
    let bed = Bed::start(&["a", "b"], INTERVAL, &[]).await;
    bed.published();
    bed.set("a", Does::After(Duration::from_secs(10)));
    bed.set("b", Does::DownAfter(Duration::from_secs(5)));
    bed.pass(60).await;
    bed.fence.close();
    bed.pass(6).await;
    let leads_again = || bed.fence.extend(Instant::now() + Duration::from_secs(1 << 30));
    leads_again();
    bed.pass(10).await;
    assert_eq!(bed.reasons().await, ["a Reachable", "b Reachable"], "it was back before the round ended");
    assert!(bed.published().is_empty());
    bed.fence.close();
    bed.asked();
    bed.pass(120).await;
    assert!(bed.asked().is_empty() && bed.published().is_empty());
    leads_again();
    bed.pass(60).await;
    assert_eq!(bed.reasons().await, ["a Reachable", "b Timeout"]);
}

/// HT-04 (PH-13, PH-15).
#[tokio::test(start_paused = true)]
async fn a_hanging_and_a_panicking_check_spoil_nobody_else_s_and_nothing_piles_up_ht_04() {
    let bed = Bed::start(&["good", "stuck", "broken"], INTERVAL, &[]).await;
    bed.set("stuck", Does::Hang);
    bed.set("broken", Does::Panic);
    bed.asked();
    bed.published();
    bed.pass(59 + 17).await;
    assert_eq!(bed.reasons().await, ["good Reachable", "stuck Timeout", "broken APIError"]);
    assert_eq!(bed.published(), ["publish good", "publish stuck", "publish broken"]);
    assert_eq!(bed.asked(), ["good", "stuck", "broken"]);
    let message = bed.snapshot().await.provider("stuck").unwrap().status.targets[0].message.clone();
    assert!(message.unwrap().contains("did not stop"));
    bed.pass(180).await;
    assert_eq!(bed.asked().iter().filter(|name| **name == "stuck").count(), 0, "no second one starts while it runs");
    assert_eq!(bed.world().hanging.len(), 1);
    assert_eq!(bed.reasons().await[1], "stuck Timeout", "the verdict repeats");
    let since = |snapshot: Arc<HealthSnapshot>| snapshot.provider("stuck").unwrap().status.targets[0].last_transition_time.clone();
    let before = since(bed.snapshot().await);
    bed.pass(60).await;
    assert_eq!(since(bed.snapshot().await), before);
    bed.world().hanging.clear();
    bed.set("stuck", Does::Ready);
    bed.set("broken", Does::Ready);
    bed.pass(61).await;
    assert_eq!(bed.reasons().await, ["good Reachable", "stuck Reachable", "broken Reachable"]);
}

#[tokio::test(start_paused = true)]
async fn readers_see_whole_rounds_only_and_a_tick_during_a_round_is_dropped_ph_11_ph_16() {
    let bed = Bed::start(&["fast", "slow"], Duration::from_secs(10), &[]).await;
    let first = bed.snapshot().await;
    bed.set("fast", Does::Down("Forbidden"));
    bed.set("slow", Does::After(Duration::from_secs(14)));
    bed.asked();
    // The round from 10 s to 24 s; the tick at 20 s is dropped, the one at 30 s is not.
    bed.pass(22).await;
    assert_eq!(bed.snapshot().await, first, "not half of it");
    assert_eq!(bed.asked(), ["fast", "slow"]);
    bed.pass(2).await;
    assert_eq!(bed.reasons().await, ["fast Forbidden", "slow Reachable"]);
    assert_ne!(bed.snapshot().await.provider("fast").unwrap().finished, bed.snapshot().await.provider("slow").unwrap().finished, "PH-18");
    bed.pass(7).await;
    assert_eq!(bed.asked(), ["fast", "slow"]);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_its_provider_gave_up_reads_timeout_and_may_run_again_ph_15() {
    let bed = Bed::start(&["a"], INTERVAL, &[("a", Does::Overdue)]).await;
    assert!(bed.reasons().await.is_empty(), "before the first round");
    bed.pass(17).await;
    assert_eq!(bed.reasons().await, ["a Timeout"]);
    bed.set("a", Does::Ready);
    bed.pass(60).await;
    assert_eq!(bed.reasons().await, ["a Reachable"]);
}

#[tokio::test(start_paused = true)]
async fn the_directory_hears_which_targets_are_down_op_33() {
    let bed = Bed::start(&["a"], INTERVAL, &[]).await;
    bed.set("a", Does::Down("Unreachable"));
    bed.pass(60).await;
    assert_eq!(bed.world().told, [(Arc::from("a"), vec![true]), (Arc::from("a"), vec![false])]);
}

/// HT-06 (PH-25).
#[tokio::test(start_paused = true)]
async fn interval_0_cleans_up_everything_of_ours_and_checks_nothing_ht_06() {
    let bed = Bed::start(&["a"], Duration::ZERO, &[]).await;
    bed.pass(3600).await;
    assert_eq!(bed.published(), ["cleanup "]);
    assert!(bed.asked().is_empty() && bed.snapshot().await.providers.is_empty());
}

/// HT-05 and HT-07 (PH-24, PH-43): the log is captured.
#[tokio::test(start_paused = true)]
async fn each_transition_is_logged_once_and_an_invalid_name_is_warned_of_once_ht_05_ht_07() {
    let bed = Bed::start(&["Not_A_Label"], INTERVAL, &[]).await;
    let name = "Not_A_Label";
    for does in [Does::Ready, Does::Down("Timeout"), Does::Down("Timeout"), Does::Down("Unreachable"), Does::Ready, Does::Ready] {
        bed.set(name, does);
        bed.pass(60).await;
    }
    let lines = logged();
    let seen: Vec<&str> = lines.iter().map(String::as_str).filter(|line| line.contains("rovider target")).collect();
    assert_eq!(
        seen,
        [
            "DEBUG Provider target ready provider=Not_A_Label provider_target=Not_A_Label-1",
            "WARN WARNING: provider target not ready provider=Not_A_Label provider_target=Not_A_Label-1 reason=Timeout detail=",
            "WARN WARNING: provider target not ready provider=Not_A_Label provider_target=Not_A_Label-1 reason=Unreachable detail=",
            "INFO Provider target ready provider=Not_A_Label provider_target=Not_A_Label-1",
        ]
    );
    assert_eq!(lines.iter().filter(|line| line.contains("cannot be that of an object")).count(), 1);
    assert_eq!(bed.published(), ["cleanup Not_A_Label"], "no writes");
    assert_eq!(bed.snapshot().await.providers.len(), 1, "its gauges go on");
}

/// HT-10 (PH-11): a monitor that is stopped has no snapshot, writes nothing more, and its successor starts anew.
#[tokio::test(start_paused = true)]
async fn a_crash_forgets_the_round_and_checks_at_once() {
    let bed = Bed::start(&["a"], INTERVAL, &[]).await;
    bed.asked();
    assert!(bed.system.crash(monitor::ACTOR_ID));
    bed.pass(1).await;
    assert_eq!((bed.asked(), bed.reasons().await), (vec!["a"], vec!["a Reachable".to_owned()]));
}

thread_local! {
    /// What this test logged: each runs on a thread of its own.
    static LINES: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The lines of this thread, as `LEVEL message field=value …`.
fn logged() -> Vec<String> {
    LINES.take()
}

/// Captures the log, before anything is logged: a place that was passed without a listener might stay silent.
fn listen() {
    use tracing::field::{Field, Visit};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    struct Capture;
    #[derive(Default)]
    struct Line(String, String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            match field.name() {
                "message" => self.0 = format!("{value:?}"),
                name => self.1.push_str(&format!(" {name}={}", format!("{value:?}").trim_matches('"'))),
            }
        }
    }
    impl<S: tracing::Subscriber> Layer<S> for Capture {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            let mut line = Line::default();
            event.record(&mut line);
            LINES.with_borrow_mut(|lines| lines.push(format!("{} {}{}", event.metadata().level(), line.0, line.1)));
        }
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Capture)).unwrap());
}
