//! The staged close: half-close, read what still comes for a bounded time, then close.
//!
//! When a socket is closed while bytes of the client are unread, the system resets the connection, and the client can
//! lose an answer that it has not read yet. So an answer that refuses an upload needs this end.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a client may take to hear the end, unless the listener has a better measure.
pub const LINGER: Duration = Duration::from_secs(2);
/// What is read and thrown away in one call of the system.
const PIECE: usize = 4096;
/// Reads in a row before others get their turn.
const TURN: usize = 16;

/// The end of one connection. Poll it where `poll_shutdown` is asked for, or use [`close`].
#[derive(Debug)]
pub struct StagedClose {
    within: Duration,
    /// Set when the half-close is done.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Default for StagedClose {
    fn default() -> Self {
        Self::new(LINGER)
    }
}

impl StagedClose {
    /// After the half-close the client has `within` to close its side.
    pub const fn new(within: Duration) -> Self {
        Self { within, timer: None }
    }

    /// Ready when the client has closed its side or its time is up: the stream can be dropped. The half-close itself has
    /// no limit here, since a plain socket never makes it wait; TLS can.
    pub fn poll<S: AsyncRead + AsyncWrite>(&mut self, mut stream: Pin<&mut S>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.timer.is_none() {
            match stream.as_mut().poll_shutdown(cx) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
        let within = self.within;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut piece = [0; PIECE];
        for _ in 0..TURN {
            let mut buffer = ReadBuf::new(&mut piece);
            match stream.as_mut().poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                // The end, or a reset: either way nobody listens any more.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Ends a connection in stages; see the module.
pub async fn close<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, within: Duration) -> io::Result<()> {
    let mut closing = StagedClose::new(within);
    poll_fn(|cx| closing.poll(Pin::new(stream), cx)).await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// What a client hears that sends a body nobody reads, and gives up when it cannot send, while the server says `no`
    /// and ends.
    async fn refused_upload(staged: bool) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_exact(&mut [0; 1]).await.unwrap();
            stream.write_all(b"no").await.unwrap();
            if staged {
                close(&mut stream, LINGER).await.unwrap();
            }
        };
        let client = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            for _ in 0..512 {
                if stream.write_all(&[b'x'; 64 * 1024]).await.is_err() {
                    return Vec::new();
                }
            }
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard).await;
            heard
        };
        tokio::join!(server, client).1
    }

    #[tokio::test]
    async fn a_client_that_still_sends_hears_the_last_words_issue_10_18() {
        assert_eq!(refused_upload(true).await, b"no");
        assert_eq!(refused_upload(false).await, b"", "the fault that this is for can be seen here");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_closes_is_not_waited_for() {
        let (mut ours, mut theirs) = tokio::io::duplex(64);
        let start = tokio::time::Instant::now();
        let drip = async {
            while theirs.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            ended = close(&mut ours, LINGER) => ended.unwrap(),
            () = drip => panic!("the server ended first"),
        }
        assert!(start.elapsed() <= LINGER + Duration::from_millis(100));
    }
}
