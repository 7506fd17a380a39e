//! `/healthz` and `/readyz` (OB-5). A part that is not in order makes the process unready; a dead hypervisor or a
//! faulty manifest is a message, never that.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use egress_protocol::InstallationId;
use egress_protocol::leadership::{self, LeadershipMessage, LeadershipState, Standing, StandingCell};
use egress_protocol::lease::{BROKER_ID, BrokerMessage};
use egress_protocol::provider::{self, ProvidersMessage};
use egress_protocol::source::{self, SourceMessage};
use egress_supervision::{Address, System};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::http::auth::Tokens;
use crate::http::body;
use crate::http::problem::Refused;
use crate::http::query::Query;
use crate::lifecycle::Lifecycle;
use crate::version;

/// How long a part may take to say what is wrong.
const ANSWER: Duration = Duration::from_millis(250);

/// What readiness is read from.
#[derive(Debug, Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    lifecycle: Lifecycle,
    installation: InstallationId,
    durable: bool,
    broker: Address<BrokerMessage>,
    source: Address<SourceMessage>,
    standing: StandingCell,
    leadership: Address<LeadershipMessage>,
    providers: Address<ProvidersMessage>,
}

/// `/readyz?verbose` (operator.md §12); without `verbose` there is `status` alone.
#[derive(Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// `ready`, `notReady` or `stopping`.
    #[schema(value_type = String)]
    pub status: &'static str,
    /// `leader`, `follower` or `standalone`.
    #[schema(value_type = String, required = false)]
    pub role: &'static str,
    /// Of this build.
    #[schema(value_type = String, required = false)]
    pub version: &'static str,
    /// Which operator this is.
    #[schema(required = false)]
    pub installation: String,
    /// Whether leases survive the end of the process.
    #[schema(required = false)]
    pub durable: bool,
    /// What it consists of.
    #[schema(required = false)]
    pub parts: Vec<Part>,
}

/// One part of [`Readiness`].
#[derive(Debug, Serialize, ToSchema)]
pub struct Part {
    /// `source`, `leaseBroker`, `providersFile`, `leadership` (where there are replicas) or `discovery`.
    #[schema(value_type = String)]
    pub name: &'static str,
    /// Whether it does its work.
    pub ready: bool,
    /// What a person should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Part {
    fn new(name: &'static str, down: Option<&str>) -> Self {
        Self { name, ready: down.is_none(), message: down.map(str::to_owned) }
    }
}

impl Health {
    /// Reads from that tree.
    pub fn new(system: &System, lifecycle: Lifecycle, installation: InstallationId, standing: StandingCell, durable: bool) -> Self {
        let inner = Inner {
            lifecycle,
            installation,
            durable,
            broker: system.address(BROKER_ID),
            source: system.address(source::ACTOR_ID),
            standing,
            leadership: system.address(leadership::ACTOR_ID),
            providers: system.address(provider::PROVIDERS_ID),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Each part as it is now.
    pub async fn read(&self) -> Readiness {
        let inner = &*self.inner;
        let standing = inner.standing.get();
        let mut parts = vec![self.source().await, self.broker(&standing), self.providers_file().await];
        if *standing != Standing::Alone {
            parts.push(self.leadership().await);
        }
        parts.push(Part::new("discovery", (!inner.lifecycle.started()).then_some("starting")));
        let status = if inner.lifecycle.stopping() {
            "stopping"
        } else if inner.lifecycle.started() && parts.iter().all(|part| part.ready) {
            "ready"
        } else {
            "notReady"
        };
        Readiness {
            status,
            role: match *standing {
                Standing::Alone => "standalone",
                Standing::Leader => "leader",
                Standing::Follower { .. } => "follower",
            },
            version: version::VERSION,
            installation: inner.installation.as_str().to_owned(),
            durable: inner.durable,
            parts,
        }
    }

    /// A faulty file keeps nothing from working: the last good one is in force.
    async fn providers_file(&self) -> Part {
        let faults = self.inner.providers.call(ANSWER, |reply_to| ProvidersMessage::Faults { reply_to });
        let message = match faults.await {
            Ok(faults) if faults.is_empty() => None,
            Ok(faults) => Some(format!("refused: {}; the last good file stays", faults.join("; "))),
            Err(_) if self.inner.providers.is_up() => Some("busy".to_owned()),
            Err(_) => Some("the providers are being started".to_owned()),
        };
        Part { name: "providersFile", ready: true, message }
    }

    /// A replica that does not lead has no book, and is as ready as one that does (O9).
    fn broker(&self, standing: &Standing) -> Part {
        match standing {
            Standing::Follower { .. } => Part { name: "leaseBroker", ready: true, message: Some("the leader has it".to_owned()) },
            Standing::Alone | Standing::Leader => Part::new("leaseBroker", (!self.inner.broker.is_up()).then_some("not running")),
        }
    }

    /// Ready once it was seen who leads: until then a replica cannot hand a call on.
    async fn leadership(&self) -> Part {
        let state = self.inner.leadership.call(ANSWER, |reply_to| LeadershipMessage::State { reply_to });
        match state.await {
            Ok(LeadershipState { settled, faults }) => {
                Part { name: "leadership", ready: settled, message: (!faults.is_empty()).then(|| faults.join("; ")) }
            }
            Err(_) if self.inner.leadership.is_up() => Part { name: "leadership", ready: true, message: Some("busy".to_owned()) },
            Err(_) => Part::new("leadership", Some("not running")),
        }
    }

    async fn source(&self) -> Part {
        let faults = self.inner.source.call(ANSWER, |reply_to| SourceMessage::Faults { reply_to });
        match faults.await {
            Ok(faults) if faults.is_empty() => Part::new("source", None),
            Ok(faults) => Part { name: "source", ready: true, message: Some(faults.join("; ")) },
            // Busy is not broken: it writes files.
            Err(_) if self.inner.source.is_up() => Part { name: "source", ready: true, message: Some("busy".to_owned()) },
            Err(_) => Part::new("source", Some("not running")),
        }
    }
}

/// The routes of a listener. `verbose_needs` guards `?verbose` (on the discovery address it needs a token).
pub fn routes(health: Health, verbose_needs: Tokens) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).with_state((health, verbose_needs))
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "health", operation_id = "getHealth", security(()),
    responses((status = 200, description = "The process lives", content_type = "application/json", example = json!({"status": "ok"}))))]
pub(crate) async fn healthz(request: Request) -> Result<Response, Refused> {
    Query::parse(request.uri().query()).finish()?;
    Ok(last(body::json(StatusCode::OK, &json!({ "status": "ok" }))))
}

/// A prober asks once in a while: the place is not kept for it.
fn last(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whether it serves; with `verbose`, each part.
#[utoipa::path(get, path = "/readyz", tag = "health", operation_id = "getReadiness", security((), ("token" = [])),
    params(("verbose" = Option<bool>, Query, description = "Each part; needs a token where the API does")),
    responses(
        (status = 200, description = "Ready", body = Readiness),
        (status = 503, description = "Not ready, or stopping", body = Readiness),
    ))]
pub(crate) async fn readyz(State((health, tokens)): State<(Health, Tokens)>, request: Request) -> Result<Response, Refused> {
    let mut query = Query::parse(request.uri().query());
    let verbose = query.take_flag("verbose");
    query.finish()?;
    if verbose {
        tokens.authenticate(request.headers())?;
    }
    let readiness = health.read().await;
    let status = if readiness.status == "ready" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let document = if verbose { body::json(status, &readiness) } else { body::json(status, &json!({ "status": readiness.status })) };
    Ok(last(document))
}
