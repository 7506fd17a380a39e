//! One client's connection: requests until it ends or becomes a tunnel.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use egress_net::closing;
use rand::Rng;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::activity::Activity;
use super::answer::Refusal;
use super::dial::Target;
use super::exchange::Wire;
use super::head::{self, NoHead};
use super::{Settings, forward, relay};
use crate::config::Limits;

/// What the requests of one connection share.
pub(super) struct Client {
    pub settings: Arc<Settings>,
    /// Those of this connection.
    pub limits: Limits,
    pub peer: SocketAddr,
    pub activity: Activity,
    /// The fault knob decided to reset this connection.
    pub reset: bool,
    /// The instance stops: this request is the last one.
    pub closing: CancellationToken,
}

impl Client {
    /// Now, as `Date` has it.
    pub(super) fn date(&self) -> String {
        self.settings.date()
    }
}

/// What follows on a request.
pub(super) enum Next {
    Request,
    /// We end the connection, so that the last answer arrives.
    Close,
    /// The answer broke off: the client is to know.
    Reset,
    /// The client has gone, or is not worth a word.
    Drop,
    Tunnel(Tunnel),
}

/// A tunnel about to begin.
pub(super) struct Tunnel {
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
    let client = Client { settings: Arc::clone(&settings), limits, peer, activity: Activity::new(), reset, closing };
    // Boxed, so that a tunnel does not carry the room of the HTTP phase with it.
    let tunnel = Box::pin(requests(client, stream)).await;
    if let Some((tunnel, client, early)) = tunnel {
        let Tunnel { upstream, target, started } = tunnel;
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
async fn requests(client: Client, mut stream: TcpStream) -> Option<(Tunnel, TcpStream, Bytes)> {
    let mut buffer = BytesMut::new();
    let next = tokio::select! {
        biased;
        next = one_by_one(&client, &mut stream, &mut buffer) => next,
        () = client.activity.idle(client.limits.idle_timeout) => Next::Drop,
    };
    match next {
        Next::Tunnel(tunnel) => return Some((tunnel, stream, buffer.freeze())),
        Next::Close => {
            drop(buffer);
            tokio::select! {
                _ = closing::close(&mut stream, closing::LINGER) => {}
                () = client.closing.cancelled() => {}
            }
        }
        Next::Reset => {
            let _ = stream.set_zero_linger();
        }
        Next::Request | Next::Drop => {}
    }
    None
}

async fn one_by_one(client: &Client, stream: &mut TcpStream, buffer: &mut BytesMut) -> Next {
    let (read, mut write) = stream.split();
    let limit = client.limits.max_header_bytes;
    loop {
        if buffer.is_empty() {
            *buffer = BytesMut::new();
        }
        let head = tokio::select! {
            biased;
            head = timeout(client.limits.idle_timeout, head::read(&read, buffer, limit, &client.activity)) => head,
            () = client.closing.cancelled() => return Next::Drop,
        };
        let head = match head {
            Ok(Ok(head)) => Ok(head),
            Ok(Err(NoHead::TooLarge)) => {
                let details = format!("the request's head is larger than {limit} bytes");
                Err(Refusal::new(http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "http_request_error", details).closing())
            }
            Ok(Err(NoHead::Closed | NoHead::Incomplete)) | Err(_) => return Next::Drop,
        };
        if client.reset {
            return Next::Drop;
        }
        let wire = Wire { read: &read, write: &mut write, buffer };
        let next = match head {
            Ok(head) => forward::answer(client, wire, head).await,
            Err(refusal) => forward::refuse_unread(client, wire, &refusal).await,
        };
        if !matches!(next, Next::Request) {
            return next;
        }
    }
}
