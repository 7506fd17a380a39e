//! The type `gcp` through the whole process: its HTTP client against the stand-in for Compute Engine (`tests/bed/gce`) and a
//! metadata server, both on loopback.

mod federation;
mod late;
mod moments;
mod official;
mod refused;
mod replace;
mod runbooks;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::get;
use egress_fake_gce::{Exchange, FakeGce, Hold, Server};
use serde_json::{Value, json};

use crate::support::bridge::Bridge;
use crate::support::forwarder::Forwarder;
use crate::support::http::fetch_through;
use crate::support::operator::{BINARY, Operator, Site};
use crate::support::origin::{Manner, Origin};
use crate::support::{eventually, skip};

const PROJECT: &str = "sandbox-1";
const ZONE: &str = "europe-west1-b";
const KEY: &str = "default/vm";
const TOKEN: &str = "sentinel-access-token-31c5";
const USER_DATA: &str = "sentinel-user-data-b77e";
const SOON: Duration = Duration::from_secs(20);

/// A metadata server with one account.
struct Metadata {
    address: SocketAddr,
    tokens: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Metadata {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Metadata {
    async fn start() -> Self {
        let tokens = Arc::new(AtomicUsize::new(0));
        let account = "/computeMetadata/v1/instance/service-accounts/default";
        let router = Router::new()
            .route(&format!("{account}/token"), get(token))
            .route(&format!("{account}/email"), get(|| async { "robot@sandbox-1.iam.gserviceaccount.com" }))
            .with_state(Arc::clone(&tokens));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, tokens, task }
    }
}

async fn token(State(tokens): State<Arc<AtomicUsize>>, headers: HeaderMap) -> (axum::http::StatusCode, String) {
    // A real one answers nobody who does not say so.
    if headers.get("Metadata-Flavor").is_none_or(|flavor| flavor != "Google") {
        return (axum::http::StatusCode::FORBIDDEN, String::new());
    }
    tokens.fetch_add(1, Ordering::Relaxed);
    let answer = json!({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"});
    (axum::http::StatusCode::OK, answer.to_string())
}

/// A project, its credentials and a site with an entry `gcp` for it.
struct Cloud {
    fake: FakeGce,
    _server: Server,
    metadata: Metadata,
    origin: Origin,
    site: Site,
}

impl Cloud {
    async fn new() -> Self {
        let fake = FakeGce::new(PROJECT);
        fake.accept_tokens(&[TOKEN]);
        let server = fake.serve(0).await.unwrap();
        let metadata = Metadata::start().await;
        let mut site = Site::new();
        let providers = site.path("providers.yaml");
        let block = format!("{{project: {PROJECT}, endpoint: \"http://{}\"}}", server.address);
        std::fs::write(&providers, format!("providers:\n- {{name: gcp, type: gcp, gcp: {block}}}\n")).unwrap();
        site.write("keep.yaml", "# nothing\n");
        for (flag, value) in [
            ("--providers-config", providers.to_str().unwrap()),
            ("--endpoint-allow", "198.51.100.0/24"),
            ("--poll-provisioning", "200ms"),
            ("--poll-deletion", "200ms"),
            ("--poll-drift", "1s"),
            ("--quota-retry", "1s"),
        ] {
            site = site.flag(flag, value);
        }
        let home = site.path("").display().to_string();
        site.env = vec![
            ("GCE_METADATA_HOST".to_owned(), metadata.address.to_string()),
            ("HOME".to_owned(), home.clone()),
            ("CLOUDSDK_CONFIG".to_owned(), home),
            ("GOOGLE_APPLICATION_CREDENTIALS".to_owned(), String::new()),
        ];
        Self { fake, _server: server, metadata, origin: Origin::http(Manner::Fine).await, site }
    }

    fn declare(&self, port: u16) {
        let url = format!("http://127.0.0.1:{}/generate_204", self.origin.port);
        let proxy = json!({
            "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": "vm"},
            "spec": {
                "mode": "Managed", "provider": "gcp", "port": port, "maxLeases": 2,
                "placement": {"zone": ZONE, "machineType": "e2-small", "image": "projects/p/global/images/family/f"},
                "cloudInit": {"inline": format!("#cloud-config\n# {USER_DATA}\n")},
                "healthCheck": {"url": url, "intervalSeconds": 5},
            },
        });
        self.site.write("vm.yaml", &proxy.to_string());
    }

    /// The one virtual machine.
    async fn vm(&self) -> (String, Value) {
        eventually("a virtual machine is made", SOON, || async {
            let mut all = self.fake.instances();
            assert!(all.len() <= 1, "{all:?}");
            all.pop().map(|(_, name, vm)| (name, vm))
        })
        .await
    }

    fn moves_to(&self, name: &str, address: Ipv4Addr) {
        let nat =
            |vm: &mut serde_json::Map<String, Value>| vm["networkInterfaces"][0]["accessConfigs"][0]["natIP"] = json!(address.to_string());
        self.fake.alter(ZONE, name, Some(&nat));
    }

    fn check(&self) -> std::process::Output {
        let mut command = Command::new(BINARY);
        command.args(["check", "--providers-config", self.site.path("providers.yaml").to_str().unwrap()]);
        command.envs(self.site.env.iter().map(|(key, value)| (key, value))).output().unwrap()
    }
}

fn count(log: &[Exchange], method: &str) -> usize {
    log.iter().filter(|exchange| exchange.method == method).count()
}

async fn item(operator: &Operator) -> Value {
    operator.api.get(&format!("/v1/proxies/{KEY}")).await.json()
}

/// PC-1…40 over the wire: check, create, Running, Ready by traffic, lease, list, delete, nothing left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_life_of_a_virtual_machine() {
    let cloud = Cloud::new().await;
    let checked = cloud.check();
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && said.contains("Reachable") && said.contains(PROJECT), "{checked:?}");
    let log = cloud.fake.take_log();
    // HT-13: one list of one instance, though there may be more pages.
    assert!(log.len() == 1 && log[0].path.contains("aggregated/instances") && log[0].path.contains("maxResults=1"), "{log:?}");

