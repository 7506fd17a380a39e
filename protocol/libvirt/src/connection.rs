//! The future that drives a link.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::error::Closed;
use crate::inbound::Inbound;
use crate::keepalive::{Beat, Keepalive};
use crate::shared::{Chunk, Command, Shared, Stream, Ticket};
use crate::slots::{Expect, Slots, Then};
use crate::wire::{self, Header, kind, status};

/// How a link behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// After so long without a byte in either direction the other side is asked whether it is there; after as long again
    /// the link is dead. `None` never asks. Zero counts as 15 s.
    pub keepalive: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { keepalive: Some(crate::keepalive::DEFAULT) }
    }
}

/// A link over a byte stream: the handle, and the future that drives it. Nothing is sent before a handle asks for it.
pub fn connect<S: AsyncRead + AsyncWrite + Unpin>(io: S, options: &Options) -> (Client, Connection<S>) {
    let (sender, commands) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared::new());
    let connection = Connection {
        io,
        commands,
        slots: Slots::new(Arc::clone(&shared)),
        queue: VecDeque::new(),
        uploads: VecDeque::new(),
        writing: None,
        flushed: true,
        inbound: Inbound::default(),
        keepalive: options.keepalive.map(Keepalive::new),
        shared: Arc::clone(&shared),
    };
    (Client::new(sender, shared), connection)
}

/// Drives a link: to be polled by a task of whoever made it. It ends when the link is dead, with the reason, or when the
/// last handle is gone. To drop it is to cut the link.
#[must_use = "a link whose connection is not polled does nothing"]
pub struct Connection<S> {
    io: S,
    commands: mpsc::UnboundedReceiver<Command>,
    slots: Slots,
    /// Messages to be sent before any more of an upload.
    queue: VecDeque<Outgoing>,
    uploads: VecDeque<Uploading>,
    writing: Option<Writing>,
    flushed: bool,
    inbound: Inbound,
    keepalive: Option<Keepalive>,
    shared: Arc<Shared>,
}

struct Outgoing {
    header: Header,
    payload: Bytes,
    /// Of a call: it is sent only if its caller still waits.
    ticket: Option<Arc<Ticket>>,
}

struct Uploading {
    serial: u32,
    procedure: i32,
    open: bool,
    chunks: mpsc::Receiver<Chunk>,
}

/// A message that is partly written.
struct Writing {
    head: Bytes,
    payload: Bytes,
    /// It is a part of an upload.
    upload: bool,
}

/// How often one poll goes round before others have their turn.
const ROUNDS: usize = 64;
/// How often one round reads before it writes.
const READS: usize = 8;

/// Why the link ends.
struct End(String);

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self(format!("the stream failed: {error}"))
    }
}

