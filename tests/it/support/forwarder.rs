//! A forward proxy for absolute-form requests, as small as can be: what stands behind a Pod that no kubelet runs.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Ends when dropped.
#[derive(Debug)]
pub struct Forwarder {
    _task: JoinSet<()>,
}

impl Forwarder {
    pub async fn on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream));
            }
        });
        Self { _task: task }
    }
}

/// `GET http://HOST:PORT/PATH` becomes `GET /PATH` at HOST:PORT.
async fn serve(mut client: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).await.ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let (line, rest) = head.split_once("\r\n")?;
    let target = line.split(' ').nth(1)?.strip_prefix("http://")?;
    let (host, path) = target.split_once('/').unwrap_or((target, ""));
    let mut origin = TcpStream::connect(host).await.ok()?;
    origin.write_all(format!("GET /{path} HTTP/1.1\r\nConnection: close\r\n{rest}").as_bytes()).await.ok()?;
    tokio::io::copy(&mut origin, &mut client).await.ok()?;
    client.shutdown().await.ok()
}
