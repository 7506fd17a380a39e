//! Chunks taken off a body (RFC 9112 §7.1), read by read. Extensions and trailers are dropped: they belong to this hop.

/// The most that extensions and trailers of one body may take.
const MOST_ASIDE: usize = 16 * 1024;

/// Where in a chunked body the reader stands.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// Of the current chunk.
    left: u64,
    digits: u8,
    aside: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    Size,
    Extension,
    SizeEnd,
    Data,
    DataEnd,
    DataEnded,
    /// At the beginning of a line behind the last chunk.
    Line,
    Trailer,
    TrailerEnd,
    LastEnd,
    Done,
}

/// The body breaks the rules; why, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken(pub(super) &'static str);

impl Chunks {
    pub(super) fn is_done(&self) -> bool {
        self.at == At::Done
    }

    /// Takes what it can of `input` and appends the payload to `out`. What is left unread belongs to the next message.
    pub(super) fn decode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        let mut read = 0;
        while let Some(byte) = input.get(read).copied() {
            match self.at {
                At::Done => break,
                At::Data => {
                    let rest = &input[read..];
                    let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                    out.extend_from_slice(&rest[..take]);
                    self.left -= take as u64;
                    read += take;
                    if self.left == 0 {
                        self.at = At::DataEnd;
                    }
                    continue;
                }
                _ => self.step(byte)?,
            }
            read += 1;
        }
        Ok(read)
    }

    fn step(&mut self, byte: u8) -> Result<(), Broken> {
        self.at = match (self.at, byte) {
            (At::Size, _) if byte.is_ascii_hexdigit() => {
                self.digits += 1;
                if self.digits > 16 {
                    return Err(Broken("a chunk's size is too large"));
                }
                self.left = self.left << 4 | u64::from((byte as char).to_digit(16).unwrap_or(0));
                At::Size
            }
            (At::Size, _) if self.digits == 0 => return Err(Broken("a chunk begins without its size")),
            (At::Size | At::Extension, b'\r') => At::SizeEnd,
            (At::Size, b';' | b' ' | b'\t') => At::Extension,
            (At::Extension, _) if byte >= b' ' || byte == b'\t' => self.aside(At::Extension)?,
            (At::Size | At::Extension, _) => return Err(Broken("a chunk's size is not a hexadecimal number")),
            (At::SizeEnd, b'\n') => {
                self.digits = 0;
                if self.left == 0 { At::Line } else { At::Data }
            }
            (At::DataEnd, b'\r') => At::DataEnded,
            (At::DataEnded, b'\n') => At::Size,
            (At::DataEnd | At::DataEnded, _) => return Err(Broken("a chunk is longer than its size")),
            (At::Line, b'\r') => At::LastEnd,
            (At::LastEnd, b'\n') => At::Done,
            (At::Trailer, b'\r') => At::TrailerEnd,
            (At::TrailerEnd, b'\n') => At::Line,
            (At::Line | At::Trailer, _) if byte >= b' ' || byte == b'\t' => self.aside(At::Trailer)?,
            _ => return Err(Broken("a line of the chunked body does not end as it should")),
        };
        Ok(())
    }

    fn aside(&mut self, at: At) -> Result<At, Broken> {
        self.aside += 1;
        if self.aside > MOST_ASIDE { Err(Broken("extensions and trailers are too long")) } else { Ok(at) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), Broken> {
        let (mut chunks, mut out, mut read) = (Chunks::default(), Vec::new(), 0);
        for piece in pieces {
            read += chunks.decode(piece, &mut out)?;
        }
        Ok((out, read, chunks.is_done()))
    }

    #[test]
    fn a_body_ends_at_its_last_chunk() {
        let body = b"4;a=\"b\"\r\nbody\r\n3 \r\n!!!\r\n0\r\nTrailer: x\r\n\r\n";
        let next = [&body[..], b"GET"].concat();
        assert_eq!(decode(&[&next]).unwrap(), (b"body!!!".to_vec(), body.len(), true));
    }

    #[test]
    fn what_is_not_chunked_is_broken() {
        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "4\nbody",
            "4\r\nbodyX",
            "4\r\nbody\n",
            "11111111111111111\r\n",
            "0\r\n\n",
            "4;\x01\r\n",
            "0\r\nA: b\n",
        ] {
            assert!(decode(&[text.as_bytes()]).is_err(), "{text:?}");
        }
        assert!(decode(&[format!("1;{}\r\n", "x".repeat(MOST_ASIDE + 1)).as_bytes()]).is_err());
    }

    proptest! {
        /// However the reads fall, the payload is the same.
        #[test]
        fn the_payload_does_not_depend_on_the_reads(payload in prop::collection::vec(any::<u8>(), 0..200), chunk in 1usize..50, piece in 1usize..20) {
            let mut wire = Vec::new();
            for part in payload.chunks(chunk) {
                wire.extend(format!("{:X}\r\n", part.len()).bytes());
                wire.extend(part);
                wire.extend(b"\r\n");
            }
            wire.extend(b"0\r\n\r\n");
            let pieces: Vec<_> = wire.chunks(piece).collect();
            prop_assert_eq!(decode(&pieces).unwrap(), (payload, wire.len(), true));
        }
    }
}
