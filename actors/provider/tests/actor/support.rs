//! A backend that does what a test says, and a tree to run it in.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_protocol::leadership::Fence;
use egress_protocol::message::{Message, Never};
use egress_protocol::metrics::Metrics;
use egress_protocol::provider::{
    self, CallContext, CreateRequest, DeleteOutcome, ErrorClass, Instance, InstanceKey, InstanceState, ListResult, Op, ProviderError,
    ProviderMessage, Settings, TargetVerdict,
};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Timestamp, Uid};
use egress_provider::{
    Backend, BackendError, BuildBackend, Call, Ground, Location, MakeEntries, ProviderArgs, ProviderEntry, ProvidersArgs, Subject,
};
use egress_supervision::{Actor, Address, AddressError, ChildSpec, Context, Failure, Root, System};
use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a backend call does.
#[derive(Debug, Clone)]
pub(crate) enum Does {
    /// Answers after a while.
    Answer(Duration),
    /// Never answers, whatever is cancelled.
    Hang,
    /// Waits for its cancellation, then clears up for that long.
    ClearUp(Duration),
    Panic,
    Fail(ErrorClass),
}

/// What happened, in order: `start create 1`, `end create 1`; a call that was dropped never ends.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

type Script = Arc<dyn Fn(Op, &str) -> Does + Send + Sync>;

pub(crate) struct Scripted {
    script: Script,
    log: Log,
}

impl Scripted {
    async fn play(&self, op: Op, about: &str, call: &Call) -> Result<(), BackendError> {
        let does = (self.script)(op, about);
        self.log.lock().unwrap().push(format!("start {} {about}", op.as_str()));
        match does {
            Does::Answer(after) => tokio::time::sleep(after).await,
            Does::Hang => std::future::pending().await,
            Does::ClearUp(takes) => {
                call.cancel.cancelled().await;
                tokio::time::sleep(takes).await;
            }
            Does::Panic => panic!("scripted"),
            Does::Fail(class) => return Err(BackendError::new(class, "scripted")),
        }
        self.log.lock().unwrap().push(format!("end {} {about}", op.as_str()));
        if matches!(does, Does::ClearUp(_)) { Err(BackendError::transient("cancelled")) } else { Ok(()) }
    }
}

impl Backend for Scripted {
    fn type_name(&self) -> &'static str {
        "scripted"
    }

    fn location_of(&self, subject: Subject<'_>) -> Location {
        let placement = match subject {
            Subject::Create(request) => &request.placement,
            Subject::Instance(key) => &key.placement,
        };
        Location::new(placement.zone.clone().unwrap_or_default())
    }

    fn reconfigure(&self, settings: &Settings) -> bool {
        let taken = settings.downcast_ref::<String>();
        self.log.lock().unwrap().extend(taken.map(|fingerprint| format!("settings {fingerprint}")));
        taken.is_some()
    }

    fn create<'a>(&'a self, request: &'a CreateRequest, call: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>> {
        Box::pin(async move {
            self.play(Op::Create, request.uid.as_str(), call).await?;
            Ok(InstanceId::new(format!("id-{}", request.uid)))
        })
    }

    fn get<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>> {
        Box::pin(async move {
            self.play(Op::Get, key.uid.as_str(), call).await?;
            Ok(Instance {
                id: key.id.clone().unwrap(),
                name: key.name.clone(),
                state: InstanceState::Running,
                state_detail: None,
                deleting: false,
                // Machine "bare" has no address.
                ip: key.placement.machine_type.is_none().then_some(Ipv4Addr::LOCALHOST),
                uid: key.uid.clone(),
                installation: key.installation.clone(),
                created_at: None,
            })
        })
    }

    fn delete<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>> {
        Box::pin(async move {
            self.play(Op::Delete, key.uid.as_str(), call).await?;
            Ok(DeleteOutcome::Gone)
        })
    }

    fn list_managed<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>> {
        Box::pin(async move {
            self.play(Op::List, "", call).await?;
            Ok(ListResult::default())
        })
    }

    fn check<'a>(&'a self, _: &'a Call) -> Option<BoxFuture<'a, Vec<TargetVerdict>>> {
        Some(Box::pin(std::future::ready(Vec::new())))
    }
}

/// A directory that keeps what it is told.
#[derive(Debug)]
pub(crate) struct Listener(Arc<Mutex<Vec<ProxiesMessage>>>);

