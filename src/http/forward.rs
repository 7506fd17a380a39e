//! What a replica does that does not lead (LS-10): it hands calls on to the leader, one hop, with the caller's own
//! headers; where no leader can be asked it says so, or answers from its own watch.
//!
//! What must stay true: a call is handed on at most once; a client that hangs up ends the call at the leader; nobody waits
//! for a leader that is gone; a grant that cannot be written to the client is given back.

mod body;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egress_protocol::hop;
use egress_protocol::leadership::{Standing, StandingCell};
use egress_protocol::lease::ProblemCode;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, request};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::connection::Exchange;
use crate::http::discovery::{Discovery, IDEMPOTENCY_KEY};
use crate::http::problem::Refused;

/// On a call that was handed on, and on the refusal to hand it on once more.
pub(crate) const HOP: HeaderName = HeaderName::from_static("egress-hop");
/// On an answer that is not the leader's.
pub(crate) const STALE: HeaderName = HeaderName::from_static("egress-stale");
const PROXIES: &str = "/v1/proxies";
const PROXY: &str = "/v1/proxies/{namespace}/{name}";
const LEASES: &str = "/v1/leases";

/// What may be asked of a leader, in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// To connect.
    pub(crate) connect: Duration,
    /// Until the answer to a grant begins: the longest `wait`, and what the leader may take beside it (LS-23).
    pub(crate) grant: Duration,
    /// To any other call, which the leader answers at once or not at all.
    pub(crate) answer: Duration,
    /// To one that the own watch can answer too.
    pub(crate) list: Duration,
    /// Between two parts of an answer.
    pub(crate) part: Duration,
    /// After the leader has changed, for what the former one still answers.
    pub(crate) farewell: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            grant: Duration::from_secs(5 * 60 + 12),
            answer: Duration::from_secs(12),
            list: Duration::from_secs(2),
            part: Duration::from_secs(10),
            farewell: Duration::from_secs(2),
        }
    }
}

/// A leader whose host is gone is noticed within about this, while a call to it waits.
const KEEPALIVE: Duration = Duration::from_secs(3);
/// Idle connections to it are kept shorter than it keeps them (LS-23: 60 s).
const IDLE: Duration = Duration::from_secs(30);
const IDLE_CONNECTIONS: usize = 64;
/// An undone grant is given back within this, or not at all.
const UNDO: Duration = Duration::from_secs(10);

/// On a request: it is answered from the replica's own watch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromOwnWatch;

/// Why the leader was not asked, or did not answer.
#[derive(Debug)]
struct NoLeader(String);

/// The way to the leader.
#[derive(Debug)]
pub(crate) struct Forward {
    standing: StandingCell,
    client: Client<HttpConnector, Full<Bytes>>,
    patience: Patience,
    undoing: Undoing,
}

/// Grants that are being given back; they end with their owner.
#[derive(Debug, Default)]
struct Undoing {
    running: TaskTracker,
    over: CancellationToken,
}

impl Drop for Undoing {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl Forward {
    pub(crate) fn new(standing: StandingCell, patience: Patience) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(patience.connect));
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_keepalive_interval(Some(KEEPALIVE / 3));
        connector.set_keepalive_retries(Some(3));
        connector.set_tcp_user_timeout(Some(KEEPALIVE * 2));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Self { standing, client, patience, undoing: Undoing::default() }
    }

    /// What this replica is.
    pub(crate) const fn standing(&self) -> &StandingCell {
        &self.standing
    }

    /// Asks the leader as it is known now. The answer's body is still on its way.
    async fn ask(&self, method: Method, uri: &Uri, headers: HeaderMap, body: Bytes, within: Duration) -> Result<Response, NoLeader> {
        let standing = self.standing.get();
        let address = match &*standing {
            Standing::Follower { address: Some(address), .. } => address,
            Standing::Follower { leader: Some(leader), .. } => return Err(NoLeader(format!("{leader} leads and says no address"))),
            Standing::Follower { .. } => return Err(NoLeader("no replica leads".to_owned())),
            Standing::Leader | Standing::Alone => return Err(NoLeader("this replica has just become the leader".to_owned())),
        };
        let request = request(method, uri, address, headers, body).map_err(|_| NoLeader(format!("{address} is not HOST:PORT")))?;
        let moved = async {
            self.standing.other_than(&standing).await;
            tokio::time::sleep(self.patience.farewell).await;
        };
        tokio::select! {
            answer = self.client.request(request) => match answer {
                Ok(answer) => Ok(answer.map(|incoming| body::within(incoming, self.patience.part))),
                Err(error) => Err(NoLeader(format!("the leader at {address} does not answer: {}", egress_kube::chain(&error)))),
            },
            () = moved => Err(NoLeader(format!("the leader at {address} lost the leadership before it answered"))),
            () = tokio::time::sleep(within) => Err(NoLeader(format!("the leader at {address} did not answer in time"))),
        }
    }

    /// Gives a lease back whose grant could not be written to the client (LS-2).
    fn undo(self: &Arc<Self>, id: String, authorization: Option<HeaderValue>) {
        let (this, over) = (Arc::downgrade(self), self.undoing.over.clone());
        let release = async move {
            let Some(this) = this.upgrade() else { return };
            let mut headers = HeaderMap::new();
            headers.extend(authorization.map(|value| (header::AUTHORIZATION, value)));
            headers.insert(HOP, HeaderValue::from_static("1"));
            let Ok(uri) = Uri::try_from(format!("{LEASES}/{id}")) else { return };
            match this.ask(Method::DELETE, &uri, headers, Bytes::new(), UNDO).await {
                Ok(answer) => {
                    tracing::debug!(lease = id, status = answer.status().as_u16(), "grant released: its answer could not be written");
                }
                Err(NoLeader(reason)) => tracing::debug!(lease = id, reason, "a grant that was not written could not be released"),
            }
        };
        // The process may be so near its end that nothing runs any more.
        if let Ok(runtime) = Handle::try_current() {
            self.undoing.running.spawn_on(async move { over.run_until_cancelled(release).await }, &runtime);
        }
    }
}