    let Some(bridge) = Bridge::new() else {
        return skip("gcp::the_whole_life_of_a_virtual_machine", "an address that is none of loopback needs root and iproute2");
    };
    let address = bridge.address;
    let _proxy = Forwarder::on(SocketAddr::from((address, 3128))).await;
    let mut operator = cloud.site.start().up().await;
    assert_eq!(cloud.metadata.tokens.load(Ordering::Relaxed), 1, "no token is fetched before it is needed: that one is the check's");
    cloud.declare(3128);
    let (name, vm) = cloud.vm().await;
    assert_eq!((vm["labels"]["proxy-operator-managed"].as_str(), vm["tags"]["items"][0].as_str()), (Some("true"), Some("proxy-operator")));
    assert!(vm["metadata"]["items"][0]["value"].as_str().is_some_and(|data| data.contains(USER_DATA)));
    cloud.moves_to(&name, address);
    let ready = operator.wait_phase(KEY, "Ready").await;
    assert_eq!(ready["ip"], address.to_string());
    let lease = operator.api.post("/v1/leases", &json!({"ttl": "1m"})).await;
    assert_eq!(lease.status, 201, "{}", lease.text());
    let url = lease.json()["proxy"]["url"].as_str().unwrap().trim_start_matches("http://").to_owned();
    let fetched = fetch_through(&url, &format!("http://127.0.0.1:{}/generate_204", cloud.origin.port)).await.unwrap();
    assert_eq!(fetched.status, 204);
    let id = lease.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(operator.api.delete(&format!("/v1/leases/{id}")).await.status, 204);

    cloud.site.remove("vm.yaml");
    operator.wait_gone(KEY).await;
    assert!(cloud.fake.instances().is_empty());
    let log = cloud.fake.take_log();
    assert_eq!((count(&log, "POST"), count(&log, "DELETE")), (1, 1), "{log:#?}");
    assert_eq!(cloud.metadata.tokens.load(Ordering::Relaxed), 2, "one token of an hour is enough");
    assert!(operator.terminate().await.success());
}

/// GC-10…12: an insert that is accepted and fails later is told with Google's words, and made anew as its class says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_failure_is_told_and_tried_again() {
    let cloud = Cloud::new().await;
    cloud.fake.fail_next_insert("QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1.");
    let operator = cloud.site.start().up().await;
    cloud.declare(3128);
    let told = eventually("the quota is told", SOON, || async {
        let told = item(&operator).await.to_string();
        (told.contains("QUOTA_EXCEEDED") && told.contains("Limit: 24.0")).then_some(told)
    })
    .await;
    assert!(told.contains("QuotaExceeded"), "{told}");
    let (name, _) = cloud.vm().await;
    let log = cloud.fake.take_log();
    assert_eq!(count(&log, "POST"), 2, "{name}: once refused, once made: {log:#?}");
}

