//! Operators on reference clouds: the real directory, book, providers and sweeper of each. Two things are played: the
//! store of objects, which writes at once, and probes, which pass while there is an instance.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use egress_conformance::reference::{ReferenceFixture, Style};
use egress_conformance::{Entry, Fixture, Object, World};
use egress_lease::{BookSettings, BrokerActor, BrokerArgs, JournalActor, JournalArgs};
use egress_protocol::leadership::Fence;
use egress_protocol::message::{Message, Never};
use egress_protocol::metrics::Metrics;
use egress_protocol::object::{Annotations, CloudInit, CredentialsState, ProxyObject};
use egress_protocol::prober::{self, ProbeFailure, ProbeOutcome, ProbeReport, ProbeTarget, ProberMessage};
use egress_protocol::provider::{self, CallContext, CreateRequest, Op, ProviderMessage, ProvidersMessage};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::resource::conditions::{find, kind};
use egress_protocol::resource::{HealthCheck, Mode, Phase, Placement, ProxySpec};
use egress_protocol::source::{self, LiveSet, SourceError, SourceMessage};
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, ObjectKey, Timestamp, Uid, lease};
use egress_provider::{ProviderArgs, ProviderEntry, ProvidersArgs};
use egress_proxy::{Directory, DirectoryArgs, ProberFactory};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Root, System, Timer};
use egress_sweeper::SweeperArgs;
use egress_sweeper::sweep::Rules;
use tokio_util::sync::CancellationToken;

/// Between rounds of collection, as the flag's default.
pub(crate) const ROUND: Duration = Duration::from_secs(600);
const ZONE: &str = "zone-a";

/// A backend in memory, which several operators and entries can share.
pub(crate) type Cloud = Arc<dyn World>;

pub(crate) fn cloud() -> Cloud {
    Arc::from(ReferenceFixture::new(Style::Early).world())
}

/// What a cloud has: names of instances, each with its zone.
pub(crate) fn instances(cloud: &Cloud) -> Vec<String> {
    cloud.objects().into_iter().filter(|object| object.kind == Object::INSTANCE).map(|object| object.name).collect()
}

pub(crate) fn uid(name: &str) -> Uid {
    Uid::new(format!("uid-of-{name}"))
}

pub(crate) fn instance(name: &str) -> InstanceName {
    InstanceName::of(&uid(name))
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

/// The objects of one operator, as its API server would have them.
#[derive(Debug, Default)]
pub(crate) struct Store(pub(crate) BTreeMap<ObjectKey, ProxyObject>);

impl Store {
    pub(crate) fn phase(&self, name: &str) -> Option<Phase> {
        self.0.get(&key(name))?.status.phase
    }

    /// Status and reason of `Provisioned`.
    pub(crate) fn provisioned(&self, name: &str) -> (String, String) {
        let status = self.0.get(&key(name)).map(|object| Arc::clone(&object.status)).unwrap_or_default();
        let condition = find(&status.conditions, kind::PROVISIONED);
        condition.map(|condition| (condition.status.clone(), condition.reason.clone())).unwrap_or_default()
    }

    pub(crate) fn all_ready(&self) -> bool {
        self.0.values().all(|object| object.status.phase == Some(Phase::Ready))
    }
}

type Shared = Arc<Mutex<Store>>;

fn lock(store: &Shared) -> MutexGuard<'_, Store> {
    store.lock().expect("no poison")
}

/// One installation.
pub(crate) struct Operator {
    pub(crate) system: System,
    /// Whether it leads.
    pub(crate) fence: Fence,
    clouds: Vec<Cloud>,
    installation: InstallationId,
    store: Shared,
    root: Root,
}

