//! An instance: its listener and all connections, in one owned task. Accepting goes on whatever a connection does and
//! whatever `accept` answers.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use egress_net::{closing, descriptors};
use egress_protocol::metrics::Refused;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::Refusal;
use super::{Rules, Settings, connection};

/// Refused clients that are given time to hear the answer. One more, and the first of them has had its time.
const MAX_REFUSALS: usize = 256;
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
    let mut refusals = Refusals::default();
    let mut logged: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            Some(ended) = connections.join_next() => {
                report_panic(&settings, ended);
                continue;
            }
            () = refusals.one_ended() => continue,
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
        let short = descriptors::are_short(&stream);
        let (refusal, reason) = if !client_allowed(&rules, peer.ip()) {
            (Refusal::client("this client's network is not among allowedClients"), None)
        } else if short {
            (Refusal::limit("the process is out of descriptors"), Some("descriptors"))
        } else if connections.len() >= rules.limits.max_connections {
            let details = format!("{} connections are all this proxy serves at a time", rules.limits.max_connections);
            (Refusal::limit(details), Some("connections"))
        } else {
            connections.spawn(connection::serve(stream, peer, Arc::clone(&settings), closing.clone()));
            continue;
        };
        tracing::debug!(
            provider = %settings.identity.provider, instance = %settings.identity.instance, client = %peer,
            status = refusal.status.as_u16(), reason = %refusal.details, "proxy client refused"
        );
        if let Some(reason) = reason {
            settings.metrics.connections_refused.get_or_create(&Refused { listener: "local", reason }).inc();
        }
        // A new connection has room for so short an answer.
        let _ = stream.try_write(&refusal.closing().bytes(&settings.identity, false, &settings.date()));
        refusals.take(stream, short);
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

/// Refused clients on their way out.
#[derive(Default)]
struct Refusals {
    tasks: JoinSet<()>,
    /// In the order in which they came; some may have ended.
    order: VecDeque<AbortHandle>,
}

impl Refusals {
    /// Lets an answered client hear the answer. `short`: for no longer than it takes to say goodbye.
    fn take(&mut self, mut stream: TcpStream, short: bool) {
        if self.tasks.len() >= MAX_REFUSALS {
            while self.order.pop_front().is_some_and(|first| {
                let ended = first.is_finished();
                first.abort();
                ended
            }) {}
        }
        let within = if short { Duration::from_millis(50) } else { closing::LINGER };
        self.order.push_back(self.tasks.spawn(async move {
            let _ = closing::close(&mut stream, within).await;
        }));
    }

    /// Resolves when one has ended; never when there is none.
    async fn one_ended(&mut self) {
        if self.tasks.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
        if self.tasks.is_empty() {
            self.order.clear();
        }
    }
}
