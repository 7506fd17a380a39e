//! The chart as a release on the node, under the names that the guide gives (IN-8), and what the test takes from it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use super::{Node, said};

pub const NAMESPACE: &str = "egress-proxies-operator-system";
pub const NAME: &str = "egress-proxies-operator";
/// From a Pod of another namespace.
pub const DISCOVERY: &str = "http://egress-proxies-operator-discovery.egress-proxies-operator-system:8090";
const CHART: &str = "charts/egress-proxies-operator";
/// What a test makes carries it, so that the next one finds a clean node.
pub const MADE: &str = "bed.test/made=here";
/// What may be leased is checked at the bed's origin, by an address that K8-6 does not deny.
pub const CHECK_URL: &str = "https://check.bed.test/generate_204";

/// Probes trust the authority of the bed by `--check-ca-file`: every namespace has its certificate in a ConfigMap.
pub const TRUST: [&str; 5] = [
    "settings.check-ca-file=/etc/bed-ca/ca.crt",
    "extraVolumes[0].name=bed-ca",
    "extraVolumes[0].configMap.name=kube-root-ca.crt",
    "extraVolumeMounts[0].name=bed-ca",
    "extraVolumeMounts[0].mountPath=/etc/bed-ca",
];

impl Node {
    pub async fn helm(&self, verb: &str, args: &[&str], values: &[&str]) -> String {
        let set: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
        self.run(&[&["helm", "--namespace", NAMESPACE, verb, NAME], args, &set].concat()).await
    }

    /// `helm install --wait` with these values by `--set` and these in a file.
    pub async fn install(&self, set: &[&str], file: Option<&Value>) {
        let audit = self.state().join("audit.log");
        self.installed_at.store(std::fs::metadata(audit).unwrap().len().try_into().unwrap(), Ordering::SeqCst);
        let set: Vec<&str> = set.iter().flat_map(|value| ["--set", value]).collect();
        let wait = ["--create-namespace", "--wait", "--timeout", "120s", "-f", "-"];
        let args = [&["helm", "--namespace", NAMESPACE, "install", NAME, CHART], &wait[..], &set].concat();
        let output = self.fed(&args, &file.map(Value::to_string).unwrap_or_else(|| "{}".to_owned())).await;
        if !output.status.success() {
            let told = self.try_kubectl(&["-n", NAMESPACE, "describe", "pods"]).await.unwrap_or_else(|e| e);
            let log = self.try_kubectl(&["-n", NAMESPACE, "logs", "deployment/egress-proxies-operator"]).await.unwrap_or_else(|e| e);
            eprintln!("{told}\n{log}");
        }
        said("helm install", &output);
    }

    /// `helm upgrade --wait`, with the values of before and these.
    pub async fn upgrade(&self, set: &[&str]) {
        self.helm("upgrade", &[CHART, "--wait", "--timeout", "120s", "--reuse-values"], set).await;
    }

    /// `helm uninstall --wait`, which comes back before the last Pod has ended.
    pub async fn uninstall(&self) {
        self.helm("uninstall", &["--wait", "--timeout", "120s"], &[]).await;
        let gone = ["-n", NAMESPACE, "wait", "--for=delete", "--timeout=60s", "pods", "-l", "app.kubernetes.io/component=operator"];
        self.kubectl(&gone).await;
    }

    /// The Pods that serve, oldest first, without those that are on their way out.
    pub async fn replicas(&self) -> Vec<Value> {
        let mut pods = self.list(NAMESPACE, "pods", "app.kubernetes.io/component=operator").await;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods.sort_by_key(|pod| pod["metadata"]["creationTimestamp"].to_string());
        pods
    }

    /// The token that the chart made.
    pub async fn token(&self) -> String {
        self.kubectl(&["-n", NAMESPACE, "get", "secret", "discovery-token", "-o", "go-template={{.data.token|base64decode}}"]).await
    }

    /// A call of the discovery API from a client's Pod by the Service's name: the status, the body.
    pub async fn call(&self, client: (&str, &str), token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let auth = format!("authorization: Bearer {token}");
        let url = format!("{DISCOVERY}{path}");
        let mut args =
            vec!["curl", "-s", "--max-time", "20", "-w", "\n%{http_code}", "-X", method, "-H", "content-type: application/json", &url];
        if !token.is_empty() {
            args.extend(["-H", &auth]);
        }
        if !body.is_empty() {
            args.extend(["-d", body]);
        }
        let answer = self.exec(client.0, client.1, &args).await.unwrap_or_else(|e| e);
        let (body, status) = answer.trim_end().rsplit_once('\n').unwrap_or(("", "0"));
        (status.parse().unwrap_or(0), serde_json::from_str(body).unwrap_or_default())
    }

