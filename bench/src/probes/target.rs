//! Forward proxies that answer for every target themselves, on several addresses of loopback: CONNECT and TLS with a
//! certificate of their own, or an absolute-form GET, and in the end 204.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::{Outcome, process, runtime};

/// Whom a check URL names; asked for by address, so that no name is looked up.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// On so many addresses, so that ports do not run out.
const ADDRESSES: u8 = 8;
const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";

/// Where the proxies are, and what to trust.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) proxies: Vec<SocketAddr>,
    pub(crate) roots: String,
}

/// Runs until the benchmark ends.
pub(crate) fn run() -> Outcome<()> {
    let made = rcgen::generate_simple_self_signed(vec![HOST.to_string()])?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let runtime = runtime()?;
    let mut listeners = JoinSet::new();
    let mut proxies = Vec::new();
    for n in 1..=ADDRESSES {
        let socket = TcpListener::bind((Ipv4Addr::new(127, 0, 1, n), 0))?;
        socket.set_nonblocking(true)?;
        proxies.push(socket.local_addr()?);
        listeners.spawn_on(accept(socket, acceptor.clone()), runtime.handle());
    }
    process::ready_until_told(&serde_json::to_string(&Ready { proxies, roots: made.cert.pem() })?)
}

async fn accept(socket: TcpListener, acceptor: TlsAcceptor) {
    let Ok(listener) = tokio::net::TcpListener::from_std(socket) else { return };
    let mut connections = JoinSet::new();
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream, acceptor.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, acceptor: TlsAcceptor) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let head = read_head(&mut stream).await?;
    if head.starts_with(b"CONNECT ") {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        let mut stream = acceptor.accept(stream).await?;
        read_head(&mut stream).await?;
        answer(&mut stream).await
    } else {
        answer(&mut stream).await
    }
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_all(ANSWER).await?;
    stream.shutdown().await
}

/// Everything up to the empty line.
pub(super) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(1024);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}
