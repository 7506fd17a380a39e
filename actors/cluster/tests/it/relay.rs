//! Stands between a client and the real API server, in plain HTTP, and does to what passes what a network or a server in
//! trouble would do.

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use egress_kube::kube::client::Body as KubeBody;
use egress_kube::{Access, ApiClient};
use futures::future::poll_fn;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// One request that passed.
#[derive(Debug, Clone)]
pub struct Passed {
    pub method: String,
    pub uri: String,
    pub body: Value,
    pub token: Option<String>,
}

impl Passed {
    pub fn is(&self, method: &str, part: &str) -> bool {
        self.method == method && self.uri.contains(part)
    }
}

/// What is answered in the API server's place: the status and body, so many times.
struct Script {
    method: &'static str,
    part: String,
    status: u16,
    body: Value,
    left: usize,
}

/// The status of an answer that does not come.
const HANG: u16 = 0;

type Rewrite = Arc<dyn Fn(&str, Value) -> Value + Send + Sync>;

#[derive(Default)]
struct State {
    passed: Vec<Passed>,
    scripts: Vec<Script>,
    rewrite: Option<Rewrite>,
    /// Only requests with this token pass; others are answered 401.
    token: Option<String>,
    /// Nothing moves, nothing ends.
    frozen: bool,
    streams: Vec<(String, mpsc::UnboundedSender<Injected>)>,
}

enum Injected {
    Line(Value),
    Cut,
}

/// See the module's documentation.
pub struct Relay {
    pub kubeconfig: PathBuf,
    port: u16,
    shared: Arc<Shared>,
    serving: Option<tokio::task::JoinHandle<()>>,
    dir: tempfile::TempDir,
}