impl Operator {
    /// With an entry for each cloud.
    pub(crate) async fn start(installation: &str, entries: &[(&'static str, &Cloud)]) -> Self {
        let system = System::new(Clock::starting_at(Timestamp::from_millis(1_767_323_045_000)), Metrics::default().shared());
        let (store, fence, installation) = (Shared::default(), Fence::open(), InstallationId::new(installation));
        let entry = |(name, cloud): &(&'static str, &Cloud)| {
            let about = Entry { name: (*name).into(), installation: installation.clone(), clock: system.clock() };
            let cloud = Arc::clone(*cloud);
            ProviderEntry {
                type_: "reference",
                fingerprint: (*name).to_owned(),
                foundation: (*name).to_owned(),
                settings: Arc::new(()),
                args: ProviderArgs {
                    name: (*name).into(),
                    max_concurrent_creates: 4,
                    stop_grace: Duration::ZERO,
                    fence: fence.clone(),
                    build: Arc::new(move |ground| cloud.build(&about, ground)),
                },
            }
        };
        let clouds: Vec<Cloud> = entries.iter().map(|(_, cloud)| Arc::clone(*cloud)).collect();
        let providers = ProvidersArgs::new(entries.iter().map(entry).collect());
        let args = TreeArgs { providers, installation: installation.clone(), store: Arc::clone(&store), clouds: clouds.clone() };
        let root = system.start_root(ChildSpec::<Tree>::essential("root", args)).await.expect("the tree starts");
        Self { system, fence, clouds, installation, store, root }
    }

    pub(crate) async fn stop(self) {
        self.root.stop().await;
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&lock(&self.store))
    }

    /// Somebody declares a proxy.
    pub(crate) fn declare(&self, name: &str, provider: &str) {
        let object = ProxyObject {
            key: key(name),
            uid: uid(name),
            generation: 1,
            spec: Arc::new(ProxySpec {
                mode: Mode::Managed,
                provider: Some(provider.to_owned()),
                placement: Some(Placement { zone: Some(ZONE.to_owned()), ..Placement::default() }),
                port: 3128,
                cloud_init: None,
                endpoint: None,
                attributes: BTreeMap::new(),
                max_leases: 1,
                health_check: HealthCheck::default(),
                provisioning_timeout_seconds: 1800,
            }),
            status: Arc::default(),
            annotations: Annotations::default(),
            deleting: false,
            finalizer: false,
            suspended: false,
            cloud_init: CloudInit::None,
            credentials: CredentialsState::NotNeeded,
        };
        lock(&self.store).0.insert(object.key.clone(), object.clone());
        self.send(object);
    }

    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut ProxyObject)) {
        let object = {
            let mut store = lock(&self.store);
            let object = store.0.get_mut(&key(name)).expect("an object");
            change(object);
            object.generation += 1;
            object.clone()
        };
        self.send(object);
    }

    pub(crate) fn move_to(&self, name: &str, zone: &str) {
        let placement = Some(Placement { zone: Some(zone.to_owned()), ..Placement::default() });
        self.edit(name, |object| object.spec = Arc::new(ProxySpec { placement, ..(*object.spec).clone() }));
    }

    pub(crate) fn delete(&self, name: &str) {
        self.edit(name, |object| object.deleting = true);
    }

    fn send(&self, object: ProxyObject) {
        let directory = self.system.address(proxies::ACTOR_ID);
        directory.send(ProxiesMessage::Apply { object: Arc::new(object) }).expect("the directory is up");
    }

    /// An instance that no object of this operator has, as one is left by a create whose status was lost.
    pub(crate) async fn orphan(&self, entry: &str, name: &str, zone: &str) -> InstanceId {
        let request = CreateRequest {
            name: instance(name),
            uid: uid(name),
            installation: self.installation.clone(),
            namespace: "default".into(),
            proxy_name: "px".into(),
            placement: Placement { zone: Some(zone.to_owned()), ..Placement::default() },
            cloud_init: Arc::default(),
            port: 3128,
        };
        let (provider, call) = (self.system.address(&provider::actor_id(entry)), CallContext::new(Op::Create, CancellationToken::new()));
        let made = provider.call(Duration::from_secs(600), |reply_to| ProviderMessage::Create { request, call, reply_to }).await;
        made.expect("the provider is up").expect("it is made")
    }

    /// Time in which the clouds work.
    pub(crate) async fn pass(&self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            self.step().await;
        }
    }

    async fn step(&self) {
        for cloud in &self.clouds {
            cloud.settle().await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    /// Waits for a state of the store, an hour at most; the clouds work meanwhile. How long it took.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Store) -> bool) -> Duration {
        self.until_watched(what, holds, || ()).await
    }

    /// The same, with something to look at all the while.
    pub(crate) async fn until_watched(&self, what: &str, holds: impl Fn(&Store) -> bool, watch: impl Fn()) -> Duration {
        let begin = tokio::time::Instant::now();
        while begin.elapsed() < Duration::from_secs(3600) {
            watch();
            if self.look(&holds) {
                return begin.elapsed();
            }
            self.step().await;
        }
        panic!("never: {what}\n{:#?}", self.look(|store| store.0.values().map(|object| Arc::clone(&object.status)).collect::<Vec<_>>()));
    }
}

