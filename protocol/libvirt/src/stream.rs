//! Volumes in and out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::client::{Client, Guard, Waited, read, wait};
use crate::error::{Closed, Error};
use crate::procedures::{Procedure as _, StorageVolDownload, StorageVolUpload, StorageVolume};
use crate::shared::{Answer, Chunk, Shared, Stream};
use crate::wire::MAX_CHUNK;

/// How many chunks of an upload wait for the driver. With the one being written and the one being read from a source, an
/// upload has at most 1 MiB in memory (LV-74).
const QUEUE: usize = 2;

/// The most that one range of a volume has: 1 MiB.
pub const MAX_RANGE: usize = 1 << 20;

const UPLOAD: &str = StorageVolUpload::NAME;

impl Client {
    /// Begins to write `length` bytes into a volume. The length is always declared: libvirt refuses what goes beyond it.
    pub async fn upload(&self, volume: StorageVolume, offset: u64, length: u64, deadline: Instant) -> Result<Upload, Error> {
        let (chunks, receiver) = mpsc::channel(QUEUE);
        let (sender, end) = oneshot::channel();
        let call = StorageVolUpload { volume, offset, length, flags: 0 };
        let (guard, shared) = self.begin(&call, Stream::Upload { chunks: receiver, end: sender })?.opened(deadline).await?;
        Ok(Upload { chunks, end, guard, shared, sent: 0, length, failed: None })
    }

    /// Writes `length` bytes of a source into a volume, from its beginning. It ends early when no byte could be read or
    /// written for as long as `stall`. A source that ends early or fails leaves the volume as it is then, and the link usable.
    pub async fn upload_from(
        &self,
        volume: StorageVolume,
        length: u64,
        source: impl AsyncRead + Unpin,
        stall: Duration,
    ) -> Result<(), Error> {
        let mut source = source.take(length);
        let mut upload = self.upload(volume, 0, length, Instant::now() + stall).await?;
        loop {
            let mut chunk = BytesMut::with_capacity(MAX_CHUNK);
            while chunk.len() < MAX_CHUNK {
                let left = MAX_CHUNK - chunk.len();
                let mut room = (&mut chunk).limit(left);
                let n = tokio::select! {
                    biased;
                    error = upload.stopped() => return Err(error),
                    n = source.read_buf(&mut room) => n.map_err(|error| Error::Source(Arc::new(error)))?,
                    () = sleep_until(Instant::now() + stall) => return Err(Error::Deadline { procedure: UPLOAD, sent: true }),
                };
                if n == 0 {
                    break;
                }
            }
            if chunk.is_empty() {
                return upload.finish(Instant::now() + stall).await;
            }
            upload.write(chunk.freeze(), Instant::now() + stall).await?;
        }
    }

    /// Reads at most [`MAX_RANGE`] bytes of a volume; fewer where it ends.
    pub async fn read_range(&self, volume: StorageVolume, offset: u64, length: usize, deadline: Instant) -> Result<Bytes, Error> {
        let limit = length.min(MAX_RANGE);
        if limit == 0 {
            // libvirt takes a length of zero for the whole volume.
            return Ok(Bytes::new());
        }
        let call = StorageVolDownload { volume, offset, length: limit as u64, flags: 0 };
        self.begin(&call, Stream::Range { limit })?.answer(deadline).await
    }

    /// Reads a volume from an offset to its end, one range after the other. libvirt has no way to ask a sender for patience:
    /// what is not asked for is not sent, so a slow reader holds up neither the link nor anybody's memory.
    pub fn download(&self, volume: StorageVolume, offset: u64) -> Download {
        Download { client: self.clone(), volume, offset, over: false }
    }
}

/// A volume being written. To drop it is to give it up: libvirt is told, and what is written stays.
pub struct Upload {
    chunks: mpsc::Sender<Chunk>,
    end: oneshot::Receiver<Answer>,
    guard: Guard,
    shared: Arc<Shared>,
    sent: u64,
    length: u64,
    /// It is over, and so.
    failed: Option<Error>,
}

impl Upload {
    /// How many bytes were taken so far. They are on their way, not necessarily there.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Takes the next bytes; waits while there is no room for them. An error that libvirt sends meanwhile ends the upload.
    pub async fn write(&mut self, mut data: Bytes, deadline: Instant) -> Result<(), Error> {
        if data.len() as u64 > self.length - self.sent {
            return Err(Error::Protocol { procedure: UPLOAD, what: "more bytes than were declared".to_owned() });
        }
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(MAX_CHUNK));
            let length = piece.len() as u64;
            self.put(Chunk::Data(piece), deadline).await?;
            self.sent += length;
        }
        Ok(())
    }

    /// Ends the upload and waits until libvirt has it all. libvirt takes an early end for success (F3); this does not.
    pub async fn finish(mut self, deadline: Instant) -> Result<(), Error> {
        if self.sent != self.length {
            return Err(Error::Short { sent: self.sent, length: self.length });
        }
        self.put(Chunk::Finish, deadline).await?;
        match wait(&mut self.end, &self.shared, deadline).await {
            Waited::Answer(answer) => {
                self.guard.disarm();
                read(UPLOAD, answer).map(drop)
            }
            Waited::Closed(closed) => Err(self.fail(Error::Closed { procedure: UPLOAD, closed })),
            Waited::Deadline => Err(Error::Deadline { procedure: UPLOAD, sent: true }),
        }
    }

    /// Waits until the upload ends on the other side, which is never for anything good.
    async fn stopped(&mut self) -> Error {
        if let Some(error) = &self.failed {
            return error.clone();
        }
        let answer = tokio::select! {
            biased;
            end = &mut self.end => end.ok(),
            _ = self.shared.until_closed() => None,
        };
        let error = match answer.map(|answer| read(UPLOAD, answer)) {
            Some(Err(error)) => error,
            Some(Ok(_)) => Error::Protocol { procedure: UPLOAD, what: "libvirt ended the stream".to_owned() },
            None => {
                let closed = self.shared.closed().unwrap_or_else(|| Closed::new("nobody drives it"));
                Error::Closed { procedure: UPLOAD, closed }
            }
        };
        self.fail(error)
    }

    async fn put(&mut self, chunk: Chunk, deadline: Instant) -> Result<(), Error> {
        let chunks = self.chunks.clone();
        tokio::select! {
            biased;
            error = self.stopped() => Err(error),
            put = chunks.send(chunk) => match put {
                Ok(()) => Ok(()),
                // The driver let go of the stream, and is about to say why.
                Err(_) => Err(self.stopped().await),
            },
            () = sleep_until(deadline) => Err(Error::Deadline { procedure: UPLOAD, sent: true }),
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.guard.disarm();
        self.failed = Some(error.clone());
        error
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("sent", &self.sent).field("length", &self.length).finish_non_exhaustive()
    }
}

/// A volume being read.
#[derive(Debug)]
pub struct Download {
    client: Client,
    volume: StorageVolume,
    offset: u64,
    over: bool,
}

impl Download {
    /// The next bytes, or none at the end. After an error, the same bytes can be asked for again.
    pub async fn next(&mut self, deadline: Instant) -> Result<Option<Bytes>, Error> {
        if self.over {
            return Ok(None);
        }
        let range = self.client.read_range(self.volume.clone(), self.offset, MAX_RANGE, deadline).await?;
        self.offset += range.len() as u64;
        self.over = range.len() < MAX_RANGE;
        Ok((!range.is_empty()).then_some(range))
    }
}
