//! From an address to a link (LV-84), and what keeps it (LV-79, LV-81).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use egress_libvirt::{Client, Closed, Error as LibvirtCallError, Options, connect};
use russh::client::{self, AuthResult, Handle};
use russh::keys::{HashAlg, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{AlgorithmKind, ChannelOpenFailure};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::credentials::{Credentials, Files};
use super::cut::Cut;
use super::fault::{DialError, Fault, HostKeyFault, Stage};
use super::known_hosts::{KnownHosts, Verdict, lookup_name};

/// How often a host is asked whether it is there, and how long it may take to answer (LV-81).
pub const KEEPALIVE: Duration = Duration::from_secs(15);

/// How long a dial and a silence may last.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Of the whole dial.
    pub budget: Duration,
    /// Between two questions whether the host is there, and for the answer. Zero counts as [`KEEPALIVE`].
    pub keepalive: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { budget: Duration::from_secs(10), keepalive: KEEPALIVE }
    }
}

/// What every link opens (LV-11).
const URI: &str = "qemu:///system";

/// Whom to dial.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// A name or an address, without brackets.
    pub host: String,
    /// SSH's port.
    pub port: u16,
    /// Who may open the socket.
    pub user: String,
    /// libvirtd's socket on the host.
    pub socket: String,
}

impl Target {
    /// Host and port as configuration has them.
    pub fn address(&self) -> String {
        if self.host.contains(':') { format!("[{}]:{}", self.host, self.port) } else { format!("{}:{}", self.host, self.port) }
    }
}

/// A link that is open, until it is killed or its driver ends.
#[derive(Debug, Clone)]
pub struct Link {
    client: Client,
    cut: CancellationToken,
}

impl Link {
    /// For calls.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Marks the link dead and closes its socket: at once, without a word to the host, from anywhere, any number of times.
    pub fn kill(&self, reason: &str) {
        self.client.kill(reason);
        self.cut.cancel();
    }
}

/// Drives a link: for a task of whoever dialled. It ends when the link is dead, and says why; to drop it is to cut the link.
#[must_use = "a link whose driver is not polled does nothing"]
pub struct Driver(Pin<Box<dyn Future<Output = Closed> + Send>>);

impl Future for Driver {
    type Output = Closed;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// Dials: reads the credentials, connects, authenticates, opens the socket and libvirt behind it, all within one budget.
/// To drop the future is to give up; nothing of it stays.
pub async fn dial(target: &Target, files: &Files, timing: Timing) -> Result<(Link, Driver), DialError> {
    let mut stage = Stage::Credentials;
    let deadline = Instant::now() + timing.budget;
    // Whatever ends this function early takes the socket along.
    let cut = CancellationToken::new();
    let guard = cut.clone().drop_guard();
    let outcome = timeout_at(deadline, stages(target, files, timing, &cut, &mut stage)).await;
    match outcome {
        Ok(Ok((client, driver))) => {
            guard.disarm();
            Ok((Link { client, cut }, driver))
        }
        Ok(Err(fault)) => Err(DialError { stage, fault, target: target.clone() }),
        Err(_) => Err(DialError { stage, fault: Fault::Budget(timing.budget), target: target.clone() }),
    }
}

async fn stages(
    target: &Target,
    files: &Files,
    timing: Timing,
    cut: &CancellationToken,
    stage: &mut Stage,
) -> Result<(Client, Driver), Fault> {
    let deadline = Instant::now() + timing.budget;
    let credentials = Credentials::read(files).await.map_err(Fault::Credentials)?;

    *stage = Stage::Tcp;
    let tcp = TcpStream::connect((target.host.as_str(), target.port)).await.map_err(|error| Fault::Tcp(error.to_string()))?;
    tcp.set_nodelay(true).map_err(|error| Fault::Tcp(error.to_string()))?;

    *stage = Stage::Ssh;
    let session = ssh(target, &credentials, Cut::new(tcp, cut.clone())).await?;

    *stage = Stage::Socket;
    let channel = match session.channel_open_direct_streamlocal(target.socket.as_str()).await {
        Ok(channel) => channel,
        Err(russh::Error::ChannelOpenFailure(ChannelOpenFailure::AdministrativelyProhibited)) => return Err(Fault::Forbidden),
        Err(russh::Error::ChannelOpenFailure(failure)) => return Err(Fault::Unconnected(said(&failure))),
        Err(error) => return Err(Fault::Ssh(error.to_string())),
    };
    // SSH asks for signs of life itself.
    let (client, connection) = connect(channel.into_stream(), &Options { keepalive: None });
    let mut driver = drive(session, connection, client.clone(), cut.clone(), timing.keepalive);
    tokio::select! {
        biased;
        opened = client.open(URI, deadline) => opened.map_err(|error| handshake(error, timing.budget))?,
        // Then `open` has ended too, and says so at its next turn; this one is quicker.
        closed = &mut driver => return Err(Fault::NotLibvirt(closed.reason().to_owned())),
    }
    Ok((client, driver))
}

/// libvirt's handshake failed: an answer of libvirt, or none of libvirt's.
fn handshake(error: LibvirtCallError, budget: Duration) -> Fault {
    match error {
        LibvirtCallError::Deadline { .. } => Fault::Budget(budget),
        LibvirtCallError::Closed { closed, .. } => Fault::NotLibvirt(closed.reason().to_owned()),
        LibvirtCallError::Protocol { .. } => Fault::NotLibvirt(error.to_string()),
        other => Fault::Libvirt(other),
    }
}

fn said(failure: &ChannelOpenFailure) -> String {
    match failure {
        ChannelOpenFailure::ConnectFailed => "connect failed".to_owned(),
        ChannelOpenFailure::UnknownChannelType => "unknown channel type".to_owned(),
        ChannelOpenFailure::ResourceShortage => "resource shortage".to_owned(),
        ChannelOpenFailure::AdministrativelyProhibited => "administratively prohibited".to_owned(),
        ChannelOpenFailure::Other { code, .. } => format!("failure {code}"),
    }
}

fn drive<S>(
    session: Handle<Judge>,
    connection: egress_libvirt::Connection<S>,
    client: Client,
    cut: CancellationToken,
    interval: Duration,
) -> Driver
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let guard = cut.drop_guard();
    let interval = if interval.is_zero() { KEEPALIVE } else { interval };
    Driver(Box::pin(async move {
        let closed = tokio::select! {
            biased;
            closed = connection => closed,
            closed = async {
                let silence = keepalive(&session, interval).await;
                // While the connection still is: to drop it would be a reason too, and the first one stays.
                client.kill(&silence);
                client.until_closed().await
            } => closed,
        };
        drop(guard);
        closed
    }))
}

