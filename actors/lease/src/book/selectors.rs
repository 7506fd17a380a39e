//! The indexes of the selectors in use (LS-12): found by hash, kept for 10 minutes after their last use, bounded in
//! number and in size.
//!
//! What must stay true: a published proxy is a member of exactly the indexes whose selector names it, and
//! `Cold::memberships` says so.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::lease::{Caller, Selector};
use hashbrown::HashTable;

use super::Hash;
use super::fleet::{Cold, Fleet, Hot, matches};
use super::index::{Index, Key, Order};
use super::refusal::Counted;

/// How many indexes are kept at most.
const MAX_INDEXES: usize = 512;
/// How many members they may have together, as a multiple of the fleet (and a floor).
const MEMBERS_PER_PROXY: usize = 64;
const MEMBERS_FLOOR: usize = 1 << 16;
/// An index that is used so long after it was made goes after those that were not: ever new selectors do not drive it out.
const PROVEN_AFTER: Duration = Duration::from_secs(1);
const MEMORY: Duration = Duration::from_secs(600);

/// What an index is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// `exclude` in it does not count.
    pub(crate) selector: &'a Selector,
    pub(crate) caller: &'a Caller,
    /// Set for an index that leaves out what is blocked for a target.
    pub(crate) target: Option<&'a Arc<str>>,
}

impl Wanted<'_> {
    fn hash(&self, hasher: &Hash) -> u64 {
        use std::hash::BuildHasher;
        let s = self.selector;
        hasher.hash_one((&s.attributes, &s.provider, &s.namespace, &s.name, &self.caller.namespaces, self.caller.anonymous, self.target))
    }
}

/// An index and what it is for.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    hash: u64,
    pub(crate) selector: Selector,
    pub(crate) namespaces: Option<Arc<[Arc<str>]>>,
    pub(crate) anonymous: bool,
    pub(crate) target: Option<Arc<str>>,
    pub(crate) index: Index,
    used: Timestamp,
    made: Timestamp,
    /// It was of use for more than the request it was made for.
    again: bool,
    /// Refusals counted a moment ago, by target.
    pub(crate) refusals: Vec<Counted>,
}

impl Entry {
    fn is_for(&self, wanted: &Wanted<'_>) -> bool {
        let (a, b) = (&self.selector, wanted.selector);
        self.anonymous == wanted.caller.anonymous
            && self.target.as_ref() == wanted.target
            && a.attributes == b.attributes
            && a.provider == b.provider
            && a.namespace == b.namespace
            && a.name == b.name
            && self.namespaces == wanted.caller.namespaces
    }

    fn names(&self, cold: &Cold) -> bool {
        cold.published.as_ref().is_some_and(|proxy| matches(&self.selector, self.namespaces.as_deref(), proxy))
    }
}

/// The order of LS-3 as one index sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FleetOrder<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) anonymous: bool,
    pub(crate) target: Option<&'a Arc<str>>,
}

impl Order for FleetOrder<'_> {
    fn key(&self, proxy: u32) -> Key {
        let mut hot = *self.fleet.hot(proxy);
        if let Some(target) = self.target {
            hot.open = hot.open && !self.fleet.cold(proxy).blocked_for(target);
        }
        hot.key(self.anonymous)
    }

    fn unblocked_key(&self, proxy: u32) -> Key {
        self.fleet.hot(proxy).key(self.anonymous)
    }

    fn tie(&self, a: u32, b: u32) -> std::cmp::Ordering {
        self.fleet.cold(a).key.cmp(&self.fleet.cold(b).key)
    }
}

