//! One HTTP/1.1 server for all listeners: accepts, bounds and times connections, guards the host name, turns a panic
//! into a 500, and drains (LS-22, LS-23). What is served is a [`Site`].

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::http::connection::{Exchange, Limits, TimedIo};
use crate::http::host;
use egress_protocol::lease::ProblemCode;

use crate::http::problem::Refused;
use crate::http::tls::Tls;

/// What a listener serves.
#[derive(Debug, Clone)]
pub struct Site {
    /// The routes.
    pub router: Router,
    /// What a connection may take.
    pub limits: Limits,
    /// Only names of loopback are answered for; set from the address that is listened on.
    pub loopback_only: bool,
    /// Over TLS.
    pub tls: Option<Tls>,
}

impl Site {
    /// The routes on a listener of that address.
    pub fn new(router: Router, address: SocketAddr, limits: Limits) -> Self {
        let router = router.fallback(not_found).method_not_allowed_fallback(method_not_allowed);
        Self { router, limits, loopback_only: address.ip().to_canonical().is_loopback(), tls: None }
    }

    /// The same over TLS.
    #[must_use]
    pub fn secured(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }
}

async fn not_found() -> Refused {
    Refused::new(ProblemCode::NotFound, "no such path")
}

async fn method_not_allowed() -> Refused {
    Refused::new(ProblemCode::MethodNotAllowed, "this path does not take that method")
}

/// The connections of one listener. Dropping it ends them at once; [`Connections::drain`] lets them finish.
#[derive(Debug)]
pub struct Connections {
    tracker: TaskTracker,
    drain: CancellationToken,
    kill: CancellationToken,
}

impl Default for Connections {
    fn default() -> Self {
        Self { tracker: TaskTracker::new(), drain: CancellationToken::new(), kill: CancellationToken::new() }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.kill.cancel();
    }
}

impl Connections {
    /// A handle for the accept loop.
    pub fn opener(&self) -> Opener {
        Opener { tracker: self.tracker.clone(), drain: self.drain.clone(), kill: self.kill.clone() }
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        self.tracker.len()
    }

    /// Lets requests in progress end, idle connections close at once; whoever is left after `within` is cut off.
    pub async fn drain(&self, within: Duration) {
        self.drain.cancel();
        self.tracker.close();
        if tokio::time::timeout(within, self.tracker.wait()).await.is_err() {
            self.kill.cancel();
            self.tracker.wait().await;
        }
    }
}

/// Opens connections on behalf of their owner.
#[derive(Debug, Clone)]
pub struct Opener {
    tracker: TaskTracker,
    drain: CancellationToken,
    kill: CancellationToken,
}

/// How many connections beyond the limit are told so at once; the others are closed without a word.
const REFUSALS: usize = 64;

/// Accepts until cancelled. A failed accept is one error line and a pause, never the end (LS-23).
pub async fn accept(listener: TcpListener, site: Site, opener: Opener, cancelled: CancellationToken) {
    let site = Arc::new(site);
    let places = Arc::new(Semaphore::new(site.limits.connections));
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let mut pause = Duration::from_millis(50);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = cancelled.cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_of_the_peer(&error) => continue,
            Err(error) => {
                tracing::error!(%error, "accept failed");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
                continue;
            }
        };
        pause = Duration::from_millis(50);
        let _ = stream.set_nodelay(true);
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            opener.tracker.spawn(serve(stream, Arc::clone(&site), opener.drain.child_token(), opener.kill.child_token(), place));
        } else if let Ok(place) = Arc::clone(&refusals).try_acquire_owned() {
            opener.tracker.spawn(refuse(stream, Arc::clone(&site), place));
        }
    }
}

/// Faults of one peer's connection, which say nothing of the listener.
fn is_of_the_peer(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve(stream: TcpStream, site: Arc<Site>, drain: CancellationToken, kill: CancellationToken, _place: OwnedSemaphorePermit) {
    let began = Instant::now();
    let Some(tls) = site.tls.clone() else { return converse(stream, site, began, drain, kill).await };
    let handshake = tls.accept(stream, began + site.limits.head);
    let shaken = tokio::select! {
        biased;
        shaken = handshake => shaken,
        () = drain.cancelled() => return,
        () = kill.cancelled() => return,
    };
    match shaken {
        Ok(stream) => converse(stream, site, began, drain, kill).await,
        Err(error) => tracing::debug!(%error, "handshake failed"),
    }
}

/// Requests and answers, one after another.
async fn converse<S>(stream: S, site: Arc<Site>, began: Instant, drain: CancellationToken, kill: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let exchange = Arc::new(Exchange::default());
    let io = TimedIo::new(stream, site.limits, Arc::clone(&exchange), began);
    let service = service_fn(move |request| answer(Arc::clone(&site), Arc::clone(&exchange), request));
    let connection =
        http1::Builder::new().header_read_timeout(None).max_buf_size(128 * 1024).pipeline_flush(true).serve_connection(io, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = drain.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = kill.cancelled() => return,
            }
        }
        () = kill.cancelled() => return,
    };
    if let Err(error) = ended {
        tracing::trace!(%error, "connection ended");
    }
}

async fn answer(site: Arc<Site>, exchange: Arc<Exchange>, request: Request<Incoming>) -> Result<Response, Infallible> {
    exchange.begin();
    let guarded = if site.loopback_only { host::check(&request) } else { Ok(()) };
    let response = match guarded {
        Err(problem) => problem.into_response(),
        Ok(()) => {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Arc::clone(&exchange));
            let mut router = site.router.clone();
            match std::panic::AssertUnwindSafe(router.call(request)).catch_unwind().await {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                // The panic hook has written its line.
                Err(_) => Refused::new(ProblemCode::Internal, "the request could not be handled").into_response(),
            }
        }
    };
    exchange.end();
    Ok(response)
}

/// Answers 503 without reading the request.
async fn refuse(stream: TcpStream, site: Arc<Site>, _place: OwnedSemaphorePermit) {
    let refused = Refused::new(ProblemCode::Overloaded, "too many connections");
    match &site.tls {
        None => tell(stream, refused).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream, Instant::now() + MOMENT).await {
                tell(stream, refused).await;
            }
        }
    }
}

/// How long a client may take to hear why nobody listens to it.
const MOMENT: Duration = Duration::from_secs(1);

/// Says why, then waits a moment for the client to take it.
pub(super) async fn tell(mut stream: impl AsyncRead + AsyncWrite + Unpin, refused: Refused) {
    let (parts, body) = refused.into_response().into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mut head = format!("HTTP/1.1 {}\r\n", parts.status).into_bytes();
    let own = HeaderMap::from_iter([(header::CONNECTION, HeaderValue::from_static("close")), (header::CONTENT_LENGTH, body.len().into())]);
    for (name, value) in parts.headers.iter().chain(&own) {
        head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    head.extend_from_slice(b"\r\n");
    let say = async {
        stream.write_all(&head).await?;
        stream.write_all(&body).await?;
        stream.shutdown().await?;
        let mut sink = [0; 4096];
        while stream.read(&mut sink).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = tokio::time::timeout(MOMENT, say).await;
}
