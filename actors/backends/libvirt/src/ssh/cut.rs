//! A stream that can be cut from outside, even while it is blocked (LV-79).

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Reads and writes as `inner` does until the token is cancelled; from then on everything fails at once. Whoever holds it
/// then lets it go, and the socket is closed without a word.
pub(super) struct Cut<S> {
    inner: S,
    // One for each direction, since two tasks may use them.
    reading: Pin<Box<WaitForCancellationFutureOwned>>,
    writing: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S> Cut<S> {
    pub(super) fn new(inner: S, token: CancellationToken) -> Self {
        Self { inner, reading: Box::pin(token.clone().cancelled_owned()), writing: Box::pin(token.cancelled_owned()) }
    }
}

fn check(cut: &mut Pin<Box<WaitForCancellationFutureOwned>>, context: &mut Context<'_>) -> io::Result<()> {
    if cut.as_mut().poll(context).is_ready() {
        return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the link was cut"));
    }
    Ok(())
}

impl<S: AsyncRead + Unpin> AsyncRead for Cut<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        check(&mut self.reading, context)?;
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cut<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        check(&mut self.writing, context)?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        check(&mut self.writing, context)?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        check(&mut self.writing, context)?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
