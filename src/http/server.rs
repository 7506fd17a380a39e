//! One HTTP/1.1 server for all listeners: accepts, bounds and times connections, guards the host name, turns a panic
//! into a 500, and drains (LS-22, LS-23). What is served is a [`Site`].

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use egress_net::places::{Place, Places};
use egress_net::{closing, descriptors};
use egress_protocol::metrics::{self, Metrics};
use futures::FutureExt;
use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::http::connection::{Answer, BUFFER, Exchange, Limits, TimedIo};
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
    /// What counts the connections that are not served, and by which name.
    pub counted: (&'static str, Arc<Metrics>),
}

impl Site {
    /// The routes on a listener of that address.
    pub fn new(router: Router, address: SocketAddr, limits: Limits) -> Self {
        let router = router.fallback(not_found).method_not_allowed_fallback(method_not_allowed);
        Self {
            router,
            limits,
            loopback_only: address.ip().to_canonical().is_loopback(),
            tls: None,
            counted: ("", Metrics::default().shared()),
        }
    }

    /// The same over TLS.
    #[must_use]
    pub fn secured(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// The same under a name in metrics.
    #[must_use]
    pub fn counted(self, listener: &'static str, metrics: Arc<Metrics>) -> Self {
        Self { counted: (listener, metrics), ..self }
    }

    fn refused(&self, reason: &'static str) {
        let (listener, metrics) = &self.counted;
        metrics.connections_refused.get_or_create(&metrics::Refused { listener, reason }).inc();
    }

    fn displaced(&self) {
        let (listener, metrics) = &self.counted;
        metrics.connections_displaced.get_or_create(&metrics::Listener { listener }).inc();
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

/// How many connections beyond the limit hear of it and may take their time to leave; then the first of them must.
const REFUSALS: usize = 512;
/// After a failed accept, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// Accepts until cancelled. A failed accept is one error line and a pause, never the end (LS-23).
pub async fn accept(listener: TcpListener, site: Site, opener: Opener, cancelled: CancellationToken) {
    let site = Arc::new(site);
    let places = Places::new(site.limits.connections, site.limits.spared);
    let refusals = Places::new(REFUSALS, Duration::ZERO);
    let mut pause = PAUSE.0;
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
                // Most likely descriptors are short.
                let _ = refusals.make_room() || places.make_room();
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE.1);
                continue;
            }
        };
        pause = PAUSE.0;
        let _ = stream.set_nodelay(true);
        let short = !site.limits.uses_reserve && descriptors::are_short(&stream);
        let reason = if short && !places.make_room() {
            "descriptors"
        } else if let Some(place) = places.take() {
            opener.tracker.spawn(serve(stream, Arc::clone(&site), opener.drain.child_token(), opener.kill.child_token(), place));
            continue;
        } else {
            "connections"
        };
        site.refused(reason);
        if let Some(place) = refusals.take() {
            place.works();
            let linger = if short { Duration::ZERO } else { closing::LINGER };
            opener.tracker.spawn(refuse(stream, Arc::clone(&site), place, linger));
        }
    }
}

/// Faults of one peer's connection, which say nothing of the listener.
fn is_of_the_peer(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve(stream: TcpStream, site: Arc<Site>, drain: CancellationToken, kill: CancellationToken, place: Place) {
    let began = Instant::now();
    let exchange = Arc::new(Exchange::new(place));
    let Some(tls) = site.tls.clone() else { return converse(stream, site, exchange, began, drain, kill).await };
    let handshake = tls.accept(stream, began + site.limits.head);
    let shaken = tokio::select! {
        biased;
        shaken = handshake => shaken,
        () = exchange.given_away() => return site.displaced(),
        () = drain.cancelled() => return,
        () = kill.cancelled() => return,
    };
    match shaken {
        Ok(stream) => converse(stream, site, exchange, began, drain, kill).await,
        Err(error) => tracing::debug!(%error, "handshake failed"),
    }
}

/// Requests and answers, one after another.
async fn converse<S>(stream: S, site: Arc<Site>, exchange: Arc<Exchange>, began: Instant, drain: CancellationToken, kill: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TimedIo::new(stream, site.limits, Arc::clone(&exchange), began);
    let service = {
        let (site, exchange) = (Arc::clone(&site), Arc::clone(&exchange));
        service_fn(move |request| answer(Arc::clone(&site), Arc::clone(&exchange), request))
    };
    // Not `pipeline_flush`: it lifts the bound on what is buffered and withholds an answer while more of the client waits.
    let connection = http1::Builder::new().header_read_timeout(None).max_buf_size(BUFFER).serve_connection(io, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = exchange.given_away() => {
            site.displaced();
            if exchange.part_with(overloaded().last_words(ProblemCode::Overloaded.status())) {
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(PARTING, connection).await;
            }
            return;
        }
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

async fn answer(site: Arc<Site>, exchange: Arc<Exchange>, request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
    exchange.begin().await;
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
    let closing = response.headers().contains_key(header::CONNECTION);
    Ok(response.map(|body| exchange.answered(body, closing)))
}

/// Answers 503 without reading the request.
async fn refuse(stream: TcpStream, site: Arc<Site>, place: Place, linger: Duration) {
    let refused = overloaded();
    match &site.tls {
        None => tell(stream, refused, place, linger).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream, Instant::now() + HANDSHAKE).await {
                tell(stream, refused, place, linger).await;
            }
        }
    }
}

fn overloaded() -> Refused {
    Refused::new(ProblemCode::Overloaded, "too many connections")
}

/// How long a connection that gives way may take to say so.
const PARTING: Duration = Duration::from_millis(250);

/// How long a client that is refused may take for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(1);

/// Says why, then gives the client time to take it, unless others need the place.
async fn tell(mut stream: impl AsyncRead + AsyncWrite + Unpin, refused: Refused, place: Place, linger: Duration) {
    let said = say(&mut stream, refused).await;
    place.waits();
    if said {
        tokio::select! {
            _ = closing::close(&mut stream, linger) => {}
            () = place.given_away() => {}
        }
    }
}

/// Whether it was written. A few hundred bytes always fit into the buffer of a new socket.
async fn say(stream: &mut (impl AsyncWrite + Unpin), refused: Refused) -> bool {
    let status = refused.code().status();
    matches!(tokio::time::timeout(HANDSHAKE, stream.write_all(&refused.last_words(status))).await, Ok(Ok(())))
}

/// Says why a client that has spoken is not understood, then gives it time to take that.
pub(super) async fn turn_away(mut stream: impl AsyncRead + AsyncWrite + Unpin, refused: Refused) {
    if say(&mut stream, refused).await {
        let _ = closing::close(&mut stream, closing::LINGER).await;
    }
}
