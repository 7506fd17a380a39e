//! The leases: running ones by proxy and by end, ended ones for as long as they are remembered (LS-7).
//!
//! What must stay true: a lease is in exactly one state: running (in the wheel and in its proxy's list) or ended (in the
//! queue of the ended); an id names one slot.

use std::collections::VecDeque;
use std::sync::Arc;

use egress_protocol::Timestamp;
use egress_protocol::lease::{Ending, LeaseId, LeaseRecord};
use hashbrown::HashMap;

use super::Hash;
use super::fleet::{Fleet, NONE};
use super::wheel::Wheel;

#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) record: Arc<LeaseRecord>,
    pub(crate) expires_at: Timestamp,
    pub(crate) ending: Option<Ending>,
    /// While it runs.
    pub(crate) proxy: u32,
    prev: u32,
    next: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Leases {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    by_id: HashMap<LeaseId, u32, Hash>,
    wheel: Wheel,
    ended: VecDeque<u32>,
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
            ended_bytes: 0,
            active: 0,
        }
    }

    pub(crate) fn active(&self) -> usize {
        self.active
    }

    pub(crate) fn find(&self, id: LeaseId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// A lease that is there; `slot` comes from this table.
    #[expect(clippy::expect_used, reason = "a slot number that names nothing is a bug of the book; the broker restarts from the journal")]
    pub(crate) fn get(&self, slot: u32) -> &Slot {
        self.slots[slot as usize].as_ref().expect("an occupied slot")
    }

    #[expect(clippy::expect_used, reason = "as for `get`")]
    fn get_mut(&mut self, slot: u32) -> &mut Slot {
        self.slots[slot as usize].as_mut().expect("an occupied slot")
    }

    fn insert(&mut self, lease: Slot) -> u32 {
        let id = lease.record.id;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(lease);
        self.by_id.insert(id, slot);
        slot
    }

    /// A lease begins (or is known from the journal to run).
    pub(crate) fn begin(&mut self, record: Arc<LeaseRecord>, expires_at: Timestamp, proxy: u32, fleet: &mut Fleet) -> u32 {
        let next = fleet.cold(proxy).first_lease;
        let slot = self.insert(Slot { record, expires_at, ending: None, proxy, prev: NONE, next });
        if next != NONE {
            self.get_mut(next).prev = slot;
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

    /// A lease that is known from the journal to have ended.
    pub(crate) fn remember(&mut self, record: Arc<LeaseRecord>, expires_at: Timestamp, ending: Ending) {
        self.ended_bytes += record.cost();
        let slot = self.insert(Slot { record, expires_at, ending: Some(ending), proxy: NONE, prev: NONE, next: NONE });
        self.ended.push_back(slot);
    }

    pub(crate) fn renew(&mut self, slot: u32, expires_at: Timestamp, fleet: &mut Fleet) {
        self.wheel.schedule(slot, expires_at);
        let lease = self.get_mut(slot);
        lease.expires_at = expires_at;
        fleet.cold_mut(lease.proxy).soonest = None;
    }

    /// A running lease ends.
    pub(crate) fn end(&mut self, slot: u32, ending: Ending, fleet: &mut Fleet) {
        self.wheel.cancel(slot);
        let lease = self.get_mut(slot);
        let (proxy, prev, next) = (lease.proxy, lease.prev, lease.next);
        lease.ending = Some(ending);
        let cost = lease.record.cost();
        (lease.proxy, lease.prev, lease.next) = (NONE, NONE, NONE);
        if prev != NONE {
            self.get_mut(prev).next = next;
        }
        if next != NONE {
            self.get_mut(next).prev = prev;
        }
        self.ended.push_back(slot);
        self.ended_bytes += cost;
        self.active -= 1;
        fleet.hot_mut(proxy).active -= 1;
        let cold = fleet.cold_mut(proxy);
        if cold.first_lease == slot {
            cold.first_lease = next;
        }
        cold.soonest = None;
    }

    /// One running lease whose time is over.
    pub(crate) fn pop_due(&mut self, now: Timestamp) -> Option<u32> {
        self.wheel.pop_due(now)
    }

    /// Forgets one lease that ended before `before`, or because more than `limit` bytes are remembered.
    pub(crate) fn forget(&mut self, before: Timestamp, limit: usize) -> bool {
        let Some(slot) = self.ended.front().copied() else { return false };
        if self.ended_bytes <= limit && self.get(slot).ending.is_some_and(|ending| ending.at > before) {
            return false;
        }
        self.ended.pop_front();
        if let Some(lease) = self.slots[slot as usize].take() {
            self.ended_bytes -= lease.record.cost();
            self.by_id.remove(&lease.record.id);
        }
        self.free.push(slot);
        true
    }

    /// The running leases of a proxy.
    pub(crate) fn of(&self, first: u32) -> impl Iterator<Item = u32> {
        std::iter::successors((first != NONE).then_some(first), |slot| Some(self.get(*slot).next).filter(|next| *next != NONE))
    }

    /// When the first lease of a proxy ends.
    pub(crate) fn soonest(&self, proxy: u32, fleet: &mut Fleet) -> Option<Timestamp> {
        let cold = fleet.cold_mut(proxy);
        if cold.soonest.is_none() {
            cold.soonest = self.of(cold.first_lease).map(|slot| self.get(slot).expires_at).min();
        }
        cold.soonest
    }

    /// Slots there are, occupied or not; for walking them in bites.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// A running lease, if that is what the slot holds.
    pub(crate) fn running(&self, slot: usize) -> Option<&Slot> {
        self.slots.get(slot)?.as_ref().filter(|lease| lease.ending.is_none())
    }

    #[cfg(test)]
    pub(crate) fn check(&self, fleet: &Fleet) -> Result<(), String> {
        let running = self.slots.iter().flatten().filter(|lease| lease.ending.is_none()).count();
        let ended = self.slots.iter().flatten().filter(|lease| lease.ending.is_some()).count();
        if running != self.active || ended != self.ended.len() || self.by_id.len() != running + ended {
            return Err(format!("{running} run, counted {}; {ended} ended, queued {}", self.active, self.ended.len()));
        }
        let bytes: usize = self.ended.iter().map(|slot| self.get(*slot).record.cost()).sum();
        if bytes != self.ended_bytes {
            return Err(format!("{bytes} bytes are remembered, counted {}", self.ended_bytes));
        }
        for proxy in fleet.slots() {
            let listed: Vec<u32> = self.of(fleet.cold(proxy).first_lease).collect();
            if listed.len() != fleet.hot(proxy).active as usize || listed.iter().any(|slot| self.get(*slot).proxy != proxy) {
                return Err(format!("{} has {} leases, counted {}", fleet.cold(proxy).key, listed.len(), fleet.hot(proxy).active));
            }
        }
        let listed: usize = fleet.slots().map(|proxy| fleet.hot(proxy).active as usize).sum();
        if listed == running { Ok(()) } else { Err(format!("{running} run, the proxies have {listed}")) }
    }
}
