//! The clock of one connection, and what of its answers has left the process (LS-2, LS-23).
//!
//! A wrapper round the socket knows four states: idle (no request has begun), a request (the service is at work), its
//! answer (its bytes are being handed over), and handed over (all of them are in a buffer). Only when the buffer has been
//! flushed the connection is idle again, and only then the next request begins: a client that does not read costs one
//! answer, however many requests it sends. Only one timer exists per connection; it is moved, not remade.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf, Bytes};
use egress_net::closing::StagedClose;
use egress_net::places::Place;
use egress_protocol::lease::ProblemCode;
use futures::task::AtomicWaker;
use hyper::body::{Frame, SizeHint};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::http::problem::Refused;

/// The largest head of a request, and what is buffered of an answer before its body waits. A head of all that the API
/// knows is a third of it.
pub(super) const BUFFER: usize = 32 * 1024;

/// What a connection may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the first byte (of a new connection: from the start) to the end of the head.
    pub head: Duration,
    /// From the head to the end of the body.
    pub body: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// For a client to take what is written.
    pub write: Duration,
    /// How many at once.
    pub connections: usize,
    /// When all places are taken, one that has waited on its client for less than this keeps its place.
    pub spared: Duration,
    /// The descriptors that are kept for listeners are for this one.
    pub uses_reserve: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(5),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            write: Duration::from_secs(10),
            connections: 2000,
            spared: Duration::from_millis(250),
            uses_reserve: false,
        }
    }
}

/// No request has begun, or all bytes of the last answer have left.
const IDLE: u8 = 0;
/// The service is at work.
const REQUEST: u8 = 1;
/// The service is done, its answer is being handed over.
const ANSWER: u8 = 2;
/// Every byte of the answer is in the buffer of the connection.
const HANDED_OVER: u8 = 3;

/// What a connection, the handler of its current request and the answer share.
#[derive(Default)]
pub struct Exchange {
    phase: AtomicU8,
    /// The answer ends the connection though the client may still be sending.
    closing: AtomicBool,
    undo: Mutex<Option<Undo>>,
    settled: AtomicWaker,
    place: Option<Place>,
    /// A request has begun.
    used: AtomicBool,
    /// What is said to a client that has not asked for anything yet, when the connection must end.
    parting: Mutex<Option<Bytes>>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("phase", &self.phase).finish_non_exhaustive()
    }
}

