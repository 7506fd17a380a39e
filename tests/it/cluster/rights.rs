//! The operator does what it does under exactly the chart's rules (IN-5), and a steady fleet writes nothing (OP-24).

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cluster::{ControlPlane, NAME, Setting};
use crate::support::lab::own_address;
use crate::support::origin::{Manner, Origin};

/// What the audit log has of a service account: finished requests.
fn requests<'a>(audit: &'a [Value], account: &str) -> Vec<&'a Value> {
    audit.iter().filter(|event| event["user"]["username"] == account && event["stage"] == "ResponseComplete").collect()
}

fn what(event: &Value) -> String {
    let object = &event["objectRef"];
    let sub = object["subresource"].as_str().map(|sub| format!("/{sub}")).unwrap_or_default();
    format!("{} {}{sub}", event["verb"].as_str().unwrap_or_default(), object["resource"].as_str().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_life_of_a_proxy_needs_no_right_that_the_chart_does_not_give_in_5() {
    let Some(plane) = ControlPlane::shared("the_whole_life_of_a_proxy_needs_no_right") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let site = setting.site(&own_address().to_string()).flag("--leader-elect=true", "");
    let mut site = site;
    site.flags.retain(|flag| !flag.is_empty());
    site.providers(&json!({"providers": [
        {"name": "lab", "type": "local", "local": {"listenAddresses": [own_address().to_string()], "allowedTargets": ["127.0.0.0/8"]}},
        {"name": "pods", "type": "kubernetes"},
    ]}));
    let mut operator = site.start().up().await;
    setting.create(&setting.managed("px-1", "lab", 3128, origin.port)).await;
    setting.phase("px-1", "Ready").await;
    setting.create(&setting.managed("pod-1", "pods", 3128, origin.port)).await;
    setting.until("pod-1", "asked for", |object| object["status"]["providerID"].is_string()).await;
    for name in ["px-1", "pod-1"] {
        setting.delete(name).await;
        setting.gone(name).await;
    }
    assert_eq!(operator.terminate().await.code(), Some(0));
    let account = format!("system:serviceaccount:{}:{NAME}", setting.home.name);
    let audit = plane.audit();
    let ours = requests(&audit, &account);
    let refused: Vec<String> = ours.iter().filter(|event| event["responseStatus"]["code"] == 403).map(|event| what(event)).collect();
    assert_eq!(refused, [""; 0], "under the chart's rules");
    let used: BTreeSet<String> = ours.iter().map(|event| what(event)).collect();
    for expected in [
        "watch proxies",
        "list secrets",
        "watch secrets",
        "patch proxies",
        "patch proxies/status",
        "create events",
        "create pods",
        "delete pods",
        "create leases",
        "update leases",
        "get namespaces",
    ] {
        assert!(used.contains(expected), "{expected} is in {used:?}");
    }
    for never in ["get secrets", "create secrets", "watch pods", "update proxies/status"] {
        assert!(!used.contains(never), "{never}");
    }
    let selectors = ours.iter().filter(|event| event["objectRef"]["resource"] == "secrets");
    for event in selectors {
        let uri = event["requestURI"].as_str().unwrap();
        assert!(uri.contains("labelSelector=crawl.example.com"), "Secrets are asked for by our labels only: {uri}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steady_fleet_writes_nothing_to_proxies_op_24() {
    let Some(plane) = ControlPlane::shared("a_steady_fleet_writes_nothing_to_proxies") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let _operator = setting.site(&own_address().to_string()).flag("--poll-drift", "1s").start().up().await;
    for n in 0..5_u16 {
        setting.create(&setting.managed(&format!("px-{n}"), "lab", 3128 + n, origin.port)).await;
    }
    for n in 0..5 {
        setting.phase(&format!("px-{n}"), "Ready").await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    setting.relay.forget();
    let hits = origin.hits();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(origin.hits() >= hits + 30, "they are probed and polled meanwhile");
    let writes: Vec<String> = setting.relay.calls().iter().filter(|call| call.is_write()).map(|call| call.what()).collect();
    let to_proxies: Vec<&String> = writes.iter().filter(|what| what.contains("proxies") || what.contains("events")).collect();
    assert!(to_proxies.is_empty(), "{writes:?}");
}
