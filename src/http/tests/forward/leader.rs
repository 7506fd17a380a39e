//! Replicas in this process, and a leader of which a test decides every byte.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use egress_lease::{BookSettings, BrokerActor, BrokerArgs, JournalActor, JournalArgs};
use egress_protocol::leadership::{Standing, StandingCell};
use egress_protocol::lease::{BROKER_ID, BrokerMessage, JOURNAL_ID, ProxyAvailability};
use egress_protocol::message::Never;
use egress_protocol::metrics::Metrics;
use egress_protocol::object::{Annotations, CloudInit, Credentials, CredentialsState, ProxyObject};
use egress_protocol::source::{self, SourceMessage};
use egress_protocol::{Clock, InstallationId, ObjectKey, Secret, Uid};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Root, System};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::http::auth::Tokens;
use crate::http::connection::Limits;
use crate::http::discovery::Discovery;
use crate::http::forward::Patience;
use crate::http::health::{self, Health};
use crate::http::server::{Connections, Site, accept};
use crate::lifecycle::Lifecycle;

type Objects = Option<Vec<Arc<ProxyObject>>>;

/// `admin r00t`, who may do all, and `small sm4ll`, who sees the namespaces `b` and `default`.
pub(super) fn tokens() -> Tokens {
    Tokens::of(egress_config::tokens::parse("admin r00t\nsmall sm4ll b,default\n").unwrap())
}

pub(super) fn follows(address: SocketAddr) -> Standing {
    Standing::Follower { leader: Some("leader_1".into()), address: Some(address.to_string().into()) }
}

pub(super) const fn nobody() -> Standing {
    Standing::Follower { leader: None, address: None }
}