/// Runs unless the answer was written: dropping it is the undoing.
struct Undo(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

impl Exchange {
    /// Of a connection that has a place.
    pub(super) fn new(place: Place) -> Self {
        Self { place: Some(place), ..Self::default() }
    }

    /// What to do when the answer of this request does not leave the process (LS-2: a grant is released at once).
    pub fn unless_written(&self, undo: impl FnOnce() + Send + 'static) {
        *self.lock() = Some(Undo(Some(Box::new(undo))));
    }

    /// Resolves when the answer before has left the process, then a request begins.
    pub(super) async fn begin(&self) {
        poll_fn(|cx| {
            self.settled.register(cx.waker());
            if self.phase() == IDLE { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.set(REQUEST);
        self.used.store(true, Ordering::Relaxed);
        if let Some(place) = &self.place {
            place.works();
        }
    }

    /// The service is done.
    pub(super) fn answered(self: &Arc<Self>, body: Body, closing: bool) -> Answer {
        self.closing.store(closing, Ordering::Relaxed);
        self.set(ANSWER);
        self.wait();
        Answer { body, exchange: Arc::clone(self) }
    }

    /// Resolves when the connection must end for another.
    pub(super) async fn given_away(&self) {
        match &self.place {
            Some(place) => place.given_away().await,
            None => std::future::pending().await,
        }
    }

    /// Leaves words for a client that may be about to ask for the first time; `false`: it has had answers, and reads the end
    /// of the connection as what it is.
    pub(super) fn part_with(&self, words: Bytes) -> bool {
        let new = !self.used.load(Ordering::Relaxed);
        if new {
            *self.parting.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(words);
        }
        new
    }

    /// What was in the buffer has left. Whether that was an answer to its end.
    fn flushed(&self) -> bool {
        if self.phase() != HANDED_OVER {
            return false;
        }
        if let Some(mut undo) = self.lock().take() {
            undo.0 = None;
        }
        self.set(IDLE);
        self.wait();
        self.settled.wake();
        true
    }

    fn wait(&self) {
        if let Some(place) = &self.place {
            place.waits();
        }
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }

    fn set(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Undo>> {
        self.undo.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The body of an answer. The connection drops it when it has taken all of it.
pub(super) struct Answer {
    body: Body,
    exchange: Arc<Exchange>,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.exchange.phase() == ANSWER {
            self.exchange.set(HANDED_OVER);
        }
    }
}

/// The socket, or what TLS makes of it, with its deadlines.
pub(super) struct TimedIo<S> {
    inner: TokioIo<S>,
    limits: Limits,
    exchange: Arc<Exchange>,
    /// When the current head must be complete; `None` between requests.
    head_until: Option<Instant>,
    /// The first line of the current head has ended.
    line_ended: bool,
    /// The client had sent nothing that was not read.
    quiet: bool,
    idle_until: Instant,
    write_until: Option<Instant>,
    /// What is said to a client whose request cannot be read, in place of the bare status of the HTTP library.
    farewell: Option<Bytes>,
    end: StagedClose,
    timer: Pin<Box<Sleep>>,
}

impl<S> TimedIo<S> {
    /// The first head has been waited for since `began`: a handshake takes of its time.
    pub(super) fn new(stream: S, limits: Limits, exchange: Arc<Exchange>, began: Instant) -> Self {
        Self {
            inner: TokioIo::new(stream),
            limits,
            exchange,
            head_until: Some(began + limits.head),
            line_ended: false,
            quiet: false,
            idle_until: began + limits.idle,
            write_until: None,
            farewell: None,
            end: StagedClose::default(),
            timer: Box::pin(tokio::time::sleep_until(began + limits.head)),
        }
    }

    /// `Ready` when `until` has passed; else the task is woken then.
    fn poll_until(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        if self.timer.deadline() != until {
            self.timer.as_mut().reset(until);
        }
        self.timer.as_mut().poll(cx)
    }

    fn poll_write_deadline<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let until = *self.write_until.get_or_insert_with(|| Instant::now() + self.limits.write);
        match self.poll_until(cx, until) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read"))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn wrote<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            return self.poll_write_deadline(cx);
        }
        self.write_until = None;
        written
    }

    /// The HTTP library speaks by itself only when it could not read a request: all that it writes then is a status. Takes it
    /// as written, and keeps what to say instead.
    fn take_own_words(&mut self, words: &[u8]) -> bool {
        if self.exchange.phase() != IDLE {
            return false;
        }
        if self.farewell.is_none() {
            let status = words.get(9..12).and_then(|status| std::str::from_utf8(status).ok()?.parse().ok()).unwrap_or(400);
            self.farewell = Some(unreadable(status, self.line_ended));
        }
        true
    }
}

/// What is wrong with a request that is none.
fn unreadable(status: u16, line_ended: bool) -> Bytes {
    let large = BUFFER / 1024;
    let (status, detail) = match status {
        431 if line_ended => (431, format!("the head of the request is larger than {large} KiB or has more than 100 headers")),
        414 | 431 => (414, format!("the URL is too long: the whole head of a request may have {large} KiB")),
        status => (
            status,
            "the request cannot be read as HTTP/1.1: look at its first line and its headers; in a URL quotes, angle brackets, blanks \
             and whatever is not ASCII are percent-encoded"
                .to_owned(),
        ),
    };
    Refused::new(ProblemCode::InvalidRequest, detail).last_words(status)
}

impl<S: AsyncRead + Unpin> Read for TimedIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, mut buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.exchange.phase() != IDLE {
            this.head_until = None;
            let read = Pin::new(&mut this.inner).poll_read(cx, buf);
            this.quiet = read.is_pending();
            return read;
        }
        let mut piece = [0; 8192];
        let room = buf.remaining().min(piece.len());
        let mut piece = ReadBuf::new(&mut piece[..room]);
        let read = Pin::new(this.inner.inner_mut()).poll_read(cx, &mut piece);
        this.quiet = read.is_pending();
        if read.is_ready() {
            this.head_until.get_or_insert_with(|| Instant::now() + this.limits.head);
            this.line_ended |= piece.filled().contains(&b'\n');
            buf.put_slice(piece.filled());
            return read;
        }
        let until = this.head_until.unwrap_or(this.idle_until);
        match this.poll_until(cx, until) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sends nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Write for TimedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.take_own_words(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.wrote(cx, written)
    }

    /// Called when everything of the buffer was written.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) && self.exchange.flushed() {
            self.head_until = None;
            self.line_ended = false;
            self.idle_until = Instant::now() + self.limits.idle;
            // Nobody may ask to read before something comes, so the time of silence is set here.
            let until = self.idle_until;
            let _ = self.poll_until(cx, until);
        }
        self.wrote(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let parting = this.exchange.parting.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if parting.is_some() {
            this.farewell = parting;
        }
        while let Some(rest) = this.farewell.as_mut().filter(|rest| !rest.is_empty()) {
            match Pin::new(this.inner.inner_mut()).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => rest.advance(written),
                other => return this.wrote(cx, other.map_ok(drop)),
            }
        }
        let ended = if this.quiet && this.farewell.is_none() && !this.exchange.closing.load(Ordering::Relaxed) {
            Pin::new(this.inner.inner_mut()).poll_shutdown(cx)
        } else {
            this.end.poll(Pin::new(this.inner.inner_mut()), cx)
        };
        // TLS has a last word to say, which the client may not take.
        this.wrote(cx, ended)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        if self.take_own_words(bufs.first().map_or(&[], |first| first)) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.wrote(cx, written)
    }
}
