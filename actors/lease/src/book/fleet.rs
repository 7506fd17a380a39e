//! The proxies as the book knows them: what their actors published, what their leases and cooldowns make of it, and
//! where to find them by name, UID and attribute.
//!
//! What must stay true: `by_key` and `by_uid` name exactly the occupied slots (`by_key` not those that are leaving); a published proxy is in every posting of
//! its attributes, provider, namespace and name; [`Hot`] says what the cold part does.

use std::collections::BTreeMap;
use std::sync::Arc;

use egress_protocol::lease::{Caller, Cordon, LeaseId, ProxyAvailability, ProxyFragment, ReportResult, Selector};
use egress_protocol::{ObjectKey, Timestamp, Uid};
use hashbrown::{HashMap, HashSet};

use super::Hash;
use super::index::{CLOSED, Key};

/// A slot number that names nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// What the order of LS-3 needs of a proxy, small enough to stay in the cache.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hot {
    /// Leases that run.
    pub(crate) active: u32,
    pub(crate) max: u32,
    /// Of the last grant; 0 for never.
    pub(crate) last_fence: u64,
    /// Healthy, not drained, cordoned or cooling for every target.
    pub(crate) open: bool,
    /// It is never granted to an anonymous caller (LS-22).
    pub(crate) needs_credentials: bool,
    /// Three failing reports in a row: last (LS-7).
    pub(crate) distrusted: bool,
}

impl Hot {
    const FULL: Key = 2 << 86;

    /// Keys below it can be granted.
    pub(crate) const LIMIT: Key = Self::FULL;

    /// The order of LS-3 in one number of 88 bits: trusted first, fewest leases relative to capacity, least recently
    /// granted; then what is full, then what is closed.
    pub(crate) fn key(&self, anonymous: bool) -> Key {
        if !self.open || (anonymous && self.needs_credentials) {
            return CLOSED;
        }
        if self.active >= self.max {
            return Self::FULL;
        }
        let load = (u64::from(self.active) << 32) / u64::from(self.max);
        Key::from(self.distrusted) << 86 | Key::from(load) << 53 | Key::from(self.last_fence)
    }
}

/// A cooldown in force, the proxy's own or its address's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cooling {
    pub(crate) until: Timestamp,
    pub(crate) reason: ReportResult,
}

/// By target, and for every target.
#[derive(Debug, Clone)]
pub(crate) struct PerTarget<T> {
    pub(crate) general: Option<T>,
    pub(crate) by_target: BTreeMap<Arc<str>, T>,
}

impl<T> Default for PerTarget<T> {
    fn default() -> Self {
        Self { general: None, by_target: BTreeMap::new() }
    }
}

impl<T> PerTarget<T> {
    pub(crate) fn get(&self, target: Option<&Arc<str>>) -> Option<&T> {
        target.map_or(self.general.as_ref(), |target| self.by_target.get(target))
    }

    pub(crate) fn set(&mut self, target: Option<&Arc<str>>, value: Option<T>) -> Option<T> {
        match (target, value) {
            (None, value) => std::mem::replace(&mut self.general, value),
            (Some(target), Some(value)) => self.by_target.insert(Arc::clone(target), value),
            (Some(target), None) => self.by_target.remove(target),
        }
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.general.is_some()) + self.by_target.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Option<&Arc<str>>, &T)> {
        self.general.iter().map(|value| (None, value)).chain(self.by_target.iter().map(|(target, value)| (Some(target), value)))
    }
}

/// All else about a proxy.
#[derive(Debug, Clone)]
pub(crate) struct Cold {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Uid,
    /// `None`: leases of it are known from the journal, its actor has not published yet.
    pub(crate) published: Option<Arc<ProxyAvailability>>,
    pub(crate) fragment: Arc<ProxyFragment>,
    /// The list of its running leases.
    pub(crate) first_lease: u32,
    /// When the first of them ends; `None` when that has to be looked up.
    pub(crate) soonest: Option<Timestamp>,
    /// Leases that reported a failure since the last success.
    pub(crate) strikes: Vec<LeaseId>,
    pub(crate) cooling: PerTarget<Cooling>,
    pub(crate) cordons: PerTarget<Cordon>,
    /// Its leases are waited for; those that run then are revoked (LS-16).
    pub(crate) drain_by: Option<Timestamp>,
    /// The object is gone, its leases are not.
    pub(crate) leaving: bool,
    /// The last known ones, kept while they are unknown.
    pub(crate) egress: Option<Arc<str>>,
    pub(crate) global_ip: Option<Arc<str>>,
    /// The indexes it is in, with its local number.
    pub(crate) memberships: Vec<(u32, u32)>,
}

impl Cold {
    /// The address its cooldowns belong to (LS-7): the one that targets were seen to see. What clients dial is none: many
    /// accounts at one gateway have many ways out.
    pub(crate) const fn address(&self) -> Option<&Arc<str>> {
        self.egress.as_ref()
    }

