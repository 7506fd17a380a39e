//! What entries fold to: pure.

use std::collections::VecDeque;
use std::sync::Arc;

use egress_protocol::lease::{Cooldown, CooldownOwner, Cordon, Entry, LeaseId, Snapshot, StoredCooldown, StoredLease};
use egress_protocol::{Timestamp, Uid};
use hashbrown::HashMap;

use super::JournalArgs;
use crate::by_bits::ByBits;

type Hash = foldhash::fast::RandomState;
type ByTarget<T> = HashMap<Option<Arc<str>>, T, Hash>;

/// The state of the book as far as it must not be forgotten.
#[derive(Debug, Clone)]
pub struct Kept {
    args: JournalArgs,
    fence: u64,
    running: HashMap<LeaseId, StoredLease, ByBits>,
    /// In the order of their entries, by value: forgetting reads memory in order.
    ended: VecDeque<StoredLease>,
    /// What they cost to remember.
    ended_bytes: usize,
    cooldowns: HashMap<CooldownOwner, ByTarget<(Cooldown, Arc<str>)>, Hash>,
    cordons: HashMap<Uid, ByTarget<Cordon>, Hash>,
}

impl Kept {
    /// Nothing yet.
    pub fn new(args: JournalArgs) -> Self {
        Self {
            args,
            fence: 0,
            running: HashMap::default(),
            ended: VecDeque::new(),
            ended_bytes: 0,
            cooldowns: HashMap::default(),
            cordons: HashMap::default(),
        }
    }

    /// Takes in what happened.
    pub fn fold(&mut self, entry: Entry) {
        match entry {
            Entry::Granted(record) => {
                self.fence = self.fence.max(record.fence);
                let expires_at = record.granted_at + record.ttl;
                self.running.insert(record.id, StoredLease { record, expires_at, ending: None });
            }
            Entry::Renewed { id, expires_at } => {
                if let Some(lease) = self.running.get_mut(&id) {
                    lease.expires_at = expires_at;
                }
            }
            Entry::Ended { id, ending } => {
                if let Some(lease) = self.running.remove(&id) {
                    self.ended_bytes += lease.record.cost();
                    self.ended.push_back(StoredLease { ending: Some(ending), ..lease });
                }
                self.forget(ending.at, usize::MAX);
            }
            Entry::Cooled { owner, target, cooldown, by } => {
                self.cooldowns.entry(owner).or_default().insert(target, (cooldown, by));
            }
            Entry::CooldownDropped { owner, target } => {
                if let Some(cooldowns) = self.cooldowns.get_mut(&owner) {
                    cooldowns.remove(&target);
                    if cooldowns.is_empty() {
                        self.cooldowns.remove(&owner);
                    }
                }
            }
            Entry::CooldownsDropped { owner } => {
                self.cooldowns.remove(&owner);
            }
            Entry::Cordoned { uid, target, cordon } => {
                self.cordons.entry(uid).or_default().insert(target, cordon);
            }
            Entry::Uncordoned { uid, target } => {
                if let Some(cordons) = self.cordons.get_mut(&uid) {
                    cordons.remove(&target);
                    if cordons.is_empty() {
                        self.cordons.remove(&uid);
                    }
                }
            }
            Entry::CordonsDropped { uid } => {
                self.cordons.remove(&uid);
            }
        }
    }

    /// Forgets at most `limit` leases that ended too long ago, or that are too many; whether there may be more.
    pub fn forget(&mut self, now: Timestamp, limit: usize) -> bool {
        for _ in 0..limit {
            let Some(first) = self.ended.front() else { return false };
            let kept = first.ending.is_some_and(|ending| ending.at + self.args.remember > now);
            if kept && self.ended_bytes <= self.args.remember_bytes {
                return false;
            }
            if let Some(lease) = self.ended.pop_front() {
                self.ended_bytes -= lease.record.cost();
            }
        }
        true
    }

    /// Whether there is anything to forget some day.
    pub fn remembers(&self) -> bool {
        !self.ended.is_empty()
    }

    /// All of it.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            fence: self.fence,
            leases: self.running.values().chain(&self.ended).cloned().collect(),
            cooldowns: self
                .cooldowns
                .iter()
                .flat_map(|(owner, by_target)| {
                    by_target.iter().map(|(target, (cooldown, by))| StoredCooldown {
                        owner: owner.clone(),
                        target: target.clone(),
                        cooldown: *cooldown,
                        by: Arc::clone(by),
                    })
                })
                .collect(),
            cordons: self
                .cordons
                .iter()
                .flat_map(|(uid, by_target)| by_target.iter().map(|(target, cordon)| (uid.clone(), target.clone(), cordon.clone())))
                .collect(),
        }
    }

    /// How many leases are kept.
    pub fn leases(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    /// How many cooldowns are kept.
    pub fn cooldowns(&self) -> usize {
        self.cooldowns.values().map(HashMap::len).sum()
    }
}
