//! A proxy, targets, and a client that writes raw bytes.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use egress_protocol::metrics::Metrics;
use egress_protocol::net::AllowList;
use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::config::Limits;
use crate::engine::{Guard, Identity, Instance, OwnAddresses, Resolve, Rules, Settings, listen};
use egress_config::providers::FaultKnobs as Faults;

/// Answers each name from a script, one entry per look-up, the last one for good; no entry is an unknown name, an empty one
/// never answers.
#[derive(Default)]
pub(super) struct Names {
    script: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(super) lookups: AtomicU64,
}

impl Names {
    pub(super) fn with(names: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let script = names
            .iter()
            .map(|(name, answers)| {
                let answers = answers.iter().map(|ips| ips.iter().map(|ip| ip.parse().unwrap()).collect()).collect();
                ((*name).to_owned(), answers)
            })
            .collect();
        Arc::new(Self { script: Mutex::new(script), lookups: AtomicU64::new(0) })
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        let mut script = self.script.lock().unwrap();
        let answer = script.get_mut(host).map(|answers| if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() });
        Box::pin(async move {
            match answer {
                None => Err(io::Error::other("no such name")),
                Some(ips) if ips.is_empty() => std::future::pending().await,
                Some(ips) => Ok(ips),
            }
        })
    }
}

/// What a test changes of a proxy.
pub(super) struct Setup {
    pub(super) allow: Vec<String>,
    pub(super) names: Arc<Names>,
    pub(super) limits: Limits,
    pub(super) source: Option<IpAddr>,
    pub(super) faults: Option<Faults>,
    pub(super) own: Vec<IpAddr>,
    pub(super) metrics: Metrics,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            allow: vec!["127.0.0.0/8".to_owned(), "::1".to_owned()],
            names: Arc::default(),
            limits: Limits { connect_timeout: Duration::from_secs(5), ..Limits::default() },
            source: None,
            faults: None,
            own: Vec::new(),
            metrics: Metrics::default(),
        }
    }
}

pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    pub(super) instance: Instance,
}

impl Setup {
    pub(super) fn start(self) -> Proxy {
        let listener = listen(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let own = self.own;
        let settings = Settings {
            identity: Identity { provider: "lab".into(), instance: "proxy-aaaaaaaaaaaaaaaa".into(), proxy: "default/px-1".into() },
            resolver: self.names,
            source: self.source,
            clock: egress_protocol::Clock::starting_at(egress_protocol::time::Timestamp::from_millis(0)),
            metrics: self.metrics,
            rules: ArcSwap::from_pointee(Rules {
                limits: self.limits,
                allowed_clients: vec!["127.0.0.1/32".parse().unwrap()],
                guard: Guard {
                    allow: Arc::new(AllowList::parse(&self.allow).unwrap()),
                    own: Arc::new(OwnAddresses::new(Arc::new(move || Ok(own.clone())))),
                },
                faults: self.faults,
                requests: Arc::default(),
            }),
        };
        Proxy { address, instance: Instance::start(listener, Arc::new(settings)) }
    }
}

impl Proxy {
    pub(super) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// One request on a connection of its own; the whole answer.
    pub(super) async fn ask(&self, request: &str) -> Answer {
        let mut client = self.connect().await;
        client.send(request.as_bytes()).await;
        client.answer().await
    }

    /// CONNECT; the client is inside the tunnel when that was accepted.
    pub(super) async fn tunnel(&self, target: impl std::fmt::Display) -> (Answer, Client) {
        let mut client = self.connect().await;
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await;
        (client.answer().await, client)
    }
}

pub(super) struct Client(pub(super) TcpStream);

#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Lower-case names.
    pub(super) head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The error type of `Proxy-Status`.
    pub(super) fn error(&self) -> Option<&str> {
        let status = self.header("proxy-status")?;
        status.split("error=").nth(1)?.split(';').next()
    }
}

impl Client {
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        // A proxy that has already said no may have closed.
        let _ = self.0.write_all(bytes).await;
    }

    /// Reads one answer: its head, and a body of known length. Status 0: closed without one.
    pub(super) async fn answer(&mut self) -> Answer {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match self.0.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return Answer::default(),
            }
        }
        let text = String::from_utf8(head).unwrap();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let head: String = text
            .lines()
            .map(|line| match line.split_once(": ") {
                Some((name, value)) => format!("{}: {value}\n", name.to_ascii_lowercase()),
                None => format!("{line}\n"),
            })
            .collect();
        let mut answer = Answer { status, head, body: String::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        answer.body = String::from_utf8(body).unwrap();
        answer
    }

    /// What comes until the other side is done.
    pub(super) async fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).await.map(|_| rest)
    }

    pub(super) async fn expect(&mut self, bytes: &[u8]) {
        let mut got = vec![0; bytes.len()];
        self.0.read_exact(&mut got).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(bytes));
    }
}

/// Who connected and what they sent.
type Seen = Arc<Mutex<Vec<(SocketAddr, Vec<u8>)>>>;

/// A target. What it was sent is kept, connection by connection.
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) seen: Seen,
    _tasks: JoinSet<()>,
}

impl Target {
    /// Sends everything back.
    pub(super) async fn echo() -> Self {
        Self::serve("127.0.0.1:0", |mut stream, _| {
            Box::pin(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            })
        })
        .await
    }

    /// Reads a request (its head, and a body with a length or in chunks) and answers with fixed bytes, then closes.
    pub(super) async fn http(answer: &'static str) -> Self {
        Self::serve("127.0.0.1:0", move |mut stream, keep| {
            Box::pin(async move {
                let mut got = Vec::new();
                let mut buffer = [0; 4096];
                while !complete(&got) {
                    match stream.read(&mut buffer).await {
                        Ok(n) if n > 0 => got.extend_from_slice(&buffer[..n]),
                        _ => break,
                    }
                }
                keep(got);
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
                let _ = stream.read(&mut buffer).await;
            })
        })
        .await
    }

    pub(super) async fn serve<F>(at: &str, serve: F) -> Self
    where
        F: Fn(TcpStream, Box<dyn FnOnce(Vec<u8>) + Send>) -> BoxFuture<'static, ()> + Send + 'static,
    {
        let listener = TcpListener::bind(at).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Seen::default();
        let kept = Arc::clone(&seen);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, peer)) = listener.accept().await {
                let kept = Arc::clone(&kept);
                connections.spawn(serve(stream, Box::new(move |got| kept.lock().unwrap().push((peer, got)))));
            }
        });
        Self { address, seen, _tasks: tasks }
    }

    /// What the last connection sent, as text.
    pub(super) fn last(&self) -> String {
        String::from_utf8(self.seen.lock().unwrap().last().unwrap().1.clone()).unwrap()
    }
}

fn complete(got: &[u8]) -> bool {
    let text = String::from_utf8_lossy(got).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if head.contains("transfer-encoding: chunked") {
        return body.ends_with("0\r\n\r\n");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    body.len() >= length
}

/// An address on which a connection neither succeeds nor fails: its backlog is full.
pub(super) async fn black_hole(ip: &str) -> (SocketAddr, Vec<TcpStream>, TcpListener) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut fill = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(address)).await {
        fill.push(stream);
    }
    (address, fill, listener)
}

/// An address that refuses: it was free a moment ago.
pub(super) async fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}
