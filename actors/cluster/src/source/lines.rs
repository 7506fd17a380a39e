//! Lines of an answer that does not end: nothing for too long ends it (OP-29), whatever TCP believes.

use std::time::Duration;

use egress_kube::AsyncBufRead;
use futures::AsyncBufReadExt;

/// An event is an object, and no object is bigger by far.
const LONGEST: usize = 16 << 20;

/// Why there is no further line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Not a byte for that long: the other end may be gone.
    Silent(Duration),
    /// The connection broke down, or what came is no line.
    Broken(String),
}

/// The lines of `R`.
pub(crate) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    idle: Duration,
}

impl<R: AsyncBufRead + Unpin + Send> Lines<R> {
    pub(crate) fn new(reader: R, idle: Duration) -> Self {
        Self { reader, line: Vec::new(), idle }
    }

    /// The next line that is not blank; `None` at the end. What is cut off at the end is no line.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, Break> {
        loop {
            let read = tokio::time::timeout(self.idle, self.reader.fill_buf()).await;
            let chunk = read.map_err(|_| Break::Silent(self.idle))?.map_err(|error| Break::Broken(error.to_string()))?;
            if chunk.is_empty() {
                return Ok(None);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(chunk.len(), |end| end + 1);
            self.line.extend_from_slice(&chunk[..taken]);
            self.reader.consume_unpin(taken);
            if self.line.len() > LONGEST {
                return Err(Break::Broken(format!("a line of more than {LONGEST} bytes")));
            }
            if end.is_some() && !self.line.trim_ascii().is_empty() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
            if end.is_some() {
                self.line.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::io::Cursor;
    use futures::{AsyncReadExt, StreamExt, TryStreamExt, stream};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_come_whole_however_they_were_cut_and_silence_ends_them_op_29() {
        let chunks = ["{\"a\"", ":1}\n\n{\"b\":", "2}\n{\"cut"];
        let body = stream::iter(chunks.map(|chunk| Ok::<_, std::io::Error>(chunk.as_bytes())));
        let mut lines = Lines::new(body.into_async_read(), Duration::from_secs(90));
        assert_eq!(lines.next().await, Ok(Some(b"{\"a\":1}\n".to_vec())));
        assert_eq!(lines.next().await, Ok(Some(b"{\"b\":2}\n".to_vec())));
        assert_eq!(lines.next().await, Ok(None));

        let slow = stream::unfold(0, |n| async move {
            tokio::time::sleep(Duration::from_secs(if n < 3 { 80 } else { 91 })).await;
            Some((Ok::<_, std::io::Error>(vec![b'x']), n + 1))
        });
        let began = tokio::time::Instant::now();
        let mut lines = Lines::new(slow.boxed().into_async_read(), Duration::from_secs(90));
        assert_eq!(lines.next().await, Err(Break::Silent(Duration::from_secs(90))));
        assert_eq!(began.elapsed(), Duration::from_secs(3 * 80 + 90), "every byte counts, not every line");
        let both = Cursor::new(b"{}\n".to_vec()).chain(Cursor::new(b"{}".to_vec()));
        let mut lines = Lines::new(both, Duration::from_secs(1));
        assert!(lines.next().await.unwrap().is_some() && lines.next().await.unwrap().is_none());
    }
}
