//! The backend as the operator makes it, with its HTTP client and its credentials, over servers on loopback.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests say what is wrong by panicking, own their tasks, and are read by nobody but us"
)]

mod credentials;
mod official;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use egress_backend_gcp::{Budgets, GcpBackend, GcpConfig, Live};
use egress_config::providers::gcp::{AddressMode, Credentials};
use egress_fake_gce::{FakeGce, Server};
use egress_protocol::leadership::Fence;
use egress_protocol::provider::{CreateRequest, DeleteOutcome, ErrorClass, InstanceKey, InstanceState};
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Secret, Uid};
use egress_provider::{Backend, Call, Ground};
use egress_supervision::{Root, System};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

const PROJECT: &str = "sandbox-1";
const ZONE: &str = "europe-west1-b";

/// A metadata server that has a token for everybody who asks.
async fn metadata() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).await.unwrap_or(0);
            let text = if String::from_utf8_lossy(&head[..read]).contains("/email") {
                "robot@sandbox-1.iam.gserviceaccount.com".to_owned()
            } else {
                r#"{"access_token": "token-1", "expires_in": 3600, "token_type": "Bearer"}"#.to_owned()
            };
            let answer =
                format!("HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// A backend as the operator makes it, over a project that is served on loopback.
struct Bed {
    fake: FakeGce,
    backend: Arc<GcpBackend>,
    _server: Server,
    _system: System,
    _root: Root,
}

impl Bed {
    async fn new(change: impl FnOnce(&mut GcpConfig)) -> Self {
        // As the process does before all else.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let fake = FakeGce::new(PROJECT);
        fake.accept_tokens(&["token-1"]);
        let server = fake.serve(0).await.unwrap();
        let mut config = GcpConfig {
            entry: "gcp".into(),
            installation: InstallationId::new("inst"),
            project: PROJECT.to_owned(),
            network: "global/networks/default".to_owned(),
            subnetwork: None,
            network_tag: "proxy-operator".to_owned(),
            address_mode: AddressMode::External,
            live: Live { disk_size_gb: 10, quota_regions: vec!["europe-west1".to_owned(), "mars-north1".to_owned()] },
            endpoint: format!("http://{}", server.address),
            credentials: Credentials::Metadata(metadata().await.to_string()),
            full_payloads: false,
            budgets: Budgets::default(),
        };
        change(&mut config);
        let clock = Clock::system();
        let build = move |ground: &Ground| GcpBackend::new(config.clone(), ground, clock).map(Arc::new);
        let (backend, system, root) = egress_conformance::lend("gcp", clock, Fence::open(), build).await.unwrap();
        Self { fake, backend, _server: server, _system: system, _root: root }
    }

    async fn create(&self, uid: &str, cloud_init: &str) -> InstanceId {
        self.backend.create(&request(uid, cloud_init), &call()).await.unwrap()
    }

    async fn state(&self, uid: &str) -> Result<(InstanceState, Option<std::net::Ipv4Addr>), ErrorClass> {
        let read = self.backend.get(&key(uid), &call()).await;
        read.map(|instance| (instance.state, instance.ip)).map_err(|error| error.class)
    }

    async fn delete(&self, uid: &str) -> DeleteOutcome {
        self.backend.delete(&key(uid), &call()).await.unwrap()
    }
}

fn call() -> Call {
    Call::until(Instant::now() + Duration::from_secs(60))
}

fn request(uid: &str, cloud_init: &str) -> CreateRequest {
    let uid = Uid::new(uid);
    CreateRequest {
        name: InstanceName::of(&uid),
        uid,
        installation: InstallationId::new("inst"),
        namespace: "default".into(),
        proxy_name: "px".into(),
        placement: Placement {
            zone: Some(ZONE.to_owned()),
            machine_type: Some("e2-small".to_owned()),
            image: Some("projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64".to_owned()),
            ..Placement::default()
        },
        cloud_init: Arc::new(Secret::new(cloud_init.as_bytes().to_vec())),
        port: 3128,
    }
}

fn key(uid: &str) -> InstanceKey {
    let CreateRequest { name, uid, installation, namespace, placement, .. } = request(uid, "");
    let id = InstanceId::new(format!("zones/{ZONE}/instances/{name}"));
    InstanceKey { id: Some(id), name, uid, installation, namespace, placement }
}
