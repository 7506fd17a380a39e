//! Bytes into messages.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::wire::{HEAD, Header, MAX_MESSAGE};
use crate::xdr::Decode as _;

/// How much is made room for at once. A message's length is believed only as far as its bytes are there.
const ROOM: usize = 64 << 10;

/// What was read and is not a whole message yet.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    buffer: BytesMut,
}

impl Inbound {
    /// Where the next bytes go.
    pub(crate) fn room(&mut self) -> &mut BytesMut {
        self.buffer.reserve(ROOM);
        &mut self.buffer
    }

    /// The next whole message. An error is a length that no message of libvirt has (LV-70).
    pub(crate) fn next(&mut self) -> Result<Option<(Header, Bytes)>, u32> {
        let Some(length) = self.buffer.first_chunk().copied().map(u32::from_be_bytes) else { return Ok(None) };
        let whole = usize::try_from(length).ok().filter(|whole| (HEAD..=MAX_MESSAGE).contains(whole)).ok_or(length)?;
        if self.buffer.len() < whole {
            return Ok(None);
        }
        let mut message = self.buffer.split_to(whole).freeze();
        message.advance(4);
        let mut head = &message[..HEAD - 4];
        // A header of so many bytes can always be read.
        let header = Header::decode(&mut head).map_err(|_| length)?;
        message.advance(HEAD - 4);
        Ok(Some((header, message)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Inbound;
    use crate::wire::{Header, MAX_MESSAGE, kind, status};

    fn all(inbound: &mut Inbound) -> Result<Vec<(Header, Vec<u8>)>, u32> {
        std::iter::from_fn(|| inbound.next().transpose())
            .map(|message| message.map(|(header, payload)| (header, payload.to_vec())))
            .collect()
    }

    proptest! {
        /// However the bytes arrive, the messages are the same (LV-221).
        #[test]
        fn messages_in_pieces_or_together_are_the_same_messages_lv_221(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..90), 1..6), cuts in proptest::collection::vec(1_usize..70, 1..40),
        ) {
            let sent: Vec<(Header, Vec<u8>)> = payloads
                .into_iter()
                .zip(1..)
                .map(|(payload, serial)| (Header::new(23, kind::REPLY, serial, status::OK), payload))
                .collect();
            let bytes: Vec<u8> = sent.iter().flat_map(|(header, payload)| header.message(payload)).collect();
            let mut inbound = Inbound::default();
            let (mut rest, mut got) = (&bytes[..], Vec::new());
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                inbound.room().extend_from_slice(piece);
                got.extend(all(&mut inbound).unwrap());
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn any_bytes_are_messages_or_refused_lv_70(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut inbound = Inbound::default();
            inbound.room().extend_from_slice(&bytes);
            let _ = all(&mut inbound);
        }
    }

    #[test]
    fn a_length_that_no_message_has_is_refused_at_once_and_takes_no_memory_lv_70() {
        for length in [0, 27, MAX_MESSAGE as u32 + 1, 1 << 31, u32::MAX, u32::from_be_bytes(*b"HTTP"), u32::from_be_bytes(*b"SSH-")] {
            let mut inbound = Inbound::default();
            inbound.room().extend_from_slice(&length.to_be_bytes());
            assert_eq!(inbound.next().unwrap_err(), length);
        }
        let mut inbound = Inbound::default();
        inbound.room().extend_from_slice(&(MAX_MESSAGE as u32).to_be_bytes());
        assert!(inbound.next().unwrap().is_none(), "it may still come");
        inbound.room();
        assert!(inbound.buffer.capacity() < 1 << 20, "and is not believed before: {}", inbound.buffer.capacity());
    }

    #[test]
    fn a_message_without_a_payload_is_one_lv_221() {
        let header = Header::new(2, kind::REPLY, 7, status::OK);
        let mut inbound = Inbound::default();
        inbound.room().extend_from_slice(&header.message(&[]));
        assert_eq!(all(&mut inbound).unwrap(), [(header, Vec::new())]);
    }
}
