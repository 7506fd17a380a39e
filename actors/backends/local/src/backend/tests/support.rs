//! A backend on a loopback network of its own.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_protocol::provider::{CreateRequest, DeleteOutcome, Instance, InstanceKey, ListResult, Op};
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Secret, Timestamp, Uid};
use egress_provider::{Backend, BackendError, Call};
use ipnet::Ipv4Net;

use crate::config::{LocalConfig, Outside};
use crate::{LocalBackend, LocalEvent};

/// The port that the tests use unless they say otherwise.
pub(super) const PORT: u16 = 23128;

/// Six loopback addresses that no other test of this machine uses now.
pub(super) fn own_net() -> Ipv4Net {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let pid = std::process::id();
    let second = u8::try_from(16 + pid % 200).unwrap();
    Ipv4Net::new(Ipv4Addr::new(127, second, NEXT.fetch_add(1, Ordering::Relaxed), 0), 29).unwrap()
}

pub(super) type Events = Arc<Mutex<Vec<LocalEvent>>>;

pub(super) struct Bed {
    pub(super) config: LocalConfig,
    pub(super) dir: tempfile::TempDir,
    pub(super) events: Events,
}

impl Bed {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = LocalConfig::new("lab", InstallationId::new("inst"));
        config.listen = vec![own_net()];
        config.state_dir = Some(dir.path().to_owned());
        Self { config, dir, events: Events::default() }
    }

    pub(super) fn backend(&self) -> LocalBackend {
        let mut outside = Outside::system(Clock::starting_at(Timestamp::from_millis(1_767_323_045_678)));
        let events = Arc::clone(&self.events);
        outside.observer = Some(Arc::new(move |event| events.lock().unwrap().push(event.clone())));
        LocalBackend::new(self.config.clone(), outside, egress_conformance::TaskSet::new())
    }

    /// A backend after a restart.
    pub(super) async fn restarted(&self) -> LocalBackend {
        let backend = self.backend();
        backend.start().await;
        backend
    }

    pub(super) fn marks(&self) -> std::path::PathBuf {
        self.dir.path().join("marks/lab")
    }

    /// Where the marks say that something listens.
    pub(super) fn marked(&self) -> BTreeSet<SocketAddrV4> {
        marked(&self.marks())
    }

    /// Where something of this test's network listens on one of the ports.
    pub(super) fn listening(&self, ports: &[u16]) -> BTreeSet<SocketAddrV4> {
        let addresses = self.config.listen.iter().flat_map(|net| net.hosts());
        addresses
            .flat_map(|ip| ports.iter().map(move |port| SocketAddrV4::new(ip, *port)))
            .filter(|address| TcpStream::connect_timeout(&(*address).into(), Duration::from_secs(1)).is_ok())
            .collect()
    }
}

pub(super) fn marked(folder: &Path) -> BTreeSet<SocketAddrV4> {
    let Ok(files) = std::fs::read_dir(folder) else { return BTreeSet::new() };
    files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .map(|path| {
            let mark: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            let ip = mark["listenAddress"].as_str().unwrap().parse().unwrap();
            SocketAddrV4::new(ip, u16::try_from(mark["port"].as_u64().unwrap()).unwrap())
        })
        .collect()
}

pub(super) fn request(uid: &str, port: u16) -> CreateRequest {
    CreateRequest {
        name: InstanceName::of(&Uid::new(uid)),
        uid: Uid::new(uid),
        installation: InstallationId::new("inst"),
        namespace: "default".into(),
        proxy_name: format!("px-{uid}").into(),
        placement: Placement::default(),
        cloud_init: Arc::new(Secret::new(b"SENTINEL-CLOUD-INIT".to_vec())),
        port,
    }
}

pub(super) fn key(uid: &str) -> InstanceKey {
    let name = InstanceName::of(&Uid::new(uid));
    InstanceKey {
        id: Some(InstanceId::new(format!("local/{name}"))),
        name,
        uid: Uid::new(uid),
        installation: InstallationId::new("inst"),
        namespace: "default".into(),
        placement: Placement::default(),
    }
}

pub(super) fn call() -> Call {
    Call::until(tokio::time::Instant::now() + Op::Get.deadline())
}

/// The contract without the ceremony.
pub(super) trait Calls: Backend {
    async fn made(&self, request: &CreateRequest) -> Result<InstanceId, BackendError> {
        self.create(request, &call()).await
    }
    async fn read(&self, key: &InstanceKey) -> Result<Instance, BackendError> {
        self.get(key, &call()).await
    }
    async fn gone(&self, key: &InstanceKey) -> Result<DeleteOutcome, BackendError> {
        self.delete(key, &call()).await
    }
    async fn all(&self) -> ListResult {
        self.list_managed(&call()).await.unwrap()
    }
}

impl Calls for LocalBackend {}

/// What an instance is run with, for tests of the seam alone.
pub(super) fn engine_settings() -> Arc<crate::engine::Settings> {
    use crate::engine::{Guard, Identity, OwnAddresses, Rules, Settings, SystemResolver};
    let rules = Rules {
        limits: crate::Limits::default(),
        allowed_clients: Vec::new(),
        guard: Guard { allow: Arc::default(), own: Arc::new(OwnAddresses::new(Arc::new(|| Ok(Vec::new())))) },
        faults: None,
        requests: Arc::default(),
    };
    Arc::new(Settings {
        identity: Identity { provider: "lab".into(), instance: "proxy-aaaaaaaaaaaaaaaa".into(), proxy: "default/px".into() },
        resolver: Arc::new(SystemResolver::default()),
        source: None,
        clock: Clock::starting_at(Timestamp::from_millis(0)),
        metrics: egress_protocol::metrics::Metrics::default(),
        rules: arc_swap::ArcSwap::from_pointee(rules),
    })
}
