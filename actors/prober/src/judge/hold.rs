//! For how long verdicts are held because their check URL is suspect.
//!
//! A hold ends in time, or sooner when lease holders report that the proxies fail elsewhere too. The URL stays suspect
//! until a probe of it passes; what ends is only that its failures count for nothing.

use std::collections::HashMap;
use std::time::Duration;

use egress_protocol::{ObjectKey, Timestamp};

use super::FEWEST;

/// A hold lasts this long at most. Long enough for the usual outage of a web site, so that one does not take a fleet out
/// of rotation; short enough that a pool whose way out is dead is not granted for hours to callers who report nothing.
pub const LIMIT: Duration = Duration::from_secs(30 * 60);

/// Why a hold ended before the suspicion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It lasted for [`LIMIT`].
    Time,
    /// At least 3, and more than half, of the proxies that lease holders reported on failed them.
    Reports,
}

/// A URL's suspicion.
#[derive(Debug)]
pub(super) struct Hold {
    /// When the first of its failures began.
    pub(super) since: Timestamp,
    /// Failures of later probes count again.
    pub(super) until: Timestamp,
    /// The end was told.
    ended: bool,
    /// By proxy: whether the last report since the suspicion began was of a failure.
    reports: HashMap<ObjectKey, bool>,
    /// How many were.
    failing: usize,
}

impl Hold {
    pub(super) fn new(since: Timestamp, now: Timestamp) -> Self {
        Self { since, until: now + LIMIT, ended: false, reports: HashMap::new(), failing: 0 }
    }

    /// Whether its time is over; says so once.
    pub(super) fn lapses(&mut self, now: Timestamp) -> bool {
        now >= self.until && !std::mem::replace(&mut self.ended, true)
    }

    /// A lease holder's report; whether the hold ends with it.
    pub(super) fn reported(&mut self, key: &ObjectKey, failed: bool, now: Timestamp) -> bool {
        self.forget(key);
        self.reports.insert(key.clone(), failed);
        self.failing += usize::from(failed);
        if now >= self.until || self.failing < FEWEST || self.failing * 2 <= self.reports.len() {
            return false;
        }
        (self.until, self.ended) = (now, true);
        true
    }

    /// The proxy left.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        if self.reports.remove(key) == Some(true) {
            self.failing -= 1;
        }
    }
}
