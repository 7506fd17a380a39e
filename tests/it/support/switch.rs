//! The smallest forward proxy: it fetches nothing and answers every request as it is told to at the moment.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::documents;

/// See the module; ends when dropped.
#[derive(Debug)]
pub struct Switch {
    pub port: u16,
    status: Arc<AtomicU16>,
    heads: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

/// How often a proxy is probed, and how patiently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Once, as far as a test is concerned; a busy machine turns nothing unhealthy.
    Steady,
    /// Every second; two failures decide.
    Quick,
}

impl Switch {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (status, heads) = (Arc::new(AtomicU16::new(204)), Arc::new(Mutex::new(Vec::new())));
        let (told, seen) = (Arc::clone(&status), Arc::clone(&heads));
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, Arc::clone(&told), Arc::clone(&seen)));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, status, heads, _task: task }
    }

    /// From now on every request is answered with this status; probes expect 204.
    pub fn set(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// The heads of all requests.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// The document of an External proxy that is this one. Each has a check URL of its own, so that none is suspect for
    /// another's sake (HE-9).
    pub fn document(&self, key: &str, max_leases: u32, credentials: Option<&str>, pace: Pace) -> String {
        documents::proxy(key, &documents::external(self.port, max_leases, credentials, &check(key, pace)))
    }
}

fn check(key: &str, pace: Pace) -> Value {
    let url = format!("http://198.51.100.9/{}", key.replace('/', "-"));
    match pace {
        Pace::Steady => json!({"url": url, "intervalSeconds": 60, "timeoutSeconds": 30}),
        Pace::Quick => json!({"url": url, "intervalSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 2}),
    }
}

async fn answer(mut stream: TcpStream, status: Arc<AtomicU16>, heads: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 && head.len() < 65_536 => head.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    }
    heads.lock().unwrap().push(String::from_utf8_lossy(&head).into_owned());
    let status = status.load(Ordering::SeqCst);
    let length = if status == 204 { "" } else { "Content-Length: 0\r\n" };
    let _ = stream.write_all(format!("HTTP/1.1 {status} Told\r\n{length}Connection: close\r\n\r\n").as_bytes()).await;
    let _ = stream.shutdown().await;
}
