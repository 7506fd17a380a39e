//! A double of the API server on loopback, for Pods: what the real one was seen to do, and whatever a test scripts instead.
//! It is reached through the whole client, by a kubeconfig.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use egress_protocol::resource::grammar;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::outer;

/// The token it takes.
pub const TOKEN: &str = "SENTINEL-token-5b1e";

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Which connection it came by, the first being 1.
    pub connection: usize,
    pub method: Method,
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Seen {
    /// `GET /api/v1/pods`.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What it answers.
#[derive(Debug, Clone)]
pub enum Reply {
    /// With a JSON body.
    Json(u16, Value),
    /// With any body and headers.
    Raw(u16, Vec<(&'static str, String)>, String),
    /// Never.
    Hang,
    /// The connection breaks.
    Break,
}

impl Reply {
    /// An API status.
    pub fn status(code: u16, reason: &str, message: &str, details: Value) -> Self {
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
            "details": details, "code": code});
        Self::Json(code, body)
    }
}

type Script = Box<dyn FnMut(&Seen, &mut Pods) -> Option<Reply> + Send>;

#[derive(Default)]
struct State {
    pods: Pods,
    seen: Vec<Seen>,
    script: Option<Script>,
    token: String,
}

/// See the module. Ends when it is dropped.
pub struct Double {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    accepting: tokio::task::JoinHandle<()>,
    dir: tempfile::TempDir,
}

impl Drop for Double {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Double {
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { token: TOKEN.to_owned(), ..State::default() }));
        let accepting = outer().spawn(accept(listener, Arc::clone(&state)));
        Self { address, state, accepting, dir: tempfile::tempdir().unwrap() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The file whose token is sent.
    pub fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    /// A kubeconfig with the right token, in a file of its own.
    pub fn kubeconfig(&self) -> PathBuf {
        std::fs::write(self.token_file(), TOKEN).unwrap();
        kubeconfig(self.dir.path(), &format!("http://{}", self.address), &self.token_file())
    }

    /// What the server accepts from now on.
    pub fn accept_token(&self, token: &str) {
        self.state().token = token.to_owned();
    }

    /// Asked first from now on; `None` leaves the answer to the double.
    pub fn script(&self, script: impl FnMut(&Seen, &mut Pods) -> Option<Reply> + Send + 'static) {
        self.state().script = Some(Box::new(script));
    }

    /// The same answer to everything.
    pub fn always(&self, reply: Reply) {
        self.script(move |_, _| Some(reply.clone()));
    }

    /// No script any more.
    pub fn calm(&self) {
        self.state().script = None;
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.state().seen.clone()
    }

    /// The same, in brief.
    pub fn lines(&self) -> Vec<String> {
        self.state().seen.iter().map(Seen::line).collect()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        self.state().seen.clear();
    }

    /// Does something to the Pods.
    pub fn pods<T>(&self, change: impl FnOnce(&mut Pods) -> T) -> T {
        change(&mut self.state().pods)
    }
}

/// A kubeconfig of one context.
pub fn kubeconfig(dir: &Path, server: &str, token_file: &Path) -> PathBuf {
    let path = dir.join("kubeconfig");
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": server, "insecure-skip-tls-verify": server.starts_with("https")}}],
        "users": [{"name": "it", "user": {"tokenFile": token_file}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    });
    std::fs::write(&path, content.to_string()).unwrap();
    path
}

async fn accept(listener: std::net::TcpListener, state: Arc<Mutex<State>>) {
    let listener = TcpListener::from_std(listener).unwrap();
    let mut connections = tokio::task::JoinSet::new();
    let mut number = 0;
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let state = Arc::clone(&state);
        number += 1;
        connections.spawn(async move {
            let service = service_fn(move |request| answer(number, request, Arc::clone(&state)));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(connection: usize, request: Request<Incoming>, state: Arc<Mutex<State>>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let query = parts.uri.query().unwrap_or_default();
    let seen = Seen {
        connection,
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: query.split('&').filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.to_owned(), decoded(value))).collect(),
        headers: parts.headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    let reply = {
        let mut state = state.lock().unwrap();
        state.seen.push(seen.clone());
        let State { pods, script, token, .. } = &mut *state;
        let known =
            seen.headers.get(http::header::AUTHORIZATION).is_some_and(|value| value.as_bytes() == format!("Bearer {token}").as_bytes());
        let scripted = script.as_mut().and_then(|script| script(&seen, pods));
        match scripted {
            Some(reply) => reply,
            None if !known => Reply::status(401, "Unauthorized", "Unauthorized", Value::Null),
            None => pods.answer(&seen),
        }
    };
    let (code, headers, body) = match reply {
        Reply::Json(code, body) => (code, vec![("content-type", "application/json".to_owned())], body.to_string()),
        Reply::Raw(code, headers, body) => (code, headers, body),
        Reply::Hang => std::future::pending::<Result<_, Infallible>>().await.unwrap(),
        Reply::Break => return Err(std::io::Error::other("scripted")),
    };
    let mut response = Response::builder().status(code);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::from(body)).unwrap())
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex: Vec<u8> = rest.by_ref().take(2).collect();
                bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// The Pods, by namespace and name.
#[derive(Debug, Default)]
pub struct Pods {
    all: BTreeMap<(String, String), Value>,
    made: u64,
}

impl Pods {
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.all.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub fn put(&mut self, pod: Value) {
        let of = |key: &str| pod["metadata"][key].as_str().unwrap().to_owned();
        self.all.insert((of("namespace"), of("name")), pod);
    }

    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<Value> {
        self.all.remove(&(namespace.to_owned(), name.to_owned()))
    }

    fn answer(&mut self, seen: &Seen) -> Reply {
        let path: Vec<&str> = seen.path.trim_matches('/').split('/').collect();
        match (seen.method.as_str(), path.as_slice()) {
            ("GET", ["version"]) => Reply::Json(200, json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})),
            ("GET", ["api", "v1", "pods"]) => self.list(None, seen),
            ("GET", ["api", "v1", "namespaces", namespace, "pods"]) => self.list(Some(namespace), seen),
            ("POST", ["api", "v1", "namespaces", namespace, "pods"]) => self.create(namespace, &seen.body),
            ("GET", ["api", "v1", "namespaces", namespace, "pods", name]) => match self.get(namespace, name) {
                Some(pod) => Reply::Json(200, pod.clone()),
                None => absent(name),
            },
            ("DELETE", ["api", "v1", "namespaces", namespace, "pods", name]) => self.delete(namespace, name, &seen.body),
            ("PATCH", ["api", "v1", "namespaces", namespace, "pods", name, part @ ..]) => self.patch(namespace, name, part, &seen.body),
            ("POST", ["api", "v1", "namespaces", namespace, "pods", name, "binding"]) => {
                let node = seen.body["target"]["name"].clone();
                match self.all.get_mut(&((*namespace).to_owned(), (*name).to_owned())) {
                    Some(pod) => pod["spec"]["nodeName"] = node,
                    None => return absent(name),
                }
                Reply::Json(201, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            _ => Reply::status(404, "NotFound", "the server could not find the requested resource", json!({})),
        }
    }

    fn create(&mut self, namespace: &str, body: &Value) -> Reply {
        let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for (_, value) in body["metadata"]["labels"].as_object().into_iter().flatten() {
            if !is_label_value(value) {
                return Reply::status(422, "Invalid", &format!("Pod \"{name}\" is invalid: metadata.labels"), json!({"kind": "Pod"}));
            }
        }
        if let Some(there) = self.get(namespace, &name) {
            let dying = if there["metadata"]["deletionTimestamp"].is_string() { "object is being deleted: " } else { "" };
            let message = format!("{dying}pods \"{name}\" already exists");
            return Reply::status(409, "AlreadyExists", &message, json!({"name": name, "kind": "pods"}));
        }
        self.made += 1;
        let mut pod = body.clone();
        pod["metadata"]["namespace"] = namespace.into();
        pod["metadata"]["uid"] = format!("00000000-0000-4000-8000-{:012}", self.made).into();
        pod["metadata"]["resourceVersion"] = self.made.to_string().into();
        pod["metadata"]["creationTimestamp"] = now(0).into();
        pod["status"] = json!({"phase": "Pending"});
        self.put(pod.clone());
        Reply::Json(201, pod)
    }

    fn delete(&mut self, namespace: &str, name: &str, options: &Value) -> Reply {
        let Some(pod) = self.all.get_mut(&(namespace.to_owned(), name.to_owned())) else { return absent(name) };
        let (wanted, uid) = (&options["preconditions"]["uid"], &pod["metadata"]["uid"]);
        if wanted.is_string() && wanted != uid {
            let message = format!(
                "Operation cannot be fulfilled on Pod \"{name}\": the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            );
            return Reply::status(409, "Conflict", &message, json!({"name": name, "kind": "Pod"}));
        }
        let grace = options["gracePeriodSeconds"].as_i64().unwrap_or(10);
        if !pod["metadata"]["deletionTimestamp"].is_string() {
            pod["metadata"]["deletionTimestamp"] = now(grace).into();
            pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        }
        let pod = pod.clone();
        // Nobody has to stop anything that was never scheduled.
        if grace == 0 || !pod["spec"]["nodeName"].is_string() {
            self.remove(namespace, name);
        }
        Reply::Json(200, pod)
    }

    fn patch(&mut self, namespace: &str, name: &str, part: &[&str], patch: &Value) -> Reply {
        for (_, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
            if !value.is_null() && !is_label_value(value) {
                return Reply::status(422, "Invalid", &format!("Pod \"{name}\" is invalid: metadata.labels"), json!({"kind": "Pod"}));
            }
        }
        let Some(pod) = self.all.get_mut(&(namespace.to_owned(), name.to_owned())) else { return absent(name) };
        self.made += 1;
        match part {
            ["status"] => merge(&mut pod["status"], &patch["status"]),
            _ => merge(&mut pod["metadata"], &patch["metadata"]),
        }
        pod["metadata"]["resourceVersion"] = (1_000_000 + self.made).to_string().into();
        Reply::Json(200, pod.clone())
    }

    fn list(&self, namespace: Option<&str>, seen: &Seen) -> Reply {
        let (key, value) = seen.query.get("labelSelector").and_then(|selector| selector.split_once('=')).unwrap_or_default();
        let limit: usize = seen.query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX);
        let after = seen.query.get("continue").map(String::as_str).unwrap_or_default();
        let fits = |(at, pod): &(&(String, String), &Value)| {
            let there = namespace.is_none_or(|namespace| namespace == at.0) && format!("{}/{}", at.0, at.1).as_str() > after;
            there && (key.is_empty() || pod["metadata"]["labels"][key] == value)
        };
        let found: Vec<_> = self.all.iter().filter(fits).take(limit.saturating_add(1)).collect();
        let more = found.len() > limit;
        let page = &found[..found.len().min(limit)];
        let token = page.last().filter(|_| more).map(|((namespace, name), _)| format!("{namespace}/{name}"));
        let items: Vec<_> = page.iter().map(|(_, pod)| (*pod).clone()).collect();
        let metadata = json!({"resourceVersion": self.made.to_string(), "continue": token});
        Reply::Json(200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}))
    }
}

fn is_label_value(value: &Value) -> bool {
    value.as_str().is_some_and(grammar::is_label_value)
}

fn absent(name: &str) -> Reply {
    Reply::status(404, "NotFound", &format!("pods \"{name}\" not found"), json!({"name": name, "kind": "pods"}))
}

fn now(and_seconds: i64) -> String {
    let at = Timestamp::now() + SignedDuration::from_secs(and_seconds);
    Timestamp::from_second(at.as_second()).unwrap().to_string()
}

/// RFC 7396.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, change) in changes {
        if change.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut target[key], change);
        }
    }
}

/// How long nothing should take.
pub const SOON: Duration = Duration::from_secs(10);