/// RE-3: the recipe for a real project, here at the stand-in; without its variables it says which one is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_recipe_for_a_real_project_works_re_3() {
    let Some(bridge) = Bridge::new() else {
        return skip("gcp::the_recipe_for_a_real_project_works_re_3", "an address that is none of loopback needs root and iproute2");
    };
    let _proxy = Forwarder::on(SocketAddr::from((bridge.address, 3128))).await;
    let cloud = Cloud::new().await;
    let mut recipe = tokio::process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/hack/test-host"));
    recipe.arg("gcp").env("EPO_BINARY", BINARY).env_remove("GCP_PROJECT").envs(cloud.site.env.iter().map(|(key, value)| (key, value)));
    let skipped = recipe.output().await.unwrap();
    assert!(skipped.status.success() && String::from_utf8_lossy(&skipped.stdout).contains("GCP_PROJECT is not set"), "{skipped:?}");
    recipe
        .env("GCP_PROJECT", PROJECT)
        .env("GCP_ZONE", ZONE)
        .env("GCP_CLIENTS", "192.0.2.0/24")
        .env("GCP_ENDPOINT", format!("http://{}", cloud._server.address))
        .env("CHECK_URL", format!("http://127.0.0.1:{}/generate_204", cloud.origin.port))
        .env("EPO_FLAGS", "--endpoint-allow 198.51.100.0/24 --check-url-allow 127.0.0.0/8 --poll-provisioning 200ms --poll-deletion 200ms --poll-drift 1s");
    let run = tokio::spawn(async move { recipe.output().await.unwrap() });
    let (name, _) = cloud.vm().await;
    cloud.moves_to(&name, bridge.address);
    let output = run.await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("HTTP 204 through") && said.contains("test-host gcp: passed"), "{said}\n{output:?}");
    assert!(cloud.fake.instances().is_empty());
}

/// G7: a preempted machine is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preempted_machine_is_made_anew() {
    let cloud = Cloud::new().await;
    let operator = cloud.site.start().up().await;
    cloud.declare(3128);
    let (name, first) = cloud.vm().await;
    eventually("it runs", SOON, || async { item(&operator).await["ip"].as_str().map(str::to_owned) }).await;
    cloud.fake.alter(ZONE, &name, Some(&|vm| drop(vm.insert("status".to_owned(), json!("TERMINATED")))));
    eventually("another one is there", SOON, || async {
        cloud.fake.instances().into_iter().find(|(_, _, vm)| vm["id"] != first["id"] && vm["status"] == "RUNNING").map(drop)
    })
    .await;
    assert_eq!(cloud.fake.instances().len(), 1);
}

/// The process is killed while the insert runs: the next one adopts what came of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_within_a_create_leaves_one_machine() {
    let cloud = Cloud::new().await;
    cloud.fake.hold(Hold::UntilSettled);
    let operator = cloud.site.start().up().await;
    cloud.declare(3128);
    let (name, _) = cloud.vm().await;
    operator.kill();
    let operator = cloud.site.start().up().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cloud.fake.instances().len(), 1);
    cloud.fake.hold(Hold::Never);
    cloud.fake.settle();
    eventually("the machine is adopted", SOON, || async { item(&operator).await["ip"].as_str().map(str::to_owned) }).await;
    assert_eq!(cloud.vm().await.0, name);
    cloud.site.remove("vm.yaml");
    operator.wait_gone(KEY).await;
    assert!(cloud.fake.instances().is_empty());
}

/// GC-29, PC-75: at trace, with the wire flag off and on, neither the token nor user-data is in any line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_token_nor_user_data_is_logged() {
    for flag in [None, Some("--gcp-wire-log-full-payloads")] {
        let mut cloud = Cloud::new().await;
        cloud.site = cloud.site.flag("--log-level", "trace");
        cloud.site.flags.extend(flag.map(str::to_owned));
        let operator = cloud.site.start().up().await;
        cloud.declare(3128);
        cloud.vm().await;
        eventually("it runs", SOON, || async { item(&operator).await["ip"].as_str().map(str::to_owned) }).await;
        cloud.site.remove("vm.yaml");
        operator.wait_gone(KEY).await;
        let lines = operator.kill();
        let wire: Vec<&String> = lines.iter().filter(|line| line.contains("gcp::wire")).collect();
        assert!(!wire.is_empty(), "the wire tier is on at trace");
        let warned = lines.iter().any(|line| line.contains("WARNING: --gcp-wire-log-full-payloads"));
        assert_eq!(warned, flag.is_some());
        // The flag shows what a request says of the machine.
        assert_eq!(wire.iter().any(|line| line.contains("machineTypes/e2-small")), flag.is_some(), "{wire:#?}");
        for sentinel in [TOKEN, USER_DATA] {
            assert!(!lines.iter().any(|line| line.contains(sentinel)), "{sentinel} is logged with {flag:?}");
        }
    }
}
