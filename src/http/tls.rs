//! TLS of a listener (OB-1): a certificate made at start, another before it ends, and handshakes that end in time (LS-23).
//!
//! What must stay true: a handshake has its place among the connections and its time like any other, and runs in the
//! connection's own task: one that drags on keeps nobody from being accepted.

use std::fmt;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use egress_protocol::Timestamp;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use egress_protocol::lease::ProblemCode;

use crate::http::certificate::Certificate;
use crate::http::problem::Refused;
use crate::http::server::turn_away;

/// The first byte of a handshake.
const HANDSHAKE: u8 = 22;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It could not be made.
    #[error("no certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// It could not be used.
    #[error("no TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// The certificate of one listener as it is now. Cheap to clone; all clones are one, and it outlives the listener's
/// incarnations.
#[derive(Clone)]
pub struct Tls {
    names: Arc<[String]>,
    current: Arc<ArcSwap<Current>>,
}

struct Current {
    acceptor: TlsAcceptor,
    certificate: CertificateDer<'static>,
    until: Timestamp,
    renew_at: Timestamp,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("names", &self.names).field("until", &self.valid_until()).finish_non_exhaustive()
    }
}

impl Tls {
    /// With a new certificate for these [names](crate::http::certificate::names).
    pub fn new(names: Vec<String>, now: Timestamp) -> Result<Self, TlsError> {
        let current = Current::make(&names, now)?;
        Ok(Self { names: names.into(), current: Arc::new(ArcSwap::from_pointee(current)) })
    }

    /// The certificate, for whoever wants to trust just this one.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.current.load().certificate.clone()
    }

    /// Its end.
    pub fn valid_until(&self) -> Timestamp {
        self.current.load().until
    }

    /// Takes another certificate if this one ends soon; connections that are open keep theirs. Whether it did.
    pub fn renew_if_due(&self, now: Timestamp) -> Result<bool, TlsError> {
        if now < self.current.load().renew_at {
            return Ok(false);
        }
        self.current.store(Arc::new(Current::make(&self.names, now)?));
        Ok(true)
    }

    /// Shakes hands until then. Whoever speaks plain HTTP is told so.
    pub(super) async fn accept(&self, stream: TcpStream, until: Instant) -> io::Result<TlsStream<TcpStream>> {
        let acceptor = self.current.load().acceptor.clone();
        let shake = async move {
            let mut first = [0];
            if stream.peek(&mut first).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the client sends nothing"));
            }
            if first[0].is_ascii_uppercase() {
                turn_away(stream, Refused::new(ProblemCode::InvalidRequest, "this listener speaks HTTPS only")).await;
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the client speaks plain HTTP"));
            }
            if first[0] != HANDSHAKE {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"));
            }
            acceptor.accept(stream).await
        };
        match tokio::time::timeout_at(until, shake).await {
            Ok(done) => done,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long")),
        }
    }
}

impl Current {
    fn make(names: &[String], now: Timestamp) -> Result<Self, TlsError> {
        let made = Certificate::make(names, now)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions()?;
        let mut config = config.with_no_client_auth().with_single_cert(vec![made.der.clone()], made.key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: Arc::new(config).into(), certificate: made.der, until: made.until, renew_at: made.renew_at })
    }
}
