//! One HTTP/1 request and its answer over any byte stream, by hyper's client connection, driven in the caller's task: no
//! second task to own, and the stream comes back as it was left.
//!
//! The stream behind an answered CONNECT is taken with `into_parts` and not by hyper's upgrade: it needs no task beside
//! the probe, and works for any 2xx of any version (tinyproxy answers `HTTP/1.0 200`), a 204 included.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{Builder, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most that an answer's head may take.
const MOST_HEAD: usize = 32 * 1024;
/// The most header lines.
const MOST_HEADERS: usize = 1024;
/// The most that is read before there is an answer, interim ones included: a peer must not keep us reading them.
const MOST_BEFORE_ANSWER: usize = 64 * 1024;

/// An answer whose body was not read yet.
pub(super) struct Answer<T: AsyncRead + AsyncWrite + Unpin> {
    pub(super) head: Response<()>,
    body: Incoming,
    connection: Connection<TokioIo<SpeakFirst<T>>, Empty<Bytes>>,
    ended: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The stream ended or broke before a byte of it came.
    Closed,
    /// What came is no HTTP answer, or broke off inside its head.
    Garbled,
}

/// How a body ended.
#[derive(Debug)]
pub(super) enum BodyEnd {
    /// All of it.
    Complete(Bytes),
    /// There is more than was asked for.
    More,
    /// It broke off.
    Broken,
}

/// Sends a request and waits for the head of its answer.
pub(super) async fn ask<T>(io: T, request: Request<Empty<Bytes>>) -> Result<Answer<T>, NoAnswer>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let answered = Arc::new(AtomicBool::new(false));
    let io = TokioIo::new(SpeakFirst::new(io, Arc::clone(&answered)));
    // What proxies in use write, though they should not: a blank before the colon, folded lines.
    let handshake = Builder::new()
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .max_headers(MOST_HEADERS)
        .max_buf_size(MOST_HEAD)
        .handshake(io)
        .await;
    let Ok((mut sender, mut connection)) = handshake else { return Err(NoAnswer::Closed) };
    let mut ended = false;
    let answer = {
        let mut answer = pin!(sender.send_request(request));
        poll_fn(|cx| {
            // The connection does the reading and writing; the answer is there once it has parsed it.
            if !ended && connection.poll_without_shutdown(cx).is_ready() {
                ended = true;
            }
            match answer.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(answer.map_err(|error| error.is_parse())),
                Poll::Pending if ended => Poll::Ready(Err(false)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    };
    match answer {
        Ok(response) => {
            answered.store(true, Ordering::Relaxed);
            let (head, body) = response.into_parts();
            Ok(Answer { head: Response::from_parts(head, ()), body, connection, ended })
        }
        Err(true) => Err(NoAnswer::Garbled),
        Err(false) => {
            let parts = connection.into_parts();
            let nothing = parts.read_buf.is_empty() && !parts.io.inner().is_flooded();
            Err(if nothing { NoAnswer::Closed } else { NoAnswer::Garbled })
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Answer<T> {
    /// The stream after an answered CONNECT, and what was already read of it.
    pub(super) fn into_tunnel(self) -> Tunnel<T> {
        let parts = self.connection.into_parts();
        Tunnel { io: parts.io.into_inner().io, read: parts.read_buf }
    }

    /// Reads at most `most` bytes of the body.
    pub(super) async fn read_body(mut self, most: usize) -> BodyEnd {
        // A body that ends with its connection may end without TLS's farewell: many servers leave it out.
        let delimited = [http::header::CONTENT_LENGTH, http::header::TRANSFER_ENCODING].iter().any(|h| self.head.headers().contains_key(h));
        let mut read = BytesMut::new();
        loop {
            match self.frame().await {
                None => return BodyEnd::Complete(read.freeze()),
                Some(Ok(data)) if read.len() + data.len() > most => return BodyEnd::More,
                Some(Ok(data)) => read.extend_from_slice(&data),
                Some(Err(_)) if delimited => return BodyEnd::Broken,
                Some(Err(_)) => return BodyEnd::Complete(read.freeze()),
            }
        }
    }

    async fn frame(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        let Self { body, connection, ended, .. } = self;
        poll_fn(|cx| {
            if !*ended && connection.poll_without_shutdown(cx).is_ready() {
                *ended = true;
            }
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => Poll::Ready(Some(Ok(frame.into_data().unwrap_or_default()))),
                Some(Err(error)) => Poll::Ready(Some(Err(error))),
                None => Poll::Ready(None),
            }
        })
        .await
    }
}

/// Lets nothing be read before something was written. A peer may answer the moment it accepts (a proxy at its limit
/// does), and hyper takes an answer that is there before its request for a protocol error.
///
/// Until there is an answer no more than [`MOST_BEFORE_ANSWER`] is read.
struct SpeakFirst<T> {
    io: T,
    spoken: bool,
    reader: Option<Waker>,
    answered: Arc<AtomicBool>,
    read: usize,
}

impl<T> SpeakFirst<T> {
    fn new(io: T, answered: Arc<AtomicBool>) -> Self {
        Self { io, spoken: false, reader: None, answered, read: 0 }
    }

    fn is_flooded(&self) -> bool {
        self.read > MOST_BEFORE_ANSWER
    }

    fn note<R>(&mut self, written: Poll<R>) -> Poll<R> {
        // A failed write counts too: the reason may be readable.
        if written.is_ready() {
            self.spoken = true;
            if let Some(reader) = self.reader.take() {
                reader.wake();
            }
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for SpeakFirst<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.spoken {
            if self.answered.load(Ordering::Relaxed) {
                return Pin::new(&mut self.io).poll_read(cx, buf);
            }
            if self.is_flooded() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            let before = buf.filled().len();
            let read = Pin::new(&mut self.io).poll_read(cx, buf);
            self.read += buf.filled().len() - before;
            return read;
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for SpeakFirst<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.note(written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// The stream behind an answered CONNECT: first what was read along with the answer, then the rest.
pub(super) struct Tunnel<T> {
    io: T,
    read: Bytes,
}

impl<T: AsyncRead + Unpin> AsyncRead for Tunnel<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let n = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read.split_to(n));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Tunnel<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
