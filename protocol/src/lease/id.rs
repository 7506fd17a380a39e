//! The id of a lease: 128 unguessable bits (LS-5).

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const LENGTH: usize = 26;

/// Prints as 26 characters of `a-z2-7` (Base32 without padding). Whoever knows it may act on the lease, as far as the
/// token allows.
///
/// Ordered as its text is, so that a list ordered by id is so for whoever reads it (LS-21); the bits have another order,
/// for in Base32 digits follow letters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(u128);

impl Ord for LeaseId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.encode().cmp(&other.encode())
    }
}

impl PartialOrd for LeaseId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl LeaseId {
    /// From 16 random bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The bits.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// The text as bytes, without an allocation.
    pub fn encode(self) -> [u8; LENGTH] {
        let mut text = [0; LENGTH];
        // 130 bits for 128: the last two are zero.
        let mut rest = self.0;
        text[LENGTH - 1] = ALPHABET[usize::from((rest & 0b111) as u8) << 2];
        rest >>= 3;
        for place in text[..LENGTH - 1].iter_mut().rev() {
            *place = ALPHABET[usize::from((rest & 0b1_1111) as u8)];
            rest >>= 5;
        }
        text
    }

    /// Reads the text; `None` for anything that [`LeaseId::encode`] does not write.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: &[u8; LENGTH] = text.as_bytes().try_into().ok()?;
        let value = |byte: u8| match byte {
            b'a'..=b'z' => Some(byte - b'a'),
            b'2'..=b'7' => Some(byte - b'2' + 26),
            _ => None,
        };
        let mut bits: u128 = 0;
        for byte in &bytes[..LENGTH - 1] {
            bits = bits << 5 | u128::from(value(*byte)?);
        }
        let last = value(bytes[LENGTH - 1])?;
        (last & 0b11 == 0).then(|| Self(bits << 3 | u128::from(last >> 2)))
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.encode()).unwrap_or_default())
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for LeaseId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LeaseId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text} is not a lease id")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_is_base32_and_reads_back(bytes: [u8; 16]) {
            let id = LeaseId::from_bytes(bytes);
            let text = id.to_string();
            prop_assert_eq!(&text, &data_encoding::BASE32_NOPAD.encode(&bytes).to_ascii_lowercase());
            prop_assert_eq!(LeaseId::parse(&text), Some(id));
        }

        #[test]
        fn ids_are_ordered_as_their_texts_are_ls_21(a: [u8; 16], b: [u8; 16]) {
            let (a, b) = (LeaseId::from_bytes(a), LeaseId::from_bytes(b));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }

    #[test]
    fn what_is_not_written_by_us_is_no_id() {
        for text in [
            "",
            "a",
            "K5V2Q7M4N3X6C2B7D4F5G6H7JA",
            "k5v2q7m4n3x6c2b7d4f5g6h7jb",
            "k5v2q7m4n3x6c2b7d4f5g6h7ja0",
            "k5v2q7m4n3x6c2b7d4f5g6h71a",
        ] {
            assert_eq!(LeaseId::parse(text), None, "{text}");
        }
        assert!(LeaseId::parse("k5v2q7m4n3x6c2b7d4f5g6h7ja").is_some());
    }
}
