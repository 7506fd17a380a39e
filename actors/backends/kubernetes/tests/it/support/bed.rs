//! The real control plane (K8-21 A): `tests/run` says where one is.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::admin::{Admin, Hands};
use super::skip;

/// One that is up, and its admin.
pub struct Bed {
    pub dir: PathBuf,
    pub admin: Admin,
}

/// The node that Pods are bound to: without a Node object the Pod collector removes them.
pub const NODE: &str = "it-node";

impl Bed {
    /// `None`: the calling test is skipped.
    pub fn find(test: &str) -> Option<Self> {
        let Some(dir) = std::env::var_os("EPO_BED_CONTROLPLANE").map(PathBuf::from) else {
            skip(test, "no control plane: EPO_BED_CONTROLPLANE names none (tests/bed)");
            return None;
        };
        let admin = Admin::new(&dir.join("admin.kubeconfig"));
        admin.ensure("/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}));
        Some(Self { dir, admin })
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// A kubeconfig for somebody else: with that token, or with none.
    pub fn kubeconfig_of(&self, token: Option<&str>) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let admin = kube::config::Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let mut config = serde_json::to_value(admin).unwrap();
        config["users"][0]["user"] = token.map_or_else(|| json!({}), |token| json!({"token": token}));
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        (dir, path)
    }

    /// The token of a ServiceAccount, made if it is not there.
    pub fn token(&self, namespace: &str, account: &str) -> String {
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.admin.ensure(&accounts, &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}));
        let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let (code, answer) = self.admin.post(&format!("{accounts}/{account}/token"), &ask);
        assert_eq!(code, 201, "{answer}");
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// A namespace that is fit for Pods, with nothing in it.
    pub fn namespace(&self, name: &str, labels: &Value) -> Hands {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.admin.ensure("/api/v1/namespaces", &object);
        let hands = Hands { admin: self.admin.clone(), namespace: name.into(), node: NODE };
        // Without it no Pod is made there.
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        until("the namespace has its ServiceAccount", || self.admin.get(&account));
        hands.clear();
        hands
    }

    /// One of a name that nobody used before.
    pub fn fresh_namespace(&self, labels: &Value) -> Hands {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.namespace(&format!("it-{}-{n}", std::process::id()), labels)
    }
}

impl Hands {
    /// Ends every Pod.
    pub fn clear(&self) {
        for pod in self.pods() {
            self.end(pod["metadata"]["name"].as_str().unwrap());
        }
        until("the namespace is empty", || self.pods().is_empty().then_some(()));
    }

    /// Removes it all, without waiting for it.
    pub fn drop_namespace(&self) {
        self.clear();
        self.admin.delete(&format!("/api/v1/namespaces/{}", self.namespace), None);
    }
}

/// Asks every 20 ms until there is something; panics with `what` after 30 s.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(Duration::from_secs(30), what, look)
}

/// The same for what takes its time.
pub fn until_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
