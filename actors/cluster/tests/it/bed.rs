//! The real control plane (`EPO_BED_CONTROLPLANE`, made by `tests/run`), as seen by its administrator.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use egress_cluster::Scope;
use egress_kube::{Access, ApiClient, ApiError, PatchKind, Request};
use egress_protocol::resource::crd;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Long enough for a busy machine.
pub const SOON: Duration = Duration::from_secs(20);
const CALL: Duration = Duration::from_secs(15);

/// Skips the calling test by name: loudly, and counted by `tests/run`.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
    if let Some(path) = std::env::var_os("EPO_TEST_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = writeln!(file, "{test}: {why}");
    }
}

/// Waits until `check` yields something; panics with `what` after `limit`.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, limit: Duration, mut check: impl FnMut() -> F) -> T {
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A namespace of one test on the real API server.
pub struct Bed {
    pub dir: PathBuf,
    pub admin: ApiClient,
    pub namespace: String,
}

impl Bed {
    /// `None` when there is none on this machine: the test is skipped.
    pub async fn get(test: &str) -> Option<Self> {
        static CRDS: OnceCell<()> = OnceCell::const_new();
        let Some(dir) = std::env::var_os("EPO_BED_CONTROLPLANE").map(PathBuf::from) else {
            skip(test, "no control plane: EPO_BED_CONTROLPLANE is not set");
            return None;
        };
        let admin = ApiClient::new(Access { kubeconfig: Some(dir.join("admin.kubeconfig")) });
        CRDS.get_or_init(|| apply_crds(&admin)).await;
        let namespace = format!("t-{:08x}", rand::random::<u32>());
        let bed = Self { dir, admin, namespace };
        bed.create("/api/v1/namespaces", &json!({"metadata": {"name": bed.namespace}})).await.unwrap();
        Some(bed)
    }

    pub fn scope(&self) -> Scope {
        Scope::Namespace(self.namespace.as_str().into())
    }

    pub async fn send(&self, request: &Request) -> Result<Value, ApiError> {
        let answer = self.admin.send(CALL, || Ok(()), request).await?;
        Ok(serde_json::from_str(&answer).unwrap())
    }

    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, ApiError> {
        self.send(&Request::create("test", path, object)).await
    }

    /// The path of a Proxy of this test's namespace; of all of them when the name is empty.
    pub fn proxy(&self, name: &str) -> String {
        let all = format!("/apis/crawl.example.com/v1alpha1/namespaces/{}/proxies", self.namespace);
        if name.is_empty() { all } else { format!("{all}/{name}") }
    }

    pub fn secret(&self, name: &str) -> String {
        let all = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        if name.is_empty() { all } else { format!("{all}/{name}") }
    }

    pub async fn get_proxy(&self, name: &str) -> Value {
        self.send(&Request::get("test", &self.proxy(name))).await.unwrap()
    }

    /// As the API server holds it; `None` when it is gone.
    pub async fn find_proxy(&self, name: &str) -> Option<Value> {
        match self.send(&Request::get("test", &self.proxy(name))).await {
            Err(error) if error.code() == Some(404) => None,
            found => Some(found.unwrap()),
        }
    }

    pub async fn create_proxy(&self, name: &str, spec: Value) -> Value {
        let object = json!({"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": name}, "spec": spec});
        self.create(&self.proxy(""), &object).await.unwrap()
    }

    pub async fn patch(&self, path: &str, body: Value) -> Value {
        self.send(&Request::patch("test", path, PatchKind::Merge, &body)).await.unwrap()
    }

    pub async fn delete(&self, path: &str) {
        self.send(&Request::delete("test", path, &json!({}))).await.unwrap();
    }

    pub async fn create_secret(&self, name: &str, label: Option<&str>, data: &[(&str, &str)]) {
        let labels: Value = label.map_or(json!({}), |label| json!({label: "true"}));
        let data: serde_json::Map<String, Value> = data.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let object = json!({"metadata": {"name": name, "labels": labels}, "stringData": data});
        self.create(&self.secret(""), &object).await.unwrap();
    }

    /// What the audit log says of requests to this namespace.
    pub fn audit(&self) -> Vec<Value> {
        self.audit_where(|entry| entry["objectRef"]["namespace"] == self.namespace.as_str())
    }

    pub fn audit_where(&self, of: impl Fn(&Value) -> bool) -> Vec<Value> {
        let text = std::fs::read_to_string(self.dir.join("audit.log")).unwrap();
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(of).collect()
    }
}

/// A proxy that somebody else runs.
pub fn external() -> Value {
    json!({"mode": "External", "endpoint": {"host": "192.0.2.1"}})
}

async fn apply_crds(admin: &ApiClient) {
    for (name, crd) in [("proxies", crd::proxy()), ("providerhealths", crd::provider_health())] {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        match admin.send(CALL, || Ok(()), &Request::create("test", path, &crd)).await {
            Err(error) if error.code() == Some(409) => {}
            made => drop(made.unwrap()),
        }
        let path = format!("/apis/crawl.example.com/v1alpha1/{name}");
        eventually("the kind is served", SOON, || async {
            admin.send(CALL, || Ok(()), &Request::list("test", &path, &[("limit", "1")])).await.ok()
        })
        .await;
    }
}
