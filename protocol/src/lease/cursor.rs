//! Where a page ended: opaque to clients (LS-21).

use crate::ids::ObjectKey;
use crate::lease::id::LeaseId;

/// The last item of a page. Carries a checksum, so that one made elsewhere, or for the other list, is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cursor {
    /// Of `GET /v1/proxies`.
    Proxy(ObjectKey),
    /// Of `GET /v1/leases`.
    Lease(LeaseId),
}

/// FNV-1a: against mistakes, not against malice; a forged cursor shows nothing that a filter would not.
fn checksum(text: &str) -> [u8; 4] {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.to_be_bytes()
}

impl Cursor {
    /// As clients carry it.
    pub fn encode(&self) -> String {
        let text = match self {
            Self::Proxy(key) => format!("p{key}"),
            Self::Lease(id) => format!("l{id}"),
        };
        let mut bytes = checksum(&text).to_vec();
        bytes.extend_from_slice(text.as_bytes());
        data_encoding::BASE64URL_NOPAD.encode(&bytes)
    }

    /// Reads one back; `None` for a foreign one.
    pub fn decode(text: &str) -> Option<Self> {
        let bytes = data_encoding::BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        let (sum, text) = bytes.split_at_checked(4)?;
        let text = std::str::from_utf8(text).ok()?;
        if checksum(text) != sum {
            return None;
        }
        match text.split_at_checked(1)? {
            ("p", key) => ObjectKey::parse(key).map(Self::Proxy),
            ("l", id) => LeaseId::parse(id).map(Self::Lease),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_a_foreign_one_is_told() {
        for cursor in [Cursor::Proxy(ObjectKey::new("default", "px-1")), Cursor::Lease(LeaseId::from_bytes([7; 16]))] {
            assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
        }
        for text in ["", "abc", "px-1", "AAAAAHBkZWZhdWx0L3B4LTE", "%%%"] {
            assert_eq!(Cursor::decode(text), None, "{text}");
        }
    }
}