macro_rules! order {
    ($entry:expr, $fleet:expr) => {
        FleetOrder { fleet: $fleet, anonymous: $entry.anonymous, target: $entry.target.as_ref() }
    };
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Selectors {
    entries: Vec<Option<Box<Entry>>>,
    free: Vec<u32>,
    table: HashTable<u32>,
    hasher: Hash,
    members: usize,
}

impl Selectors {
    /// The index for that, if it is kept; using it keeps it.
    pub(crate) fn find(&mut self, wanted: &Wanted<'_>, now: Timestamp) -> Option<u32> {
        let hash = wanted.hash(&self.hasher);
        let entries = &self.entries;
        let id = *self.table.find(hash, |id| entries[*id as usize].as_ref().is_some_and(|entry| entry.is_for(wanted)))?;
        if let Some(entry) = &mut self.entries[id as usize] {
            entry.used = now;
            entry.again |= now.since(entry.made) >= PROVEN_AFTER;
        }
        Some(id)
    }

    /// An index that `find` or `build` named in this call.
    #[expect(clippy::expect_used, reason = "a number that names nothing is a bug of the book; the broker restarts from the journal")]
    pub(crate) fn entry(&mut self, id: u32) -> &mut Entry {
        self.entries[id as usize].as_deref_mut().expect("a kept index")
    }

    /// Builds the index of what `slots` holds of it.
    pub(crate) fn build(&mut self, wanted: &Wanted<'_>, slots: Vec<u32>, fleet: &mut Fleet, now: Timestamp) -> u32 {
        let names =
            |cold: &Cold| cold.published.as_ref().is_some_and(|proxy| matches(wanted.selector, wanted.caller.namespaces.as_deref(), proxy));
        let members = slots.into_iter().filter(|slot| names(fleet.cold(*slot))).collect();
        self.keep(wanted, members, fleet, now)
    }

    /// Keeps the index of exactly these.
    pub(crate) fn keep(&mut self, wanted: &Wanted<'_>, members: Vec<u32>, fleet: &mut Fleet, now: Timestamp) -> u32 {
        let mut selector = wanted.selector.clone();
        selector.exclude.clear();
        let mut entry = Entry {
            hash: wanted.hash(&self.hasher),
            selector,
            namespaces: wanted.caller.namespaces.clone(),
            anonymous: wanted.caller.anonymous,
            target: wanted.target.cloned(),
            index: Index::default(),
            used: now,
            made: now,
            again: false,
            refusals: Vec::new(),
        };
        self.make_room(members.len(), fleet);
        self.members += members.len();
        entry.index = Index::build(members, &order!(entry, fleet));
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            (self.entries.len() - 1) as u32
        });
        for (number, slot) in entry.index.members().iter().enumerate() {
            fleet.cold_mut(*slot).memberships.push((id, number as u32));
        }
        let hash = entry.hash;
        self.entries[id as usize] = Some(Box::new(entry));
        let entries = &self.entries;
        self.table.insert_unique(hash, id, |id| entries[*id as usize].as_ref().map_or(0, |entry| entry.hash));
        id
    }

    fn make_room(&mut self, members: usize, fleet: &mut Fleet) {
        let bound = (fleet.len() * MEMBERS_PER_PROXY).max(MEMBERS_FLOOR);
        while self.table.len() >= MAX_INDEXES || (self.members + members > bound && !self.table.is_empty()) {
            let oldest =
                self.table.iter().copied().min_by_key(|id| self.entries[*id as usize].as_ref().map(|entry| (entry.again, entry.used)));
            let Some(oldest) = oldest else { break };
            self.drop_index(oldest, fleet);
        }
    }

    fn drop_index(&mut self, id: u32, fleet: &mut Fleet) {
        let Some(entry) = self.entries[id as usize].take() else { return };
        for slot in entry.index.members() {
            fleet.cold_mut(*slot).memberships.retain(|(index, _)| *index != id);
        }
        self.members -= entry.index.members().len();
        if let Ok(found) = self.table.find_entry(entry.hash, |other| *other == id) {
            found.remove();
        }
        self.free.push(id);
    }

    /// Drops one index that nobody used for 10 minutes.
    pub(crate) fn sweep(&mut self, fleet: &mut Fleet, now: Timestamp) {
        let old = |id: &u32| self.entries[*id as usize].as_ref().is_some_and(|entry| now.since(entry.used) > MEMORY);
        if let Some(id) = self.table.iter().copied().find(old) {
            self.drop_index(id, fleet);
        }
    }

    /// A proxy was published, or what selectors look at changed.
    pub(crate) fn join(&mut self, slot: u32, fleet: &mut Fleet) {
        for id in self.table.iter().copied() {
            let Some(entry) = &mut self.entries[id as usize] else { continue };
            if entry.names(fleet.cold(slot)) {
                let number = entry.index.add(slot, &order!(entry, fleet));
                fleet.cold_mut(slot).memberships.push((id, number));
                self.members += 1;
            }
        }
    }

    /// The reverse, before the change.
    pub(crate) fn leave(&mut self, slot: u32, fleet: &mut Fleet) {
        for (id, number) in std::mem::take(&mut fleet.cold_mut(slot).memberships) {
            let Some(entry) = &mut self.entries[id as usize] else { continue };
            self.members -= 1;
            if let Some(moved) = entry.index.remove(number, &order!(entry, fleet)) {
                let memberships = &mut fleet.cold_mut(moved).memberships;
                if let Some(place) = memberships.iter_mut().find(|(index, _)| *index == id) {
                    place.1 = number;
                }
            }
        }
    }

    /// A lease of the proxy ended: its key is lower.
    pub(crate) fn lowered(&mut self, slot: u32, fleet: &Fleet) {
        self.each(slot, fleet, |index, number, order| index.lowered(number, order));
    }

    /// The proxy opened or closed, in general or for some target, or its capacity changed.
    pub(crate) fn changed(&mut self, slot: u32, fleet: &Fleet) {
        self.each(slot, fleet, |index, number, order| index.changed(number, order.key(slot), order));
    }

    fn each(&mut self, slot: u32, fleet: &Fleet, mut act: impl FnMut(&mut Index, u32, &FleetOrder<'_>)) {
        for (id, number) in &fleet.cold(slot).memberships {
            if let Some(entry) = &mut self.entries[*id as usize] {
                act(&mut entry.index, *number, &FleetOrder { fleet, anonymous: entry.anonymous, target: entry.target.as_ref() });
            }
        }
    }

    /// The key below which a proxy can be granted.
    pub(crate) const LIMIT: Key = Hot::LIMIT;

    /// How many there are; for people.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    #[cfg(test)]
    pub(crate) fn check(&self, fleet: &Fleet) -> Result<(), String> {
        let mut members = 0;
        for id in &self.table {
            let entry = self.entries[*id as usize].as_ref().ok_or("a listed index is gone")?;
            entry.index.check(&order!(entry, fleet))?;
            members += entry.index.members().len();
            for slot in fleet.slots() {
                let listed = entry.index.members().iter().position(|member| *member == slot);
                let filed = fleet.cold(slot).memberships.iter().find(|(index, _)| index == id).map(|(_, number)| *number as usize);
                if listed != filed || listed.is_some() != entry.names(fleet.cold(slot)) {
                    return Err(format!("{} is {listed:?} in index {id}, filed as {filed:?}", fleet.cold(slot).key));
                }
            }
        }
        if members == self.members { Ok(()) } else { Err(format!("{members} members, counted {}", self.members)) }
    }
}
