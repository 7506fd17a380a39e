//! Lists and counts for people and metrics (LS-1, LS-5, OB-1). Lists are walked in bites, so that a filter that matches
//! little does not hold up grants.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use egress_protocol::lease::item::proxy_url;
use egress_protocol::lease::{
    BrokerStats, Caller, CoolingItem, CordonItem, Cursor, LeaseFilter, LeaseId, LeaseView, ProviderSlots, ProxyAvailability, ProxyFilter,
    ProxyItem, ProxyList, SlotCounts,
};
use egress_protocol::{ObjectKey, Timestamp};

use super::Book;

/// How far one bite of a walk goes.
const STRIDE: usize = 4096;

/// A page of proxies in the making.
#[derive(Debug)]
pub struct ProxyWalk {
    filter: ProxyFilter,
    caller: Caller,
    limit: usize,
    after: Option<ObjectKey>,
    items: Vec<ProxyItem>,
}

impl ProxyWalk {
    /// At most `limit` proxies after `after`.
    pub const fn new(filter: ProxyFilter, after: Option<ObjectKey>, limit: usize, caller: Caller) -> Self {
        Self { filter, caller, limit, after, items: Vec::new() }
    }
}

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

fn passes(filter: &ProxyFilter, proxy: &ProxyAvailability) -> bool {
    filter.healthy.is_none_or(|healthy| healthy == proxy.healthy)
        && filter.mode.is_none_or(|mode| mode == proxy.mode)
        && filter.phase.is_none_or(|phase| phase == proxy.phase)
        && filter.provider.as_ref().is_none_or(|provider| proxy.provider.as_deref() == Some(&**provider))
        && filter.namespace.as_ref().is_none_or(|namespace| **namespace == *proxy.key.namespace)
        && filter.attributes.iter().all(|(key, value)| proxy.attributes.get(&**key).is_some_and(|v| **v == **value))
}

impl Book {
    /// Goes on with a page of proxies; `Some` when it is done.
    pub fn walk_proxies(&self, walk: &mut ProxyWalk) -> Option<ProxyList> {
        let mut last = None;
        let mut looked = 0;
        for (key, slot) in self.fleet.in_order(walk.after.as_ref()).take(STRIDE) {
            looked += 1;
            let wanted = self.fleet.cold(slot).published.as_ref().is_some_and(|proxy| passes(&walk.filter, proxy));
            if wanted && walk.caller.sees_namespace(&key.namespace) {
                if walk.items.len() == walk.limit {
                    let next_cursor = last.or_else(|| walk.after.clone()).map(|key| Cursor::Proxy(key).encode());
                    return Some(ProxyList { items: std::mem::take(&mut walk.items), next_cursor });
                }
                walk.items.extend(self.item(slot));
            }
            last = Some(key.clone());
        }
        walk.after = last.or_else(|| walk.after.take());
        (looked < STRIDE).then(|| ProxyList { items: std::mem::take(&mut walk.items), next_cursor: None })
    }

    /// Goes on with a page of leases; `Some` when it is done.
    pub fn walk_leases(&self, walk: &mut LeaseWalk, now: Timestamp) -> Option<(Vec<LeaseView>, Option<String>)> {
        let end = (walk.at + STRIDE).min(self.leases.capacity());
        for lease in (walk.at..end).filter_map(|slot| self.leases.running(slot)) {
            let (record, proxy) = (&lease.record, self.fleet.cold(lease.proxy));
            let wanted = walk.after.is_none_or(|after| record.id > after)
                && walk.caller.owns(&record.token)
                && walk.filter.owner.as_ref().is_none_or(|owner| record.owner.as_deref() == Some(&**owner))
                && walk.filter.proxy.as_ref().is_none_or(|key| proxy.key == *key)
                && lease.expires_at > now;
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
        let views = ids.into_iter().filter_map(|id| self.leases.find(id)).map(|slot| self.view(slot, now));
        Some((views.filter(|view| view.ending.is_none()).collect(), next))
    }

    /// One proxy, if the caller may see it.
    pub fn proxy(&self, key: &ObjectKey, caller: &Caller) -> Option<ProxyItem> {
        self.item(self.seen(key, caller)?)
    }

    pub(crate) fn item(&self, slot: u32) -> Option<ProxyItem> {
        let cold = self.fleet.cold(slot);
        let proxy = cold.published.as_ref()?;
        let cooling = cold.cooling.iter().map(|(target, cooling)| CoolingItem {
            target: target.cloned(),
            until: cooling.until,
            reason: cooling.reason.as_str().to_owned(),
        });
        let cordons = cold.cordons.iter().map(|(target, cordon)| CordonItem {
            target: target.cloned(),
            until: cordon.until,
            reason: cordon.reason.to_string(),
        });
        Some(ProxyItem {
            namespace: Arc::clone(&proxy.key.namespace),
            name: Arc::clone(&proxy.key.name),
            mode: proxy.mode,
            provider: proxy.provider.clone(),
            phase: proxy.phase,
            healthy: proxy.healthy,
            host: proxy.host.clone(),
            ip: proxy.ip.clone(),
            egress_ip: proxy.egress_ip.clone(),
            port: proxy.port,
            url: proxy.host.as_ref().map(|host| proxy_url(host, proxy.port)),
            attributes: Arc::clone(&proxy.attributes),
            max_leases: proxy.max_leases,
            active_leases: self.fleet.hot(slot).active,
            latency_millis: proxy.latency_millis,
            checked_at: proxy.checked_at,
            cooling_down: cooling.collect(),
            cordons: cordons.collect(),
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
