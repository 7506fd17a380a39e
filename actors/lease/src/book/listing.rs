//! Lists and counts for people and metrics (LS-1, LS-5, OB-1). Lists are walked in bites, so that a filter that matches
//! little does not hold up grants.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use egress_protocol::lease::{
    BrokerStats, Caller, CoolingItem, CordonItem, Cursor, LeaseFilter, LeaseId, LeaseView, ProviderSlots, ProxyItem, ProxyList, ProxyWalk,
    SlotCounts,
};
use egress_protocol::{ObjectKey, Timestamp};

use super::Book;

/// Cooldowns of one proxy that its item lists.
const MOST_SHOWN: usize = 100;
/// How far one bite of a walk goes.
const STRIDE: usize = 4096;

/// A page of leases in the making: the smallest ids so far.
#[derive(Debug)]
pub struct LeaseWalk {
    filter: LeaseFilter,
    caller: Caller,
    limit: usize,
    after: Option<LeaseId>,
    at: usize,
    least: BinaryHeap<LeaseId>,
}

impl LeaseWalk {
    /// At most `limit` running leases after `after`.
    pub const fn new(filter: LeaseFilter, after: Option<LeaseId>, limit: usize, caller: Caller) -> Self {
        Self { filter, caller, limit, after, at: 0, least: BinaryHeap::new() }
    }
}

impl Book {
    /// Goes on with a page of proxies; `Some` when it is done.
    pub fn walk_proxies(&self, walk: &mut ProxyWalk) -> Option<ProxyList> {
        let after = walk.after().cloned();
        let mut looked = 0;
        for (key, slot) in self.fleet.in_order(after.as_ref()).take(STRIDE) {
            looked += 1;
            let page = walk.look(key, self.fleet.cold(slot).published.as_deref(), || self.item(slot));
            if page.is_some() {
                return page;
            }
        }
        (looked < STRIDE).then(|| walk.end())
    }

    /// Goes on with a page of leases; `Some` when it is done.
    pub fn walk_leases(&self, walk: &mut LeaseWalk, now: Timestamp) -> Option<(Vec<LeaseView>, Option<String>)> {
        let end = (walk.at + STRIDE).min(self.leases.capacity());
        for running in (walk.at..end).filter_map(|slot| self.leases.running(slot)) {
            let (record, proxy) = (&running.lease.record, self.fleet.cold(running.proxy));
            let wanted = walk.after.is_none_or(|after| record.id > after)
                && walk.caller.owns(&record.token)
                && walk.filter.owner.as_ref().is_none_or(|owner| record.owner.as_deref() == Some(&**owner))
                && walk.filter.proxy.as_ref().is_none_or(|key| proxy.key == *key)
                && running.lease.expires_at > now;
            if wanted {
                walk.least.push(record.id);
                if walk.least.len() > walk.limit + 1 {
                    walk.least.pop();
                }
            }
        }
        walk.at = end;
        if end < self.leases.capacity() {
            return None;
        }
        let mut ids = std::mem::take(&mut walk.least).into_sorted_vec();
        let more = ids.len() > walk.limit;
        ids.truncate(walk.limit);
        let next = ids.last().filter(|_| more).map(|id| Cursor::Lease(*id).encode());
        let views = ids.into_iter().filter_map(|id| self.leases.find(id)).map(|place| self.view(place, now));
        Some((views.filter(|view| view.ending.is_none()).collect(), next))
    }

    /// One proxy, if the caller may see it.
    pub fn proxy(&self, key: &ObjectKey, caller: &Caller) -> Option<ProxyItem> {
        self.item(self.seen(key, caller)?)
    }

    pub(crate) fn item(&self, slot: u32) -> Option<ProxyItem> {
        let cold = self.fleet.cold(slot);
        let proxy = cold.published.as_ref()?;
        let count = cold.cooling.len();
        let cooling = cold.cooling.iter().take(MOST_SHOWN).map(|(target, cooling)| CoolingItem {
            target: target.cloned(),
            until: cooling.until,
            reason: cooling.reason.as_str().to_owned(),
        });
        let cordons = cold.cordons.iter().map(|(target, cordon)| CordonItem {
            target: target.cloned(),
            until: cordon.until,
            reason: cordon.reason.to_string(),
            by: Some(cordon.by.to_string()),
        });
        Some(ProxyItem {
            active_leases: Some(self.fleet.hot(slot).active),
            cooling_down: Some(cooling.collect()),
            cooling_down_count: (count > MOST_SHOWN).then_some(count as u32),
            cordons: Some(cordons.collect()),
            drain_by: cold.drain_by,
            ..ProxyItem::of(proxy)
        })
    }

    /// Every provider with a proxy, and the empty name of External ones.
    pub fn providers(&self) -> Vec<Arc<str>> {
        let mut providers = self.fleet.providers();
        providers.push("".into());
        providers
    }

    /// What the metrics read.
    pub fn stats(&self) -> BrokerStats {
        let mut stats = BrokerStats { active_leases: self.leases.active() as u64, ..BrokerStats::default() };
        let mut slots: BTreeMap<Arc<str>, SlotCounts> = BTreeMap::new();
        for slot in self.fleet.slots() {
            let (hot, cold) = (self.fleet.hot(slot), self.fleet.cold(slot));
            let Some(proxy) = &cold.published else { continue };
            *stats.phases.entry(proxy.phase).or_default() += 1;
            stats.oldest_probe = match (stats.oldest_probe, proxy.checked_at) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, None) | (None, one) => one,
            };
            let counts = slots.entry(proxy.provider.clone().unwrap_or_else(|| "".into())).or_default();
            counts.leased += u64::from(hot.active);
            let rest = u64::from(hot.max.saturating_sub(hot.active));
            if cold.cordons.general.is_some() || proxy.draining {
                counts.drained += rest;
            } else if !proxy.healthy {
                counts.unhealthy += rest;
            } else if cold.cooling.general.is_some() {
                counts.cooling += rest;
            } else {
                counts.free += rest;
            }
        }
        stats.slots = slots.into_iter().map(|(provider, slots)| ProviderSlots { provider, slots }).collect();
        stats
    }
}