/// An External proxy that was Ready when its status was written, with credentials.
pub(super) fn object(namespace: &str, name: &str, attributes: &[(&str, &str)]) -> Arc<ProxyObject> {
    let attributes: BTreeMap<_, _> = attributes.iter().copied().collect();
    let spec = json!({"mode": "External", "endpoint": {"host": format!("{name}.example")}, "attributes": attributes});
    let healthy = json!({"type": "Healthy", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let credentials = Credentials { username: Secret::new("u".to_owned()), password: Secret::new("p4ss".to_owned()) };
    Arc::new(ProxyObject {
        key: ObjectKey::new(namespace, name),
        uid: Uid::new(format!("{namespace}-{name}")),
        generation: 1,
        spec: Arc::new(serde_json::from_value(spec).unwrap()),
        status: Arc::new(serde_json::from_value(json!({"phase": "Ready", "conditions": [healthy]})).unwrap()),
        annotations: Annotations::default(),
        deleting: false,
        finalizer: false,
        suspended: false,
        cloud_init: CloudInit::None,
        credentials: CredentialsState::Resolved(Arc::new(credentials)),
    })
}

/// The parts of a replica that its API asks.
struct Parts;

impl Actor for Parts {
    type Message = Never;
    type Internal = Never;
    /// Whether it has a book, and what its watch has read; `None`: no watch.
    type Args = (bool, Option<Objects>);
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, (leads, objects): Self::Args) -> Result<Self, Failure> {
        if leads {
            let settings = BookSettings::default();
            let journal = ChildSpec::<JournalActor>::irreplaceable(JOURNAL_ID, JournalArgs::from(&settings));
            ctx.start_child_and_wait(journal).await?;
            ctx.start_child_and_wait(ChildSpec::<BrokerActor>::essential(BROKER_ID, BrokerArgs { settings })).await?;
        }
        if let Some(objects) = objects {
            ctx.start_child_and_wait(ChildSpec::<Watch>::essential(source::ACTOR_ID, objects)).await?;
        }
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

/// A source that only lists.
struct Watch(Objects);

impl Actor for Watch {
    type Message = SourceMessage;
    type Internal = Never;
    type Args = Objects;
    const KIND: &'static str = "source";

    async fn start(_: &Context<Self>, objects: Objects) -> Result<Self, Failure> {
        Ok(Self(objects))
    }

    fn handle(&mut self, _: &Context<Self>, message: SourceMessage) -> Result<(), Failure> {
        if let SourceMessage::List { reply_to } = message {
            let _ = reply_to.send(self.0.clone());
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

pub(super) struct Replica {
    pub(super) address: SocketAddr,
    pub(super) standing: StandingCell,
    pub(super) lifecycle: Lifecycle,
    pub(super) router: Router,
    pub(super) connections: Connections,
    _tasks: JoinSet<()>,
    _root: Root,
}

impl Replica {
    /// One that leads, with healthy proxies of these names in `default`.
    pub(super) async fn leading(tokens: Tokens, proxies: &[&str]) -> Self {
        Self::start(tokens, Standing::Leader, proxies, None).await
    }

    /// One that follows, with a watch that has read these objects.
    pub(super) async fn following(tokens: Tokens, standing: Standing, objects: Objects) -> Self {
        Self::start(tokens, standing, &[], objects.map(Some)).await
    }

    pub(super) async fn start(tokens: Tokens, standing: Standing, proxies: &[&str], objects: Option<Objects>) -> Self {
        let system = System::new(Clock::system(), Metrics::new(true).shared());
        let root = system.start_root(ChildSpec::<Parts>::essential("root", (standing == Standing::Leader, objects))).await.unwrap();
        for name in proxies {
            let proxy = Arc::new(ProxyAvailability::as_written(&object("default", name, &[])));
            system.address::<BrokerMessage>(BROKER_ID).send(BrokerMessage::Publish { proxy }).unwrap();
        }
        let (lifecycle, standing) = (Lifecycle::default(), StandingCell::new(standing));
        lifecycle.set_started();
        let moment = Duration::from_millis(400);
        let patience =
            Patience { connect: moment, grant: moment * 6, answer: moment * 3, list: moment, part: moment, farewell: moment / 2 };
        let api = Discovery::new(&system, tokens.clone(), lifecycle.clone(), standing.clone(), moment, 1000).with_patience(patience);
        let health = Health::new(&system, lifecycle.clone(), InstallationId::new("test"), standing.clone(), false);
        let router = api.routes().merge(health::routes(health, tokens));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::default();
        let mut tasks = JoinSet::new();
        let site = Site::new(router.clone(), address, Limits::default());
        tasks.spawn(accept(listener, site, connections.opener(), CancellationToken::new()));
        Self { address, standing, lifecycle, router, connections, _tasks: tasks, _root: root }
    }
}

/// A leader that says what it is told.
pub(super) struct Script {
    pub(super) address: SocketAddr,
    connections: tokio::sync::Mutex<mpsc::UnboundedReceiver<TcpStream>>,
    _accept: JoinSet<()>,
}

impl Script {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, connections) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = accepted.send(stream);
            }
        });
        Self { address, connections: tokio::sync::Mutex::new(connections), _accept: tasks }
    }

    /// The next call; each on a connection of its own, which ends with it.
    pub(super) async fn call(&self) -> Call {
        let next = async { self.connections.lock().await.recv().await.unwrap() };
        let mut stream = tokio::time::timeout(Duration::from_secs(5), next).await.expect("the leader is called");
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "a whole head");
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        let mut body = bytes.split_off(end);
        while body.len() < length {
            assert!(stream.read_buf(&mut body).await.unwrap() > 0, "a whole body");
        }
        Call { stream, head, body }
    }

    /// Whether anybody has connected whose call was not taken.
    pub(super) fn was_called(&self) -> bool {
        self.connections.try_lock().is_ok_and(|mut connections| connections.try_recv().is_ok())
    }
}

/// A call to a [`Script`].
pub(super) struct Call {
    stream: TcpStream,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Call {
    pub(super) async fn answer(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Says no more than that.
    pub(super) async fn dies_after(mut self, text: &str) {
        self.answer(text).await;
    }

    /// Returns when the caller is gone.
    pub(super) async fn hangs_up(&mut self) {
        let mut sink = [0; 64];
        while self.stream.read(&mut sink).await.is_ok_and(|read| read > 0) {}
    }
}

/// Everything that is logged, at every level.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(super) fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let log = self.clone();
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || log.clone()).finish()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