struct Shared {
    admin: ApiClient,
    state: Mutex<State>,
    thawed: Notify,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Relay {
    pub async fn start(admin: &ApiClient) -> Self {
        let shared = Arc::new(Shared { admin: admin.clone(), state: Mutex::default(), thawed: Notify::new() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(dir.path().join("token"), "first").unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "relay",
            "clusters": [{"name": "relay", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "users": [{"name": "relay", "user": {"tokenFile": dir.path().join("token")}}],
            "contexts": [{"name": "relay", "context": {"cluster": "relay", "user": "relay"}}],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let serving = Some(tokio::spawn(serve(listener, Arc::clone(&shared))));
        Self { kubeconfig, port, shared, serving, dir }
    }

    pub fn client(&self) -> ApiClient {
        ApiClient::new(Access { kubeconfig: Some(self.kubeconfig.clone()) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// Requests of that method whose URI holds `part`.
    pub fn passed(&self, method: &str, part: &str) -> Vec<Passed> {
        self.state().passed.iter().filter(|passed| passed.is(method, part)).cloned().collect()
    }

    pub fn forget(&self) {
        self.state().passed.clear();
    }

    /// The next `times` such requests do not reach the API server.
    pub fn answer(&self, method: &'static str, part: &str, times: usize, status: u16, body: Value) {
        self.state().scripts.push(Script { method, part: part.to_owned(), status, body, left: times });
    }

    /// As [`Relay::answer`], with an answer as the API server words it.
    pub fn refuse(&self, method: &'static str, part: &str, times: usize, status: u16, message: &str) {
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": "X", "code": status});
        self.answer(method, part, times, status, body);
    }

    /// Such requests get no answer, from now on until [`Relay::thaw`].
    pub fn hang(&self, method: &'static str, part: &str) {
        self.answer(method, part, usize::MAX, HANG, Value::Null);
    }

    /// Everything reaches the API server again.
    pub fn clear(&self) {
        self.state().scripts.clear();
    }

    /// Changes what the API server answers, given the URI; watches aside.
    pub fn rewrite(&self, rewrite: impl Fn(&str, Value) -> Value + Send + Sync + 'static) {
        self.state().rewrite = Some(Arc::new(rewrite));
    }

    /// Open watches whose URI holds `part`.
    pub fn watches(&self, part: &str) -> usize {
        let mut state = self.state();
        state.streams.retain(|(_, stream)| !stream.is_closed());
        state.streams.iter().filter(|(uri, _)| uri.contains(part)).count()
    }

    /// Puts a line into every open watch whose URI holds `part`.
    pub fn inject(&self, part: &str, line: &Value) {
        for (_, stream) in self.state().streams.iter().filter(|(uri, _)| uri.contains(part)) {
            let _closed = stream.send(Injected::Line(line.clone())).is_err();
        }
    }

    /// Breaks every open watch, in the middle of a chunk for all its reader knows.
    pub fn cut(&self) {
        for (_, stream) in self.state().streams.drain(..) {
            let _closed = stream.send(Injected::Cut).is_err();
        }
    }

    /// From now on nothing passes, and no connection ends.
    pub fn freeze(&self) {
        self.state().frozen = true;
    }

    pub fn thaw(&self) {
        self.state().frozen = false;
        self.state().scripts.retain(|script| script.status != HANG);
        self.shared.thawed.notify_waiters();
    }

    /// Nobody listens any more, and every connection is reset.
    pub fn stop(&mut self) {
        self.serving.take().unwrap().abort();
    }

    pub async fn start_again(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.serving = Some(tokio::spawn(serve(listener, Arc::clone(&self.shared))));
    }

    /// Only this token is let through from now on.
    pub fn require_token(&self, token: &str) {
        self.state().token = Some(token.to_owned());
    }

    /// What a client that reads its token file finds.
    pub fn write_token(&self, token: &str) {
        std::fs::write(self.dir.path().join("token"), token).unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // They end with this task.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(|request| handle(Arc::clone(&shared), request));
            let _ended = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn whole(status: u16, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never: Infallible| match never {}).boxed_unsync();
    Response::builder().status(status).header("content-type", "application/json").body(body).unwrap()
}

async fn thawed(shared: &Shared) {
    loop {
        let notified = shared.thawed.notified();
        if !shared.state().frozen {
            return;
        }
        notified.await;
    }
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answer, std::io::Error> {
    thawed(&shared).await;
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let uri = parts.uri.to_string();
    let token = parts.headers.get("authorization").map(|value| value.to_str().unwrap().trim_start_matches("Bearer ").to_owned());
    let mut hangs = false;
    {
        let mut state = shared.state();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        state.passed.push(Passed { method: parts.method.to_string(), uri: uri.clone(), body, token: token.clone() });
        if state.token.is_some() && state.token != token {
            return Ok(whole(
                401,
                &json!({"kind": "Status", "status": "Failure", "reason": "Unauthorized", "message": "Unauthorized", "code": 401}),
            ));
        }
        if let Some(script) =
            state.scripts.iter_mut().find(|script| script.left > 0 && parts.method == script.method && uri.contains(&script.part))
        {
            script.left -= 1;
            if script.status != HANG {
                return Ok(whole(script.status, &script.body));
            }
            hangs = true;
        }
    }
    if hangs {
        shared.thawed.notified().await;
    }
    let client = shared.admin.link().await.unwrap().client.clone();
    let mut forwarded = Request::new(KubeBody::from(bytes.to_vec()));
    *forwarded.method_mut() = parts.method;
    *forwarded.uri_mut() = parts.uri;
    for name in ["content-type", "accept"] {
        if let Some(value) = parts.headers.get(name) {
            forwarded.headers_mut().insert(hyper::header::HeaderName::from_static(name), value.clone());
        }
    }
    let answer = match client.send(forwarded).await {
        Ok(answer) => answer,
        Err(error) => return Ok(whole(502, &json!({"kind": "Status", "status": "Failure", "message": error.to_string(), "code": 502}))),
    };
    thawed(&shared).await;
    let status = answer.status().as_u16();
    if uri.contains("watch=true") && status == 200 {
        let (stream, injected) = mpsc::unbounded_channel();
        shared.state().streams.push((uri, stream));
        let body = Watch { inner: Box::pin(answer.into_body()), injected, shared };
        return Ok(Response::new(body.into_body()));
    }
    let bytes = answer.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let rewrite = shared.state().rewrite.clone();
    Ok(whole(status, &rewrite.map_or(value.clone(), |rewrite| rewrite(&uri, value))))
}

/// The body of a watch, with what a test puts into it.
struct Watch {
    inner: Pin<Box<KubeBody>>,
    injected: mpsc::UnboundedReceiver<Injected>,
    shared: Arc<Shared>,
}

impl Watch {
    fn into_body(mut self) -> UnsyncBoxBody<Bytes, std::io::Error> {
        let (frames, mut received) = mpsc::unbounded_channel::<Result<Frame<Bytes>, std::io::Error>>();
        tokio::spawn(async move {
            while let Some(frame) = poll_fn(|cx| self.poll(cx)).await {
                thawed(&self.shared).await;
                let broken = frame.is_err();
                if frames.send(frame).is_err() || broken {
                    return;
                }
            }
        });
        BodyExt::boxed_unsync(StreamBody::new(futures::stream::poll_fn(move |cx| received.poll_recv(cx))))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.injected.poll_recv(cx) {
            Poll::Ready(Some(Injected::Line(line))) => return Poll::Ready(Some(Ok(Frame::data(Bytes::from(format!("{line}\n")))))),
            Poll::Ready(Some(Injected::Cut)) => return Poll::Ready(Some(Err(std::io::Error::other("cut")))),
            Poll::Ready(None) | Poll::Pending => {}
        }
        self.inner.as_mut().poll_frame(cx).map_err(std::io::Error::other)
    }
}
