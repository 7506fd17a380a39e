//! Pods without a kubelet: a test says that they run, at an address where its own forward proxy listens.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::cluster::{Admin, CORE, ControlPlane};
use crate::support::forwarder::Forwarder;

/// Ends when dropped.
pub(super) struct Kubelet {
    _task: JoinSet<()>,
    _proxies: Vec<Forwarder>,
}

impl Kubelet {
    /// Every Pod of the namespace runs at `address`, where a forward proxy listens on each of `ports`.
    pub(super) async fn run(plane: &ControlPlane, namespace: &str, address: Ipv4Addr, ports: &[u16]) -> Self {
        let mut proxies = Vec::new();
        for port in ports {
            proxies.push(Forwarder::on(SocketAddr::new(address.into(), *port)).await);
        }
        let (admin, pods) = (Admin::of(plane).await, format!("{CORE}/namespaces/{namespace}/pods"));
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                let list = admin.get(&pods).await;
                for pod in list["items"].as_array().into_iter().flatten() {
                    if pod["status"]["podIP"].is_null() && pod["metadata"]["deletionTimestamp"].is_null() {
                        admin.try_patch(&format!("{pods}/{}/status", pod["metadata"]["name"].as_str().unwrap()), &running(address)).await;
                    }
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        });
        Self { _task: task, _proxies: proxies }
    }
}

/// As a kubelet reports a Squid that serves.
fn running(address: Ipv4Addr) -> Value {
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(|kind| json!({"type": kind, "status": "True"}));
    json!({"status": {
        "phase": "Running", "podIP": address.to_string(), "podIPs": [{"ip": address.to_string()}],
        "conditions": conditions,
        "containerStatuses": [{"name": "squid", "ready": true, "started": true, "restartCount": 0, "image": "squid", "imageID": "",
            "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}}],
    }})
}