    /// Healthy, and here to stay.
    pub(crate) fn is_well(&self) -> bool {
        self.published.as_ref().is_some_and(|proxy| proxy.healthy && !proxy.draining)
    }

    /// Its check URL is suspect.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.published.as_ref().is_some_and(|proxy| proxy.check_url_suspect)
    }

    /// Whether a cordon or a cooldown of just that target keeps it out.
    pub(crate) fn blocked_for(&self, target: &Arc<str>) -> bool {
        self.cooling.by_target.contains_key(target) || self.cordons.by_target.contains_key(target)
    }
}

type Set = HashSet<u32, Hash>;
type Names = HashMap<Box<str>, Set, Hash>;

/// Who has what, for selectors that have no index yet.
#[derive(Debug, Clone, Default)]
struct Postings {
    attributes: HashMap<Box<str>, Names, Hash>,
    providers: Names,
    namespaces: Names,
    names: Names,
}

/// The proxies that can match a selector at most: all, or the union of some sets.
#[derive(Debug)]
pub(crate) enum Candidates<'a> {
    All,
    Sets(Vec<&'a Set>),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Fleet {
    pub(crate) hot: Vec<Hot>,
    cold: Vec<Option<Box<Cold>>>,
    free: Vec<u32>,
    by_key: BTreeMap<ObjectKey, u32>,
    by_uid: HashMap<Uid, u32, Hash>,
    postings: Postings,
}

fn insert(names: &mut Names, name: &str, slot: u32) {
    names.entry_ref(name).or_default().insert(slot);
}

fn remove(names: &mut Names, name: &str, slot: u32) {
    if let Some(set) = names.get_mut(name) {
        set.remove(&slot);
        if set.is_empty() {
            names.remove(name);
        }
    }
}

impl Fleet {
    pub(crate) fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// A proxy, should it still be there.
    pub(crate) fn get(&self, slot: u32) -> Option<&Cold> {
        self.cold.get(slot as usize)?.as_deref()
    }

    /// A proxy that is there; `slot` comes from this book's own tables.
    #[expect(clippy::expect_used, reason = "a slot number that names nothing is a bug of the book; the broker restarts from the journal")]
    pub(crate) fn cold(&self, slot: u32) -> &Cold {
        self.cold[slot as usize].as_deref().expect("an occupied slot")
    }

    #[expect(clippy::expect_used, reason = "as for `cold`")]
    pub(crate) fn cold_mut(&mut self, slot: u32) -> &mut Cold {
        self.cold[slot as usize].as_deref_mut().expect("an occupied slot")
    }

    pub(crate) fn hot(&self, slot: u32) -> &Hot {
        &self.hot[slot as usize]
    }

    pub(crate) fn hot_mut(&mut self, slot: u32) -> &mut Hot {
        &mut self.hot[slot as usize]
    }

    pub(crate) fn by_key(&self, key: &ObjectKey) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    pub(crate) fn by_uid(&self, uid: &Uid) -> Option<u32> {
        self.by_uid.get(uid).copied()
    }

    /// Every slot in order of namespace and name, those after `after`.
    pub(crate) fn in_order(&self, after: Option<&ObjectKey>) -> impl Iterator<Item = (&ObjectKey, u32)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.by_key.range::<ObjectKey, _>((from, Unbounded)).map(|(key, slot)| (key, *slot))
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> {
        self.by_uid.values().copied()
    }

    /// A proxy that nobody published yet.
    pub(crate) fn insert(&mut self, key: ObjectKey, uid: Uid, fragment: Arc<ProxyFragment>) -> u32 {
        let cold = Box::new(Cold {
            key: key.clone(),
            uid: uid.clone(),
            published: None,
            fragment,
            first_lease: NONE,
            soonest: None,
            strikes: Vec::new(),
            cooling: PerTarget::default(),
            cordons: PerTarget::default(),
            drain_by: None,
            leaving: false,
            egress: None,
            global_ip: None,
            memberships: Vec::new(),
        });
        let slot = self.free.pop().unwrap_or_else(|| {
            self.hot.push(Hot::default());
            self.cold.push(None);
            (self.hot.len() - 1) as u32
        });
        self.hot[slot as usize] = Hot::default();
        self.cold[slot as usize] = Some(cold);
        self.by_key.insert(key, slot);
        self.by_uid.insert(uid, slot);
        slot
    }