    /// Requests that RBAC refused to the operator's account since it was installed, by the API server's audit log (IN-5). An
    /// uninstall takes the rights away before the last replica has ended.
    pub fn forbidden(&self) -> Vec<String> {
        let log = std::fs::read(self.state().join("audit.log")).unwrap();
        let log = String::from_utf8_lossy(&log[self.installed_at.load(Ordering::SeqCst)..]);
        let account = format!("system:serviceaccount:{NAMESPACE}:{NAME}");
        let requests = log.lines().filter(|line| line.contains(&account)).map(|line| serde_json::from_str::<Value>(line).unwrap());
        let refused = requests.filter(|request| request["user"]["username"] == *account && request["responseStatus"]["code"] == 403);
        refused
            .map(|request| format!("{} {}: {}", request["verb"], request["requestURI"], request["responseStatus"]["message"]))
            .filter(|told| told.contains(" cannot "))
            .collect()
    }

    /// What a person should act on, by the logs of the operator's replicas: warnings and errors, and what is no JSON.
    pub async fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for pod in self.replicas().await {
            let log = self.kubectl(&["-n", NAMESPACE, "logs", pod["metadata"]["name"].as_str().unwrap()]).await;
            let usual = |line: &Value| !matches!(line["level"].as_str(), Some("WARN" | "ERROR") | None);
            let unusual = |line: &&str| !serde_json::from_str(line).is_ok_and(|line| usual(&line));
            // CRDs that were just made: the API server says 429 for them for a moment, and nobody needs to act.
            let of_the_moment = |line: &&str| line.contains("storage is (re)initializing");
            warnings.extend(log.lines().filter(unusual).filter(|line| !of_the_moment(line)).map(str::to_owned));
        }
        warnings
    }

    /// Every object of a namespace by kind and name, but for Events.
    pub async fn objects(&self, namespace: &str) -> Vec<String> {
        let kinds = self.kubectl(&["api-resources", "--namespaced", "--verbs=list", "-o", "name"]).await;
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events") && !kind.contains("metrics.k8s.io")).collect();
        let found = self.kubectl(&["-n", namespace, "get", &kinds.join(","), "-o", "name"]).await;
        let mut found: Vec<String> = found.lines().map(str::to_owned).collect();
        found.sort();
        found
    }

    /// Takes away whatever another test left: release, Proxies with their finalizers, CRDs, namespaces.
    pub async fn clean(&self) {
        self.run(&["helm", "--namespace", NAMESPACE, "uninstall", NAME, "--ignore-not-found", "--wait"]).await;
        let proxies = self
            .try_kubectl(&["get", "px", "-A", "-o", "jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{\"\\n\"}{end}"])
            .await;
        for (namespace, name) in proxies.unwrap_or_default().lines().filter_map(|line| line.split_once(' ')) {
            let free = self
                .try_kubectl(&["-n", namespace, "patch", "px", name, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#])
                .await;
            free.unwrap_or_else(|e| panic!("{namespace}/{name}: {e}"));
        }
        self.kubectl(&["delete", "crd", "proxies.crawl.example.com", "providerhealths.crawl.example.com", "--ignore-not-found"]).await;
        self.kubectl(&["delete", "clusterrolebinding", "bed-reads-metrics", "prometheus-reads-egress", "--ignore-not-found"]).await;
        self.kubectl(&["delete", "namespace", "-l", MADE, "--ignore-not-found"]).await;
        self.kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"]).await;
    }

    /// A namespace of the test's that admits only restricted Pods.
    pub async fn restricted(&self, name: &str) {
        self.namespace(name, &["pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/enforce-version=latest", MADE])
            .await;
        // Its ServiceAccount, and the ConfigMap that clients mount, come a moment later. One at a time: of two that are absent
        // `kubectl wait` complains at once.
        for object in ["serviceaccount/default", "configmap/kube-root-ca.crt"] {
            self.wait(name, object, "create", Duration::from_secs(90)).await;
        }
    }

    pub async fn ready(&self, namespace: &str, proxy: &str) {
        self.wait(namespace, &format!("px/{proxy}"), "condition=Ready", Duration::from_secs(60)).await;
    }
}
