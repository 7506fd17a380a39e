//! An instance: its listener and all connections, in one owned task. Accepting goes on whatever a connection does and
//! whatever `accept` answers.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::Refusal;
use super::{Rules, Settings, connection};

/// Clients that are told why they are not served, at a time; beyond them a connection is closed without a word.
const MAX_REFUSALS: usize = 32;
/// How long telling them may take.
const REFUSAL_TIME: Duration = Duration::from_secs(5);
/// After a failed accept (descriptors are short) the listener waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Failed accepts are logged at most this often.
const ACCEPT_LOG: Duration = Duration::from_secs(10);

/// Takes an address, without serving it yet.
pub(crate) fn listen(address: SocketAddrV4) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::V4(address))?;
    socket.listen(1024)
}

/// A running forward proxy. Dropping it ends the listener and every tunnel.
#[derive(Debug)]
pub(crate) struct Instance {
    tasks: JoinSet<()>,
    closing: CancellationToken,
    ended: CancellationToken,
}

impl Instance {
    /// Serves a listener.
    pub(crate) fn start(listener: TcpListener, settings: Arc<Settings>) -> Self {
        let closing = CancellationToken::new();
        let ended = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let guard = ended.clone().drop_guard();
        let seen = closing.clone();
        tasks.spawn(async move {
            let _guard = guard;
            serve(listener, settings, seen).await;
        });
        Self { tasks, closing, ended }
    }

    /// Whether it still serves.
    pub(crate) fn is_alive(&self) -> bool {
        !self.ended.is_cancelled()
    }

    /// Closes the listener at once, lets running tunnels end for at most `grace`, cuts the rest. When this returns the
    /// address is free.
    pub(crate) async fn stop(mut self, grace: Duration) {
        self.closing.cancel();
        if !grace.is_zero() {
            let _ = timeout(grace, self.tasks.join_next()).await;
        }
        self.tasks.shutdown().await;
    }
}

async fn serve(listener: TcpListener, settings: Arc<Settings>, closing: CancellationToken) {
    let mut connections = JoinSet::new();
    let mut refusals = JoinSet::new();
    let mut logged: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            Some(ended) = connections.join_next() => {
                report_panic(&settings, ended);
                continue;
            }
            Some(_) = refusals.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if logged.is_none_or(|at| at.elapsed() >= ACCEPT_LOG) {
                    logged = Some(Instant::now());
                    tracing::error!(provider = %settings.identity.provider, instance = %settings.identity.instance, %error, "accepting a connection failed");
                }
                tokio::select! {
                    () = sleep(ACCEPT_PAUSE) => {}
                    () = closing.cancelled() => break,
                }
                continue;
            }
        };
        let rules = settings.rules.load_full();
        let refusal = if !client_allowed(&rules, peer.ip()) {
            Some(Refusal::client("this client's network is not among allowedClients").closing())
        } else if connections.len() >= rules.limits.max_connections {
            Some(Refusal::limit(format!("{} connections are all this proxy serves at a time", rules.limits.max_connections)).closing())
        } else {
            None
        };
        match refusal {
            None => {
                connections.spawn(connection::serve(stream, peer, Arc::clone(&settings), closing.clone()));
            }
            Some(refusal) if refusals.len() < MAX_REFUSALS => {
                tracing::debug!(
                    provider = %settings.identity.provider, instance = %settings.identity.instance, client = %peer,
                    status = refusal.status.as_u16(), reason = %refusal.details, "proxy client refused"
                );
                refusals.spawn(refuse(stream, refusal, Arc::clone(&settings)));
            }
            Some(_) => {}
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        report_panic(&settings, ended);
    }
}

fn client_allowed(rules: &Rules, client: IpAddr) -> bool {
    let client = client.to_canonical();
    rules.allowed_clients.iter().any(|net| net.contains(&client))
}

/// A panic ends its own connection only; the process's hook has written it down.
fn report_panic(settings: &Settings, ended: Result<(), tokio::task::JoinError>) {
    if ended.is_err_and(|error| error.is_panic()) {
        tracing::error!(provider = %settings.identity.provider, instance = %settings.identity.instance, "a proxy connection panicked");
    }
}

/// Reads one request and answers it with the refusal.
async fn refuse(stream: TcpStream, refusal: Refusal, settings: Arc<Settings>) {
    let answer = service_fn(|_| std::future::ready(Ok::<_, Infallible>(refusal.response(&settings.identity))));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_header_size(settings.rules.load().limits.max_header_bytes)
        .serve_connection(TokioIo::new(stream), answer);
    let _ = timeout(REFUSAL_TIME, serving).await;
}
