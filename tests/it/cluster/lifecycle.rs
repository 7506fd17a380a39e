//! A Proxy's life as people see it with kubectl (OP-7…11), and under exactly the chart's rules (IN-5).

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::cluster::{ControlPlane, NAME, Setting};
use crate::support::forwarder::Forwarder;
use crate::support::http::fetch_through;
use crate::support::lab::own_address;
use crate::support::operator::Operator;
use crate::support::origin::{Manner, Origin};
use crate::support::{eventually, free_port};

const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/samples");

/// Reasons of the Events about an object, each with its note.
async fn events(setting: &Setting<'_>, name: &str) -> Vec<(String, String)> {
    let list = setting.admin.get(&format!("/apis/events.k8s.io/v1/namespaces/{}/events", setting.proxies.name)).await;
    let about = |event: &&Value| event["regarding"]["name"] == name;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list["items"].as_array().into_iter().flatten().filter(about).map(|event| (text(&event["reason"]), text(&event["note"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_kubectl_applies_is_ready_shows_its_events_and_is_deleted_when_its_instance_is_gone_op_9_op_11() {
    let Some(plane) = ControlPlane::shared("what_kubectl_applies_is_ready") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let address = own_address().to_string();
    let operator = setting.site(&address).start().up().await;
    let namespace = setting.proxies.name.as_str();

    plane.apply(&setting.managed("px-1", "lab", 3128, origin.port).to_string());
    plane.kubectl(&["wait", "--for=condition=Ready", "--timeout=30s", "px/px-1", "-n", namespace]);
    let object = setting.proxy("px-1").await;
    assert_eq!(object["status"]["phase"], "Ready");
    assert_eq!(object["metadata"]["finalizers"], json!(["crawl.example.com/instance-cleanup"]));
    let proxy = format!("{address}:3128");
    let page = fetch_through(&proxy, &format!("http://127.0.0.1:{}/", origin.port)).await.unwrap();
    assert_eq!(page.text(), "hello");
    let lease = operator.api.post("/v1/leases", &json!({"selector": {"namespace": namespace}})).await;
    assert_eq!((lease.status.as_u16(), &lease.json()["proxy"]["url"]), (201, &json!(format!("http://{proxy}"))));
    let released = operator.api.delete(&format!("/v1/leases/{}", lease.json()["id"].as_str().unwrap())).await;
    assert_eq!(released.status, 204);

    eventually("the Events are there", Duration::from_secs(10), || async {
        let seen = events(&setting, "px-1").await;
        ["Created", "Running"].iter().all(|reason| seen.iter().any(|(told, _)| told == reason)).then_some(())
    })
    .await;
    let described = plane.kubectl(&["describe", "px", "px-1", "-n", namespace]);
    assert!(described.contains("Created") && described.contains(NAME), "{described}");

    plane.kubectl(&["delete", "px", "px-1", "-n", namespace, "--timeout=30s"]);
    assert!(tokio::net::TcpStream::connect(&proxy).await.is_err(), "kubectl returned, so the instance is gone");
    operator.wait_gone(&format!("{namespace}/px-1")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_proxy_is_probed_and_goes_at_once_and_skipping_the_cleanup_leaves_the_instance_op_11() {
    let Some(plane) = ControlPlane::shared("an_external_proxy_is_probed_and_goes_at_once") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let (address, outside) = (own_address(), own_address());
    let _operator = setting.site(&address.to_string()).start().up().await;
    let port = free_port();
    let _forwarder = Forwarder::on(SocketAddr::new(outside.into(), port)).await;
    let mut external = setting.managed("ex-1", "lab", port, origin.port);
    external["spec"]["mode"] = json!("External");
    external["spec"].as_object_mut().unwrap().remove("provider");
    external["spec"]["endpoint"] = json!({"host": outside.to_string()});
    setting.create(&external).await;
    let object = setting.phase("ex-1", "Ready").await;
    assert!(object["metadata"]["finalizers"].is_null() && object["status"]["ip"] == outside.to_string(), "{object}");
    setting.delete("ex-1").await;
    setting.gone("ex-1").await;

    setting.create(&setting.managed("px-1", "lab", 3128, origin.port)).await;
    setting.phase("px-1", "Ready").await;
    let skip = json!({"metadata": {"annotations": {"crawl.example.com/skip-cleanup": "true"}}});
    setting.admin.patch(&setting.path("px-1"), &skip).await;
    setting.delete("px-1").await;
    setting.gone("px-1").await;
    assert!(tokio::net::TcpStream::connect((address, 3128)).await.is_ok(), "the backend was not touched");
    let told = events(&setting, "px-1").await;
    assert!(told.iter().any(|(reason, _)| reason == "CleanupSkipped"), "{told:?}");
}

/// HE-10: in a cluster an endpoint on loopback is refused unless it is allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_an_endpoint_on_loopback_or_of_the_api_server_is_refused_he_10() {
    let Some(plane) = ControlPlane::shared("in_a_cluster_an_endpoint_on_loopback_is_refused") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let mut site = setting.site(&own_address().to_string());
    let at = site.flags.iter().position(|flag| flag == "--endpoint-allow").unwrap();
    site.flags.drain(at..at + 2);
    let _operator = site.start().up().await;
    let mut external = setting.managed("ex-1", "lab", 3128, origin.port);
    external["spec"]["mode"] = json!("External");
    external["spec"].as_object_mut().unwrap().remove("provider");
    external["spec"]["endpoint"] = json!({"host": "127.0.0.1"});
    setting.create(&external).await;
    let object = setting.phase("ex-1", "Unhealthy").await;
    let told = object["status"]["conditions"].to_string();
    assert!(told.contains("NotAllowed") && told.contains("ProbeFailed"), "{told}");
}

/// SA-1, SA-3: every sample is taken by the API server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_sample_is_applied_sa_1() {
    let Some(plane) = ControlPlane::shared("every_sample_is_applied") else { return };
    let namespace = plane.namespace("samples");
    for folder in [SAMPLES.to_owned(), format!("{SAMPLES}/pools")] {
        let files: Vec<String> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path().display().to_string()).collect();
        for file in files.iter().filter(|file| file.ends_with(".yaml")) {
            for more in [&["apply", "--dry-run=server"][..], &["apply"]] {
                let args = [more, &["-n", &namespace.name, "-f", file]].concat();
                let done = plane.try_kubectl(&args, "");
                assert!(done.status.success(), "{file}: {}", String::from_utf8_lossy(&done.stderr));
            }
        }
    }
}

/// OP-21, OP-28: a Secret without its label is as none; with it the proxy comes up, and losing it leaves what runs alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_counts_when_it_carries_its_label_and_losing_it_leaves_the_running_instance_alone_op_21() {
    let Some(plane) = ControlPlane::shared("a_secret_counts_when_it_carries_its_label") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let address = own_address();
    let _operator = setting.site(&address.to_string()).start().up().await;
    let mut proxy = setting.managed("px-1", "lab", 3128, origin.port);
    proxy["spec"]["cloudInit"] = json!({"secretRef": {"name": "user-data"}});
    setting.create(&proxy).await;
    let unresolved = |object: &Value| object["status"]["conditions"].to_string().contains("CloudInitUnresolved");
    setting.until("px-1", "unresolved", unresolved).await;
    let secrets = format!("/api/v1/namespaces/{}/secrets", setting.proxies.name);
    let secret = json!({"metadata": {"name": "user-data"}, "stringData": {"user-data": "#cloud-config\n"}});
    assert_eq!(setting.admin.post(&secrets, &secret).await.status, 201);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(unresolved(&setting.proxy("px-1").await), "without the label it is invisible");
    let label = |value: Value| json!({"metadata": {"labels": {"crawl.example.com/cloud-init": value}}});
    setting.admin.patch(&format!("{secrets}/user-data"), &label(json!("true"))).await;
    setting.phase("px-1", "Ready").await;

    setting.admin.patch(&format!("{secrets}/user-data"), &label(Value::Null)).await;
    let object = setting.until("px-1", "unresolved again", unresolved).await;
    assert_eq!(object["status"]["phase"], "Ready", "what was proven stays: {object}");
    assert!(tokio::net::TcpStream::connect((address, 3128)).await.is_ok());
}

/// OP-16: a bad edit of a shared Secret stops after a quarter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_of_a_shared_secret_replaces_at_most_a_quarter_of_its_proxies_at_a_time_op_16() {
    let Some(plane) = ControlPlane::shared("an_edit_of_a_shared_secret_replaces_at_most_a_quarter") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let operator = setting.site(&own_address().to_string()).start().up().await;
    let secrets = format!("/api/v1/namespaces/{}/secrets", setting.proxies.name);
    let labels = json!({"crawl.example.com/cloud-init": "true"});
    let secret = json!({"metadata": {"name": "shared", "labels": labels}, "stringData": {"user-data": "one"}});
    assert_eq!(setting.admin.post(&secrets, &secret).await.status, 201);
    for n in 0..8_u16 {
        let mut proxy = setting.managed(&format!("px-{n}"), "lab", 3128 + n, origin.port);
        proxy["spec"]["cloudInit"] = json!({"secretRef": {"name": "shared"}});
        setting.create(&proxy).await;
    }
    let ready = async |operator: &Operator| {
        let items = operator.api.get("/v1/proxies").await.json()["items"].as_array().cloned().unwrap_or_default();
        items.iter().filter(|item| item["phase"] == "Ready").count()
    };
    eventually("all are Ready", Duration::from_secs(60), || async { (ready(&operator).await == 8).then_some(()) }).await;
    let hashes = async || {
        let list = setting.admin.get(setting.path("").trim_end_matches('/')).await;
        let hash = |item: &Value| item["status"]["specHash"].as_str().unwrap_or_default().to_owned();
        list["items"].as_array().map(|items| items.iter().map(hash).collect::<Vec<_>>()).unwrap_or_default()
    };
    let before = hashes().await;
    setting.admin.patch(&format!("{secrets}/shared"), &json!({"stringData": {"user-data": "two"}})).await;
    let mut least = 8;
    let until = tokio::time::Instant::now() + Duration::from_secs(90);
    loop {
        least = least.min(ready(&operator).await);
        let now = hashes().await;
        if now.len() == 8 && now.iter().all(|hash| !before.contains(hash)) && ready(&operator).await == 8 {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "replaced: {now:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!((6..8).contains(&least), "at most a quarter of 8 at a time, and at least one: {least} were Ready at the worst moment");
}
