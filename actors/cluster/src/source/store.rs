//! The objects as they are known: what watches, lists and answers to writes say, put in order. Pure.
//!
//! What must stay true: nothing goes back (O2): what is older than what is known is not taken, whoever says it; an object
//! that was released by us does not come back; a bad object keeps its last good body and counts as live.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use egress_protocol::object::ProxyObject;
use egress_protocol::resource::ProxyStatus;
use egress_protocol::{ObjectKey, Uid};

use super::decode::{Body, Meta, Seen};
use super::version::Version;

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A watch event: in order, but it may be late.
    Watch,
    /// A list: whole, but it may be late.
    List,
    /// The answer to a write or a single read of ours.
    Answer,
}

/// What follows for those who are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    /// It is new, or something of it changed.
    Changed(ObjectKey),
    /// It is gone.
    Gone(ObjectKey, Uid),
}

/// One object.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) meta: Meta,
    /// The last good one.
    pub(crate) body: Option<Body>,
    /// Why the latest could not be read.
    pub(crate) fault: Option<String>,
    /// Nobody was told of it yet.
    pub(crate) fault_is_news: bool,
    /// What our answer said, where versions cannot be compared: nothing is taken before the watch has come as far.
    awaited: Option<Version>,
    /// As the directory was told.
    pub(crate) told: Option<Arc<ProxyObject>>,
    /// The status that we wrote last, or are about to: its writer knows it.
    pub(crate) wrote: Option<Arc<ProxyStatus>>,
}

impl Entry {
    fn new(seen: Seen) -> Self {
        let mut entry =
            Self { meta: seen.meta.clone(), body: None, fault: None, fault_is_news: false, awaited: None, told: None, wrote: None };
        entry.take(seen);
        entry
    }

    fn take(&mut self, seen: Seen) {
        self.meta = seen.meta;
        match seen.body {
            Ok(body) => (self.body, self.fault) = (Some(self.shared(body)), None),
            Err(fault) => {
                self.fault_is_news |= self.fault.as_ref() != Some(&fault);
                self.fault = Some(fault);
            }
        }
    }

    /// What did not change stays the same piece of memory.
    fn shared(&self, mut body: Body) -> Body {
        let Some(old) = &self.body else { return body };
        if old.spec == body.spec {
            body.spec = Arc::clone(&old.spec);
        }
        if old.inline == body.inline {
            body.inline.clone_from(&old.inline);
        }
        if old.status == body.status {
            body.status = Arc::clone(&old.status);
        }
        body
    }

    fn admits(&mut self, version: &Version, origin: Origin) -> bool {
        match version.compare(&self.meta.version) {
            Some(Ordering::Greater) => true,
            Some(Ordering::Equal) => {
                self.awaited = None;
                false
            }
            Some(Ordering::Less) => false,
            None if origin == Origin::Answer => {
                self.awaited = Some(version.clone());
                true
            }
            None if origin == Origin::List => {
                self.awaited = None;
                true
            }
            None => self.awaited.is_none(),
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Store {
    entries: BTreeMap<ObjectKey, Entry>,
    /// Released by us, but not yet seen to be gone.
    buried: HashSet<Uid>,
}

impl Store {
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        self.entries.keys().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// An object was seen.
    pub(crate) fn observe(&mut self, seen: Seen, origin: Origin) -> Vec<News> {
        if self.buried.contains(&seen.meta.uid) {
            return Vec::new();
        }
        if origin == Origin::Answer && seen.meta.released() {
            return self.bury(&seen.meta);
        }
        let key = seen.meta.key.clone();
        let Some(entry) = self.entries.get_mut(&key) else {
            self.entries.insert(key.clone(), Entry::new(seen));
            return vec![News::Changed(key)];
        };
        if entry.meta.uid == seen.meta.uid {
            if !entry.admits(&seen.meta.version, origin) {
                return Vec::new();
            }
            entry.take(seen);
            return vec![News::Changed(key)];
        }
        if seen.meta.version.compare(&entry.meta.version) == Some(Ordering::Less) {
            return Vec::new();
        }
        let old = std::mem::replace(entry, Entry::new(seen));
        vec![News::Gone(key.clone(), old.meta.uid), News::Changed(key)]
    }

    /// The answer to a write showed it released: it does not come back, whatever a late watch says.
    fn bury(&mut self, meta: &Meta) -> Vec<News> {
        self.buried.insert(meta.uid.clone());
        self.remove(&meta.key, &meta.uid)
    }

    /// An object was seen to be gone.
    pub(crate) fn gone(&mut self, key: &ObjectKey, uid: &Uid) -> Vec<News> {
        self.buried.remove(uid);
        self.remove(key, uid)
    }

    fn remove(&mut self, key: &ObjectKey, uid: &Uid) -> Vec<News> {
        if self.entries.get(key).is_none_or(|entry| entry.meta.uid != *uid) {
            return Vec::new();
        }
        self.entries.remove(key);
        vec![News::Gone(key.clone(), uid.clone())]
    }

    /// Every object there was at `version`. What is known and not among them is gone, unless it was seen later than that.
    pub(crate) fn listed(&mut self, version: &Version, all: Vec<Seen>) -> Vec<News> {
        let listed: HashMap<ObjectKey, Uid> = all.iter().map(|seen| (seen.meta.key.clone(), seen.meta.uid.clone())).collect();
        let uids: HashSet<&Uid> = listed.values().collect();
        self.buried.retain(|uid| uids.contains(uid));
        let later = |entry: &Entry| entry.meta.version.compare(version) == Some(Ordering::Greater);
        let missing = self.entries.iter().filter(|(key, entry)| !listed.contains_key(*key) && !later(entry));
        let missing: Vec<_> = missing.map(|(key, entry)| (key.clone(), entry.meta.uid.clone())).collect();
        let gone: Vec<News> = missing.iter().flat_map(|(key, uid)| self.remove(key, uid)).collect();
        let seen = all.into_iter().flat_map(|seen| self.observe(seen, Origin::List));
        gone.into_iter().chain(seen.collect::<Vec<_>>()).collect()
    }
}

#[cfg(test)]
mod tests;
