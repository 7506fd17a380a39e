//! What the backend says over HTTP, held against the discovery document of Compute Engine (GC-30): each method, path and
//! parameter exists there, each body has no field that it does not know.
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

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use egress_backend_gcp::{Budgets, GcpBackend, GcpConfig, Live};
use egress_config::providers::gcp::{AddressMode, Credentials};
use egress_fake_gce::{Answer, FakeGce, Fault, Hold, Server, official};
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

    /// What was said since the last look is held against the document; and which methods it was.
    fn judged(&self, python: &std::path::Path) -> BTreeSet<String> {
        let log = self.fake.take_log();
        println!("{}", official::judge(python, &log).unwrap_or_else(|faults| panic!("{faults}")));
        let shape = |path: &str| {
            let path = path.split('?').next().unwrap_or_default().to_owned();
            path.split('/').skip(5).step_by(2).collect::<Vec<_>>().join("/")
        };
        log.iter().map(|exchange| format!("{} {}", exchange.method, shape(&exchange.path))).collect()
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

/// All that the backend can ask for, with answers of each kind.
#[tokio::test]
async fn every_request_and_every_answer_is_as_the_discovery_document_says() {
    let Some(python) = official::python_or_skip("gcp::every_request_and_every_answer_is_as_the_discovery_document_says") else { return };
    let bed = Bed::new(|_| {}).await;
    bed.fake.set_quotas(&[
        ("CPUS", 4.0, 24.0),
        ("INSTANCES", 3.0, 720.0),
        ("IN_USE_ADDRESSES", 3.0, 8.0),
        ("DISKS_TOTAL_GB", 30.5, 4096.0),
    ]);
    bed.fake.hold(Hold::UntilSettled);
    bed.create("u-1", "#cloud-config\npackages: [squid]\n").await;
    bed.create("u-1", "#cloud-config\npackages: [squid]\n").await;
    bed.create("u-2", "").await;
    bed.fake.settle();
    assert!(matches!(bed.state("u-1").await, Ok((InstanceState::Running, Some(_)))));
    // Late failures, of which the process that began them knows, and of which only Compute Engine does.
    bed.fake.fail_next_insert("ZONE_RESOURCE_POOL_EXHAUSTED", "no room in the zone");
    bed.create("u-3", "").await;
    assert_eq!(bed.state("u-3").await, Ok((InstanceState::Provisioning, None)));
    bed.fake.settle();
    assert_eq!(bed.state("u-3").await, Err(ErrorClass::QuotaExceeded));
    assert_eq!(bed.state("u-3").await, Err(ErrorClass::NotFound));
    assert_eq!(bed.state("u-9").await, Err(ErrorClass::NotFound));
    // Pages, a zone that is dark, a delete with and without an id.
    for n in 0..501 {
        let (uid, name) = (format!("m-{n}"), request(&format!("m-{n}"), "").name);
        let labels = [("proxy-operator-managed", "true"), ("proxy-operator-uid", uid.as_str()), ("proxy-operator-installation", "inst")];
        bed.fake.place("us-central1-a", name.as_str(), &labels, "RUNNING");
    }
    assert_eq!(bed.backend.list_managed(&call()).await.unwrap().instances.len(), 503);
    bed.fake.darken("us-central1-a", true);
    let listed = bed.backend.list_managed(&call()).await.unwrap();
    assert_eq!((listed.instances.len(), listed.left_out.len()), (2, 1));
    assert_eq!(bed.delete("u-1").await, DeleteOutcome::InProgress);
    assert_eq!(bed.delete("u-1").await, DeleteOutcome::InProgress);
    let by_name = InstanceKey { id: None, placement: Placement::default(), ..key("u-2") };
    assert_eq!(bed.backend.delete(&by_name, &call()).await.unwrap(), DeleteOutcome::InProgress);
    bed.fake.settle();
    assert_eq!(bed.delete("u-1").await, DeleteOutcome::Gone);
    // A check with quotas, one of them of a region that is not there; refusals.
    let verdict = bed.backend.check(&call()).unwrap().await.remove(0);
    assert!(verdict.ready && verdict.details.contains(&("quota.mars-north1".to_owned(), "unavailable".to_owned())), "{verdict:?}");
    for (status, reason) in [(403, "rateLimitExceeded"), (403, "accessNotConfigured"), (429, "rateLimitExceeded"), (503, "backendError")] {
        let answer = Answer::error(status, reason, "refused");
        bed.fake.fault(Fault { method: "GET", path: "aggregated".to_owned(), times: 1, answer, carried_out: false });
        assert!(bed.backend.list_managed(&call()).await.is_err());
    }
    let asked = bed.judged(&python);
    let all =
        ["DELETE zones/instances", "GET aggregated", "GET regions", "GET zones/instances", "GET zones/operations", "POST zones/instances"];
    assert_eq!(asked.iter().map(String::as_str).collect::<Vec<_>>(), all, "the whole of the client seam was asked");

    let internal = Bed::new(|config| {
        config.address_mode = AddressMode::Internal;
        config.network = format!("projects/{PROJECT}/global/networks/crawl");
        config.subnetwork = Some("regions/europe-west1/subnetworks/crawl".to_owned());
        config.live.disk_size_gb = 65_536;
    })
    .await;
    internal.create("u-1", "#cloud-config\n").await;
    internal.fake.settle();
    let (state, ip) = internal.state("u-1").await.unwrap();
    assert!(state == InstanceState::Running && ip.is_some_and(|ip| ip.is_private()), "{state:?} {ip:?}");
    internal.judged(&python);
}

/// GC-8: the words are those of the document, so that one which Google adds fails here; and one that is invented.
#[tokio::test]
async fn every_status_that_the_discovery_document_knows_has_its_row() {
    let Some(python) = official::python_or_skip("gcp::every_status_that_the_discovery_document_knows_has_its_row") else { return };
    use InstanceState::{Paused, Provisioning, Running, Stopped, Terminated};
    let rows: BTreeMap<&str, (InstanceState, InstanceState)> = [
        ("PENDING", (Provisioning, Provisioning)),
        ("PROVISIONING", (Provisioning, Provisioning)),
        ("STAGING", (Provisioning, Provisioning)),
        ("REPAIRING", (Provisioning, Provisioning)),
        ("RUNNING", (Provisioning, Running)),
        ("STOPPING", (Stopped, Stopped)),
        ("PENDING_STOP", (Stopped, Stopped)),
        ("STOPPED", (Stopped, Stopped)),
        ("SUSPENDING", (Paused, Paused)),
        ("SUSPENDED", (Paused, Paused)),
        ("TERMINATED", (Terminated, Terminated)),
        ("DEPROVISIONING", (Terminated, Terminated)),
    ]
    .into();
    let known = official::values(&python, "Instance", "status").unwrap();
    assert_eq!(known.iter().map(String::as_str).collect::<BTreeSet<_>>(), rows.keys().copied().collect());
    for mode in [AddressMode::External, AddressMode::Internal] {
        let bed = Bed::new(|config| config.address_mode = mode).await;
        bed.create("u-1", "").await;
        bed.fake.settle();
        let name = request("u-1", "").name;
        for (status, (_, with)) in rows.iter().map(|(status, row)| (*status, *row)).chain([("DREAMING", (Stopped, Stopped))]) {
            bed.fake.alter(ZONE, name.as_str(), Some(&|vm| vm["status"] = status.into()));
            let read = bed.backend.get(&key("u-1"), &call()).await.unwrap();
            assert_eq!((read.state, read.state_detail.as_deref()), (with, Some(status)), "{mode:?}");
        }
        let no_address = |vm: &mut serde_json::Map<String, serde_json::Value>| {
            vm["networkInterfaces"] = serde_json::json!([{"network": "global/networks/default"}]);
        };
        bed.fake.alter(ZONE, name.as_str(), Some(&no_address));
        for (status, (without, _)) in &rows {
            bed.fake.alter(ZONE, name.as_str(), Some(&|vm| vm["status"] = (*status).into()));
            assert_eq!(bed.state("u-1").await, Ok((*without, None)), "{mode:?} {status}");
        }
    }
}
