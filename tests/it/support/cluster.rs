//! A real control plane (`tests/bed/controlplane`), and the operator against it, under exactly the chart's rules.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Client;
use super::operator::{BINARY, Operator, lines};
use super::relay::Relay;
use super::{free_port, skip};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");
/// The chart's name of everything namespaced (IN-8).
pub const NAME: &str = "egress-proxies-operator";

/// A running control plane: the one of the whole run, or one of a test's own.
#[derive(Debug)]
pub struct ControlPlane {
    pub dir: PathBuf,
    own: Option<TempDir>,
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if self.own.is_some() {
            self.script("controlplane", &["down"]);
        }
    }
}

impl ControlPlane {
    /// The one that `tests/run` has brought up; without it the test is skipped by name.
    pub fn shared(test: &str) -> Option<Self> {
        match std::env::var_os("EPO_BED_CONTROLPLANE") {
            Some(dir) => {
                let plane = Self { dir: dir.into(), own: None };
                plane.install_crds();
                Some(plane)
            }
            None => {
                skip(test, "no control plane: tests/run brings one up");
                None
            }
        }
    }

    /// One of its own, for a test that stops it or looks at every namespace.
    pub fn own(test: &str) -> Option<Self> {
        if std::env::var_os("EPO_BED_CONTROLPLANE").is_none() {
            skip(test, "no control plane: tests/run builds it");
            return None;
        }
        let own = tempfile::tempdir().unwrap();
        let plane = Self { dir: own.path().join("plane"), own: Some(own) };
        let up = plane.script("controlplane", &["up"]);
        assert!(up.status.success(), "{}", text(&up));
        plane.install_crds();
        Some(plane)
    }

    fn script(&self, name: &str, before: &[&str]) -> Output {
        let script = Path::new(REPOSITORY).join("tests/bed").join(name);
        Command::new(script).args(before).arg(&self.dir).stdin(Stdio::null()).output().unwrap()
    }

    /// `stop`, `kill` or `start` one of `etcd`, `apiserver`, `controller-manager`.
    pub fn part(&self, verb: &str, name: &str) {
        let script = Path::new(REPOSITORY).join("tests/bed/controlplane");
        let done = Command::new(script).arg(verb).arg(&self.dir).arg(name).stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{verb} {name}: {}", text(&done));
    }

    fn install_crds(&self) {
        let folder = Path::new(REPOSITORY).join("config/crd");
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", folder.to_str().unwrap()]);
        let wait = [
            "wait",
            "--for=condition=Established",
            "--timeout=1s",
            "crd/proxies.crawl.example.com",
            "crd/providerhealths.crawl.example.com",
        ];
        // kubectl fails on a CRD whose conditions are still null.
        let seen = (0..20).any(|_| {
            let done = self.try_kubectl(&wait, "").status.success();
            if !done {
                std::thread::sleep(Duration::from_millis(200));
            }
            done
        });
        if !seen {
            self.kubectl(&wait);
        }
    }

    /// As a cluster's admin; what fails is shown.
    pub fn kubectl(&self, args: &[&str]) -> String {
        let done = self.try_kubectl(args, "");
        assert!(done.status.success(), "kubectl {args:?}: {}", text(&done));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    pub fn try_kubectl(&self, args: &[&str], stdin: &str) -> Output {
        let mut command = Command::new(std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()));
        command.arg("--kubeconfig").arg(self.dir.join("admin.kubeconfig")).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let text = stdin.to_owned();
        let writer = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let done = child.wait_with_output().unwrap();
        writer.join().unwrap();
        done
    }

    pub fn apply(&self, manifest: &str) {
        let done = self.try_kubectl(&["apply", "--server-side", "-f", "-"], manifest);
        assert!(done.status.success(), "{}\n{manifest}", text(&done));
    }

    /// The API server's address.
    pub fn api(&self) -> SocketAddr {
        let server = self.kubectl(&["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"]);
        server.trim().trim_start_matches("https://").parse().unwrap()
    }

    /// The audit log: one object per finished request.
    pub fn audit(&self) -> Vec<Value> {
        let log = std::fs::read_to_string(self.dir.join("audit.log")).unwrap();
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// A namespace with a name nobody else has, gone with the value.
    pub fn namespace(&self, prefix: &str) -> Namespace<'_> {
        let name = format!("{prefix}-{:08x}", rand::random::<u32>());
        self.kubectl(&["create", "namespace", &name]);
        Namespace { plane: self, name }
    }

    /// The service account and the rules of the chart in that namespace, for Proxies of `proxies` or of all.
    pub fn install_rules(&self, namespace: &str, proxies: Option<&str>, values: &[&str]) {
        let mut helm = Command::new(std::env::var_os("HELM").unwrap_or_else(|| "helm".into()));
        helm.args(["template", namespace]).arg(Path::new(REPOSITORY).join("charts").join(NAME)).args(["--namespace", namespace]);
        for template in ["rbac.yaml", "serviceaccount.yaml"] {
            helm.arg("--show-only").arg(format!("templates/{template}"));
        }
        let scope = proxies.map(|proxies| format!("proxyNamespace={proxies}"));
        for value in values.iter().copied().chain(scope.as_deref()) {
            helm.args(["--set", value]);
        }
        let rendered = helm.output().unwrap();
        assert!(rendered.status.success(), "{}", text(&rendered));
        let done = self.try_kubectl(&["apply", "--server-side", "-f", "-"], &String::from_utf8_lossy(&rendered.stdout));
        assert!(done.status.success(), "{}", text(&done));
    }

