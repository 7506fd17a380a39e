//! The gcp backend through its provider's actor, against a bare loop of the same requests with the same HTTP client; both ask the stand-in for
//! Compute Engine (`tests/bed/gce`), a process of its own.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use egress_backend_gcp::{GcpBackend, GcpConfig};
use egress_config::providers::gcp::{AddressMode, Credentials, GcpBlock};
use egress_fake_gce::FakeGce;
use egress_protocol::leadership::Fence;
use egress_protocol::message::Reply;
use egress_protocol::metrics::Metrics;
use egress_protocol::provider::{CallContext, CreateRequest, Op, ProviderMessage, actor_id};
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceName, Uid};
use egress_provider::{ProviderActor, ProviderArgs};
use egress_supervision::{Address, ChildSpec, Root, System};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::process::{Helper, resident};
use crate::rounds::{self, Spread};
use crate::table::{Table, thousands};
use crate::{Outcome, Role, process, progress, runtime};

const PROJECT: &str = "bench-1";
const ZONE: &str = "europe-west1-b";
const TOKEN: &str = "bench";
/// On three pages of 500.
const INSTANCES: usize = 1_500;
const CREATES: usize = 50;
const CHECKS: usize = 1_000;
const LONG: Duration = Duration::from_secs(60);

/// Where the stand-in and its metadata server listen.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Ready {
    api: SocketAddr,
    metadata: SocketAddr,
}

/// The stand-in with so many instances of ours, until the benchmark ends.
pub(crate) fn serve(instances: usize) -> Outcome<()> {
    let runtime = runtime()?;
    let fake = FakeGce::new(PROJECT);
    fake.keep_no_log();
    for n in 0..instances {
        let uid = uid("listed", n);
        let labels = [("proxy-operator-managed", "true"), ("proxy-operator-uid", uid.as_str()), ("proxy-operator-installation", "bench")];
        fake.place(ZONE, InstanceName::of(&uid).as_str(), &labels, "RUNNING");
    }
    let ready = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let metadata = listener.local_addr()?;
        let token = json!({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}).to_string();
        let router = Router::new().route("/computeMetadata/v1/instance/service-accounts/default/token", get(|| async move { token }));
        runtime.spawn(async move { axum::serve(listener, router).await });
        let server = fake.serve(0).await?;
        let api = server.address;
        // Until the process ends.
        std::mem::forget(server);
        std::io::Result::Ok(Ready { api, metadata })
    })?;
    process::ready_until_told(&serde_json::to_string(&ready)?)
}

fn uid(kind: &str, n: usize) -> Uid {
    Uid::new(format!("{kind}-{n:08}"))
}

pub(crate) fn run(rounds: u32) -> Outcome<Vec<Table>> {
    let runtime = runtime()?;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut table = Table::new(
        "gcp",
        format!("The gcp backend against a bare loop of the same requests: median of {rounds} rounds [quartiles]"),
        &["what", "ours", "bare", "ours / bare"],
    );
    let (_full, full) = start(INSTANCES)?;
    let (_empty, empty) = start(0)?;
    runtime.block_on(async {
        let ours = Entry::start(full).await?;
        let bare = Bare::new(full)?;
        progress("list of 1,500 instances");
        let mut took = Vec::new();
        // The first round opens connections and fetches the token.
        for round in 0..=rounds {
            let mut of_round = [0.0; 2];
            for n in rounds::order(round, 2) {
                let begin = Instant::now();
                let found = if n == 0 { ours.list().await? } else { bare.list().await? };
                of_round[n] = begin.elapsed().as_secs_f64() * 1e3;
                if n == 0 && found != INSTANCES || n == 1 && found != 3 {
                    return Err(format!("a list found {found}").into());
                }
            }
            took.push(of_round);
        }
        row(&mut table, "1,500 instances listed in three pages", took.split_off(1));

        let ours = Entry::start(empty).await?;
        let bare = Bare::new(empty)?;
        progress("creates");
        let mut took = Vec::new();
        for round in 0..=rounds {
            let mut of_round = [0.0; 2];
            let batch = round as usize * CREATES;
            for n in rounds::order(round, 2) {
                let begin = Instant::now();
                if n == 0 {
                    ours.create(batch).await?
                } else {
                    bare.create(batch).await?
                };
                of_round[n] = begin.elapsed().as_secs_f64() * 1e3;
            }
            took.push(of_round);
        }
        row(&mut table, "50 creates at once", took.split_off(1));

        progress("checks");
        let mut seen = Vec::new();
        for n in 0..=2 * CHECKS {
            ours.check().await?;
            if n > 0 && n % CHECKS == 0 {
                seen.push(resident(std::process::id())? / 1024.0);
            }
        }
        table.note(format!(
            "Resident memory of this process after {} checks: {:.1} MiB; after as many again: {:.1} MiB.",
            thousands(CHECKS as f64),
            seen[0],
            seen[1]
        ));
        Outcome::Ok(())
    })?;
    Ok(vec![table])
}

fn start(instances: usize) -> Outcome<(Helper, Ready)> {
    let (helper, ready) = Helper::start(&Role::Gce(instances))?;
    Ok((helper, serde_json::from_str(&ready)?))
}

fn row(table: &mut Table, what: &str, took: Vec<[f64; 2]>) {
    let of = |n: usize| format!("{:.1} ms", Spread::of(took.iter().map(|round| round[n])).median);
    table.row([what.to_owned(), of(0), of(1), Spread::of(took.iter().map(|[ours, bare]| ours / bare)).ratio()]);
}

