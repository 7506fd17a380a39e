//! A small HTTP client for `get`: one GET per connection, plain HTTP, bounded in time and size.

use std::time::Duration;

use bytes::Bytes;
use egress_protocol::Secret;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long one question may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer that is read.
const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is not one.
    #[error("{0} is not an address such as http://127.0.0.1:8090")]
    Address(String),
    /// Nobody answers.
    #[error("{server} cannot be reached: {reason}")]
    Unreachable {
        /// Who was asked.
        server: String,
        /// Why not.
        reason: String,
    },
    /// It says that there is nothing of the name.
    #[error("{0}")]
    NotFound(String),
    /// It refused.
    #[error("{server} answered {status}: {detail}")]
    Refused {
        /// Who was asked.
        server: String,
        /// The status.
        status: StatusCode,
        /// The problem's detail.
        detail: String,
    },
}

/// Where to ask, and as whom.
#[derive(Debug, Clone)]
pub struct Client {
    server: String,
    authority: String,
    host: String,
    port: u16,
    token: Option<Secret>,
}

impl Client {
    /// Takes `http://HOST:PORT`.
    pub fn new(server: &str, token: Option<Secret>) -> Result<Self, ClientError> {
        let bad = || ClientError::Address(server.to_owned());
        let uri: Uri = server.parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        let path = uri.path_and_query().map_or("/", |p| p.as_str());
        if uri.scheme_str() != Some("http") || path != "/" || authority.as_str().contains('@') {
            return Err(bad());
        }
        Ok(Self {
            server: server.to_owned(),
            authority: authority.to_string(),
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            token,
        })
    }

    /// The JSON at a path, as it came.
    pub async fn get(&self, path: &str) -> Result<Bytes, ClientError> {
        let unreachable = |reason: String| ClientError::Unreachable { server: self.server.clone(), reason };
        let (status, body) = tokio::time::timeout(TIMEOUT, self.exchange(path))
            .await
            .map_err(|_| unreachable("no answer in time".to_owned()))?
            .map_err(|error| unreachable(error.to_string()))?;
        if status.is_success() {
            return Ok(body);
        }
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let detail = problem["detail"].as_str().unwrap_or("no details").to_owned();
        Err(match status {
            StatusCode::NOT_FOUND => ClientError::NotFound(detail),
            status => ClientError::Refused { server: self.server.clone(), status, detail },
        })
    }

    async fn exchange(&self, path: &str) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::get(path).header(header::HOST, &self.authority);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        let request = request.body(Empty::<Bytes>::new())?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await?.to_bytes();
            Ok((status, body))
        };
        tokio::pin!(connection, answer);
        tokio::select! {
            answered = &mut answer => answered,
            ended = &mut connection => {
                ended?;
                answer.await
            }
        }
    }
}
