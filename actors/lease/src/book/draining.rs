//! Draining (LS-16): a proxy that is about to be removed waits for its leases, at most until a time that their holders
//! are told. What still runs then is revoked; when nothing runs any more, the proxy's actor is told.
//!
//! An External object goes at once: the book alone keeps its leases until the drain timeout is over.

use egress_protocol::Timestamp;
use egress_protocol::lease::{LeaseState, ProxyAvailability};
use egress_protocol::resource::{Mode, Phase};

use super::passing::Ends;
use super::{Book, DrainBegun};

impl Book {
    /// What the proxy's actor says now. Of two times the earlier one counts: an actor that crashed begins its wait anew.
    pub(super) fn mind_drain(&mut self, slot: u32, proxy: &ProxyAvailability, now: Timestamp) {
        let first = self.fleet.cold(slot).drain_by;
        let drain_by = match (first, proxy.drain_by) {
            (Some(first), Some(by)) => Some(first.min(by)),
            // It goes now, and what is to be revoked is.
            (Some(first), None) if proxy.draining && first <= now => Some(first),
            (_, by) => by,
        };
        self.set_drain(slot, drain_by);
        if let (None, Some(by)) = (first, drain_by) {
            self.tell_of_drain(slot, by);
        }
        self.tell_when_drained(slot);
    }

    fn tell_of_drain(&mut self, slot: u32, by: Timestamp) {
        let (leases, cold) = (self.fleet.hot(slot).active, self.fleet.cold(slot));
        if leases > 0 {
            self.effects.drains.push(DrainBegun { key: cold.key.clone(), uid: cold.uid.clone(), leases, by });
        }
    }

    pub(super) fn set_drain(&mut self, slot: u32, by: Option<Timestamp>) {
        let old = std::mem::replace(&mut self.fleet.cold_mut(slot).drain_by, by);
        self.deadlines.moved(Ends::Drain, slot, &None, old, by);
    }

    /// The last lease of a proxy that waits for it has ended.
    pub(super) fn tell_when_drained(&mut self, slot: u32) {
        let cold = self.fleet.cold(slot);
        let asked = cold.published.as_ref().and_then(|proxy| proxy.drain_by);
        if let Some(by) = asked.filter(|_| self.fleet.hot(slot).active == 0) {
            self.effects.drained.push((cold.key.clone(), by));
        }
    }

    /// The time of a drain has come: one lease ends, and the next in its turn.
    pub(super) fn revoke_one(&mut self, slot: u32, now: Timestamp) {
        let cold = self.fleet.cold(slot);
        let deleted = cold.published.as_ref().is_none_or(|proxy| proxy.phase == Phase::Deleting);
        let (at, first) = (cold.drain_by, self.leases.of(cold.first_lease).next());
        let Some(lease) = first else {
            self.fleet.cold_mut(slot).drain_by = None;
            return;
        };
        self.deadlines.moved(Ends::Drain, slot, &None, None, at);
        self.end(lease, LeaseState::Revoked, if deleted { "deleted" } else { "replaced" }, now);
    }

    /// An External object is gone and leases of it run.
    pub(super) fn goes_before_its_leases(&self, slot: u32) -> bool {
        let external = self.fleet.cold(slot).published.as_ref().is_some_and(|proxy| proxy.mode == Mode::External);
        external && self.fleet.hot(slot).active > 0
    }

    /// Only its leases know it from now on; it goes with the last of them.
    pub(super) fn leave_with_leases(&mut self, slot: u32, now: Timestamp) {
        self.preparing.touched(slot);
        self.selectors.leave(slot, &mut self.fleet);
        self.fleet.bereave(slot);
        let by = now + self.settings.drain_timeout;
        self.set_drain(slot, Some(by));
        self.tell_of_drain(slot, by);
        self.reopen(slot);
    }

    /// After a lease ended.
    pub(super) fn mind_the_last(&mut self, slot: u32, now: Timestamp) {
        if self.fleet.hot(slot).active > 0 || self.fleet.cold(slot).drain_by.is_none() {
            return;
        }
        if self.fleet.cold(slot).leaving { self.remove_proxy(slot, now) } else { self.tell_when_drained(slot) }
    }
}