/// A provider's actor with the backend.
struct Entry {
    address: Address<ProviderMessage>,
    _root: Root,
}

impl Entry {
    async fn start(ready: Ready) -> Outcome<Self> {
        let block = GcpBlock {
            project: PROJECT.to_owned(),
            network: "global/networks/default".to_owned(),
            subnetwork: None,
            network_tag: "proxy-operator".to_owned(),
            disk_size_gb: 10,
            address_mode: AddressMode::External,
            quota_regions: Vec::new(),
            credentials: Credentials::Metadata(ready.metadata.to_string()),
            endpoint: format!("http://{}", ready.api),
        };
        let config = GcpConfig::of("gcp", InstallationId::new("bench"), &block, false);
        let system = System::new(Clock::system(), Metrics::new(true).shared());
        let args = ProviderArgs {
            name: "gcp".into(),
            max_concurrent_creates: CREATES,
            stop_grace: Duration::ZERO,
            fence: Fence::open(),
            build: std::sync::Arc::new(move |ground| Ok(std::sync::Arc::new(GcpBackend::new(config.clone(), ground, Clock::system())?))),
        };
        let id = actor_id("gcp");
        let root = system.start_root(ChildSpec::<ProviderActor>::essential(id.clone(), args)).await?;
        Ok(Self { address: system.address(&id), _root: root })
    }

    async fn ask<T: Send + 'static>(&self, message: impl FnOnce(Reply<T>) -> ProviderMessage + Send) -> Outcome<T> {
        Ok(self.address.call(LONG, message).await?)
    }

    async fn list(&self) -> Outcome<usize> {
        let call = CallContext::new(Op::List, CancellationToken::new());
        Ok(self.ask(|reply_to| ProviderMessage::List { call, reply_to }).await??.instances.len())
    }

    async fn create(&self, from: usize) -> Outcome<()> {
        let creates = (from..from + CREATES).map(|n| async move {
            let (request, call) = (request(n), CallContext::new(Op::Create, CancellationToken::new()));
            self.ask(|reply_to| ProviderMessage::Create { request, call, reply_to }).await??;
            Outcome::Ok(())
        });
        try_join_all(creates).await.map(drop)
    }

    async fn check(&self) -> Outcome<()> {
        let call = CallContext::new(Op::List, CancellationToken::new());
        let verdicts = self.ask(|reply_to| ProviderMessage::Check { call, reply_to }).await?.unwrap_or_default();
        if verdicts.iter().all(|verdict| verdict.ready) { Ok(()) } else { Err(format!("{verdicts:?}").into()) }
    }
}

fn request(n: usize) -> CreateRequest {
    let uid = uid("ours", n);
    CreateRequest {
        name: InstanceName::of(&uid),
        uid,
        installation: InstallationId::new("bench"),
        namespace: "default".into(),
        proxy_name: "px".into(),
        placement: Placement {
            zone: Some(ZONE.to_owned()),
            machine_type: Some("e2-small".to_owned()),
            image: Some("projects/p/global/images/family/f".to_owned()),
            ..Placement::default()
        },
        cloud_init: std::sync::Arc::default(),
        port: 3128,
    }
}

/// The same requests, their answers read as bytes.
struct Bare {
    http: reqwest::Client,
    root: String,
}

impl Bare {
    fn new(ready: Ready) -> Outcome<Self> {
        let http = reqwest::Client::builder().http1_only().no_proxy().build()?;
        Ok(Self { http, root: format!("http://{}/compute/v1/projects/{PROJECT}", ready.api) })
    }

    async fn list(&self) -> Outcome<usize> {
        let list = "/aggregated/instances?filter=labels.proxy-operator-managed+%3D+true&maxResults=500&returnPartialSuccess=true";
        let (mut pages, mut token) = (0, String::new());
        loop {
            let page =
                self.http.get(format!("{}{list}{token}", self.root)).bearer_auth(TOKEN).send().await?.error_for_status()?.bytes().await?;
            pages += 1;
            // The stand-in's tokens are known: they count instances.
            if pages * 500 >= INSTANCES {
                return if page.is_empty() { Err("an empty page".into()) } else { Ok(pages) };
            }
            token = format!("&pageToken=page-{}", pages * 500);
        }
    }

    async fn create(&self, from: usize) -> Outcome<()> {
        let creates = (from..from + CREATES).map(|n| async move {
            let name = InstanceName::of(&uid("bare", n));
            let body = json!({
                "name": name.as_str(),
                "machineType": format!("zones/{ZONE}/machineTypes/e2-small"),
                "labels": {"proxy-operator-managed": "true", "proxy-operator-uid": format!("bare-{n:08}"), "proxy-operator-installation": "bench"},
                "tags": {"items": ["proxy-operator"]},
                "networkInterfaces": [{"network": "global/networks/default", "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]}],
                "disks": [{"boot": true, "autoDelete": true, "initializeParams": {"sourceImage": "projects/p/global/images/family/f", "diskSizeGb": "10"}}],
            });
            let url = format!("{}/zones/{ZONE}/instances?requestId={n}", self.root);
            let request = self.http.post(url).bearer_auth(TOKEN).header("content-type", "application/json").body(body.to_string());
            request.send().await?.error_for_status()?.bytes().await?;
            Outcome::Ok(())
        });
        try_join_all(creates).await.map(drop)
    }
}
