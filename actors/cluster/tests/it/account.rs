//! A ServiceAccount of one test, with exactly the rights it is given and a token in a file, as a Pod has it.

use std::path::{Path, PathBuf};

use egress_kube::{Access, ApiClient, Request};
use serde_json::{Value, json};

use crate::bed::Bed;

pub struct Account {
    pub name: String,
    dir: tempfile::TempDir,
}

impl Account {
    /// With these rules in every namespace.
    pub async fn new(bed: &Bed, name: &str, rules: &Value) -> Self {
        let account = Self { name: name.to_owned(), dir: tempfile::tempdir().unwrap() };
        account.make(bed).await;
        account.allow(bed, rules).await;
        account.write_token(bed, name).await;
        let server = bed.admin.link().await.unwrap().server.clone();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bed",
            "clusters": [{"name": "bed", "cluster": {"server": server, "certificate-authority": bed.dir.join("ca.crt")}}],
            "users": [{"name": "account", "user": {"tokenFile": account.token_file()}}],
            "contexts": [{"name": "bed", "context": {"cluster": "bed", "user": "account"}}],
        });
        std::fs::write(account.kubeconfig(), config.to_string()).unwrap();
        account
    }

    async fn make(&self, bed: &Bed) {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts", bed.namespace);
        bed.create(&path, &json!({"metadata": {"name": self.name}})).await.unwrap();
    }

    /// Its rights from now on, instead of those before.
    pub async fn allow(&self, bed: &Bed, rules: &Value) {
        let (base, name) = ("/apis/rbac.authorization.k8s.io/v1", format!("{}-{}", bed.namespace, self.name));
        let role = json!({"metadata": {"name": name}, "rules": rules});
        match bed.create(&format!("{base}/clusterroles"), &role).await {
            Ok(_) => {
                let binding = json!({
                    "metadata": {"name": name},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                    "subjects": [{"kind": "ServiceAccount", "name": self.name, "namespace": bed.namespace}],
                });
                bed.create(&format!("{base}/clusterrolebindings"), &binding).await.unwrap();
            }
            Err(error) if error.code() == Some(409) => drop(bed.patch(&format!("{base}/clusterroles/{name}"), role).await),
            Err(error) => panic!("{error}"),
        }
    }

    /// A new token of that account into our file.
    pub async fn write_token(&self, bed: &Bed, account: &str) {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", bed.namespace);
        let made = bed.create(&path, &json!({"spec": {"expirationSeconds": 600}})).await.unwrap();
        std::fs::write(self.token_file(), made["status"]["token"].as_str().unwrap()).unwrap();
    }

    fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    pub fn kubeconfig(&self) -> &Path {
        // It lives as long as the folder.
        Box::leak(self.dir.path().join("kubeconfig").into_boxed_path())
    }

    pub fn client(&self) -> ApiClient {
        ApiClient::new(Access { kubeconfig: Some(self.kubeconfig().to_owned()) })
    }

    /// What the API server was asked by it.
    pub fn asked(&self, bed: &Bed) -> Vec<Value> {
        let user = format!("system:serviceaccount:{}:{}", bed.namespace, self.name);
        bed.audit_where(|entry| entry["user"]["username"] == user.as_str())
    }

    /// What it asked for and was not allowed.
    pub fn forbidden(&self, bed: &Bed) -> Vec<String> {
        let refused = self.asked(bed).into_iter().filter(|entry| entry["responseStatus"]["code"] == 403);
        refused.map(|entry| format!("{} {}", entry["verb"], entry["requestURI"])).collect()
    }

    pub async fn delete(&self, bed: &Bed) {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}", bed.namespace, self.name);
        bed.send(&Request::delete("test", &path, &json!({}))).await.unwrap();
    }
}

/// What the manager may do of what this crate needs, as the chart gives it (IN-5, PH-45), in every namespace.
pub fn manager() -> Value {
    json!([
        {"apiGroups": ["crawl.example.com"], "resources": ["proxies"], "verbs": ["get", "list", "watch", "update", "patch"]},
        {"apiGroups": ["crawl.example.com"], "resources": ["proxies/status"], "verbs": ["get", "patch"]},
        {"apiGroups": ["crawl.example.com"], "resources": ["providerhealths"], "verbs": ["get", "list", "create", "delete"]},
        {"apiGroups": ["crawl.example.com"], "resources": ["providerhealths/status"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]},
    ])
}
