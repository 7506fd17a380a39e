//! Bytes on a socket: what no HTTP client would send.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// What came back until the answer was complete or the connection ended.
#[derive(Debug, Clone, Default)]
pub struct Spoken {
    /// 0: no answer.
    pub status: u16,
    pub head: String,
    pub body: String,
    /// How long it took.
    pub after: Duration,
}

impl Spoken {
    /// The problem document's code; empty when the body is none.
    pub fn code(&self) -> String {
        serde_json::from_str::<Value>(&self.body).ok().and_then(|body| Some(body["code"].as_str()?.to_owned())).unwrap_or_default()
    }

    /// The fields that a problem document names.
    pub fn fields(&self) -> Vec<String> {
        let body = serde_json::from_str::<Value>(&self.body).unwrap_or_default();
        body["errors"].as_array().into_iter().flatten().filter_map(|error| Some(error["field"].as_str()?.to_owned())).collect()
    }
}

/// Sends bytes and reads the answer, or to the end of the connection, for 20 s at most.
pub async fn say(address: &str, bytes: impl AsRef<[u8]>) -> Spoken {
    let (start, connect) = (Instant::now(), bytes.as_ref().starts_with(b"CONNECT "));
    let mut read = Vec::new();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        // Whoever has heard enough may close before everything was said.
        let _ = stream.write_all(bytes.as_ref()).await;
        let mut buffer = [0; 4096];
        while !complete(&read, connect) {
            match stream.read(&mut buffer).await? {
                0 => break,
                n => read.extend_from_slice(&buffer[..n]),
            }
        }
        std::io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(20), exchange).await;
    let (head, body) = split(&read).unwrap_or_else(|| (String::from_utf8_lossy(&read).into_owned(), String::new()));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Spoken { status, head, body, after: start.elapsed() }
}

/// Sends bytes, then resets the connection.
pub async fn say_and_reset(address: &str, bytes: impl AsRef<[u8]>) {
    let Ok(mut stream) = TcpStream::connect(address).await else { return };
    let _ = stream.write_all(bytes.as_ref()).await;
    let _ = stream.set_zero_linger();
}

fn split(read: &[u8]) -> Option<(String, String)> {
    let end = read.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((String::from_utf8_lossy(&read[..end]).into_owned(), String::from_utf8_lossy(&read[end + 4..]).into_owned()))
}

/// Whether an answer is there whole, as far as it says how long it is. A tunnel's has no body.
fn complete(read: &[u8], connect: bool) -> bool {
    let Some((head, body)) = split(read) else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.map_or(head.contains(" 204 ") || (connect && head.contains(" 200 ")), |length| body.len() >= length)
}
