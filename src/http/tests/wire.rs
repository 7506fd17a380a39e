//! Bytes in, bytes out.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// An answer as it came over the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The fields of a 400.
    pub(crate) fn fields(&self) -> Vec<String> {
        let document = self.json();
        let errors = document["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|e| e["field"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (n, value) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// One connection that is told what to send.
pub(crate) struct Wire<S = TcpStream>(pub(crate) S);

impl Wire {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// The answer of one request; `None` when there is nobody, or nobody any more.
    pub(crate) async fn try_ask(address: SocketAddr, request: impl AsRef<[u8]>) -> Option<Answer> {
        let mut wire = Self(TcpStream::connect(address).await.ok()?);
        wire.0.write_all(request.as_ref()).await.ok()?;
        wire.answer().await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The next answer; `None` when the connection ended instead.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let mut answer = self.head().await?;
        let length: usize = answer.header("content-length").map_or(0, |n| n.parse().unwrap());
        while answer.body.len() < length {
            assert!(self.0.read_buf(&mut answer.body).await.unwrap() > 0, "cut off: {answer:?}");
        }
        Some(answer)
    }

    /// The head of the next answer, and what came with it.
    pub(crate) async fn head(&mut self) -> Option<Answer> {
        let mut bytes = Vec::new();
        let head_end = loop {
            if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if self.0.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
        let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
        Some(Answer { status, head, body: bytes.split_off(head_end) })
    }

    /// The status of an answer in HTTP; `None` when there is none.
    pub(crate) async fn answer_or_end(&mut self) -> Option<u16> {
        let mut bytes = Vec::new();
        let _ = self.0.read_to_end(&mut bytes).await;
        let text = bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    /// Whether the server closes the connection without another byte.
    pub(crate) async fn closes(&mut self) -> bool {
        let mut rest = Vec::new();
        matches!(self.0.read_to_end(&mut rest).await, Ok(0) | Err(_))
    }
}

/// One request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, request: impl AsRef<[u8]>) -> Answer {
    let mut wire = Wire::open(address).await;
    wire.send(request).await;
    wire.answer().await.expect("an answer")
}

/// A request with the usual headers.
pub(crate) fn request(method: &str, target: &str, headers: &[(&str, &str)], body: Option<&str>) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if let Some(body) = body {
        if !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("content-type")) {
            text += "Content-Type: application/json\r\n";
        }
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    text += "\r\n";
    text += body.unwrap_or_default();
    text.into_bytes()
}
