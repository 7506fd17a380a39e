//! What is served while the API server is awaited: the process lives and is not ready (OB-5). Without this an API server that
//! is away at the start would leave every port closed, and whoever watches the process would end it.

use axum::Router;
use axum::response::Response;
use axum::routing::{any, get};
use egress_protocol::lease::ProblemCode;
use http::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Doors;
use crate::http::connection::Limits;
use crate::http::problem::Refused;
use crate::http::server::{Connections, Site, accept};
use crate::http::{body, health};

/// Dropping it leaves the sockets open and ends what was served on them.
#[derive(Debug)]
pub(super) struct Waiting {
    _accepting: JoinSet<()>,
    _connections: Connections,
}

impl Waiting {
    /// On the addresses of the API and of health.
    pub(super) fn serve(doors: &Doors) -> std::io::Result<Self> {
        let connections = Connections::default();
        let mut accepting = JoinSet::new();
        for bound in std::iter::once(&doors.discovery).chain(&doors.health) {
            let listener = tokio::net::TcpListener::from_std(bound.share()?)?;
            let site = Site::new(routes(), bound.address, Limits { uses_reserve: true, ..Limits::default() });
            accepting.spawn(accept(listener, site, connections.opener(), CancellationToken::new()));
        }
        Ok(Self { _accepting: accepting, _connections: connections })
    }
}

fn routes() -> Router {
    Router::new().route("/healthz", get(health::healthz)).route("/readyz", get(readyz)).route("/v1/{*rest}", any(not_yet))
}

async fn readyz() -> Response {
    body::json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "notReady" }))
}

async fn not_yet() -> Refused {
    Refused::new(ProblemCode::NoLeader, "the process has not started: the API server of the cluster does not answer yet").closing()
}
