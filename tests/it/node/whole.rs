//! The whole way, no fake in it: the chart with the operator's own image, Squid Pods, leases by the Service's name.
//!
//! One thing is not the real one: the image under `ubuntu/squid:6.6-24.04_edge` holds Debian's Squid (tests/bed/README.md).

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::node::release::{CHECK_URL, NAME, NAMESPACE, TRUST};
use crate::support::node::{Node, Steps, condition};

/// Where the Squid Pods run, under the restricted Pod Security level.
const CRAWL: &str = "crawl";
/// Whose Pod leases them.
const CLIENT: (&str, &str) = ("crawlers", "client");
const SAMPLE: &str = "config/samples/kubernetes.yaml";
const PROXY: &str = "kubernetes-1";
/// Where the chart mounts a provider's key: below the providers file, and there whether the Secret is or not (IN-6).
const NESTED: &str = "/etc/proxy-operator/kvm";

/// The sample as it is but for the check URL: the default one is on the internet.
async fn apply_sample(node: &Node) {
    let patch = json!({"spec": {"healthCheck": {"url": CHECK_URL}}}).to_string();
    let sample = node.kubectl(&["patch", "--local", "-f", SAMPLE, "--type=merge", "-p", &patch, "-o", "json"]).await;
    let output = node.fed(&["kubectl", "-n", CRAWL, "apply", "-f", "-"], &sample).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The Pod of the proxy: there is exactly one.
async fn squid(node: &Node) -> Value {
    let mut pods = node.list(CRAWL, "pods", "proxy-operator-managed=true").await;
    assert_eq!(pods.len(), 1, "{pods:?}");
    pods.pop().unwrap()
}

/// Leases a proxy from the client's Pod and fetches through it: the origin must have been asked by that proxy's address.
async fn lease_and_use(node: &Node, token: &str) -> Value {
    let (status, lease) = node.call(CLIENT, token, "POST", "/v1/leases", r#"{"ttl": "1m", "owner": "the whole way"}"#).await;
    assert_eq!(status, 201, "{lease}");
    let proxy = lease["proxy"]["url"].as_str().unwrap();
    let target = "https://check.bed.test/through";
    let fetched =
        node.exec(CLIENT.0, CLIENT.1, &["curl", "-sS", "--max-time", "10", "--proxy", proxy, "--cacert", "/ca/ca.crt", target]).await;
    let fetched: Value = serde_json::from_str(&fetched.unwrap_or_else(|e| panic!("through {proxy}: {e}"))).unwrap();
    assert_eq!(
        fetched,
        json!({"remote": lease["proxy"]["ip"], "host": "check.bed.test", "path": "/through", "tls": true}),
        "asked by another than the proxy"
    );
    lease
}

async fn release(node: &Node, token: &str, lease: &Value) {
    let (status, body) = node.call(CLIENT, token, "DELETE", &format!("/v1/leases/{}", lease["id"].as_str().unwrap()), "").await;
    assert!((200..300).contains(&status), "{status} {body}");
}

/// `/readyz?verbose` of the serving Pod, asked through the API server as the kubelet asks.
async fn readiness(node: &Node, pod: &str) -> String {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:8081/proxy/readyz?verbose");
    node.try_kubectl(&["get", "--raw", &path]).await.unwrap_or_else(|e| e)
}

/// What is in the folder of the nested mount, as the operator's process sees it: the image has no shell to look with.
async fn nested(node: &Node, pod: &Value) -> Vec<String> {
    let process = node.processes(pod["metadata"]["uid"].as_str().unwrap()).await;
    let folder = format!("/proc/{}/root{NESTED}", process.first().expect("the operator runs"));
    let list = node.run(&["ls", &folder]).await;
    list.lines().map(str::to_owned).collect()
}

/// HT-18, RE-4: the provider's target in the metrics, scraped over TLS by an account that may.
async fn the_target_is_up(node: &Node) {
    node.kubectl(&["-n", CLIENT.0, "create", "serviceaccount", "prometheus"]).await;
    let (role, account) = (format!("{NAME}:{NAMESPACE}:{NAME}:metrics-reader"), format!("{}:prometheus", CLIENT.0));
    node.kubectl(&["create", "clusterrolebinding", "bed-reads-metrics", "--clusterrole", &role, "--serviceaccount", &account]).await;
    let token = node.kubectl(&["-n", CLIENT.0, "create", "token", "prometheus"]).await;
    let url = format!("https://egress-proxies-operator-metrics.{NAMESPACE}:8443/metrics");
    let (auth, args) = (format!("authorization: Bearer {}", token.trim()), ["curl", "-sk", "--max-time", "10", "-w", "\n%{http_code}"]);
    let scrape = async |more: &[&str]| node.exec(CLIENT.0, CLIENT.1, &[&args[..], &[&url], more].concat()).await.unwrap_or_else(|e| e);
    let line = r#"proxy_operator_provider_target_up{provider="kubernetes",target="apiserver"} 1"#;
    node.until("the target is up in the metrics", Duration::from_secs(30), || async {
        scrape(&["-H", &auth]).await.lines().any(|there| there == line).then_some(())
    })
    .await;
    assert_eq!(scrape(&[]).await.lines().last(), Some("401"), "without a token");
}

/// IN-6, OP-26: edits of the ConfigMap and of a Secret mounted below it reach the process, which is not restarted for them.
async fn edits_reach_the_process(node: &Node, steps: &mut Steps) {
    let before = node.replicas().await.remove(0);
    let name = before["metadata"]["name"].as_str().unwrap();
    assert_eq!(nested(node, &before).await, Vec::<String>::new(), "without the Secret the folder is there, and empty");
    node.upgrade(&["providers.rehearsal.type=local"]).await;
    node.wait(NAMESPACE, "ph/rehearsal", "create", Duration::from_secs(90)).await;
    node.wait(NAMESPACE, "ph/rehearsal", "condition=Ready", Duration::from_secs(90)).await;
    steps.done("an entry added by helm upgrade is checked by the running process");

    node.kubectl(&["-n", NAMESPACE, "create", "secret", "generic", "kvm-ssh", "--from-literal=id_ed25519=not a key"]).await;
    node.until("the Secret made later shows in the nested folder", Duration::from_secs(90), || async {
        (nested(node, &before).await == ["id_ed25519"]).then_some(())
    })
    .await;
    steps.done("a Secret made later shows in its nested folder");

    // An invalid file is refused whole, and the last good one stays.
    let invalid =
        json!({"data": {"providers.yaml": "providers: [{name: kubernetes, type: kubernetes, kubernetes: {maxFileDescriptors: 7}}]"}});
    let good = node.get(NAMESPACE, "configmap", "providers-config").await.unwrap()["data"].clone();
    node.kubectl(&["-n", NAMESPACE, "patch", "configmap", "providers-config", "--type=merge", "-p", &invalid.to_string()]).await;
    node.until("the refusal shows", Duration::from_secs(90), || async {
        readiness(node, name).await.contains("maxFileDescriptors").then_some(())
    })
    .await;
    let told = node.get(NAMESPACE, "ph", "rehearsal").await;
    assert!(told.is_some(), "the entry of the last good file stays");
    let good = json!({"data": good});
    node.kubectl(&["-n", NAMESPACE, "patch", "configmap", "providers-config", "--type=merge", "-p", &good.to_string()]).await;
    node.until("the good file counts again", Duration::from_secs(90), || async {
        (!readiness(node, name).await.contains("maxFileDescriptors")).then_some(())
    })
    .await;
    steps.done("an invalid edit is refused whole and shown, a good one ends that");

    let after = node.replicas().await.remove(0);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[tokio::test]
async fn the_whole_way_from_helm_install_to_traffic_and_back_to_nothing() {
    let Some(node) = Node::shared("the_whole_way_from_helm_install_to_traffic_and_back_to_nothing").await else { return };
    let mut steps = Steps::new();
    node.clean().await;
    node.load_operator().await;
    steps.done("the operator's image is made and loaded");

    // The operator's own Pods keep to the restricted level too.
    node.restricted(NAMESPACE).await;
    node.restricted(CRAWL).await;
    node.restricted(CLIENT.0).await;
    let settings = [
        // A Squid takes some seconds to end, and a new entry is to be checked before a minute has gone.
        "settings.poll-deletion=2s",
        "settings.provider-check-interval=10s",
        // An uninstall takes the right to give the Lease back before the last replica has ended: it runs out.
        "settings.leader-election-lease-duration=5s",
        "settings.leader-election-renew-deadline=3s",
        "settings.leader-election-retry-period=1s",
    ];
    let set: Vec<&str> = TRUST.into_iter().chain(settings).collect();
    node.install(&set, None).await;
    steps.done("helm install --wait");
    node.client(CLIENT.0, CLIENT.1).await;

    node.wait(NAMESPACE, "ph/kubernetes", "create", Duration::from_secs(30)).await;
    node.wait(NAMESPACE, "ph/kubernetes", "condition=Ready", Duration::from_secs(60)).await;
    the_target_is_up(&node).await;
    steps.done("ph kubernetes is Ready, its target up in the metrics (HT-18, RE-4)");

    let nothing = node.objects(CRAWL).await;
    apply_sample(&node).await;
    node.ready(CRAWL, PROXY).await;
    steps.done("the sample is Ready by a real CONNECT");
    let (proxy, pod) = (node.get(CRAWL, "px", PROXY).await.unwrap(), squid(&node).await);
    assert_eq!(proxy["status"]["ip"], pod["status"]["podIP"]);
    assert_eq!(proxy["status"]["phase"], "Ready");
    assert!(pod["status"]["podIP"].as_str().unwrap().starts_with("10.244.0."), "an address of its own: {}", pod["status"]);
    let columns = node.kubectl(&["-n", CRAWL, "get", "px", PROXY, "--no-headers"]).await;
    let columns: Vec<&str> = columns.split_whitespace().collect();
    assert_eq!(columns[..6], [PROXY, "Managed", "kubernetes", "Ready", pod["status"]["podIP"].as_str().unwrap(), "True"]);
    let told = node.kubectl(&["-n", CRAWL, "describe", "px", PROXY]).await;
    assert!(told.contains("Created") && told.contains("Running"), "the Events show: {told}");

    let token = node.token().await;
    let (status, refusal) = node.call(CLIENT, "", "POST", "/v1/leases", "{}").await;
    assert_eq!((status, &refusal["code"]), (401, &"unauthorized".into()));
    let lease = lease_and_use(&node, &token).await;
    release(&node, &token, &lease).await;
    steps.done("leased from another Pod by the Service's name, fetched through");

    // The guard of K8-6 is Squid's own: what is asked to be checked inside the cluster is refused there, so that `Ready` above
    // cannot have come from anything but a CONNECT that Squid took.
    let inside = json!({"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": "inwards", "namespace": CRAWL},
        "spec": {"mode": "Managed", "provider": "kubernetes", "healthCheck": {"url": "https://10.97.98.99/", "failureThreshold": 1}}});
    node.apply(&inside.to_string()).await;
    node.wait(CRAWL, "px/inwards", "jsonpath={.status.phase}=Unhealthy", Duration::from_secs(60)).await;
    let refused = node.get(CRAWL, "px", "inwards").await.unwrap();
    let healthy = condition(&refused, "Healthy");
    assert!(healthy["message"].as_str().unwrap().contains("403"), "{healthy}");
    node.kubectl(&["-n", CRAWL, "delete", "px", "inwards", "--timeout=60s"]).await;
    steps.done("a check of the cluster's inside is refused by Squid, and that proxy deleted");

    assert_eq!(node.warnings().await, Vec::<String>::new());
    edits_reach_the_process(&node, &mut steps).await;

    let told = node.run(&["helm", "--namespace", NAMESPACE, "test", NAME, "--timeout", "60s"]).await;
    assert!(told.contains("Succeeded"), "{told}");
    steps.done("helm test");

    node.upgrade(&["logLevel=debug"]).await;
    assert_eq!(squid(&node).await["metadata"]["uid"], pod["metadata"]["uid"], "an upgrade replaces no proxy");
    node.until("the new replica leads and leases", Duration::from_secs(30), || async {
        let (status, lease) = node.call(CLIENT, &token, "POST", "/v1/leases", r#"{"ttl": "1s"}"#).await;
        (status == 201).then_some(lease)
    })
    .await;
    assert_eq!(node.token().await, token, "an upgrade keeps the token (IN-7)");
    let replicas = node.replicas().await;
    assert!(replicas[0]["spec"]["containers"][0]["args"].as_array().unwrap().contains(&"--log-level=debug".into()));
    steps.done("helm upgrade, and leases again");
    assert_eq!(node.warnings().await, Vec::<String>::new());
    assert_eq!(node.forbidden(), Vec::<String>::new(), "the chart's rules suffice (IN-5)");

    node.uninstall().await;
    node.kubectl(&["get", "crd", "proxies.crawl.example.com", "providerhealths.crawl.example.com"]).await;
    let kept = node.get(CRAWL, "px", PROXY).await.expect("an uninstall keeps the objects (IN-1)");
    assert!(kept["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(squid(&node).await["metadata"]["uid"], pod["metadata"]["uid"]);
    assert!(node.get(NAMESPACE, "deployment", NAME).await.is_none() && node.get(NAMESPACE, "secret", "discovery-token").await.is_none());
    steps.done("helm uninstall: the CRDs, the objects and their Pods stay");

    node.install(&set, None).await;
    let token = node.token().await;
    let lease = node
        .until("the proxy is adopted and leased", Duration::from_secs(60), || async {
            let (status, lease) = node.call(CLIENT, &token, "POST", "/v1/leases", r#"{"ttl": "1m"}"#).await;
            (status == 201).then_some(lease)
        })
        .await;
    release(&node, &token, &lease).await;
    assert_eq!(squid(&node).await["metadata"]["uid"], pod["metadata"]["uid"], "adopted, not made anew");
    steps.done("installed again: the proxy is adopted and leased");

    node.kubectl(&["-n", CRAWL, "delete", "px", PROXY, "--timeout=60s"]).await;
    assert_eq!(node.objects(CRAWL).await, nothing, "nothing is left of it");
    assert_eq!(node.processes(pod["metadata"]["uid"].as_str().unwrap()).await, Vec::<u32>::new());
    steps.done("kubectl delete px: nothing is left");
    assert_eq!(node.forbidden(), Vec::<String>::new());
    node.uninstall().await;
    let left = node.kubectl(&["get", "clusterroles,clusterrolebindings", "-o", "name"]).await;
    assert!(!left.contains(NAME), "{left}");
    steps.done("helm uninstall");
}
