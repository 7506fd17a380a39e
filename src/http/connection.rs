//! The clock of one connection: how long a client may take for its head, its silence and its reading (LS-23).
//!
//! A wrapper round the socket knows three states: idle (no byte of a head has come), in a head, and in a request (the
//! service is at work or its answer is being written). Only one timer exists per connection; it is moved, not remade.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(5),
            body: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            write: Duration::from_secs(10),
            connections: 2000,
        }
    }
}

/// What a connection and the handler of its current request share.
#[derive(Default)]
pub struct Exchange {
    in_request: AtomicBool,
    undo: Mutex<Option<Undo>>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("in_request", &self.in_request).finish_non_exhaustive()
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
    /// What to do when the answer of this request cannot be written (LS-2: a grant is released at once).
    pub fn unless_written(&self, undo: impl FnOnce() + Send + 'static) {
        *self.lock() = Some(Undo(Some(Box::new(undo))));
    }

    /// The head has been read.
    pub(super) fn begin(&self) {
        self.in_request.store(true, Ordering::Relaxed);
    }

    /// The answer has been handed to the connection.
    pub(super) fn end(&self) {
        self.in_request.store(false, Ordering::Relaxed);
    }

    fn in_request(&self) -> bool {
        self.in_request.load(Ordering::Relaxed)
    }

    fn written(&self) {
        if let Some(mut undo) = self.lock().take() {
            undo.0 = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Undo>> {
        self.undo.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The socket, or what TLS makes of it, with its deadlines.
pub(super) struct TimedIo<S> {
    inner: TokioIo<S>,
    limits: Limits,
    exchange: Arc<Exchange>,
    /// When the current head must be complete; `None` between requests.
    head_until: Option<Instant>,
    idle_until: Instant,
    write_until: Option<Instant>,
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
            idle_until: began + limits.idle,
            write_until: None,
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

    fn wrote(&mut self) {
        if !self.exchange.in_request() {
            self.exchange.written();
        }
        self.write_until = None;
        self.head_until = None;
        self.idle_until = Instant::now() + self.limits.idle;
    }
}

impl<S: AsyncRead + Unpin> Read for TimedIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_read(cx, buf) {
            Poll::Ready(done) => {
                if this.exchange.in_request() {
                    this.head_until = None;
                } else if this.head_until.is_none() {
                    this.head_until = Some(Instant::now() + this.limits.head);
                }
                Poll::Ready(done)
            }
            Poll::Pending if this.exchange.in_request() => {
                this.head_until = None;
                Poll::Pending
            }
            Poll::Pending => {
                let until = this.head_until.unwrap_or(this.idle_until);
                match this.poll_until(cx, until) {
                    Poll::Ready(()) => Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client sends nothing"))),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> Write for TimedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.inner).poll_write(cx, buf) {
            Poll::Ready(done) => {
                if done.is_ok() {
                    self.wrote();
                }
                Poll::Ready(done)
            }
            Poll::Pending => self.poll_write_deadline(cx),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.inner).poll_flush(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => self.poll_write_deadline(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.inner).poll_shutdown(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            // TLS has a last word to say.
            Poll::Pending => self.poll_write_deadline(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.inner).poll_write_vectored(cx, bufs) {
            Poll::Ready(done) => {
                if done.is_ok() {
                    self.wrote();
                }
                Poll::Ready(done)
            }
            Poll::Pending => self.poll_write_deadline(cx),
        }
    }
}
