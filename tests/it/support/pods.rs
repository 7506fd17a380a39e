//! As much of an API server as the `kubernetes` backend needs for one Pod at a time: for tests that are about something
//! else. What is promised about Pods is proven at a real one (`tests/it/cluster`).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use egress_protocol::Clock;
use http::{Method, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

#[derive(Debug, Default)]
struct State {
    /// By `namespace/name`.
    pods: BTreeMap<String, Value>,
    deletes: usize,
}

/// See the module. Ends when dropped.
#[derive(Debug)]
pub struct Pods {
    state: Arc<Mutex<State>>,
    server: String,
    _task: JoinSet<()>,
}

impl Pods {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<Mutex<State>> = Arc::default();
        let kept = Arc::clone(&state);
        let answer = move |method: Method, uri: Uri, body: Bytes| {
            let answer = answer(&mut kept.lock().unwrap(), &method, uri.path(), &body);
            std::future::ready(answer)
        };
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await.unwrap() });
        Self { state, server, _task: task }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Writes a kubeconfig, and answers where.
    pub fn kubeconfig(&self, path: &Path) -> String {
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": self.server}}],
            "users": [{"name": "it", "user": {"token": "it"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        std::fs::write(path, content.to_string()).unwrap();
        path.display().to_string()
    }

    pub fn names(&self) -> Vec<String> {
        self.state().pods.keys().cloned().collect()
    }

    /// How often a delete was asked for.
    pub fn deletes(&self) -> usize {
        self.state().deletes
    }

    /// As a kubelet would have it.
    pub fn run(&self, pod: &str, ip: Ipv4Addr) {
        let mut state = self.state();
        let pod = state.pods.get_mut(pod).unwrap();
        pod["spec"]["nodeName"] = "it-node".into();
        pod["status"] = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
    }
}

fn answer(state: &mut State, method: &Method, path: &str, body: &[u8]) -> Response {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let list = |state: &State| {
        let items: Vec<_> = state.pods.values().cloned().collect();
        json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
    };
    let (code, body) = match (method.as_str(), parts.as_slice()) {
        ("GET", ["version"]) => (200, json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})),
        ("GET", ["api", "v1", "pods"] | ["api", "v1", "namespaces", _, "pods"]) => (200, list(state)),
        ("POST", ["api", "v1", "namespaces", namespace, "pods"]) => {
            let mut pod: Value = serde_json::from_slice(body).unwrap();
            let name = format!("{namespace}/{}", pod["metadata"]["name"].as_str().unwrap());
            pod["metadata"]["namespace"] = (*namespace).into();
            pod["metadata"]["uid"] = "00000000-0000-4000-8000-000000000001".into();
            let now = Clock::system().now().to_string();
            pod["metadata"]["creationTimestamp"] = format!("{}Z", now.split('.').next().unwrap()).into();
            pod["status"] = json!({"phase": "Pending"});
            state.pods.insert(name, pod.clone());
            (201, pod)
        }
        (asked, ["api", "v1", "namespaces", namespace, "pods", name]) => {
            let pod = format!("{namespace}/{name}");
            state.deletes += usize::from(asked == "DELETE");
            let found = if asked == "DELETE" { state.pods.remove(&pod) } else { state.pods.get(&pod).cloned() };
            found.map_or_else(|| absent(name), |pod| (200, pod))
        }
        _ => absent(path),
    };
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}

fn absent(name: &str) -> (u16, Value) {
    let message = format!("pods \"{name}\" not found");
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": "NotFound",
        "details": {"name": name, "kind": "pods"}, "code": 404});
    (404, body)
}
