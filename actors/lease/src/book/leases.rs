//! The leases: running ones by proxy and by end, ended ones for as long as they are remembered (LS-7).
//!
//! What must stay true: a lease is in exactly one state: running (in a slot, in the wheel and in its proxy's list) or ended
//! (in the queue of the ended); an id names one place.

use std::collections::VecDeque;
use std::sync::Arc;

use egress_protocol::Timestamp;
use egress_protocol::lease::{Ending, LeaseId, LeaseRecord};
use hashbrown::HashMap;

use super::fleet::{Fleet, NONE};
use super::wheel::Wheel;
use crate::by_bits::ByBits;

/// A lease, whether it runs or has ended.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) record: Arc<LeaseRecord>,
    pub(crate) expires_at: Timestamp,
    /// `None` while it runs.
    pub(crate) ending: Option<Ending>,
}

/// A lease that runs.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) lease: Lease,
    pub(crate) proxy: u32,
    prev: u32,
    next: u32,
}

/// Where a lease is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// It runs; a slot.
    Running(u32),
    /// It has ended; its number among all that ever ended.
    Ended(u64),
}

#[derive(Debug, Clone)]
pub(crate) struct Leases {
    slots: Vec<Option<Running>>,
    free: Vec<u32>,
    by_id: HashMap<LeaseId, Place, ByBits>,
    wheel: Wheel,
    /// By value and in the order of their ends, so that forgetting reads memory in order.
    ended: VecDeque<Lease>,
    /// The number of the first that is remembered.
    first_ended: u64,
    /// What the ended ones cost to remember.
    ended_bytes: usize,
    active: usize,
}

