//! The backend behind its provider's actor (SV-2, LO-3; issue 3: a killed provider binds the same ports again).

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use egress_backend_local::{LocalBackend, LocalConfig, Outside, TYPE};
use egress_protocol::metrics::Metrics;
use egress_protocol::provider::{CallContext, CreateRequest, InstanceKey, InstanceState, Op, ProviderMessage, actor_id};
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceName, Timestamp, Uid};
use egress_provider::{ProviderArgs, ProviderEntry, ProvidersArgs};
use egress_supervision::{Address, System};
use tokio_util::sync::CancellationToken;

const PORT: u16 = 23126;
const PROXIES: usize = 20;
const LONG: Duration = Duration::from_secs(60);

fn request(n: usize) -> CreateRequest {
    let uid = Uid::new(n.to_string());
    CreateRequest {
        name: InstanceName::of(&uid),
        uid,
        installation: InstallationId::new("inst"),
        namespace: "default".into(),
        proxy_name: format!("px-{n}").into(),
        placement: Placement::default(),
        cloud_init: Arc::default(),
        port: PORT,
    }
}

fn context(op: Op) -> CallContext {
    CallContext::new(op, CancellationToken::new())
}

/// Where every instance listens, as soon as all run.
async fn running(provider: &Address<ProviderMessage>) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    while addresses.len() < PROXIES {
        let request = request(addresses.len());
        let key = InstanceKey {
            id: Some(egress_protocol::InstanceId::new(format!("local/{}", request.name))),
            name: request.name,
            uid: request.uid,
            installation: request.installation,
            namespace: request.namespace,
            placement: request.placement,
        };
        let read = provider.call(LONG, |reply_to| ProviderMessage::Get { key, call: context(Op::Get), reply_to }).await;
        match read {
            Ok(Ok(instance)) if instance.state == InstanceState::Running => addresses.push((instance.ip.unwrap(), PORT).into()),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    addresses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_or_killed_provider_binds_the_same_ports_again_and_makes_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::starting_at(Timestamp::from_millis(0));
    let mut config = LocalConfig::new("lab", InstallationId::new("inst"));
    config.listen = vec![format!("127.{}.224.0/24", 16 + std::process::id() % 200).parse().unwrap()];
    config.state_dir = Some(dir.path().to_owned());
    let args = ProviderArgs {
        name: "lab".into(),
        max_concurrent_creates: 4,
        stop_grace: Duration::ZERO,
        fence: egress_protocol::leadership::Fence::open(),
        build: Arc::new(move |ground| Ok(Arc::new(LocalBackend::new(config.clone(), Outside::system(clock), Arc::new(ground.clone()))))),
    };
    let entry = ProviderEntry { type_: TYPE, fingerprint: "f".into(), foundation: "b".into(), settings: Arc::new(()), args };
    let system = System::new(clock, Metrics::default().shared());
    let root = system.start_root(ProvidersArgs::new(vec![entry]).spec()).await.unwrap();
    let provider: Address<ProviderMessage> = system.address(&actor_id("lab"));
    for n in 0..PROXIES {
        while !provider.is_up() {
            tokio::task::yield_now().await;
        }
        let made = provider.call(LONG, |reply_to| ProviderMessage::Create { request: request(n), call: context(Op::Create), reply_to });
        made.await.unwrap().unwrap();
    }
    let before = running(&provider).await;
    for kill in [false, true] {
        let ended = if kill { system.kill(&actor_id("lab")) } else { system.crash(&actor_id("lab")) };
        assert!(ended);
        assert_eq!(running(&provider).await, before);
        assert!(before.iter().all(|address| TcpStream::connect(address).is_ok()));
    }
    root.stop().await;
    assert!(before.iter().all(|address| TcpStream::connect(address).is_err()), "an orderly stop closes them all");
    let marks = std::fs::read_dir(dir.path().join("marks/lab")).unwrap().count();
    assert_eq!(marks, PROXIES, "and keeps their marks");
}
