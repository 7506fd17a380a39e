//! A hasher for lease ids.

use std::hash::{BuildHasher, Hasher};

/// Hashes a [`LeaseId`](egress_protocol::lease::LeaseId) by its own bits.
///
/// That is safe because ids come from a generator that nobody can predict (LS-5): a client cannot choose the ids that are kept, and looking
/// for an id that it made up costs one look into the table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ByBits;

/// See [`ByBits`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bits(u64);

impl BuildHasher for ByBits {
    type Hasher = Bits;

    fn build_hasher(&self) -> Bits {
        Bits(0)
    }
}

impl Hasher for Bits {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u128(&mut self, bits: u128) {
        self.0 ^= (bits as u64) ^ ((bits >> 64) as u64);
    }

    /// For keys of other kinds, which nothing here has: every byte counts.
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
}
