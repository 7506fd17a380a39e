//! A body on its way from one connection to the other: a bounded buffer, held only while it has bytes in hand, and a
//! framing of our own.

use std::io::{self, Write as _};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::activity::Activity;
use super::chunked::Chunks;
use super::framing::{Framing, Told};

/// What is read at a time; with the copy in which chunks are framed a direction holds twice as much.
pub(super) const PIECE: usize = 16 * 1024;
/// Room for a chunk's size, `\r\n`, and the last chunk.
const AROUND: usize = 32;

/// Why a body did not arrive whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// The sender's connection ended too early.
    Sender,
    /// The sender's chunks are broken.
    Broken(&'static str),
    /// The receiver does not take it.
    Receiver,
}

/// Moves one body. `buffer` holds what was already read, and at the end what was read behind the body.
pub(super) async fn copy(
    from: &ReadHalf<'_>,
    buffer: &mut BytesMut,
    to: &mut WriteHalf<'_>,
    framing: Framing,
    told: Told,
    activity: &Activity,
) -> Result<(), Cut> {
    let mut source = Source::new(framing);
    loop {
        if !buffer.is_empty() || source.is_done() {
            let out = source.take(buffer, told.chunked)?;
            to.write_all(&out).await.map_err(|_| Cut::Receiver)?;
            activity.touch();
        }
        if source.is_done() {
            return Ok(());
        }
        if buffer.is_empty() {
            *buffer = BytesMut::new();
        }
        from.readable().await.map_err(|_| Cut::Sender)?;
        buffer.reserve(PIECE);
        match from.try_read_buf(&mut (&mut *buffer).limit(PIECE)) {
            Ok(0) if framing == Framing::UntilClose => source.left = 0,
            Ok(0) => return Err(Cut::Sender),
            Ok(_) => activity.touch(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Cut::Sender),
        }
    }
}

/// What is still to come of a body.
struct Source {
    chunks: Option<Chunks>,
    left: u64,
}

impl Source {
    fn new(framing: Framing) -> Self {
        match framing {
            Framing::None => Self { chunks: None, left: 0 },
            Framing::Length(left) => Self { chunks: None, left },
            Framing::Chunked => Self { chunks: Some(Chunks::default()), left: 0 },
            Framing::UntilClose => Self { chunks: None, left: u64::MAX },
        }
    }

    fn is_done(&self) -> bool {
        self.chunks.as_ref().map_or(self.left == 0, Chunks::is_done)
    }

    /// What is to be sent of `buffer`, as a chunk if `chunked`, with the last chunk at the end.
    fn take(&mut self, buffer: &mut BytesMut, chunked: bool) -> Result<Vec<u8>, Cut> {
        let mut payload = Vec::new();
        match &mut self.chunks {
            Some(chunks) => {
                payload.reserve(buffer.len());
                let read = chunks.decode(buffer, &mut payload).map_err(|broken| Cut::Broken(broken.0))?;
                buffer.advance(read);
            }
            None => {
                let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
                payload.extend_from_slice(&buffer[..take]);
                buffer.advance(take);
                self.left -= take as u64;
            }
        }
        if !chunked {
            return Ok(payload);
        }
        let mut out = Vec::with_capacity(payload.len() + AROUND);
        if !payload.is_empty() {
            let _ = write!(out, "{:x}\r\n", payload.len());
            out.extend_from_slice(&payload);
            out.extend_from_slice(b"\r\n");
        }
        if self.is_done() {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        Ok(out)
    }
}