#[derive(Clone)]
struct TreeArgs {
    providers: ProvidersArgs,
    installation: InstallationId,
    store: Shared,
    clouds: Vec<Cloud>,
}

/// In the order of the composition root.
struct Tree;

impl Actor for Tree {
    type Message = Never;
    type Internal = Never;
    type Args = TreeArgs;
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, args: TreeArgs) -> Result<Self, Failure> {
        let book = BookSettings::default();
        ctx.start_child_and_wait(args.providers.clone().spec()).await?;
        ctx.start_child_and_wait(ChildSpec::<JournalActor>::irreplaceable(lease::JOURNAL_ID, JournalArgs::from(&book))).await?;
        ctx.start_child_and_wait(ChildSpec::<BrokerActor>::essential(lease::BROKER_ID, BrokerArgs { settings: book })).await?;
        ctx.start_child_and_wait(ChildSpec::<Source>::essential(source::ACTOR_ID, Arc::clone(&args.store))).await?;
        let clouds = args.clouds.clone();
        let prober: ProberFactory = Arc::new(move |ctx, target| {
            let id = prober::actor_id(&target.key);
            ctx.start_child(ChildSpec::<Prober>::retried(id, (clouds.clone(), target)))
        });
        let directory = DirectoryArgs::new(args.installation.clone(), egress_proxy::Settings::default(), prober);
        ctx.start_child_and_wait(ChildSpec::<Directory>::essential(proxies::ACTOR_ID, directory)).await?;
        let _ = ctx.system().address(provider::PROVIDERS_ID).send(ProvidersMessage::Announce);
        let rules = Rules { installation: args.installation.clone(), min_age: ROUND, max_deletes: 10 };
        ctx.start_child_and_wait(egress_sweeper::spec(SweeperArgs { interval: ROUND, rules, dry_run: false })).await?;
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

/// Writes at once, and shows its writes to the directory as a watch would.
struct Source(Shared);

impl Source {
    fn change(&self, ctx: &Context<Self>, key: &ObjectKey, uid: &Uid, change: impl FnOnce(&mut ProxyObject)) -> Result<i64, SourceError> {
        let directory = ctx.system().address(proxies::ACTOR_ID);
        let mut store = lock(&self.0);
        let Some(object) = store.0.get_mut(key).filter(|object| object.uid == *uid) else { return Err(SourceError::Gone) };
        change(object);
        let object = object.clone();
        let generation = object.generation;
        let _ = if object.deleting && !object.finalizer {
            store.0.remove(key);
            directory.send(ProxiesMessage::Gone { key: key.clone(), uid: uid.clone() })
        } else {
            directory.send(ProxiesMessage::Apply { object: Arc::new(object) })
        };
        Ok(generation)
    }
}

impl Actor for Source {
    type Message = SourceMessage;
    type Internal = Never;
    type Args = Shared;
    const KIND: &'static str = "source";

    async fn start(_: &Context<Self>, store: Shared) -> Result<Self, Failure> {
        Ok(Self(store))
    }

    fn handle(&mut self, ctx: &Context<Self>, message: SourceMessage) -> Result<(), Failure> {
        match message {
            SourceMessage::WriteStatus { key, uid, status, reply_to, .. } => {
                let _ = reply_to.send(self.change(ctx, &key, &uid, |object| object.status = status));
            }
            SourceMessage::AddFinalizer { key, uid, reply_to, .. } => {
                let _ = reply_to.send(self.change(ctx, &key, &uid, |object| object.finalizer = true).map(drop));
            }
            SourceMessage::RemoveFinalizer { key, uid, reply_to, .. } => {
                let _ = reply_to.send(self.change(ctx, &key, &uid, |object| object.finalizer = false).map(drop));
            }
            SourceMessage::Resend => {
                let directory = ctx.system().address(proxies::ACTOR_ID);
                let objects: Vec<_> = lock(&self.0).0.values().cloned().collect();
                let live = objects.iter().map(|object| object.uid.clone()).collect();
                for object in objects {
                    let _ = directory.send(ProxiesMessage::Apply { object: Arc::new(object) });
                }
                let _ = directory.send(ProxiesMessage::Synced { live });
            }
            SourceMessage::LiveUids { reply_to } => {
                let uids = lock(&self.0).0.values().map(|object| object.uid.clone()).collect();
                let _ = reply_to.send(Ok(LiveSet { uids: Arc::new(uids), complete: true, as_of: ctx.now() }));
            }
            SourceMessage::Publish { .. } | SourceMessage::List { .. } | SourceMessage::Faults { .. } => {}
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

/// Looks every ten seconds whether there is an instance.
struct Prober {
    clouds: Vec<Cloud>,
    target: Arc<ProbeTarget>,
    healthy: Option<bool>,
    timer: Option<Timer>,
}

#[derive(Debug)]
struct Tick;

impl Message for Tick {
    fn kind(&self) -> &'static str {
        "Tick"
    }
}

impl Actor for Prober {
    type Message = ProberMessage;
    type Internal = Tick;
    type Args = (Vec<Cloud>, Arc<ProbeTarget>);
    const KIND: &'static str = "prober";

    async fn start(ctx: &Context<Self>, (clouds, target): Self::Args) -> Result<Self, Failure> {
        let timer = Some(ctx.after(Duration::from_millis(100), Tick));
        Ok(Self { clouds, healthy: target.prior, target, timer })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProberMessage) -> Result<(), Failure> {
        if let ProberMessage::Configure { target } = message {
            self.healthy = target.prior;
            self.target = target;
            self.timer = Some(ctx.after(Duration::from_millis(100), Tick));
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, Tick: Tick) -> Result<(), Failure> {
        self.timer = Some(ctx.after(Duration::from_secs(10), Tick));
        let name = InstanceName::of(&self.target.uid);
        let passes = self.clouds.iter().flat_map(|cloud| cloud.objects()).any(|o| o.kind == Object::INSTANCE && o.instance == name);
        let outcome = if passes {
            ProbeOutcome::Passed { latency: Duration::from_millis(12), egress_ip: None }
        } else {
            ProbeOutcome::Failed { failure: ProbeFailure::ConnectFailed, message: "connection refused".into(), target_side: false }
        };
        let flipped = self.healthy.replace(passes) != Some(passes);
        let (now, epoch) = (ctx.now(), self.target.epoch);
        let report = ProbeReport { epoch, started_at: now, ended_at: now, outcome, healthy: passes, flipped, contradicting: 0 };
        let _ = ctx.system().address::<ProxyMessage>(&self.target.key.actor_id()).send(ProxyMessage::Probed { report });
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
