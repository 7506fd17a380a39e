//! When a connection last moved a byte, and what waits on purpose meanwhile.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Shared by both sides of one client's connection.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    last_millis: AtomicU64,
    /// Waits that have a limit of their own: connecting, an answer's head, injected latency.
    waits: AtomicUsize,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner { start: Instant::now(), last_millis: AtomicU64::new(0), waits: AtomicUsize::new(0) }))
    }

    /// A byte moved.
    pub(super) fn touch(&self) {
        let millis = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_millis.store(millis, Ordering::Relaxed);
    }

    /// Runs a wait that has a limit of its own: the connection does not count as idle meanwhile.
    pub(super) async fn waiting<T>(&self, wait: impl Future<Output = T>) -> T {
        struct Guard<'a>(&'a Activity);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.touch();
                self.0.0.waits.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.0.waits.fetch_add(1, Ordering::Relaxed);
        let _guard = Guard(self);
        wait.await
    }

    /// Whether a byte moved within the last `span`.
    pub(super) fn moved_within(&self, span: Duration) -> bool {
        (self.0.start + Duration::from_millis(self.0.last_millis.load(Ordering::Relaxed))).elapsed() < span
    }

    /// Resolves when nothing moved for `limit`.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            let last = self.0.start + Duration::from_millis(self.0.last_millis.load(Ordering::Relaxed));
            if self.0.waits.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(limit).await;
            } else if last.elapsed() >= limit {
                return;
            } else {
                tokio::time::sleep_until(last + limit).await;
            }
        }
    }
}

/// A connection whose bytes are noticed.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    activity: Activity,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, activity: Activity) -> Self {
        Self { stream, activity }
    }

    pub(super) fn into_inner(self) -> TcpStream {
        self.stream
    }

    fn notice<T>(&self, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(poll, Poll::Ready(Ok(_))) {
            self.activity.touch();
        }
        poll
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.notice(poll)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.notice(poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.notice(poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