/// What a round has moved.
#[derive(Default)]
struct Moved {
    any: bool,
    /// Bytes of an upload among them.
    upload: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Connection<S> {
    type Output = Closed;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let End(reason) = ready!(this.drive(context));
        this.shared.close(&reason);
        // If it was marked dead before, that reason stays.
        Poll::Ready(this.shared.closed().unwrap_or_else(|| Closed::new(&reason)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn drive(&mut self, context: &mut Context<'_>) -> Poll<End> {
        for _ in 0..ROUNDS {
            match self.round(context) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(end) => return Poll::Ready(end),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// One look at everything; whether anything moved.
    fn round(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let asked = self.take_commands(context)?;
        if let Some(closed) = self.shared.closed() {
            return Err(End(closed.reason().to_owned()));
        }
        let read = self.read(context)?;
        let written = self.write(context)?;
        let beat = self.keepalive.as_mut().map_or(Beat::Wait, |keepalive| keepalive.poll(read, written.upload, context));
        match beat {
            Beat::Wait => Ok(asked || read || written.any),
            Beat::Ask => {
                self.send(Header::keepalive(wire::keepalive::PING));
                Ok(true)
            }
            Beat::Dead(silence) => Err(End(format!("no answer to a keepalive for {silence:?}"))),
        }
    }

    fn take_commands(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        let mut any = false;
        while let Poll::Ready(command) = self.commands.poll_recv(context) {
            match command.ok_or_else(|| End("no handle is left".to_owned()))? {
                Command::Call { serial, procedure, payload, ticket, reply, stream } => {
                    let expect = match stream {
                        Stream::None => Expect::Reply(reply),
                        Stream::Range { limit } => Expect::Range { answer: reply, limit },
                        Stream::Upload { chunks, end } => {
                            self.uploads.push_back(Uploading { serial, procedure, open: false, chunks });
                            Expect::Upload { opened: reply, end }
                        }
                    };
                    self.slots.add(serial, procedure, expect);
                    let header = Header::new(procedure, kind::CALL, serial, status::OK);
                    self.queue.push_back(Outgoing { header, payload: payload.into(), ticket: Some(ticket) });
                }
                Command::Abandon { serial } => {
                    // Its ticket says whether it still can be taken back.
                    let queued = self.queue.iter().position(|message| message.ticket.is_some() && message.header.serial == serial);
                    match queued {
                        Some(at) => {
                            self.queue.remove(at);
                            self.slots.forget(serial);
                            self.uploads.retain(|upload| upload.serial != serial);
                        }
                        None => {
                            let then = self.slots.abandon(serial);
                            self.then(then);
                        }
                    }
                }
                Command::Wake => {}
            }
            any = true;
        }
        Ok(any)
    }

    fn then(&mut self, then: Then) {
        if let Some(serial) = then.stop {
            self.uploads.retain(|upload| upload.serial != serial);
        }
        if let Some(serial) = then.begin {
            self.uploads.iter_mut().filter(|upload| upload.serial == serial).for_each(|upload| upload.open = true);
        }
        if let Some(header) = then.send {
            self.send(header);
        }
    }

    fn send(&mut self, header: Header) {
        self.queue.push_back(Outgoing { header, payload: Bytes::new(), ticket: None });
    }

    fn read(&mut self, context: &mut Context<'_>) -> Result<bool, End> {
        for n in 0..READS {
            match pin!(self.io.read_buf(self.inbound.room())).poll(context) {
                Poll::Pending => return Ok(n > 0),
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Ready(Ok(0)) => return Err(End("the other side closed it".to_owned())),
                Poll::Ready(Ok(_)) => {}
            }
            while let Some((header, payload)) =
                self.inbound.next().map_err(|length| End(format!("protocol error: message length {length}")))?
            {
                if header.program == wire::KEEPALIVE {
                    if header.procedure == wire::keepalive::PING {
                        self.send(Header::keepalive(wire::keepalive::PONG));
                    }
                } else {
                    let then = self.slots.message(&header, payload);
                    self.then(then);
                }
            }
        }
        Ok(true)
    }

    fn write(&mut self, context: &mut Context<'_>) -> Result<Moved, End> {
        let mut moved = Moved::default();
        loop {
            if self.writing.is_none() {
                self.writing = self.next(context);
            }
            let Some(writing) = &mut self.writing else { break };
            let bytes = if writing.head.is_empty() { &mut writing.payload } else { &mut writing.head };
            match Pin::new(&mut self.io).poll_write(context, bytes) {
                Poll::Pending => return Ok(moved),
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Ready(Ok(0)) => return Err(End("the stream takes no more".to_owned())),
                Poll::Ready(Ok(n)) => bytes.advance(n),
            }
            moved = Moved { any: true, upload: moved.upload || writing.upload };
            self.flushed = false;
            if writing.head.is_empty() && writing.payload.is_empty() {
                self.writing = None;
            }
        }
        if !self.flushed && Pin::new(&mut self.io).poll_flush(context)?.is_ready() {
            self.flushed = true;
        }
        Ok(moved)
    }

    /// What is to be written next: calls and control first, then uploads in turn.
    fn next(&mut self, context: &mut Context<'_>) -> Option<Writing> {
        while let Some(Outgoing { header, payload, ticket }) = self.queue.pop_front() {
            if ticket.is_none_or(|ticket| ticket.send()) {
                return Some(Writing { head: header.head(payload.len()), payload, upload: false });
            }
            // Its caller left before it was sent.
            self.slots.forget(header.serial);
            self.uploads.retain(|upload| upload.serial != header.serial);
        }
        for _ in 0..self.uploads.len() {
            let mut upload = self.uploads.pop_front()?;
            let chunk = if upload.open { upload.chunks.poll_recv(context) } else { Poll::Pending };
            let (procedure, serial) = (upload.procedure, upload.serial);
            match chunk {
                Poll::Pending => self.uploads.push_back(upload),
                Poll::Ready(Some(Chunk::Data(payload))) => {
                    self.uploads.push_back(upload);
                    let header = Header::new(procedure, kind::STREAM, serial, status::CONTINUE);
                    return Some(Writing { head: header.head(payload.len()), payload, upload: true });
                }
                Poll::Ready(Some(Chunk::Finish)) => {
                    self.slots.finishing(serial);
                    let header = Header::new(procedure, kind::STREAM, serial, status::OK);
                    return Some(Writing { head: header.head(0), payload: Bytes::new(), upload: true });
                }
                // Dropped: that it is given up has been asked for, or will be.
                Poll::Ready(None) => {}
            }
        }
        None
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.shared.close("nobody drives it any more");
    }
}

impl<S> fmt::Debug for Connection<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("closed", &self.shared.closed()).field("queued", &self.queue.len()).finish_non_exhaustive()
    }
}