/// Ends when the host does not answer any more, with the reason.
async fn keepalive(session: &Handle<Judge>, interval: Duration) -> String {
    loop {
        tokio::time::sleep(interval).await;
        match timeout(interval, session.send_ping()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return format!("ssh: {error}"),
            Err(_) => return format!("ssh: no answer to a keepalive for {interval:?}"),
        }
    }
}

async fn ssh(target: &Target, credentials: &Credentials, stream: Cut<TcpStream>) -> Result<Handle<Judge>, Fault> {
    let name = lookup_name(&target.host, target.port);
    let mut config = client::Config::default();
    let pinned = credentials.known_hosts.as_ref().map(|known| known.algorithms(&name)).unwrap_or_default();
    if !pinned.is_empty() {
        config.preferred.key = pinned.into();
    }
    let refused = Arc::new(OnceLock::new());
    let judge = Judge { known_hosts: credentials.known_hosts.clone(), name: name.clone(), refused: Arc::clone(&refused) };
    let mut session = match client::connect_stream(Arc::new(config), stream, judge).await {
        Ok(session) => session,
        Err(error) => {
            return Err(match (refused.get(), error) {
                (Some(fault), _) => fault.clone(),
                (None, russh::Error::NoCommonAlgo { kind: AlgorithmKind::Key, theirs, .. }) => {
                    Fault::HostKey { fault: HostKeyFault::NoneOfThose, name, shown: theirs.join(", ") }
                }
                (None, error) => Fault::Ssh(error.to_string()),
            });
        }
    };
    let hash = if credentials.key.algorithm().is_rsa() {
        // A host that does not say takes SHA-2, as every sshd of the last ten years does.
        session.best_supported_rsa_hash().await.ok().flatten().unwrap_or(Some(HashAlg::Sha512))
    } else {
        None
    };
    let key = PrivateKeyWithHashAlg::new(Arc::clone(&credentials.key), hash);
    match session.authenticate_publickey(target.user.as_str(), key).await {
        Ok(AuthResult::Success) => Ok(session),
        Ok(AuthResult::Failure { remaining_methods, .. }) => {
            let methods: Vec<&str> = remaining_methods.iter().map(<&'static str>::from).collect();
            Err(Fault::Refused { methods: if methods.is_empty() { "nothing".to_owned() } else { methods.join(", ") } })
        }
        Err(error) => Err(Fault::Ssh(error.to_string())),
    }
}

/// Looks at the host's key.
struct Judge {
    /// `None` trusts any.
    known_hosts: Option<KnownHosts>,
    name: String,
    /// The library says only that it was refused.
    refused: Arc<OnceLock<Fault>>,
}

impl client::Handler for Judge {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let Some(known) = &self.known_hosts else { return Ok(true) };
        let (verdict, shown) = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => {
                (known.judge(&self.name, key), format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256)))
            }
            // None is asked for.
            PublicKeyOrCertificate::Certificate(_) => (Verdict::Unknown, "of a certificate".to_owned()),
        };
        let fault = match verdict {
            Verdict::Trusted => return Ok(true),
            Verdict::Unknown => HostKeyFault::Unknown,
            Verdict::Changed => HostKeyFault::Changed,
            Verdict::Revoked => HostKeyFault::Revoked,
        };
        let _ = self.refused.set(Fault::HostKey { fault, name: self.name.clone(), shown });
        Ok(false)
    }
}
