//! PC-94: one life from the constructor to nothing, in the order that every real backend is tested in.

use std::path::Path;
use std::time::Duration;

use egress_backend_kubernetes::KubernetesConfig;
use egress_protocol::provider::{DeleteOutcome, ErrorClass, InstanceState};
use tokio::time::Instant;
use tracing::Instrument;

use crate::support::admin::Hands;
use crate::support::bed::Bed;
use crate::support::heard::Heard;
use crate::support::kit::{CLOUD_INIT, Calls, backend, key, request};

/// What stands in for whoever runs Pods; at a real node nobody has to.
struct Kubelet<'a> {
    start: &'a dyn Fn(&str),
    end: &'a dyn Fn(&str),
}

/// The whole way. Prints the instance's name first and how long each step took.
async fn life(config: KubernetesConfig, kubeconfig: &Path, hands: &Hands, kubelet: &Kubelet<'_>, patience: Duration) {
    let (heard, _guard) = Heard::listen();
    let operation = || tracing::info_span!("provider.life");
    let asked = request(&hands.namespace, &format!("life-{}", std::process::id()));
    println!("instance {}/{}", asked.namespace, asked.name);
    let mut at = Instant::now();
    let mut step = |what: &str| {
        println!("{what}: {:?}", at.elapsed());
        at = Instant::now();
    };
    let backend = backend(config, kubeconfig).await;
    assert!(heard.take().told().is_empty(), "the constructor makes no call");
    step("construct");
    let id = backend.made(&asked).instrument(operation()).await.unwrap();
    step("create");
    assert_eq!(backend.made(&asked).instrument(operation()).await.unwrap(), id);
    step("create again");
    (kubelet.start)(asked.name.as_str());
    let deadline = Instant::now() + patience;
    let running = loop {
        let read = backend.read(&key(&asked)).instrument(operation()).await.unwrap();
        if read.state == InstanceState::Running {
            break read;
        }
        assert!(Instant::now() < deadline, "{:?}: {:?}", read.state, read.state_detail);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(running.ip.is_some() && !running.deleting);
    step("running");
    let listed = backend.all().instrument(operation()).await.unwrap();
    assert!(listed.instances.iter().any(|instance| instance.id == id));
    step("list");
    assert_eq!(backend.gone(&key(&asked)).instrument(operation()).await.unwrap(), DeleteOutcome::InProgress);
    step("delete");
    let dying = backend.read(&key(&asked)).instrument(operation()).await;
    assert!(dying.is_err() || dying.is_ok_and(|read| read.deleting && read.state != InstanceState::Running));
    (kubelet.end)(asked.name.as_str());
    let deadline = Instant::now() + patience;
    while backend.gone(&key(&asked)).instrument(operation()).await.unwrap() != DeleteOutcome::Gone {
        assert!(Instant::now() < deadline, "it stays");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    step("gone");
    assert_eq!(backend.read(&key(&asked)).await.unwrap_err().class, ErrorClass::NotFound);
    assert!(hands.pods().is_empty(), "nothing remains");
    let said = format!("{:?}", heard.take());
    assert!(!said.contains(CLOUD_INIT) && said.contains("kubernetes.create_pod"));
}

#[tokio::test]
async fn a_life_at_a_real_api_server_pc_94() {
    let Some(bed) = Bed::find("a_life_at_a_real_api_server_pc_94") else { return };
    let hands = bed.fresh_namespace(&serde_json::json!({"pod-security.kubernetes.io/enforce": "restricted"}));
    let kubelet = Kubelet { start: &|name| hands.start(name), end: &|name| hands.end(name) };
    life(crate::support::kit::config(), &bed.kubeconfig(), &hands, &kubelet, Duration::from_secs(10)).await;
    hands.drop_namespace();
}