    /// Forgets a proxy without leases and memberships.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.unpost(slot);
        if let Some(cold) = self.cold[slot as usize].take() {
            if !cold.leaving {
                self.by_key.remove(&cold.key);
            }
            self.by_uid.remove(&cold.uid);
            self.free.push(slot);
        }
    }

    /// The object of a proxy without memberships is gone: only its leases know it.
    pub(crate) fn bereave(&mut self, slot: u32) {
        self.unpost(slot);
        let cold = self.cold_mut(slot);
        (cold.leaving, cold.published) = (true, None);
        let key = cold.key.clone();
        self.by_key.remove(&key);
    }

    /// Enters the published proxy into the postings.
    pub(crate) fn post(&mut self, slot: u32) {
        let Some(proxy) = self.cold(slot).published.clone() else { return };
        for (key, value) in proxy.attributes.iter() {
            insert(self.postings.attributes.entry_ref(key.as_str()).or_default(), value, slot);
        }
        if let Some(provider) = &proxy.provider {
            insert(&mut self.postings.providers, provider, slot);
        }
        insert(&mut self.postings.namespaces, &proxy.key.namespace, slot);
        insert(&mut self.postings.names, &proxy.key.name, slot);
    }

    /// The reverse of [`Fleet::post`]; before anything that is posted changes.
    pub(crate) fn unpost(&mut self, slot: u32) {
        let Some(proxy) = self.cold(slot).published.clone() else { return };
        for (key, value) in proxy.attributes.iter() {
            if let Some(values) = self.postings.attributes.get_mut(key.as_str()) {
                remove(values, value, slot);
                if values.is_empty() {
                    self.postings.attributes.remove(key.as_str());
                }
            }
        }
        if let Some(provider) = &proxy.provider {
            remove(&mut self.postings.providers, provider, slot);
        }
        remove(&mut self.postings.namespaces, &proxy.key.namespace, slot);
        remove(&mut self.postings.names, &proxy.key.name, slot);
    }

    /// The smallest set of proxies known to hold every match, and its size.
    pub(crate) fn candidates<'a>(&'a self, selector: &Selector, caller: &Caller) -> (Candidates<'a>, usize) {
        let mut best = (Candidates::All, self.len());
        let mut offer = |sets: Vec<&'a Set>| {
            let size = sets.iter().map(|set| set.len()).sum();
            if size < best.1 {
                best = (Candidates::Sets(sets), size);
            }
        };
        for attribute in &selector.attributes {
            let values = self.postings.attributes.get(&*attribute.key);
            offer(attribute.values.iter().filter_map(|value| values?.get(&**value)).collect());
        }
        for (names, wanted) in [
            (&self.postings.providers, &selector.provider),
            (&self.postings.namespaces, &selector.namespace),
            (&self.postings.names, &selector.name),
        ] {
            if let Some(wanted) = wanted {
                offer(names.get(&**wanted).into_iter().collect());
            }
        }
        if let Some(seen) = &caller.namespaces {
            offer(seen.iter().filter_map(|namespace| self.postings.namespaces.get(&**namespace)).collect());
        }
        best
    }

    /// Every provider with a published proxy.
    pub(crate) fn providers(&self) -> Vec<Arc<str>> {
        self.postings.providers.keys().map(|provider| Arc::from(&**provider)).collect()
    }

    /// The published proxies of a candidate set.
    pub(crate) fn of<'a>(&'a self, candidates: &Candidates<'a>) -> Vec<u32> {
        match candidates {
            Candidates::All => self.slots().filter(|slot| self.cold(*slot).published.is_some()).collect(),
            Candidates::Sets(sets) => sets.iter().flat_map(|set| set.iter().copied()).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        for (key, slot) in &self.by_key {
            let cold = self.cold[*slot as usize].as_deref().ok_or_else(|| format!("{key} names a free slot"))?;
            if cold.key != *key || self.by_uid.get(&cold.uid) != Some(slot) {
                return Err(format!("{key} is filed wrongly"));
            }
            if let Some(proxy) = &cold.published {
                let posted = proxy.attributes.iter().all(|(key, value)| {
                    self.postings.attributes.get(key.as_str()).and_then(|v| v.get(value.as_str())).is_some_and(|set| set.contains(slot))
                });
                if !posted {
                    return Err(format!("{key} is not posted"));
                }
            }
        }
        let occupied = self.cold.iter().flatten().count();
        let leaving = self.cold.iter().flatten().filter(|cold| cold.leaving).count();
        if occupied != self.by_key.len() + leaving || occupied != self.by_uid.len() {
            return Err(format!("{occupied} slots, {} keys, {} uids", self.by_key.len(), self.by_uid.len()));
        }
        Ok(())
    }
}

/// Whether a selector (without `exclude`) names a proxy, for a caller who sees it. The values of an attribute are in order.
pub(crate) fn matches(selector: &Selector, namespaces: Option<&[Arc<str>]>, proxy: &ProxyAvailability) -> bool {
    selector.name.as_ref().is_none_or(|name| **name == *proxy.key.name)
        && selector.namespace.as_ref().is_none_or(|namespace| **namespace == *proxy.key.namespace)
        && selector.provider.as_ref().is_none_or(|provider| proxy.provider.as_deref() == Some(&**provider))
        && namespaces.is_none_or(|seen| seen.iter().any(|namespace| **namespace == *proxy.key.namespace))
        && selector.attributes.iter().all(|wanted| {
            proxy.attributes.get(&*wanted.key).is_some_and(|value| wanted.values.binary_search_by(|one| (**one).cmp(value)).is_ok())
        })
}
