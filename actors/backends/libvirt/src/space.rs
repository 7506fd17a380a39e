//! Whether a pool has room for a machine (§8). Pure; every sum is checked (LV-25).

use egress_provider::BackendError;

use crate::settings::Format;

/// One gibibyte.
pub const GIB: u64 = 1 << 30;
/// Room for a seed.
pub const SEED: u64 = 16 << 20;

/// What a machine needs of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Size of its disk.
    pub overlay: u64,
    /// Bytes that stay free: libvirt counts some that QEMU cannot use.
    pub reserve: u64,
    /// What a fetch brings, if the image is not cached: the length of the part, and its format.
    pub fetch: Option<(u64, Format)>,
    /// What other machines of the entry need that are being made on the host right now.
    pub others: u64,
}

/// The reserve of a pool whose configuration has none: 5 % of it, at least 1 GiB.
pub fn default_reserve(capacity: u64) -> u64 {
    (capacity / 20).max(GIB)
}

impl Need {
    /// Bytes; none if they are more than can be counted, which no pool has.
    pub fn bytes(self) -> Option<u64> {
        let fetch = match self.fetch {
            None => 0,
            // The part, and its copy.
            Some((length, Format::Raw)) => length.checked_mul(2)?,
            // The copy expands what is compressed (F11).
            Some((length, Format::Qcow2)) => length.checked_mul(5)?,
        };
        [SEED, self.reserve, fetch, self.others].into_iter().try_fold(self.overlay, u64::checked_add)
    }

    /// Compares it with what a pool has; nothing has been made yet (LV-123).
    pub fn check(self, pool: &str, available: u64) -> Result<(), BackendError> {
        match self.bytes() {
            Some(needed) if available >= needed => Ok(()),
            Some(needed) => Err(BackendError::quota(format!("storage pool {pool} has {available} bytes available, {needed} needed"))),
            None => {
                Err(BackendError::quota(format!("storage pool {pool} has {available} bytes available, more than can be counted needed")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use egress_protocol::provider::ErrorClass;
    use proptest::prelude::*;

    use super::{GIB, Need, SEED, default_reserve};
    use crate::settings::Format;

    const NEED: Need = Need { overlay: 10 * GIB, reserve: GIB, fetch: None, others: 0 };

    #[test]
    fn a_machine_needs_disk_seed_reserve_and_what_a_fetch_brings_lv_122() {
        let of = |need: Need| need.bytes().unwrap();
        assert_eq!(of(NEED), 11 * GIB + SEED);
        assert_eq!(of(Need { fetch: Some((GIB, Format::Raw)), ..NEED }), 13 * GIB + SEED);
        assert_eq!(of(Need { fetch: Some((GIB, Format::Qcow2)), ..NEED }), 16 * GIB + SEED);
        assert_eq!(of(Need { others: 7, ..NEED }), 11 * GIB + SEED + 7);
        assert_eq!((default_reserve(0), default_reserve(100 * GIB)), (GIB, 5 * GIB));
    }

    #[test]
    fn too_little_is_a_quota_that_says_both_numbers_lv_123() {
        let needed = NEED.bytes().unwrap();
        assert!(NEED.check("default", needed).is_ok());
        let refused = NEED.check("default", needed - 1).unwrap_err();
        assert_eq!(refused.class, ErrorClass::QuotaExceeded);
        assert_eq!(refused.message, format!("storage pool default has {} bytes available, {needed} needed", needed - 1));
    }

    proptest! {
        /// No sum wraps: what does not fit into a number does not fit into a pool (LV-25).
        #[test]
        fn sums_never_wrap_lv_25(overlay: u64, reserve: u64, length: u64, others: u64, qcow2: bool) {
            let fetch = Some((length, if qcow2 { Format::Qcow2 } else { Format::Raw }));
            let need = Need { overlay, reserve, fetch, others };
            let times = if qcow2 { 5 } else { 2 };
            let exact = u128::from(overlay) + u128::from(reserve) + u128::from(SEED) + u128::from(length) * times + u128::from(others);
            prop_assert_eq!(need.bytes().map(u128::from), u64::try_from(exact).ok().map(u128::from));
            prop_assert_eq!(need.check("p", u64::MAX).is_ok(), need.bytes().is_some());
        }
    }
}
