//! Peers that behave as told. All live in the test's own runtime and end with it.

use std::future::Future;
use std::sync::{Arc, Mutex};

use egress_prober::probe::{probe, tls};
use egress_prober::{Guard, GuardPolicy, ProbeSettings};
use egress_protocol::object::Credentials;
use egress_protocol::prober::{ProbeFailure, ProbeOutcome, ProbeTarget};
use egress_protocol::resource::HealthCheck;
use egress_protocol::{ObjectKey, Secret, Uid};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What must never be seen anywhere but where it belongs.
pub(crate) const SENTINEL: &str = "s3nt1nel";

/// What a peer read, one entry per request head.
pub(crate) type Seen = Arc<Mutex<Vec<String>>>;

/// A listener on loopback.
pub(crate) struct Peer {
    pub(crate) port: u16,
    pub(crate) seen: Seen,
    _tasks: JoinSet<()>,
}

impl Peer {
    pub(crate) fn heads(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// Serves each connection with `handler`.
pub(crate) async fn serve<F, Fut>(handler: F) -> Peer
where
    F: Fn(TcpStream, Seen) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Seen::default();
    let shared = Arc::clone(&seen);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(handler(stream, Arc::clone(&shared)));
        }
    });
    Peer { port, seen, _tasks: tasks }
}

/// Reads a request head and notes it.
pub(crate) async fn head<T: AsyncRead + Unpin>(stream: &mut T, seen: &Seen) -> Option<String> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        read.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&read).into_owned();
    seen.lock().unwrap().push(head.clone());
    Some(head)
}

/// Answers every request with these bytes and closes in an orderly way.
pub(crate) async fn script(answer: impl Into<Vec<u8>>) -> Peer {
    let answer: Arc<[u8]> = answer.into().into();
    serve(move |mut stream, seen| {
        let answer = Arc::clone(&answer);
        async move {
            if head(&mut stream, &seen).await.is_some() {
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
                let _ = stream.read(&mut [0; 1024]).await;
            }
        }
    })
    .await
}

/// Answers CONNECT with these bytes and tunnels to `port`, whatever was asked for.
pub(crate) async fn tunnel(answer: &'static [u8], port: u16) -> Peer {
    serve(move |mut stream, seen| async move {
        head(&mut stream, &seen).await.unwrap();
        let mut target = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(answer).await.unwrap();
        let _ = copy_bidirectional(&mut stream, &mut target).await;
    })
    .await
}

/// A certificate authority for tests.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// An acceptor for `name`; `change` may spoil its certificate.
    pub(crate) fn acceptor(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], rustls_pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A TLS target that answers every request with these bytes.
pub(crate) async fn tls_target(acceptor: TlsAcceptor, answer: impl Into<Vec<u8>>) -> Peer {
    let answer: Arc<[u8]> = answer.into().into();
    serve(move |stream, seen| {
        let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            if head(&mut stream, &seen).await.is_some() {
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
                let _ = stream.read(&mut [0; 1024]).await;
            }
        }
    })
    .await
}

pub(crate) fn settings() -> ProbeSettings {
    ProbeSettings::new(tls::client_config(None).unwrap(), Guard::new(GuardPolicy::default()))
}

pub(crate) fn trusting(ca: &Ca) -> ProbeSettings {
    ProbeSettings::new(tls::client_config(Some(ca.pem().as_bytes())).unwrap(), Guard::new(GuardPolicy::default()))
}

/// The proxy on this port of loopback, with credentials that must not leak.
pub(crate) fn target(port: u16, url: &str) -> ProbeTarget {
    ProbeTarget {
        key: ObjectKey::new("default", "px-1"),
        uid: Uid::new("00000000-0000-0000-0000-000000000000"),
        epoch: 1,
        host: "127.0.0.1".into(),
        port,
        credentials: Some(Arc::new(Credentials { username: Secret::new("user".into()), password: Secret::new(SENTINEL.into()) })),
        external: true,
        provider: None,
        health_check: HealthCheck { url: url.to_owned(), ..HealthCheck::default() },
        prior: None,
    }
}

/// Probes and checks that no secret and nothing a peer said is in the message.
pub(crate) async fn outcome(target: &ProbeTarget, settings: &ProbeSettings) -> ProbeOutcome {
    let outcome = probe(target, settings).await.unwrap();
    let said = format!("{outcome:?}");
    assert!(!said.contains(SENTINEL) && !said.contains("czNudDFuZWw"), "a secret in {said}");
    outcome
}

/// The reason, the words and whose side; or that it passed.
pub(crate) async fn failure(target: &ProbeTarget, settings: &ProbeSettings) -> (ProbeFailure, String, bool) {
    match outcome(target, settings).await {
        ProbeOutcome::Failed { failure, message, target_side } => (failure, message, target_side),
        passed @ ProbeOutcome::Passed { .. } => panic!("{passed:?}"),
    }
}
