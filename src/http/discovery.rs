//! The discovery API (operator.md §6): proxies and leases for crawlers. Every call is one question to the broker;
//! nothing is remembered here.
//!
//! - [`proxies`]: listing, one item, cordons
//! - [`leases`]: grant, renew, release, report, explain, and what this version refuses
//! - `watch`: proxies as a replica without a leader knows them
//!
//! What must stay true: a call is refused before it is read when it may not be made; a request is shed, not queued,
//! when the broker falls behind (SV-3); no answer but a grant holds credentials (LS-22).

pub(crate) mod leases;
pub(crate) mod proxies;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{delete, get, post};
use bytes::Bytes;
use egress_protocol::leadership::StandingCell;
use egress_protocol::lease::{BROKER_ID, BrokerMessage, Caller, ProblemCode};
use egress_protocol::source::{self, SourceMessage};
use egress_protocol::{Clock, Reply};
use egress_supervision::{Address, AddressError, System};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::http::auth::Tokens;
use crate::http::body;
use crate::http::forward::{self, Forward, Patience};
use crate::http::openapi;
use crate::http::problem::Refused;
use crate::http::query::Query;
use crate::http::trace::traced;
use crate::lifecycle::Lifecycle;

/// How long the broker may take to answer; it answers at once, so this is for a broker that does not.
const ANSWER: Duration = Duration::from_secs(10);
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// What is said of calls and parameters that a later version will serve.
pub(crate) const NOT_YET: &str = "not supported by this version";

/// What a request is answered from.
#[derive(Debug, Clone)]
pub struct Discovery {
    broker: Address<BrokerMessage>,
    tokens: Tokens,
    lifecycle: Lifecycle,
    clock: Clock,
    body_within: Duration,
    queue_limit: u64,
    source: Address<SourceMessage>,
    forward: Arc<Forward>,
}

impl Discovery {
    /// Asks the broker of that tree, or the leader when that is another replica. More than `queue_limit` waiting requests
    /// are shed.
    pub fn new(
        system: &System,
        tokens: Tokens,
        lifecycle: Lifecycle,
        standing: StandingCell,
        body_within: Duration,
        queue_limit: u64,
    ) -> Self {
        Self {
            broker: system.address(BROKER_ID),
            tokens,
            lifecycle,
            clock: system.clock(),
            body_within,
            queue_limit,
            source: system.address(source::ACTOR_ID),
            forward: Arc::new(Forward::new(standing, Patience::default())),
        }
    }

    /// With less patience, for tests.
    #[cfg(test)]
    pub(crate) fn with_patience(mut self, patience: Patience) -> Self {
        self.forward = Arc::new(Forward::new(self.forward.standing().clone(), patience));
        self
    }

    /// The API's routes, and its description.
    pub fn routes(self) -> Router {
        let api = Arc::new(self);
        let served_by_the_leader = from_fn_with_state(Arc::clone(&api), forward::or_answer);
        let routes = Router::new()
            .route("/v1/proxies", get(proxies::list))
            .route("/v1/proxies/{namespace}/{name}", get(proxies::one))
            .route("/v1/proxies/{namespace}/{name}/cordon", post(proxies::cordon).delete(proxies::uncordon))
            .route("/v1/proxies/{namespace}/{name}/cooldown", delete(proxies::lift_cooldown))
            .route("/v1/leases", post(leases::grant).get(leases::list))
            .route("/v1/leases/explain", post(leases::explain))
            .route("/v1/leases/renew", post(leases::bulk))
            .route("/v1/leases/release", post(leases::bulk))
            .route("/v1/sessions/report", post(leases::sessions))
            .route("/v1/sessions/rotate", post(leases::sessions))
            .route("/v1/leases/{id}", get(leases::one).delete(leases::release))
            .route("/v1/leases/{id}/renew", post(leases::renew))
            .route("/v1/leases/{id}/report", post(leases::report))
            .route_layer(served_by_the_leader)
            .route("/openapi.json", get(openapi_json))
            .with_state(api);
        traced(routes)
    }

    /// The way to the leader.
    pub(super) const fn forward(&self) -> &Arc<Forward> {
        &self.forward
    }

    /// Who asks, and whether anybody may now.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<Caller, Refused> {
        self.tokens.authenticate(headers)
    }

    /// As [`Discovery::admit`], for calls about leases: they end before the process does (OP-5).
    pub(super) fn admit_lease_call(&self, headers: &HeaderMap) -> Result<Caller, Refused> {
        let caller = self.admit(headers)?;
        if self.lifecycle.stopping() {
            return Err(Refused::new(ProblemCode::Stopping, "the process is stopping"));
        }
        Ok(caller)
    }

    pub(super) async fn body(&self, headers: &HeaderMap, incoming: Body) -> Result<Bytes, Refused> {
        body::read(headers, incoming, self.body_within).await
    }

    async fn ask<T: Send + 'static>(&self, message: impl FnOnce(Reply<T>) -> BrokerMessage + Send) -> Result<T, Refused> {
        self.broker.call_shedding(self.queue_limit, ANSWER, message).await.map_err(|error| {
            let detail = match error {
                AddressError::Down => "the lease broker is not running; it is being started",
                AddressError::Overloaded => "too many requests wait",
                AddressError::Timeout => "the lease broker did not answer in time",
                AddressError::Dropped => "the lease broker went away before it answered",
            };
            Refused::new(ProblemCode::Overloaded, detail)
        })
    }
}

/// What of a path is in braces.
type PathOf<T> = Result<Path<T>, PathRejection>;

fn path<T>(path: PathOf<T>) -> Result<T, Refused> {
    path.map(|Path(parts)| parts).map_err(|_| Refused::field("path", "is not percent-encoded UTF-8"))
}

/// Refuses every query parameter.
fn no_query(uri: &http::Uri) -> Result<(), Refused> {
    match uri.query() {
        None => Ok(()),
        query => Query::parse(query).finish(),
    }
}

/// The header is refused, never ignored: a client that relies on it would lease twice.
fn no_idempotency_key(headers: &HeaderMap) -> Result<(), Refused> {
    if headers.contains_key(&IDEMPOTENCY_KEY) { Err(Refused::field("Idempotency-Key", NOT_YET)) } else { Ok(()) }
}

fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn never_stored(mut response: Response) -> Response {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "health", operation_id = "getOpenApi", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object, content_type = "application/json")))]
pub(crate) async fn openapi_json(State(_): State<Arc<Discovery>>, uri: http::Uri) -> Result<Response, Refused> {
    no_query(&uri)?;
    Ok(body::json_bytes(StatusCode::OK, openapi::text()))
}
