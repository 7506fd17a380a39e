//! A tree round the directory: what each part saw and does is in one [`World`] that the test shares with them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_protocol::lease::{BROKER_ID, BrokerMessage, ProxyAvailability};
use egress_protocol::message::{Message, Never};
use egress_protocol::metrics::Metrics;
use egress_protocol::object::{Annotations, CloudInit, CredentialsState, ProxyObject};
use egress_protocol::prober::{self, ProbeFailure, ProbeOutcome, ProbeReport, ProbeTarget, ProberMessage};
use egress_protocol::provider::{DeleteOutcome, ErrorClass, Instance, InstanceState, Op, ProviderError, ProviderMessage};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::resource::{HealthCheck, Mode, Phase, ProxySpec, conditions};
use egress_protocol::source::{self, EventReason, LiveSet, SourceError, SourceMessage};
use egress_protocol::{Clock, InstallationId, InstanceId, ObjectKey, Secret, Timestamp, Uid};
use egress_proxy::{Directory, DirectoryArgs, ProberFactory, Settings};
use egress_supervision::{Actor, Address, ChildSpec, Context, Failure, Node, Root, System, Timer};

#[derive(Debug, Clone)]
pub(crate) struct Vm {
    pub(crate) port: u16,
    user_data: String,
    born: Timestamp,
}

/// What is stored, what runs, what was said.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) objects: BTreeMap<ObjectKey, ProxyObject>,
    /// By instance name.
    pub(crate) vms: HashMap<String, Vm>,
    pub(crate) book: BTreeMap<ObjectKey, Arc<ProxyAvailability>>,
    /// What the broker was last told there is.
    pub(crate) expected: Option<usize>,
    pub(crate) events: Vec<(ObjectKey, EventReason)>,
    pub(crate) create_takes: Duration,
    /// Names of proxies whose creates never end by themselves.
    pub(crate) hang: HashSet<String>,
    /// User data whose instances carry no traffic.
    pub(crate) probes_fail: HashSet<String>,
    pub(crate) creates: u32,
    pub(crate) deletes: u32,
    pub(crate) urgent: u32,
}

impl World {
    pub(crate) fn phase(&self, name: &str) -> Option<Phase> {
        self.objects.get(&key(name))?.status.phase
    }

    pub(crate) fn ready(&self) -> usize {
        self.objects.values().filter(|object| object.status.phase == Some(Phase::Ready)).count()
    }

    pub(crate) fn reason(&self, name: &str, kind: &str) -> Option<String> {
        conditions::find(&self.objects.get(&key(name))?.status.conditions, kind).map(|c| c.reason.clone())
    }

    pub(crate) fn message(&self, name: &str, kind: &str) -> Option<String> {
        conditions::find(&self.objects.get(&key(name))?.status.conditions, kind).map(|c| c.message.clone())
    }
}

type Shared = Arc<Mutex<World>>;

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

