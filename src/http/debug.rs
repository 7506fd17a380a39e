//! What every part is doing (OB-4), as JSON. Read from the tree, never from shared state; redacted by the actors
//! themselves.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use egress_protocol::monitor::{self, HealthSnapshot, MonitorMessage};
use egress_protocol::provider::ProviderMessage;
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::{ObjectKey, provider};
use egress_supervision::{Node, System};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::http::auth::Tokens;
use crate::http::body;
use egress_protocol::lease::ProblemCode;

use crate::http::problem::Refused;
use crate::http::query::Query;

/// How long an actor may take to answer before it is shown as busy.
const ANSWER: Duration = Duration::from_millis(250);

/// The tree, and who may look at it.
#[derive(Debug, Clone)]
pub struct Debug {
    system: System,
    /// `None` on loopback, where everybody on the machine may look.
    tokens: Option<Tokens>,
}

impl Debug {
    /// `tokens` guards a listener that is not on loopback.
    pub fn new(system: System, tokens: Option<Tokens>) -> Self {
        Self { system, tokens }
    }

    /// Its routes.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/debug/actors", get(actors))
            .route("/debug/providers", get(providers))
            .route("/debug/proxies/{namespace}/{name}", get(proxy))
            .with_state(self)
    }

    fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        self.tokens.as_ref().map_or(Ok(()), |tokens| tokens.authorize_all(headers).map(drop))
    }
}

async fn actors(State(debug): State<Debug>, request: Request) -> Result<Response, Refused> {
    debug.admit(request.headers())?;
    let mut query = Query::parse(request.uri().query());
    let id = query.take("id");
    let depth = query.take_as("depth", |v| v.parse::<usize>().map_err(|_| format!("{v} is not a number of levels")));
    query.finish()?;
    let node = debug.system.inspect(id.as_deref(), depth).await;
    let node = node.ok_or_else(|| Refused::new(ProblemCode::NotFound, "no actor of that id"))?;
    Ok(body::json(StatusCode::OK, &node))
}

async fn providers(State(debug): State<Debug>, request: Request) -> Result<Response, Refused> {
    debug.admit(request.headers())?;
    Query::parse(request.uri().query()).finish()?;
    let Some(parent) = debug.system.inspect(Some("providers"), Some(1)).await else {
        return Ok(body::json(StatusCode::OK, &json!({ "items": [] })));
    };
    let monitor = debug.system.address::<MonitorMessage>(monitor::ACTOR_ID);
    // Without a monitor, or before its first round, what it would say is left out.
    let health = monitor.call(ANSWER, |reply_to| MonitorMessage::Snapshot { reply_to }).await.unwrap_or_default();
    let items = futures::future::join_all(parent.children.iter().map(|child| summary(&debug.system, child, &health))).await;
    Ok(body::json(StatusCode::OK, &json!({ "items": items })))
}

/// What the provider says of itself, and of the last check the status fields of PH-5. A provider that does not answer is
/// there all the same.
async fn summary(system: &System, node: &Node, health: &HealthSnapshot) -> Value {
    let address = system.address::<ProviderMessage>(&node.id);
    let name = node.id.strip_prefix(&provider::actor_id("")).unwrap_or(&node.id);
    let mut own = match address.call(ANSWER, |reply_to| ProviderMessage::Describe { reply_to }).await {
        Ok(summary) => json!(summary),
        Err(error) => json!({ "name": name, "status": node.status, "message": error.to_string() }),
    };
    let checked = health.provider(name).map(|checked| json!(*checked.status));
    // An entry can have another type than when it was checked last.
    if let (Some(own), Some(Value::Object(mut item))) = (own.as_object_mut(), checked) {
        item.append(own);
        return Value::Object(item);
    }
    own
}

async fn proxy(State(debug): State<Debug>, Path((namespace, name)): Path<(String, String)>, request: Request) -> Result<Response, Refused> {
    debug.admit(request.headers())?;
    Query::parse(request.uri().query()).finish()?;
    let key = ObjectKey::new(namespace, name);
    let id = key.actor_id();
    let Some(node) = debug.system.inspect(Some(&id), Some(0)).await else {
        return Err(Refused::new(ProblemCode::NotFound, "no such proxy"));
    };
    let address = debug.system.address::<ProxyMessage>(&id);
    match address.call(ANSWER, |reply_to| ProxyMessage::Explain { reply_to }).await {
        Ok(explained) => Ok(body::json(StatusCode::OK, &explained)),
        Err(_) => Ok(body::json(StatusCode::OK, &node)),
    }
}