impl Actor for Listener {
    type Message = ProxiesMessage;
    type Internal = Never;
    type Args = Arc<Mutex<Vec<ProxiesMessage>>>;
    const KIND: &'static str = "proxies";

    async fn start(_: &Context<Self>, heard: Self::Args) -> Result<Self, Failure> {
        Ok(Self(heard))
    }
    fn handle(&mut self, _: &Context<Self>, message: ProxiesMessage) -> Result<(), Failure> {
        self.0.lock().unwrap().push(message);
        Ok(())
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Starts the providers, and the directory when told to.
#[derive(Debug)]
pub(crate) struct TestRoot(Arc<Mutex<Vec<ProxiesMessage>>>);

#[derive(Debug)]
pub(crate) enum TestMessage {
    StartDirectory,
}

impl Message for TestMessage {
    fn kind(&self) -> &'static str {
        "StartDirectory"
    }
}

impl Actor for TestRoot {
    type Message = TestMessage;
    type Internal = Never;
    type Args = (ProvidersArgs, Arc<Mutex<Vec<ProxiesMessage>>>);
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, (providers, heard): Self::Args) -> Result<Self, Failure> {
        ctx.start_child_and_wait(providers.spec()).await?;
        Ok(Self(heard))
    }
    fn handle(&mut self, ctx: &Context<Self>, _: TestMessage) -> Result<(), Failure> {
        ctx.start_child(ChildSpec::<Listener>::essential(proxies::ACTOR_ID, Arc::clone(&self.0)));
        Ok(())
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

pub(crate) struct Bed {
    pub(crate) system: System,
    pub(crate) log: Log,
    pub(crate) heard: Arc<Mutex<Vec<ProxiesMessage>>>,
    pub(crate) root: Root,
    /// Of all its providers.
    pub(crate) fence: Fence,
}

/// A tree with the entries `a` and `b`, each on a backend of its own that follows the script.
pub(crate) async fn bed(script: impl Fn(Op, &str) -> Does + Send + Sync + 'static) -> Bed {
    bed_on(script, |_| {}).await
}

/// The same, with something that each backend's constructor does on its ground.
pub(crate) async fn bed_on(
    script: impl Fn(Op, &str) -> Does + Send + Sync + 'static,
    constructor: impl Fn(&Ground) + Send + Sync + 'static,
) -> Bed {
    let (log, fence) = (Log::default(), Fence::open());
    let script: Script = Arc::new(script);
    let constructor = Arc::new(constructor);
    let entries = ["a", "b"].map(|name| {
        let (script, log, constructor) = (Arc::clone(&script), Arc::clone(&log), Arc::clone(&constructor));
        let build: BuildBackend = Arc::new(move |ground| {
            constructor(ground);
            Ok(Arc::new(Scripted { script: Arc::clone(&script), log: Arc::clone(&log) }))
        });
        scripted(name, &format!("f-{name}"), &format!("b-{name}"), &fence, build)
    });
    let bed = grow(ProvidersArgs::new(entries.into()), log, fence).await;
    for entry in ["a", "b"] {
        bed.up(entry).await;
    }
    bed
}

fn scripted(name: &str, fingerprint: &str, foundation: &str, fence: &Fence, build: BuildBackend) -> ProviderEntry {
    ProviderEntry {
        type_: "scripted",
        fingerprint: fingerprint.to_owned(),
        foundation: foundation.to_owned(),
        settings: Arc::new(fingerprint.to_owned()),
        args: ProviderArgs { name: name.into(), max_concurrent_creates: 4, stop_grace: Duration::ZERO, fence: fence.clone(), build },
    }
}

/// A tree that follows a file: every entry of it runs a backend that follows the script, and says what it was built from.
pub(crate) async fn bed_following(path: &Path, script: impl Fn(Op, &str) -> Does + Send + Sync + 'static) -> Bed {
    let (log, script): (Log, Script) = (Log::default(), Arc::new(script));
    let fence = Fence::open();
    let (said, fenced) = (Arc::clone(&log), fence.clone());
    let make: MakeEntries = Arc::new(move |config| {
        let entry = |entry: &egress_config::providers::ProviderEntry| {
            let (script, log, fingerprint) = (Arc::clone(&script), Arc::clone(&said), entry.fingerprint.clone());
            let build: BuildBackend = Arc::new(move |_| {
                log.lock().unwrap().push(format!("built {fingerprint}"));
                Ok(Arc::new(Scripted { script: Arc::clone(&script), log: Arc::clone(&log) }))
            });
            scripted(&entry.name, &entry.fingerprint, &entry.foundation, &fenced, build)
        };
        config.entries.iter().map(entry).collect()
    });
    let config = egress_config::providers::load(path).unwrap();
    let names: Vec<_> = config.entries.iter().map(|entry| entry.name.to_string()).collect();
    let bed = grow(ProvidersArgs::new(make(&config)).following(path.to_owned(), make), log, fence).await;
    bed.system.metrics().providers_config_valid.set(1);
    for name in names {
        bed.up(&name).await;
    }
    bed
}

async fn grow(providers: ProvidersArgs, log: Log, fence: Fence) -> Bed {
    let heard = Arc::default();
    let system = System::new(Clock::starting_at(Timestamp::from_millis(0)), Metrics::default().shared());
    let args = (providers, Arc::clone(&heard));
    let root = system.start_root(ChildSpec::<TestRoot>::essential("root", args)).await.unwrap();
    Bed { system, log, heard, root, fence }
}

impl Bed {
    pub(crate) fn provider(&self, entry: &str) -> Address<ProviderMessage> {
        self.system.address(&provider::actor_id(entry))
    }

    pub(crate) async fn up(&self, entry: &str) {
        while !self.provider(entry).is_up() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What the backend saw.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) async fn create(&self, entry: &str, uid: &str, at: &str, call: CallContext) -> Answer<InstanceId> {
        let request = request(uid, at);
        self.provider(entry).call(LONG, |reply_to| ProviderMessage::Create { request, call, reply_to }).await
    }

    pub(crate) async fn delete(&self, entry: &str, uid: &str, at: &str, call: CallContext) -> Answer<DeleteOutcome> {
        let key = key(uid, at);
        self.provider(entry).call(LONG, |reply_to| ProviderMessage::Delete { key, call, reply_to }).await
    }

    pub(crate) async fn get(&self, entry: &str, key: InstanceKey, call: CallContext) -> Answer<Instance> {
        self.provider(entry).call(LONG, |reply_to| ProviderMessage::Get { key, call, reply_to }).await
    }

    pub(crate) async fn list(&self, entry: &str) -> Answer<ListResult> {
        self.provider(entry).call(LONG, |reply_to| ProviderMessage::List { call: free(Op::List), reply_to }).await
    }
}

pub(crate) type Answer<T> = Result<Result<T, ProviderError>, AddressError>;

const LONG: Duration = Duration::from_secs(100_000);

/// A call that nobody cancels.
pub(crate) fn free(op: Op) -> CallContext {
    CallContext::new(op, CancellationToken::new())
}

/// A call with a deadline.
pub(crate) fn within(op: Op, deadline: Duration) -> CallContext {
    CallContext { deadline, ..free(op) }
}

/// A call that is cancelled after a while.
pub(crate) fn cancelled_after(op: Op, after: Duration) -> CallContext {
    let cancel = CancellationToken::new();
    let token = cancel.clone();
    #[expect(clippy::disallowed_methods, reason = "the test owns nothing to hang it on")]
    tokio::spawn(async move {
        tokio::time::sleep(after).await;
        token.cancel();
    });
    CallContext::new(op, cancel)
}

pub(crate) fn request(uid: &str, at: &str) -> CreateRequest {
    CreateRequest {
        name: InstanceName::of(&Uid::new(uid)),
        uid: Uid::new(uid),
        installation: InstallationId::new("inst"),
        namespace: "default".into(),
        proxy_name: "px".into(),
        placement: Placement { zone: Some(at.to_owned()), ..Placement::default() },
        cloud_init: Arc::default(),
        port: 3128,
    }
}

pub(crate) fn key(uid: &str, at: &str) -> InstanceKey {
    InstanceKey {
        id: Some(InstanceId::new(format!("id-{uid}"))),
        name: InstanceName::of(&Uid::new(uid)),
        uid: Uid::new(uid),
        installation: InstallationId::new("inst"),
        namespace: "default".into(),
        placement: Placement { zone: Some(at.to_owned()), ..Placement::default() },
    }
}

/// How long it took, in whole seconds of the paused clock.
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, u64) {
    let started = Instant::now();
    let result = work.await;
    (result, started.elapsed().as_secs())
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