pub(crate) fn managed(name: &str) -> ProxyObject {
    ProxyObject {
        key: key(name),
        uid: Uid::new(format!("uid-of-{name}")),
        generation: 1,
        spec: Arc::new(ProxySpec {
            mode: Mode::Managed,
            provider: Some("lab".into()),
            placement: None,
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
    }
}

pub(crate) fn from_secret(object: ProxyObject, text: &str) -> ProxyObject {
    let bytes = Arc::new(Secret::new(text.as_bytes().to_vec()));
    ProxyObject { cloud_init: CloudInit::Resolved { bytes, secret: Some("pool".into()) }, ..object }
}

pub(crate) struct Bed {
    pub(crate) system: System,
    root: Option<Root>,
    world: Shared,
}

impl Bed {
    pub(crate) async fn start() -> Self {
        let clock = Clock::starting_at(Timestamp::from_millis(1_767_323_045_000));
        let system = System::new(clock, Metrics::default().shared());
        let world = Shared::default();
        let root = system.start_root(ChildSpec::<Tree>::essential("root", Arc::clone(&world))).await.expect("the tree starts");
        let bed = Self { system, root: Some(root), world };
        bed.send(ProxiesMessage::ProviderChanged { name: "lab".into(), fingerprint: Some("f1".into()) });
        bed
    }

    pub(crate) async fn stop(mut self) {
        if let Some(root) = self.root.take() {
            root.stop().await;
        }
    }

    pub(crate) fn world<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut self.world.lock().expect("no poison"))
    }

    pub(crate) fn send(&self, message: ProxiesMessage) {
        self.system.address(proxies::ACTOR_ID).send(message).expect("the directory is up");
    }

    pub(crate) fn proxy(&self, name: &str) -> Address<ProxyMessage> {
        self.system.address(&key(name).actor_id())
    }

    pub(crate) fn apply(&self, object: ProxyObject) {
        self.world(|world| world.objects.insert(object.key.clone(), object.clone()));
        self.send(ProxiesMessage::Apply { object: Arc::new(object) });
    }

    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut ProxyObject)) {
        let object = self.world(|world| {
            let object = world.objects.get_mut(&key(name)).expect("an object");
            change(object);
            object.generation += 1;
            object.clone()
        });
        self.send(ProxiesMessage::Apply { object: Arc::new(object) });
    }

    pub(crate) fn delete(&self, name: &str) {
        self.edit(name, |object| object.deleting = true);
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&World) -> bool) {
        for _ in 0..4_000 {
            if self.world(|world| holds(world)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("never: {what}\n{:#?}", self.world(|world| format!("{:?}", world.objects)));
    }

    pub(crate) async fn node_of(&self, id: &str) -> Option<Node> {
        self.system.inspect(Some(id), Some(0)).await
    }

    pub(crate) async fn explain(&self, name: &str) -> serde_json::Value {
        let proxy = self.proxy(name);
        proxy.call(Duration::from_secs(1), |reply_to| ProxyMessage::Explain { reply_to }).await.expect("an answer")
    }
}

/// The root of the bed.
struct Tree;

impl Actor for Tree {
    type Message = Never;
    type Internal = Never;
    type Args = Shared;
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, world: Shared) -> Result<Self, Failure> {
        let probed = Arc::clone(&world);
        let factory: ProberFactory = Arc::new(move |ctx, target| {
            let id = prober::actor_id(&target.key);
            ctx.start_child(ChildSpec::<Prober>::retried(id, (Arc::clone(&probed), target)))
        });
        ctx.start_child_and_wait(ChildSpec::<Broker>::retried(BROKER_ID, Arc::clone(&world))).await?;
        ctx.start_child_and_wait(ChildSpec::<Provider>::retried("provider/lab", Arc::clone(&world))).await?;
        ctx.start_child_and_wait(ChildSpec::<Source>::retried(source::ACTOR_ID, Arc::clone(&world))).await?;
        let args = DirectoryArgs::new(InstallationId::new("ours"), Settings::default(), factory);
        ctx.start_child_and_wait(ChildSpec::<Directory>::essential(proxies::ACTOR_ID, args)).await?;
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
        let mut world = self.0.lock().expect("no poison");
        let Some(object) = world.objects.get_mut(key).filter(|object| object.uid == *uid) else { return Err(SourceError::Gone) };
        change(object);
        let object = object.clone();
        let generation = object.generation;
        let _ = if object.deleting && !object.finalizer {
            world.objects.remove(key);
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

    async fn start(_: &Context<Self>, world: Shared) -> Result<Self, Failure> {
        Ok(Self(world))
    }

    fn handle(&mut self, ctx: &Context<Self>, message: SourceMessage) -> Result<(), Failure> {
        match message {
            SourceMessage::WriteStatus { key, uid, status, reply_to, .. } => {
                let _ = reply_to.send(self.change(ctx, &key, &uid, |object| object.status = status));
            }
            SourceMessage::AddFinalizer { key, uid, reply_to, .. } => {
                let _ = reply_to.send(self.change(ctx, &key, &uid, |object| object.finalizer = true).map(|_| ()));
            }
            SourceMessage::RemoveFinalizer { key, uid, reply_to, .. } => {
                let _ = reply_to.send(self.change(ctx, &key, &uid, |object| object.finalizer = false).map(|_| ()));
            }
            SourceMessage::Publish { event } => self.0.lock().expect("no poison").events.push((event.key, event.reason)),
            SourceMessage::Resend => {
                let directory = ctx.system().address(proxies::ACTOR_ID);
                let objects: Vec<_> = self.0.lock().expect("no poison").objects.values().cloned().collect();
                let live = objects.iter().map(|object| object.uid.clone()).collect();
                for object in objects {
                    let _ = directory.send(ProxiesMessage::Apply { object: Arc::new(object) });
                }
                let _ = directory.send(ProxiesMessage::Synced { live });
            }
            SourceMessage::LiveUids { reply_to } => {
                let uids = self.0.lock().expect("no poison").objects.values().map(|object| object.uid.clone()).collect();
                let _ = reply_to.send(Ok(LiveSet { uids: Arc::new(uids), complete: true, as_of: ctx.now() }));
            }
            SourceMessage::List { reply_to } => {
                let _ = reply_to.send(None);
            }
            SourceMessage::Faults { reply_to } => {
                let _ = reply_to.send(Vec::new());
            }
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

struct Broker(Shared);

impl Actor for Broker {
    type Message = BrokerMessage;
    type Internal = Never;
    type Args = Shared;
    const KIND: &'static str = "broker";

    async fn start(_: &Context<Self>, world: Shared) -> Result<Self, Failure> {
        Ok(Self(world))
    }

    fn handle(&mut self, ctx: &Context<Self>, message: BrokerMessage) -> Result<(), Failure> {
        let mut world = self.0.lock().expect("no poison");
        match message {
            BrokerMessage::Publish { proxy } => {
                if let Some(by) = proxy.drain_by {
                    // Nobody leases anything here.
                    let _ = ctx.system().address::<ProxyMessage>(&proxy.key.actor_id()).send(ProxyMessage::Drained { by });
                }
                world.book.insert(proxy.key.clone(), proxy);
            }
            BrokerMessage::Expect { live } => world.expected = Some(live.len()),
            BrokerMessage::Withdraw { key, uid } if world.book.get(&key).is_some_and(|entry| entry.uid == uid) => {
                world.book.remove(&key);
            }
            _ => {}
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

/// Instances run at once when they were created, and are gone at the second look after a delete.
struct Provider(Shared);

#[derive(Debug)]
struct Done;

impl Message for Done {
    fn kind(&self) -> &'static str {
        "Done"
    }
}

fn error(class: ErrorClass, op: Op) -> ProviderError {
    ProviderError {
        class,
        op,
        provider: "lab".into(),
        id: None,
        message: class.result_label().to_owned(),
        environment: false,
        retry_after: None,
        cause: None,
    }
}

impl Actor for Provider {
    type Message = ProviderMessage;
    type Internal = Done;
    type Args = Shared;
    const KIND: &'static str = "provider";

    async fn start(_: &Context<Self>, world: Shared) -> Result<Self, Failure> {
        Ok(Self(world))
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProviderMessage) -> Result<(), Failure> {
        let shared = Arc::clone(&self.0);
        let mut world = self.0.lock().expect("no poison");
        match message {
            ProviderMessage::Create { request, call, reply_to } => {
                world.creates += u32::from(!world.vms.contains_key(request.name.as_str()));
                let hangs = world.hang.contains(&*request.proxy_name);
                let takes = if hangs { Duration::from_secs(86_400) } else { world.create_takes };
                let born = ctx.now();
                ctx.spawn(async move {
                    // It is carried out half-way through: whoever is cut off after that has made it all the same.
                    let early = call.cancel.run_until_cancelled(tokio::time::sleep(takes / 2)).await.is_some();
                    let name = request.name.as_str().to_owned();
                    if early {
                        let user_data = String::from_utf8_lossy(request.cloud_init.expose()).into_owned();
                        let mut world = shared.lock().expect("no poison");
                        let vm = world.vms.entry(name.clone()).or_insert(Vm { port: request.port, user_data, born });
                        assert_eq!(vm.port, request.port, "an old instance is never taken for a new one");
                    }
                    let done = early && call.cancel.run_until_cancelled(tokio::time::sleep(takes / 2)).await.is_some();
                    let answer =
                        if done { Ok(InstanceId::new(format!("lab/{name}"))) } else { Err(error(ErrorClass::Transient, Op::Create)) };
                    let _ = reply_to.send(answer);
                    Done
                })
                .keep();
            }
            ProviderMessage::Get { key, reply_to, .. } => {
                let answer = match world.vms.get(key.name.as_str()) {
                    None => Err(error(ErrorClass::NotFound, Op::Get)),
                    Some(vm) => Ok(Instance {
                        id: InstanceId::new(format!("lab/{}", key.name)),
                        name: key.name.clone(),
                        state: InstanceState::Running,
                        state_detail: None,
                        deleting: false,
                        ip: Some(Ipv4Addr::new(192, 0, 2, 7)),
                        uid: key.uid.clone(),
                        installation: key.installation.clone(),
                        created_at: Some(vm.born),
                    }),
                };
                let _ = reply_to.send(answer);
            }
            ProviderMessage::Delete { key, reply_to, .. } => {
                world.deletes += u32::from(world.vms.remove(key.name.as_str()).is_some());
                let _ = reply_to.send(Ok(DeleteOutcome::Gone));
            }
            ProviderMessage::List { .. }
            | ProviderMessage::Check { .. }
            | ProviderMessage::Describe { .. }
            | ProviderMessage::Reconfigure { .. } => {}
        }
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, Done: Done) -> Result<(), Failure> {
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Probes every ten seconds; passes while the instance is there and its user data is not among the bad ones.
struct Prober {
    world: Shared,
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
    type Args = (Shared, Arc<ProbeTarget>);
    const KIND: &'static str = "prober";

    async fn start(ctx: &Context<Self>, (world, target): Self::Args) -> Result<Self, Failure> {
        let timer = Some(ctx.after(Duration::from_millis(100), Tick));
        Ok(Self { world, healthy: target.prior, target, timer })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProberMessage) -> Result<(), Failure> {
        match message {
            ProberMessage::Configure { target } => {
                self.healthy = target.prior;
                self.target = target;
                self.timer = Some(ctx.after(Duration::from_millis(100), Tick));
            }
            ProberMessage::Urgent => self.world.lock().expect("no poison").urgent += 1,
            ProberMessage::Now | ProberMessage::CheckUrl { .. } => {}
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, Tick: Tick) -> Result<(), Failure> {
        self.timer = Some(ctx.after(Duration::from_secs(10), Tick));
        let name = egress_protocol::InstanceName::of(&self.target.uid);
        let passes = {
            let world = self.world.lock().expect("no poison");
            world.vms.get(name.as_str()).is_some_and(|vm| !world.probes_fail.contains(&vm.user_data))
        };
        let outcome = if passes {
            ProbeOutcome::Passed { latency: Duration::from_millis(12), egress_ip: None }
        } else {
            ProbeOutcome::Failed { failure: ProbeFailure::ConnectFailed, message: "connection refused".into(), target_side: false }
        };
        let flipped = self.healthy != Some(passes);
        self.healthy = Some(passes);
        let (now, epoch) = (ctx.now(), self.target.epoch);
        let report = ProbeReport { epoch, started_at: now, ended_at: now, outcome, healthy: passes, flipped, contradicting: 0 };
        let proxy = ctx.system().address::<ProxyMessage>(&self.target.key.actor_id());
        let _ = proxy.send(ProxyMessage::Probed { report });
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
