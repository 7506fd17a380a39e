//! The fake behind a listener on loopback.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use crate::state::FakeGce;

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeGce {
    /// Serves on a port of loopback; 0 takes a free one.
    #[expect(clippy::disallowed_methods, reason = "a test's server, whose handle ends it")]
    pub async fn serve(&self, port: u16) -> std::io::Result<Server> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(answer).with_state(self.clone());
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Server { address, task })
    }
}

async fn answer(State(fake): State<FakeGce>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let token = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let stalls = fake.stalls(path);
    if stalls == Some(false) {
        std::future::pending::<()>().await;
    }
    let answer = fake.handle(method.as_str(), path, token, &body);
    if stalls == Some(true) {
        std::future::pending::<()>().await;
    }
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(CONTENT_TYPE, "application/json; charset=UTF-8")], answer.body).into_response()
}
