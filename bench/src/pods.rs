//! Creates through the kubernetes backend and its provider's actor; the API server is a stand-in that accepts every Pod, a process of its own.

use std::io::BufRead;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::response::IntoResponse;
use egress_backend_kubernetes::{KubernetesBackend, KubernetesConfig};
use egress_kube::{Access, ApiClient};
use egress_protocol::leadership::Fence;
use egress_protocol::metrics::Metrics;
use egress_protocol::provider::{CallContext, CreateRequest, Op, ProviderMessage, actor_id};
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceName, Uid};
use egress_provider::{ProviderActor, ProviderArgs};
use egress_supervision::{Address, ChildSpec, System};
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::process::{own_cpu, ready_until_told, say};
use crate::{Outcome, runtime};

/// Creates of one slice, and how many at a time.
const CREATES: u64 = 2_000;
const AT_ONCE: u64 = 16;
const LONG: Duration = Duration::from_secs(60);

/// Accepts every Pod, until the benchmark ends.
pub(crate) fn api_server() -> Outcome<()> {
    let runtime = runtime()?;
    let address = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = axum::Router::new().fallback(accept);
        runtime.spawn(async move { axum::serve(listener, router).await });
        std::io::Result::Ok(address)
    })?;
    ready_until_told(&address.to_string())
}

async fn accept(body: Bytes) -> axum::response::Response {
    let Ok(mut pod) = serde_json::from_slice::<Value>(&body) else { return axum::http::StatusCode::BAD_REQUEST.into_response() };
    pod["metadata"]["uid"] = json!("6ba7b810-9dad-11d1-80b4-000000000000");
    pod["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod["status"] = json!({"phase": "Pending"});
    (axum::http::StatusCode::CREATED, [("content-type", "application/json")], pod.to_string()).into_response()
}

/// Creates per CPU-second of this process, for each line.
pub(crate) fn serve(server: SocketAddr) -> Outcome<()> {
    let runtime = runtime()?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    let context = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": format!("http://{server}")}}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    });
    std::fs::write(&kubeconfig, context.to_string())?;
    let (address, _root) = runtime.block_on(provider(kubeconfig))?;
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let before = own_cpu()?;
        runtime.block_on(creates(&address))?;
        say(&(CREATES as f64 / (own_cpu()? - before)).to_string())?;
    }
    Ok(())
}

async fn provider(kubeconfig: PathBuf) -> Outcome<(Address<ProviderMessage>, egress_supervision::Root)> {
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let args = ProviderArgs {
        name: "kubernetes".into(),
        max_concurrent_creates: AT_ONCE as usize,
        stop_grace: Duration::ZERO,
        fence: Fence::open(),
        build: Arc::new(move |ground| {
            let client = ApiClient::new(Access { kubeconfig: Some(kubeconfig.clone()) });
            let config = KubernetesConfig::new("kubernetes", InstallationId::new("bench"));
            Ok(Arc::new(KubernetesBackend::new(config, client, ground)))
        }),
    };
    let id = actor_id("kubernetes");
    let root = system.start_root(ChildSpec::<ProviderActor>::essential(id.clone(), args)).await?;
    Ok((system.address(&id), root))
}

async fn creates(provider: &Address<ProviderMessage>) -> Outcome<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let one_after_another = (0..AT_ONCE).map(|_| async {
        for _ in 0..CREATES / AT_ONCE {
            let uid = Uid::new(format!("bench-{:012}", NEXT.fetch_add(1, Ordering::Relaxed)));
            let request = CreateRequest {
                name: InstanceName::of(&uid),
                uid,
                installation: InstallationId::new("bench"),
                namespace: "default".into(),
                proxy_name: "px".into(),
                placement: Placement::default(),
                cloud_init: Arc::default(),
                port: 3128,
            };
            let call = CallContext::new(Op::Create, CancellationToken::new());
            provider.call(LONG, |reply_to| ProviderMessage::Create { request, call, reply_to }).await??;
        }
        Outcome::Ok(())
    });
    try_join_all(one_after_another).await.map(drop)
}