/// The request as the leader gets it.
fn request(method: Method, uri: &Uri, address: &str, headers: HeaderMap, body: Bytes) -> Result<http::Request<Full<Bytes>>, http::Error> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(Authority::try_from(address)?);
    parts.path_and_query = Some(uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    let mut request = http::Request::builder().method(method).uri(Uri::from_parts(parts)?).body(Full::new(body))?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// The layer of every `/v1` route.
pub(crate) async fn or_answer(State(api): State<Arc<Discovery>>, request: Request, next: Next) -> Response {
    match &*api.forward().standing().get() {
        Standing::Alone | Standing::Leader => next.run(request).await,
        Standing::Follower { .. } => follow(&api, request, next).await,
    }
}

async fn follow(api: &Arc<Discovery>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned()).unwrap_or_default();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD) && (route == PROXIES || route == PROXY);
    // The leader would say the same: a wrong token needs no hop, nor does a process that ends.
    let admitted = if reads { api.admit(request.headers()) } else { api.admit_lease_call(request.headers()) };
    if let Err(refused) = admitted {
        return refused.into_response();
    }
    if request.headers().contains_key(&HOP) {
        let refused = Refused::new(ProblemCode::NoLeader, "this replica does not lead; the call was handed on once already");
        let mut response = refused.into_response();
        response.headers_mut().insert(HOP, HeaderValue::from_static("1"));
        return response;
    }
    let (head, incoming) = request.into_parts();
    let body = match head.method {
        Method::GET | Method::HEAD | Method::DELETE => Bytes::new(),
        _ => match api.body(&head.headers, incoming).await {
            Ok(bytes) => bytes,
            Err(refused) => return refused.into_response(),
        },
    };
    let patience = api.forward().patience;
    let grants = head.method == Method::POST && route == LEASES;
    let within = if reads {
        patience.list
    } else if grants {
        patience.grant
    } else {
        patience.answer
    };
    match hand_on(api.forward(), &head, body, within, grants).await {
        Ok(response) => response,
        Err(NoLeader(reason)) if reads => {
            tracing::debug!(reason, "answered from the own watch: no leader");
            let mut request = Request::from_parts(head, axum::body::Body::empty());
            request.extensions_mut().insert(FromOwnWatch);
            next.run(request).await
        }
        Err(NoLeader(reason)) => Refused::new(ProblemCode::NoLeader, reason).into_response(),
    }
}

async fn hand_on(forward: &Arc<Forward>, head: &request::Parts, body: Bytes, within: Duration, grants: bool) -> Result<Response, NoLeader> {
    let mut headers = head.headers.clone();
    hop::strip(&mut headers);
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(HOP, HeaderValue::from_static("1"));
    crate::http::trace::inject(&mut headers);
    let answer = forward.ask(head.method.clone(), &head.uri, headers, body, within).await?;
    if answer.headers().contains_key(&HOP) {
        return Err(NoLeader("who was the leader does not lead any more".to_owned()));
    }
    let (mut parts, body) = answer.into_parts();
    hop::strip(&mut parts.headers);
    if !grants || parts.status != StatusCode::CREATED {
        return Ok(Response::from_parts(parts, body));
    }
    let body = body::whole(body).await.map_err(|error| NoLeader(format!("the leader went away while it answered: {error}")))?;
    let exchange = head.extensions.get::<Arc<Exchange>>();
    if let Some(exchange) = exchange.filter(|_| !head.headers.contains_key(&IDEMPOTENCY_KEY)) {
        let authorization = head.headers.get(header::AUTHORIZATION).cloned();
        let (forward, ids) = (Arc::clone(forward), body::leases(&body));
        exchange.unless_written(move || ids.into_iter().for_each(|id| forward.undo(id, authorization.clone())));
    }
    Ok(Response::from_parts(parts, body.into()))
}
