//! Targets of the tests' own: plain HTTP, HTTPS with a certificate of our own authority, and ones that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls_pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How an origin behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Answers 204 to `/generate_204`, the caller's address to `/ip`, else 200 `hello`.
    Fine,
    /// Accepts and says nothing.
    Silent,
    /// Speaks nonsense where TLS is expected.
    Nonsense,
    /// Answers 503 to everything.
    Unavailable,
}

/// A running origin; ends when dropped.
#[derive(Debug)]
pub struct Origin {
    pub port: u16,
    pub hits: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Origin {
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    pub async fn http(manner: Manner) -> Self {
        Self::start(manner, None).await
    }

    /// Serves TLS for `localhost` and `127.0.0.1` under `authority`.
    pub async fn https(manner: Manner, authority: &Authority) -> Self {
        Self::start(manner, Some(authority.acceptor())).await
    }

    async fn start(manner: Manner, tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hits = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&hits);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, peer)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let tls = tls.clone();
                connections.spawn(async move {
                    match (manner, tls) {
                        (Manner::Silent, _) => std::future::pending().await,
                        (Manner::Nonsense, _) => nonsense(stream).await,
                        (_, Some(tls)) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, peer, manner).await;
                            }
                        }
                        (_, None) => serve(stream, peer, manner).await,
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, hits, _task: task }
    }
}

async fn nonsense(mut stream: TcpStream) {
    let mut buffer = [0; 64];
    let _ = stream.read(&mut buffer).await;
    let _ = stream.write_all(b"this is not a handshake\r\n").await;
}

async fn serve<S: AsyncReadExt + AsyncWriteExt + Unpin>(mut stream: S, peer: std::net::SocketAddr, manner: Manner) {
    let mut head = Vec::new();
    let mut byte = [0];
    loop {
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut byte).await {
                Ok(1) if head.len() < 65_536 => head.push(byte[0]),
                _ => return,
            }
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let path = text.split(' ').nth(1).unwrap_or_default();
        let answer = match manner {
            Manner::Unavailable => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned(),
            _ if path.ends_with("/generate_204") => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            _ => {
                let body = if path.ends_with("/ip") { peer.ip().to_string() } else { "hello".to_owned() };
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            }
        };
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        head.clear();
    }
}

/// A certificate authority of the test's own; `pem` goes to `--check-ca-file`.
#[derive(Debug)]
pub struct Authority {
    pub pem: String,
    chain: rustls_pki_types::CertificateDer<'static>,
    key: Vec<u8>,
}

impl Authority {
    pub fn new() -> Self {
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
        // Names of their own: to OpenSSL a certificate with its issuer's name is a self-signed one.
        ca.distinguished_name.push(rcgen::DnType::CommonName, "an authority of the tests");
        ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_cert = ca.self_signed(&ca_key).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut leaf = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        leaf.distinguished_name.push(rcgen::DnType::CommonName, "localhost");
        let issuer = rcgen::Issuer::new(ca, ca_key);
        let cert = leaf.signed_by(&key, &issuer).unwrap();
        Self { pem: ca_cert.pem(), chain: cert.der().clone(), key: key.serialize_der() }
    }

    fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        egress_proxies_operator::tls::install();
        let key = PrivateKeyDer::try_from(self.key.clone()).unwrap();
        let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![self.chain.clone()], key).unwrap();
        Arc::new(config).into()
    }
}
