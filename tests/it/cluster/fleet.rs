//! Many Proxies at once (O12, O13): all become Ready, what the process holds for them stays small, and the time is set beside
//! that of a loop which makes the same writes.

use std::time::Duration;

use egress_kube::{Access, ApiClient, PatchKind, REQUEST, Request};
use futures::StreamExt;
use serde_json::{Value, json};

use crate::support::cluster::{ControlPlane, NAME, PROXIES, Setting};
use crate::support::origin::{Manner, Origin};
use crate::support::{eventually, rounds};

/// Of the process, whatever the size of the fleet.
const MEMORY_KIB: u64 = 128 * 1024;
/// So many writes at once, of the operator's source as of the loop.
const AT_ONCE: usize = 32;

/// A Proxy of a fleet: one port for all, an address for each.
fn member(setting: &Setting<'_>, n: usize, origin: u16) -> Value {
    let mut proxy = setting.managed(&format!("px-{n}"), "lab", 3128, origin);
    proxy["spec"]["healthCheck"]["intervalSeconds"] = json!(30);
    proxy
}

async fn send(api: &ApiClient, request: Request) -> Value {
    let answer = api.send(REQUEST, || Ok(()), &request).await.unwrap_or_else(|error| panic!("{request:?}: {error}"));
    serde_json::from_str(&answer).unwrap()
}

/// The writes that the operator makes for an object, without the operator: create, finalizer, three statuses, two Events.
async fn same_writes(api: &ApiClient, namespace: &str, proxy: &Value) {
    let all = format!("{PROXIES}/namespaces/{namespace}/proxies");
    let made = send(api, Request::create("proxies", &all, proxy)).await;
    let name = made["metadata"]["name"].as_str().unwrap();
    let one = format!("{all}/{name}");
    let finalizer = json!({"metadata": {"finalizers": ["example.com/loop"]}});
    send(api, Request::patch("proxies", &one, PatchKind::Merge, &finalizer)).await;
    for phase in ["Provisioning", "Running", "Ready"] {
        let condition = json!({"type": "Healthy", "status": "True", "reason": "ProbeSucceeded", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"});
        let status = json!({"status": {"phase": phase, "providerID": format!("lab/{name}"), "ip": "192.0.2.7", "conditions": [condition]}});
        send(api, Request::patch("proxies", &format!("{one}/status"), PatchKind::Merge, &status)).await;
    }
    for reason in ["Created", "Running"] {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"generateName": format!("{name}-"), "namespace": namespace},
            "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "loop", "reportingInstance": "loop", "action": reason,
            "reason": reason, "type": "Normal", "note": "of the loop", "regarding": {"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
                "namespace": namespace, "name": name, "uid": made["metadata"]["uid"]},
        });
        send(api, Request::create("events", &format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), &event)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_is_applied_at_once_is_ready_and_stays_within_128_mib_o12() {
    let Some(plane) = ControlPlane::own("a_fleet_that_is_applied_at_once_is_ready") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let api = ApiClient::new(Access { kubeconfig: Some(plane.dir.join("admin.kubeconfig")) });
    let count = rounds(100, 2000);
    let mut site = setting.site(&format!("127.{}.0.0/18", rand::random_range(64..96)));
    // No relay in between: it is the operator's time that counts.
    site.kubeconfig = plane.kubeconfig(NAME, &setting.home.name);
    let operator = site.start().up().await;
    let begun = tokio::time::Instant::now();
    let all = format!("{PROXIES}/namespaces/{}/proxies", setting.proxies.name);
    let applied = futures::stream::iter(0..count).for_each_concurrent(AT_ONCE, |n| {
        let (api, request) = (&api, Request::create("proxies", &all, &member(&setting, n, origin.port)));
        async move { drop(send(api, request).await) }
    });
    applied.await;
    let limit = Duration::from_secs(60) + Duration::from_millis(200) * u32::try_from(count).unwrap();
    // Looked at seldom, and as little of them as will do: what looking costs is not the operator's.
    let look = Request::list_metadata("proxies", &all, &[("fieldSelector", "status.phase=Ready"), ("resourceVersion", "0")]);
    eventually("all are Ready in the API server's eyes", limit, || async {
        let ready = send(&api, look.clone()).await["items"].as_array().map_or(0, Vec::len);
        if ready < count {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        (ready == count).then_some(())
    })
    .await;
    let ready = begun.elapsed();
    let (now, highest) = operator.memory();
    assert!(highest < MEMORY_KIB, "{highest} KiB");
    let listed = operator.api.get("/v1/proxies?limit=1000&healthy=true").await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(count.min(1000)));
    drop(operator);

    let beside = plane.namespace("loop");
    let begun = tokio::time::Instant::now();
    let written = futures::stream::iter(0..count).for_each_concurrent(AT_ONCE, |n| {
        let mut proxy = member(&setting, n, origin.port);
        proxy["metadata"]["namespace"] = json!(beside.name);
        let (api, namespace) = (&api, beside.name.as_str());
        async move { same_writes(api, namespace, &proxy).await }
    });
    written.await;
    let written = begun.elapsed();
    println!(
        "{count} Proxies Ready after {ready:.1?}; a loop with the same writes took {written:.1?}: ratio {:.2}; resident {now} KiB, at most {highest} KiB",
        ready.as_secs_f64() / written.as_secs_f64()
    );
}
