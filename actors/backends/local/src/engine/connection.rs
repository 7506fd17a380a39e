//! One client's connection: requests by hyper until it ends or becomes a tunnel.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use rand::Rng;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Watched};
use super::dial::Target;
use super::{Settings, forward, relay};
use crate::config::Limits;

/// Room that hyper gets beyond `maxHeaderBytes`, so that a head a little over the limit is answered by us, with its reason.
const HEADER_SLACK: usize = 16 * 1024;

/// What the requests of one connection share.
pub(super) struct Client {
    pub settings: Arc<Settings>,
    /// Those of this connection.
    pub limits: Limits,
    pub peer: SocketAddr,
    pub activity: Activity,
    /// The fault knob decided to reset this connection.
    pub reset: bool,
    /// Set by an accepted CONNECT.
    pub tunnel: Mutex<Option<Tunnel>>,
    /// Upstream connections of absolute-form requests; they end with the client's.
    pub upstreams: Mutex<JoinSet<()>>,
}

/// A tunnel about to begin.
pub(super) struct Tunnel {
    pub upgrade: OnUpgrade,
    pub upstream: TcpStream,
    pub target: Target,
    pub started: Instant,
}

/// Serves a client to the end of its connection.
pub(super) async fn serve(stream: TcpStream, peer: SocketAddr, settings: Arc<Settings>, closing: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let rules = settings.rules.load_full();
    let limits = rules.limits;
    let reset = rules.faults.as_ref().is_some_and(|faults| happens(faults.reset_ratio));
    drop(rules);
    if reset {
        let _ = stream.set_zero_linger();
    }
    // Boxed, so that a tunnel does not carry the room of the HTTP phase with it.
    let tunnel = Box::pin(requests(stream, peer, Arc::clone(&settings), limits, closing, reset)).await;
    if let Some((tunnel, client, early)) = tunnel {
        let Tunnel { upstream, target, started, .. } = tunnel;
        let ended = relay::relay(client, early, upstream, limits.idle_timeout).await;
        tracing::debug!(
            provider = %settings.identity.provider, instance = %settings.identity.instance, proxy = %settings.identity.proxy,
            client = %peer, target_host = %target, duration = started.elapsed().as_secs_f64(),
            sent = ended.sent, received = ended.received, end = %ended.end, "proxy tunnel ended"
        );
    }
}

/// Whether a share of events includes this one.
pub(super) fn happens(ratio: f64) -> bool {
    ratio > 0.0 && rand::rng().random::<f64>() < ratio
}

/// The HTTP phase. What comes back is a tunnel: its client's connection and the bytes already read from it.
async fn requests(
    stream: TcpStream,
    peer: SocketAddr,
    settings: Arc<Settings>,
    limits: Limits,
    closing: CancellationToken,
    reset: bool,
) -> Option<(Tunnel, TcpStream, bytes::Bytes)> {
    let activity = Activity::new();
    let client = Arc::new(Client {
        settings,
        limits,
        peer,
        activity: activity.clone(),
        reset,
        tunnel: Mutex::new(None),
        upstreams: Mutex::new(JoinSet::new()),
    });
    let service = service_fn(|request: Request<hyper::body::Incoming>| forward::answer(Arc::clone(&client), request));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_header_size(limits.max_header_bytes + HEADER_SLACK)
        .max_buf_size((limits.max_header_bytes + HEADER_SLACK).max(32 * 1024))
        .serve_connection(TokioIo::new(Watched::new(stream, activity.clone())), service)
        .with_upgrades();
    let mut serving = pin!(serving);
    let mut told = false;
    loop {
        tokio::select! {
            biased;
            () = closing.cancelled(), if !told => {
                told = true;
                serving.as_mut().graceful_shutdown();
            }
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(provider = %client.settings.identity.provider, instance = %client.settings.identity.instance, client = %peer, %error, "proxy connection failed");
                }
                break;
            }
            () = activity.idle(limits.idle_timeout) => return None,
        }
    }
    let mut tunnel = client.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    // The connection has ended, so this is decided: no wait worth a limit.
    let upgraded = (&mut tunnel.upgrade).await.ok()?;
    let parts = upgraded.downcast::<TokioIo<Watched>>().ok()?;
    Some((tunnel, parts.io.into_inner().into_inner(), parts.read_buf))
}
