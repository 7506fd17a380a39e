//! The reference: a handler that parses the same request with serde and answers as many bytes, written by serde. It
//! grants nothing.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{delete, post};
use axum::{Json, Router};
use egress_protocol::lease::{Lease, LeaseId, LeaseRecord, LeaseView, ProxyFragment};
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Uid};
use egress_supervision::System;
use serde::{Deserialize, Serialize};

use super::server;
use crate::fleet::Shape;
use crate::{Outcome, process, runtime};

/// What the handler is served by.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Stack {
    /// `axum::serve`.
    Axum,
    /// The operator's own listener, with its deadlines and limits.
    Ours,
}

/// The request as the benchmark sends it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "parsed, and not looked at")]
struct Request {
    #[serde(default)]
    selector: Selector,
    target: Option<String>,
    ttl: Option<String>,
    owner: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "parsed, and not looked at")]
struct Selector {
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

async fn grant(State(lease): State<Arc<Lease>>, Json(request): Json<Request>) -> (StatusCode, Json<Arc<Lease>>) {
    black_box(request);
    (StatusCode::CREATED, Json(lease))
}

async fn release(Path(id): Path<String>) -> StatusCode {
    black_box(id);
    StatusCode::NO_CONTENT
}

/// What the operator would answer.
fn lease() -> Outcome<Lease> {
    let shape = Shape { proxies: 2, places: 2, cooling: false };
    let now = Clock::system().now();
    let ttl = Duration::from_secs(1);
    let proxy = Arc::new(shape.fleet().next().map(|proxy| ProxyFragment::of(&proxy)).ok_or("a fleet without a proxy")?);
    let record = LeaseRecord {
        id: LeaseId::from_bytes([7; 16]),
        fence: 1_767_323_045_000_000,
        token: "".into(),
        owner: Some("worker-17".into()),
        target: None,
        uid: Uid::new("6ba7b810-9dad-11d1-80b4-000000000000"),
        proxy: Arc::clone(&proxy),
        granted_at: now,
        ttl,
    };
    let view = LeaseView {
        record: Arc::new(record),
        proxy,
        expires_at: now + ttl,
        expires_in_seconds: 1,
        renew_after_seconds: 0,
        proxy_unhealthy: false,
        target_suspect: false,
        drain_by: None,
        check_url_suspect: false,
        ending: None,
        credentials: None,
    };
    Ok(view.to_lease())
}

/// Runs until the benchmark ends.
pub(crate) fn run(stack: Stack) -> Outcome<()> {
    let routes = Router::new().route("/v1/leases", post(grant)).route("/v1/leases/{id}", delete(release)).with_state(Arc::new(lease()?));
    let runtime = runtime()?;
    match stack {
        Stack::Ours => {
            let system = System::new(Clock::system(), Metrics::new(true).shared());
            let (address, _root) = runtime.block_on(server::serve(&system, routes, None, None))?;
            process::ready_until_told(&address.to_string())
        }
        Stack::Axum => {
            let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
            let address = listener.local_addr()?;
            let _server = runtime.spawn(async move { axum::serve(listener, routes).await });
            process::ready_until_told(&address.to_string())
        }
    }
}
