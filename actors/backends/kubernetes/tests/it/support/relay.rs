//! A transport under the backend's client that hands requests on to a real one, and interferes with them.
//!
//! The suite's time is paused and jumps ahead whenever nothing is left to do but wait. A request on its way is something to
//! do: it is carried by a blocking task, and while one of those runs tokio's clock stands still. Only a request that was
//! told never to be answered lets time pass.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_conformance::{Fault, Intervention};
use egress_kube::ApiClient;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::BoxError;

use super::outside;

/// See the module. Clones are one.
#[derive(Clone)]
pub struct Relay {
    inner: Arc<Inner>,
}

type Aside = Box<dyn FnOnce() + Send>;

struct Inner {
    real: Client,
    server: String,
    plan: Mutex<Plan>,
    on_their_way: AtomicUsize,
}

#[derive(Default)]
struct Plan {
    calls: Vec<String>,
    /// By the number of the call, the first being 1.
    interventions: HashMap<usize, Intervention>,
    before: HashMap<usize, Aside>,
    all: Option<Fault>,
}

impl Relay {
    pub fn new(real: Client, server: impl Into<String>) -> Self {
        let plan = Mutex::default();
        Self { inner: Arc::new(Inner { real, server: server.into(), plan, on_their_way: AtomicUsize::new(0) }) }
    }

    /// A client over it, for the runtime it is called in.
    pub fn client(&self) -> ApiClient {
        let relay = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let relay = relay.clone();
            async move { relay.carry(request).await }
        });
        ApiClient::over(Client::new(service, "default"), self.inner.server.clone())
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.inner.plan.lock().unwrap()
    }

    /// The calls so far, by the names of the seam.
    pub fn calls(&self) -> Vec<String> {
        self.plan().calls.clone()
    }

    /// Something happens to the `n`-th call from now, the next being 1.
    pub fn intervene(&self, n: usize, what: Intervention) {
        let mut plan = self.plan();
        let at = plan.calls.len() + n;
        plan.interventions.insert(at, what);
    }

    /// Something is done right before the `n`-th call from now goes out.
    pub fn before(&self, n: usize, aside: impl FnOnce() + Send + 'static) {
        let mut plan = self.plan();
        let at = plan.calls.len() + n;
        plan.before.insert(at, Box::new(aside));
    }

    pub fn fail_all(&self, fault: Fault) {
        self.plan().all = Some(fault);
    }

    pub fn calm(&self) {
        let mut plan = self.plan();
        plan.all = None;
        plan.interventions.clear();
        plan.before.clear();
    }

    /// Until what was on its way has arrived, whoever waits for it. Blocks.
    pub fn wait(&self) {
        while self.inner.on_their_way.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    async fn carry(self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let call = name(request.method(), request.uri().path());
        let (what, aside) = {
            let mut plan = self.plan();
            plan.calls.push(call.to_owned());
            let n = plan.calls.len();
            let what = plan.interventions.remove(&n).or(plan.all.map(Intervention::Fail));
            (what, plan.before.remove(&n))
        };
        match what {
            Some(Intervention::Panic) => panic!("the client panics"),
            Some(Intervention::BlockBefore) => return std::future::pending().await,
            Some(Intervention::Fail(fault)) => return failure(fault, call),
            Some(Intervention::BlockAfter) | None => {}
        }
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let relay = self.clone();
        self.inner.on_their_way.fetch_add(1, Ordering::SeqCst);
        let carried = tokio::task::spawn_blocking(move || {
            if let Some(aside) = aside {
                aside();
            }
            let real = relay.inner.real.clone();
            let answered = outside(async move {
                let response = real.send(Request::from_parts(parts, Body::from(body))).await?;
                let (parts, body) = response.into_parts();
                Ok::<_, kube::Error>(Response::from_parts(parts, body.collect_bytes().await?))
            });
            relay.inner.on_their_way.fetch_sub(1, Ordering::SeqCst);
            answered
        });
        let response = carried.await??;
        if matches!(what, Some(Intervention::BlockAfter)) {
            return std::future::pending().await;
        }
        Ok(response.map(Body::from))
    }
}

/// The call of the seam that a request is.
fn name(method: &Method, path: &str) -> &'static str {
    let pod = path.rsplit_once('/').is_some_and(|(before, _)| before.ends_with("/pods"));
    match (method.as_str(), path) {
        (_, "/version") => "version",
        ("POST", _) => "create_pod",
        ("DELETE", _) => "delete_pod",
        ("GET", _) if pod => "get_pod",
        ("GET", _) => "list_pods",
        other => panic!("the backend makes no such call: {other:?}"),
    }
}

fn failure(fault: Fault, call: &str) -> Result<Response<Body>, BoxError> {
    let status = |code: u16, reason: &str, message: &str| {
        let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code});
        Ok(Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))?)
    };
    match fault {
        Fault::Unreachable => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()),
        Fault::LinkDown => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()),
        Fault::Unauthorised => status(401, "Unauthorized", "Unauthorized"),
        Fault::Erring => status(500, "InternalError", "Internal error occurred: etcdserver: leader changed"),
        Fault::Quota if call == "create_pod" => {
            status(403, "Forbidden", "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")
        }
        Fault::Quota => status(429, "TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    }
}
