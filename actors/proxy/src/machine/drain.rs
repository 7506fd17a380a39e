//! Draining (LS-16): the leases of an instance that serves are waited for before it is removed.
//!
//! The lease book is told until when, by the entry of the proxy; it says when the last lease has ended or was revoked.
//! Without its word the wait ends a moment after that time.

use std::time::Duration;

use egress_protocol::Timestamp;

use super::Machine;

/// The book's word is waited for so much longer: it is the one that revokes, at that time.
pub(super) const SLACK: Duration = Duration::from_secs(2);

/// A wait for leases.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    /// At the latest then.
    by: Timestamp,
    over: bool,
}

impl Machine {
    /// The book says that no lease runs any more; a word about an earlier wait says nothing.
    pub(super) fn drained(&mut self, by: Timestamp) {
        if let Some(drain) = self.drain.as_mut().filter(|drain| drain.by == by) {
            drain.over = true;
        }
    }

    /// Until when leases are waited for, while they are.
    pub(super) fn drain_by(&self) -> Option<Timestamp> {
        self.drain.filter(|drain| !drain.over).map(|drain| drain.by)
    }

    pub(super) fn drains(&self) -> bool {
        self.drain_by().is_some()
    }

    /// Whether whatever is about to remove the instance has to wait. What is gone or unhealthy is not waited for.
    pub(super) fn waits_for_leases(&mut self, now: Timestamp) -> bool {
        if !self.serving() {
            self.drain = None;
            return false;
        }
        if self.drain.is_none() {
            // What is to go needs no look before the next regular one.
            self.poll_at = self.poll_at.max(now + self.settings.poll_drift);
        }
        let drain = self.drain.get_or_insert(Drain { by: now + self.settings.drain_timeout, over: false });
        let end = drain.by + SLACK;
        drain.over |= now >= end;
        let over = drain.over;
        if !over {
            self.wake_at(end);
        }
        !over
    }

    /// The wait of an object that is being deleted begins, goes on or is over.
    pub(super) fn drain_before_removal(&mut self, now: Timestamp) {
        let untouched = self.purge.is_none() && self.doom.is_none() && !self.replacing && !self.absent;
        let removes = self.finalizer.held && !self.object.annotations.skip_cleanup && untouched;
        if !removes {
            self.drain = None;
            return;
        }
        let _noted = self.waits_for_leases(now);
    }
}
