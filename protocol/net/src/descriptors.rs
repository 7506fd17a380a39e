//! Descriptors kept for listeners: whoever serves proxies' clients or keeps idle connections stops before the last ones
//! are taken, so that health is still answered.
//!
//! The system gives a new descriptor the lowest free number. So the number of a new socket says how many are taken, and
//! nobody has to count.

use std::os::fd::AsRawFd;

use nix::sys::resource::{Resource, getrlimit};

/// The most that are kept.
const MOST: u64 = 64;
/// The least.
const LEAST: u64 = 8;

/// How many of `limit` are kept: an eighth.
pub const fn reserve(limit: u64) -> u64 {
    match limit / 8 {
        eighth if eighth > MOST => MOST,
        eighth if eighth < LEAST => LEAST,
        eighth => eighth,
    }
}

/// Whether a socket that was just opened took one of those that are kept: close it, and serve nobody by it but the
/// listeners that the reserve is for.
pub fn are_short(newest: &impl AsRawFd) -> bool {
    // A limit that cannot be read keeps nothing back.
    getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(limit, _)| is_kept(newest.as_raw_fd(), limit))
}

fn is_kept(number: i32, limit: u64) -> bool {
    u64::try_from(number).is_ok_and(|number| number >= limit.saturating_sub(reserve(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_is_kept_within_bounds_issue_10_10() {
        for (limit, kept) in [(16, 8), (128, 16), (256, 32), (1024, 64), (1_048_576, 64)] {
            assert_eq!(reserve(limit), kept);
        }
        assert!(!is_kept(111, 128) && is_kept(112, 128));
        assert!(!is_kept(3, u64::MAX));
    }
}
