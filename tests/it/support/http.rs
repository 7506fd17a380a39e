//! A small HTTP client: one connection a request, directly or through a forward proxy.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; panics with the body when it is not.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A server by `host:port`, with an optional bearer token.
#[derive(Debug, Clone)]
pub struct Client {
    pub address: String,
    pub token: Option<String>,
}

impl Client {
    pub fn new(address: impl Into<String>) -> Self {
        Self { address: address.into(), token: None }
    }

    pub fn with_token(&self, token: &str) -> Self {
        Self { address: self.address.clone(), token: Some(token.to_owned()) }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.try_send(Method::GET, path, None).await.unwrap_or_else(|e| panic!("GET {path} at {}: {e}", self.address))
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.try_send(Method::POST, path, Some(body)).await.unwrap_or_else(|e| panic!("POST {path} at {}: {e}", self.address))
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.try_send(Method::DELETE, path, None).await.unwrap_or_else(|e| panic!("DELETE {path} at {}: {e}", self.address))
    }

    /// As the others, with the connection's errors as a value: the server may be down.
    pub async fn try_send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        let mut request = Request::builder().method(method).uri(path).header("host", &self.address);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let bytes = body.map(|b| Bytes::from(serde_json::to_vec(b).unwrap())).unwrap_or_default();
        tokio::time::timeout(Duration::from_secs(20), self.exchange(request.body(Full::new(bytes)).unwrap()))
            .await
            .map_err(|_| "no answer in 20 s".to_owned())?
    }

    /// Sends a request as it is.
    pub async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, String> {
        let stream = TcpStream::connect(&self.address).await.map_err(|e| e.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        let driver = tokio::task::spawn(async move { drop(connection.await) });
        let answer = sender.send_request(request).await.map_err(|e| e.to_string())?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
        driver.abort();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }
}

/// Opens a tunnel through the proxy at `proxy` (`host:port`); the error is the proxy's status.
pub async fn connect_through(proxy: &str, target: &str, authorization: Option<&str>) -> Result<TcpStream, u16> {
    let mut stream = TcpStream::connect(proxy).await.map_err(|_| 0_u16)?;
    let auth = authorization.map(|a| format!("Proxy-Authorization: {a}\r\n")).unwrap_or_default();
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{auth}\r\n").as_bytes()).await.map_err(|_| 0_u16)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte).await {
            Ok(1) => head.push(byte[0]),
            _ => return Err(0),
        }
    }
    let status: u16 = String::from_utf8_lossy(&head).split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    if status == 200 { Ok(stream) } else { Err(status) }
}

/// Fetches `http://TARGET/PATH` through the proxy in absolute form.
pub async fn fetch_through(proxy: &str, url: &str) -> Result<Answer, String> {
    let host = url.trim_start_matches("http://").split('/').next().unwrap_or_default().to_owned();
    let request = Request::builder().uri(url).header("host", host).body(Full::new(Bytes::new())).map_err(|e| e.to_string())?;
    Client::new(proxy).exchange(request).await
}
