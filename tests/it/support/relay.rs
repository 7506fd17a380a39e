//! A relay between the operator and a real API server: sees every call, and can refuse, delay, cut or lose it at a named
//! moment. The operator's side is plain HTTP on loopback, the API server's TLS; credentials pass through.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// One call as the relay saw it.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: Method,
    /// `proxies`, `proxies/status`, `pods`, `leases`, `events`, …
    pub resource: String,
    pub name: Option<String>,
    /// What was answered; `None`: not yet, or never.
    pub status: Option<u16>,
}

impl Call {
    fn of(method: &Method, uri: &http::Uri) -> Self {
        let mut parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        // /api/v1/… or /apis/GROUP/VERSION/…
        parts.drain(..parts.len().min(if parts[0] == "api" { 2 } else { 3 }));
        if parts.first() == Some(&"namespaces") && parts.len() > 2 {
            parts.drain(..2);
        }
        let mut resource = parts.first().copied().unwrap_or_default().to_owned();
        let name = parts.get(1).map(|name| (*name).to_owned());
        if let Some(sub) = parts.get(2) {
            resource = format!("{resource}/{sub}");
        }
        Self { method: method.clone(), resource, name, status: None }
    }

    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// `PATCH proxies/status`
    pub fn what(&self) -> String {
        format!("{} {}", self.method, self.resource)
    }
}

/// What becomes of a call.
pub enum Act {
    /// It goes through.
    Pass,
    /// It never reaches the API server; this is answered.
    Answer(u16, Value),
    /// It never reaches the API server; the connection is cut.
    Lose,
    /// It is carried out, then this happens, and the answer is lost.
    LoseAnswer(Box<dyn FnOnce() + Send>),
}

type Rule = Box<dyn FnMut(&Call) -> Act + Send>;

/// See the module.
pub struct Relay {
    pub address: SocketAddr,
    rule: Arc<Mutex<Rule>>,
    calls: Arc<Mutex<Vec<Call>>>,
    cut: watch::Sender<u64>,
    _serving: tokio::task::JoinSet<()>,
}

impl Relay {
    /// To the API server at `target`, whose certificate `ca` vouches for.
    pub async fn to(target: SocketAddr, ca: &Path) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for certificate in rustls_pki_types::CertificateDer::pem_file_iter(ca).unwrap() {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = tokio_rustls::TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let rule: Arc<Mutex<Rule>> = Arc::new(Mutex::new(Box::new(|_| Act::Pass)));
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let (cut, _) = watch::channel(0_u64);
        let mut serving = tokio::task::JoinSet::new();
        let (rules, log, cutter) = (Arc::clone(&rule), Arc::clone(&calls), cut.clone());
        serving.spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (rules, log, tls, mut cut) = (Arc::clone(&rules), Arc::clone(&log), tls.clone(), cutter.subscribe());
                connections.spawn(async move {
                    let service = service_fn(move |request| relay(request, target, tls.clone(), Arc::clone(&rules), Arc::clone(&log)));
                    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    tokio::select! {
                        _ = connection => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, rule, calls, cut, _serving: serving }
    }

    /// From now on.
    pub fn set(&self, rule: impl FnMut(&Call) -> Act + Send + 'static) {
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// Every connection ends now, watches included.
    pub fn cut(&self) {
        self.cut.send_modify(|n| *n += 1);
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Forgets them.
    pub fn forget(&self) {
        self.calls.lock().unwrap().clear();
    }

    /// A kubeconfig that leads here, with the token of a file.
    pub fn kubeconfig(&self, path: &Path, token_file: &Path) {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "relay",
            "clusters": [{"name": "relay", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "relay", "user": {"tokenFile": token_file}}],
            "contexts": [{"name": "relay", "context": {"cluster": "relay", "user": "relay"}}],
        });
        std::fs::write(path, text.to_string()).unwrap();
    }
}

type Body = BoxBody<Bytes, hyper::Error>;

fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// An error ends the connection without an answer.
async fn relay(
    request: Request<Incoming>,
    target: SocketAddr,
    tls: tokio_rustls::TlsConnector,
    rules: Arc<Mutex<Rule>>,
    log: Arc<Mutex<Vec<Call>>>,
) -> Result<Response<Body>, std::io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let call = Call::of(&parts.method, &parts.uri);
    let act = (rules.lock().unwrap())(&call);
    let at = {
        let mut log = log.lock().unwrap();
        log.push(call);
        log.len() - 1
    };
    let lost = || std::io::Error::other("lost by the relay");
    let then = match act {
        Act::Pass => None,
        Act::LoseAnswer(then) => Some(then),
        Act::Lose => return Err(lost()),
        Act::Answer(code, body) => {
            log.lock().unwrap()[at].status = Some(code);
            let answer = Response::builder().status(code).header("content-type", "application/json");
            return Ok(answer.body(whole(body.to_string())).unwrap());
        }
    };
    let answer = forward(parts.method, parts.uri, parts.headers, body, target, tls).await.map_err(std::io::Error::other)?;
    if let Some(call) = log.lock().unwrap().get_mut(at) {
        call.status = Some(answer.status().as_u16());
    }
    match then {
        None => Ok(answer.map(|body| body.boxed())),
        Some(then) => {
            // The whole answer is here: what was asked for is done.
            let _ = answer.into_body().collect().await;
            then();
            Err(lost())
        }
    }
}

/// On a connection of its own.
async fn forward(
    method: Method,
    uri: http::Uri,
    headers: HeaderMap,
    body: Bytes,
    target: SocketAddr,
    tls: tokio_rustls::TlsConnector,
) -> Result<Response<Incoming>, String> {
    let stream = TcpStream::connect(target).await.map_err(|e| e.to_string())?;
    let name = ServerName::IpAddress(target.ip().into());
    let stream = tls.connect(name, stream).await.map_err(|e| e.to_string())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // It ends with the answer's body.
    tokio::spawn(async move { drop(connection.await) });
    let mut request = Request::builder().method(method).uri(uri).body(Full::new(body)).map_err(|e| e.to_string())?;
    *request.headers_mut() = headers;
    request.headers_mut().insert("host", target.to_string().parse().unwrap());
    sender.send_request(request).await.map_err(|e| e.to_string())
}

/// A `Status` as the API server writes one.
pub fn refusal(code: u16, reason: &str, message: &str) -> Value {
    let phrase = StatusCode::from_u16(code).unwrap();
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": if message.is_empty() { phrase.to_string() } else { message.to_owned() }})
}