    /// A kubeconfig with a token of the service account; the token is in the file beside it.
    pub fn kubeconfig(&self, account: &str, namespace: &str) -> PathBuf {
        let script = Path::new(REPOSITORY).join("tests/bed/kubeconfig");
        let done = Command::new(script).arg(&self.dir).args([account, namespace]).stdin(Stdio::null()).output().unwrap();
        assert!(done.status.success(), "{}", text(&done));
        String::from_utf8_lossy(&done.stdout).trim().into()
    }
}

/// The API for somebody who may do everything: cheaper than a kubectl each time.
pub struct Admin {
    relay: Relay,
    api: Client,
}

/// Where Proxies and Pods are.
pub const PROXIES: &str = "/apis/crawl.example.com/v1alpha1";
pub const CORE: &str = "/api/v1";

impl Admin {
    pub async fn of(plane: &ControlPlane) -> Self {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "epo-tests", "namespace": "kube-system"}});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "epo-tests"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "epo-tests", "namespace": "kube-system"}]});
        plane.apply(&account.to_string());
        plane.apply(&binding.to_string());
        let token = plane.kubectl(&["create", "token", "epo-tests", "-n", "kube-system"]);
        let relay = Relay::to(plane.api(), &plane.dir.join("ca.crt")).await;
        let api = Client::new(relay.address.to_string()).with_token(token.trim());
        Self { relay, api }
    }

    /// What is there; `Null` when it is not, something else than an object when nobody answers.
    pub async fn get(&self, path: &str) -> Value {
        self.relay.forget();
        match self.api.try_send(http::Method::GET, path, None).await {
            Ok(answer) if answer.status == 404 => Value::Null,
            Ok(answer) if answer.status == 200 => answer.json(),
            other => json!(format!("{other:?}")),
        }
    }

    pub async fn post(&self, path: &str, body: &Value) -> super::http::Answer {
        self.api.post(path, body).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> super::http::Answer {
        self.api.try_send(http::Method::PUT, path, Some(body)).await.unwrap()
    }

    /// A merge patch.
    pub async fn patch(&self, path: &str, body: &Value) -> Value {
        let answer = self.try_patch(path, body).await;
        assert!(answer.status.is_success(), "PATCH {path}: {}", answer.text());
        answer.json()
    }

    /// The same for what may have gone meanwhile.
    pub async fn try_patch(&self, path: &str, body: &Value) -> super::http::Answer {
        let request = http::Request::patch(path)
            .header("host", &self.api.address)
            .header("authorization", format!("Bearer {}", self.api.token.as_deref().unwrap_or_default()))
            .header("content-type", "application/merge-patch+json")
            .body(http_body_util::Full::new(bytes::Bytes::from(body.to_string())));
        self.api.exchange(request.unwrap()).await.unwrap()
    }

    pub async fn delete(&self, path: &str) {
        let answer = self.api.delete(path).await;
        assert!(answer.status.is_success() || answer.status == 404, "DELETE {path}: {}", answer.text());
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Gone when dropped, with all that is in it and no finalizer held.
#[derive(Debug)]
pub struct Namespace<'a> {
    plane: &'a ControlPlane,
    pub name: String,
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        if self.plane.own.is_some() {
            return;
        }
        let free = format!("kubectl() {{ \"${{KUBECTL:-kubectl}}\" --kubeconfig {}/admin.kubeconfig -n {} \"$@\"; }}
            kubectl get px -o name 2>/dev/null | while read -r px; do kubectl patch \"$px\" --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'; done
            kubectl delete namespace {} --wait=false", self.plane.dir.display(), self.name, self.name);
        let _ = Command::new("bash").args(["-c", &free]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Where an operator runs against a control plane: ports, files and flags. Survives restarts of the process.
pub struct ClusterSite {
    pub dir: TempDir,
    pub discovery: u16,
    pub debug: u16,
    pub metrics: u16,
    pub health: u16,
    pub kubeconfig: PathBuf,
    pub flags: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl ClusterSite {
    /// With one `local` entry that listens on that address, and what tests need of times and allowances.
    pub fn new(kubeconfig: PathBuf, address: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let site = Self {
            dir,
            discovery: free_port(),
            debug: free_port(),
            metrics: free_port(),
            health: free_port(),
            kubeconfig,
            flags: ["--log-format", "json", "--poll-provisioning", "1s", "--poll-deletion", "500ms", "--drain-timeout", "5m"]
                .map(str::to_owned)
                .to_vec(),
            env: Vec::new(),
        };
        site.providers(&json!({"providers": [
            {"name": "lab", "type": "local", "local": {"listenAddresses": [address], "allowedTargets": ["127.0.0.0/8"]}},
        ]}));
        site.flag("--check-url-allow", "127.0.0.0/8").flag("--endpoint-allow", "127.0.0.0/8")
    }

    pub fn flag(mut self, name: &str, value: impl Into<String>) -> Self {
        self.flags.extend([name.to_owned(), value.into()]);
        self
    }

    /// Writes the providers file (JSON is YAML).
    pub fn providers(&self, content: &Value) {
        let path = self.dir.path().join("providers.yaml");
        std::fs::write(path.with_extension("new"), content.to_string()).unwrap();
        std::fs::rename(path.with_extension("new"), path).unwrap();
    }

    pub fn start(&self) -> Operator {
        let mut command = Command::new(BINARY);
        command
            .arg("run")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--providers-config")
            .arg(self.dir.path().join("providers.yaml"))
            .args(["--discovery-bind-address", &format!("127.0.0.1:{}", self.discovery)])
            .args(["--debug-bind-address", &format!("127.0.0.1:{}", self.debug)])
            .args(["--metrics-bind-address", &format!("127.0.0.1:{}", self.metrics)])
            .args(["--health-probe-bind-address", &format!("127.0.0.1:{}", self.health)])
            .args(&self.flags)
            .env_remove("DISCOVERY_TOKEN")
            .envs(self.env.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the operator starts");
        let (stdout, stderr) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        Operator {
            child,
            stdout,
            stderr,
            api: Client::new(format!("127.0.0.1:{}", self.discovery)),
            debug: Client::new(format!("127.0.0.1:{}", self.debug)),
            metrics: Client::new(format!("127.0.0.1:{}", self.metrics)),
            health: Client::new(format!("127.0.0.1:{}", self.health)),
        }
    }
}

/// An operator's whole surroundings: two namespaces, the chart's rules limited to the one, and a relay in between.
pub struct Setting<'a> {
    pub plane: &'a ControlPlane,
    pub admin: Admin,
    /// Of the Proxies.
    pub proxies: Namespace<'a>,
    /// Of the operator.
    pub home: Namespace<'a>,
    pub relay: Relay,
}

impl<'a> Setting<'a> {
    pub async fn of(plane: &'a ControlPlane) -> Self {
        let (proxies, home) = (plane.namespace("px"), plane.namespace("op"));
        plane.install_rules(&home.name, Some(&proxies.name), &["metrics.enabled=false"]);
        let relay = Relay::to(plane.api(), &plane.dir.join("ca.crt")).await;
        Self { plane, admin: Admin::of(plane).await, proxies, home, relay }
    }

    /// An operator's site behind the relay; several may share the setting.
    pub fn site(&self, address: &str) -> ClusterSite {
        let token = self.plane.kubeconfig(NAME, &self.home.name).with_extension("token");
        let kubeconfig = self.plane.dir.join(format!("{}-relay.kubeconfig", self.home.name));
        self.relay.kubeconfig(&kubeconfig, &token);
        ClusterSite::new(kubeconfig, address)
            .flag("--proxy-namespace", &self.proxies.name)
            .flag("--pod-namespace", &self.home.name)
            .flag("--leader-election-namespace", &self.home.name)
    }

    /// A Managed proxy of an entry, probed every second by a fetch from the origin.
    pub fn managed(&self, name: &str, provider: &str, port: u16, origin: u16) -> Value {
        json!({
            "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy",
            "metadata": {"name": name, "namespace": self.proxies.name},
            "spec": {"mode": "Managed", "provider": provider, "port": port, "healthCheck": {
                "url": format!("http://127.0.0.1:{origin}/"), "expectedStatus": 200, "intervalSeconds": 1, "timeoutSeconds": 1}},
        })
    }

    pub fn path(&self, name: &str) -> String {
        format!("{PROXIES}/namespaces/{}/proxies/{name}", self.proxies.name)
    }

    pub async fn create(&self, proxy: &Value) {
        let answer = self.admin.post(self.path("").trim_end_matches('/'), proxy).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// A Proxy, or `Null`.
    pub async fn proxy(&self, name: &str) -> Value {
        self.admin.get(&self.path(name)).await
    }

    /// Waits for an object like that; shows the last one when it does not come.
    pub async fn until(&self, name: &str, what: &str, like: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Value::Null;
        let found = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                seen = self.proxy(name).await;
                if like(&seen) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let found = found.await;
        assert!(found.is_ok(), "{name}: not within 60 s: {what}: {}", seen);
        seen
    }

    pub async fn phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, phase, |object| object["status"]["phase"] == phase).await
    }

    pub async fn gone(&self, name: &str) {
        self.until(name, "gone", Value::is_null).await;
    }

    /// Asks for the deletion, and does not wait.
    pub async fn delete(&self, name: &str) {
        self.admin.delete(&self.path(name)).await;
    }

    /// The Pods of the Proxies.
    pub async fn pods(&self) -> Vec<Value> {
        let list = self.admin.get(&format!("{CORE}/namespaces/{}/pods", self.proxies.name)).await;
        list["items"].as_array().cloned().unwrap_or_default()
    }
}
