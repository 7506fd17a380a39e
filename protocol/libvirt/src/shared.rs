//! What the handles of a link and the future that drives it both see: whether it is alive, and how far a call has come.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::Closed;

/// The state of a link.
#[derive(Debug)]
pub(crate) struct Shared {
    serial: AtomicU32,
    closed: watch::Sender<Option<Closed>>,
    /// Serials whose callers are gone and whose answers are not here yet.
    pub(crate) abandoned: AtomicUsize,
    /// Messages that belong to nothing.
    pub(crate) unexpected: AtomicU64,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self { serial: AtomicU32::new(0), closed: watch::Sender::new(None), abandoned: AtomicUsize::new(0), unexpected: AtomicU64::new(0) }
    }

    /// The next serial. Zero belongs to events.
    pub(crate) fn next_serial(&self) -> u32 {
        loop {
            let serial = self.serial.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            if serial != 0 {
                return serial;
            }
        }
    }

    /// Marks the link dead; the first reason stays. It waits for nothing, whatever becomes of the driving future (LV-79).
    pub(crate) fn close(&self, reason: &str) {
        self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            if first {
                *closed = Some(Closed::new(reason));
            }
            first
        });
    }

    /// Why the link is dead, if it is.
    pub(crate) fn closed(&self) -> Option<Closed> {
        self.closed.borrow().clone()
    }

    /// Waits until the link is dead.
    pub(crate) async fn until_closed(&self) -> Closed {
        let mut closed = self.closed.subscribe();
        // The sender is ours, so waiting cannot fail.
        match closed.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(closed)) => closed.clone(),
            _ => Closed::new("the link is gone"),
        }
    }
}

/// How far a call has come. Its caller and the driving future agree on it, so that a call that was given up in time is
/// never sent, and one that may have been sent is known as such.
#[derive(Debug, Default)]
pub(crate) struct Ticket(AtomicU8);

const QUEUED: u8 = 0;
const SENT: u8 = 1;
const CANCELLED: u8 = 2;

impl Ticket {
    /// Whether it may be sent; from now on it counts as sent.
    pub(crate) fn send(&self) -> bool {
        self.0.compare_exchange(QUEUED, SENT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether it was given up before it was sent.
    pub(crate) fn cancel(&self) -> bool {
        !matches!(self.0.compare_exchange(QUEUED, CANCELLED, Ordering::AcqRel, Ordering::Acquire), Err(SENT))
    }
}

/// How libvirt answered a call or ended a stream: a payload, or an error.
#[derive(Debug)]
pub(crate) enum Answer {
    Ok(Bytes),
    /// The payload is a `RemoteError`.
    Error(Bytes),
    /// It did what no libvirt does.
    Protocol(&'static str),
}

/// What goes into an upload.
#[derive(Debug)]
pub(crate) enum Chunk {
    Data(Bytes),
    /// It is complete.
    Finish,
}

/// What follows the reply of a call.
#[derive(Debug)]
pub(crate) enum Stream {
    None,
    Upload {
        chunks: mpsc::Receiver<Chunk>,
        end: oneshot::Sender<Answer>,
    },
    /// At most so many bytes, which are the answer of the call.
    Range {
        limit: usize,
    },
}

/// What handles ask of the driving future.
#[derive(Debug)]
pub(crate) enum Command {
    Call {
        serial: u32,
        procedure: i32,
        payload: Vec<u8>,
        ticket: std::sync::Arc<Ticket>,
        reply: oneshot::Sender<Answer>,
        stream: Stream,
    },
    /// Nobody waits for this one any more.
    Abandon {
        serial: u32,
    },
    /// Look whether the link was marked dead.
    Wake,
}