impl Leases {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::default(),
            wheel: Wheel::new(now),
            ended: VecDeque::new(),
            first_ended: 0,
            ended_bytes: 0,
            active: 0,
        }
    }

    pub(crate) fn active(&self) -> usize {
        self.active
    }

    pub(crate) fn find(&self, id: LeaseId) -> Option<Place> {
        self.by_id.get(&id).copied()
    }

    /// A lease that is there; `place` comes from this table.
    pub(crate) fn get(&self, place: Place) -> &Lease {
        match place {
            Place::Running(slot) => &self.runs(slot).lease,
            Place::Ended(number) => &self.ended[(number - self.first_ended) as usize],
        }
    }

    /// A lease that runs; `slot` comes from this table.
    #[expect(clippy::expect_used, reason = "a slot number that names nothing is a bug of the book; the broker restarts from the journal")]
    pub(crate) fn runs(&self, slot: u32) -> &Running {
        self.slots[slot as usize].as_ref().expect("an occupied slot")
    }

    #[expect(clippy::expect_used, reason = "as for `runs`")]
    fn runs_mut(&mut self, slot: u32) -> &mut Running {
        self.slots[slot as usize].as_mut().expect("an occupied slot")
    }

    /// A lease begins (or is known from the journal to run).
    pub(crate) fn begin(&mut self, record: Arc<LeaseRecord>, expires_at: Timestamp, proxy: u32, fleet: &mut Fleet) -> u32 {
        let next = fleet.cold(proxy).first_lease;
        let id = record.id;
        let running = Running { lease: Lease { record, expires_at, ending: None }, proxy, prev: NONE, next };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(running);
        self.by_id.insert(id, Place::Running(slot));
        if next != NONE {
            self.runs_mut(next).prev = slot;
        }
        self.wheel.schedule(slot, expires_at);
        self.active += 1;
        let hot = fleet.hot_mut(proxy);
        let first = hot.active == 0;
        hot.active += 1;
        let cold = fleet.cold_mut(proxy);
        cold.first_lease = slot;
        cold.soonest = if first { Some(expires_at) } else { cold.soonest.map(|soonest| soonest.min(expires_at)) };
        slot
    }

    /// A lease that has ended, now or as the journal knows it.
    pub(crate) fn remember(&mut self, record: Arc<LeaseRecord>, expires_at: Timestamp, ending: Ending) {
        self.ended_bytes += record.cost();
        self.by_id.insert(record.id, Place::Ended(self.first_ended + self.ended.len() as u64));
        self.ended.push_back(Lease { record, expires_at, ending: Some(ending) });
    }

    pub(crate) fn renew(&mut self, slot: u32, expires_at: Timestamp, fleet: &mut Fleet) {
        self.wheel.schedule(slot, expires_at);
        let running = self.runs_mut(slot);
        running.lease.expires_at = expires_at;
        fleet.cold_mut(running.proxy).soonest = None;
    }

    /// A running lease ends; answers with its id and its proxy.
    #[expect(clippy::expect_used, reason = "as for `runs`")]
    pub(crate) fn end(&mut self, slot: u32, ending: Ending, fleet: &mut Fleet) -> (LeaseId, u32) {
        self.wheel.cancel(slot);
        let Running { lease, proxy, prev, next } = self.slots[slot as usize].take().expect("an occupied slot");
        self.free.push(slot);
        if prev != NONE {
            self.runs_mut(prev).next = next;
        }
        if next != NONE {
            self.runs_mut(next).prev = prev;
        }
        self.active -= 1;
        let id = lease.record.id;
        self.remember(lease.record, lease.expires_at, ending);
        fleet.hot_mut(proxy).active -= 1;
        let cold = fleet.cold_mut(proxy);
        if cold.first_lease == slot {
            cold.first_lease = next;
        }
        cold.soonest = None;
        (id, proxy)
    }

    /// One running lease whose time is over.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<u32> {
        self.wheel.pop_due(now)
    }

    /// Forgets one lease that ended before `before`, or because more than `limit` bytes are remembered.
    pub(crate) fn forget(&mut self, before: Timestamp, limit: usize) -> bool {
        let Some(first) = self.ended.front() else { return false };
        if self.ended_bytes <= limit && first.ending.is_some_and(|ending| ending.at > before) {
            return false;
        }
        let Some(Lease { record, .. }) = self.ended.pop_front() else { return false };
        self.first_ended += 1;
        self.ended_bytes -= record.cost();
        self.by_id.remove(&record.id);
        true
    }

    /// The running leases of a proxy.
    pub(crate) fn of(&self, first: u32) -> impl Iterator<Item = u32> {
        std::iter::successors((first != NONE).then_some(first), |slot| Some(self.runs(*slot).next).filter(|next| *next != NONE))
    }

    /// When the first of a proxy's running leases ends.
    pub(crate) fn first_end(&self, first: u32) -> Option<Timestamp> {
        self.of(first).map(|slot| self.runs(slot).lease.expires_at).min()
    }

    /// The same, remembered by the fleet until it changes.
    pub(crate) fn soonest(&self, proxy: u32, fleet: &mut Fleet) -> Option<Timestamp> {
        let cold = fleet.cold_mut(proxy);
        if cold.soonest.is_none() {
            cold.soonest = self.first_end(cold.first_lease);
        }
        cold.soonest
    }

    /// Slots there are, occupied or not; for walking them in bites.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// A running lease, if the slot holds one.
    pub(crate) fn running(&self, slot: usize) -> Option<&Running> {
        self.slots.get(slot)?.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn check(&self, fleet: &Fleet) -> Result<(), String> {
        let running = self.slots.iter().flatten().count();
        let still = self.slots.iter().flatten().filter(|running| running.lease.ending.is_some()).count();
        let ended = self.ended.iter().filter(|lease| lease.ending.is_some()).count();
        if running != self.active || still != 0 || ended != self.ended.len() || self.by_id.len() != running + ended {
            return Err(format!("{running} run, counted {}; {ended} ended, queued {}", self.active, self.ended.len()));
        }
        for (id, place) in &self.by_id {
            if self.get(*place).record.id != *id {
                return Err(format!("{id} is looked for at {place:?}, where another lease is"));
            }
        }
        let bytes: usize = self.ended.iter().map(|lease| lease.record.cost()).sum();
        if bytes != self.ended_bytes {
            return Err(format!("{bytes} bytes are remembered, counted {}", self.ended_bytes));
        }
        for proxy in fleet.slots() {
            let listed: Vec<u32> = self.of(fleet.cold(proxy).first_lease).collect();
            if listed.len() != fleet.hot(proxy).active as usize || listed.iter().any(|slot| self.runs(*slot).proxy != proxy) {
                return Err(format!("{} has {} leases, counted {}", fleet.cold(proxy).key, listed.len(), fleet.hot(proxy).active));
            }
        }
        let listed: usize = fleet.slots().map(|proxy| fleet.hot(proxy).active as usize).sum();
        if listed == running { Ok(()) } else { Err(format!("{running} run, the proxies have {listed}")) }
    }
}
