//! What entries fold to: pure.

use std::collections::VecDeque;
use std::sync::Arc;

use egress_protocol::lease::{Cooldown, CooldownOwner, Cordon, Entry, LeaseId, Snapshot, StoredCooldown, StoredLease};
use egress_protocol::{Timestamp, Uid};
use hashbrown::HashMap;

use super::JournalArgs;

type Hash = foldhash::fast::RandomState;
type ByTarget<T> = HashMap<Option<Arc<str>>, T, Hash>;

/// The state of the book as far as it must not be forgotten.
#[derive(Debug, Clone)]
pub struct Kept {
    args: JournalArgs,
    fence: u64,
    leases: HashMap<LeaseId, StoredLease, Hash>,
    /// Ended ones in the order of their entries.
    ended: VecDeque<(Timestamp, LeaseId)>,
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
            leases: HashMap::default(),
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
                self.leases.insert(record.id, StoredLease { record, expires_at, ending: None });
            }
            Entry::Renewed { id, expires_at } => {
                if let Some(lease) = self.leases.get_mut(&id) {
                    lease.expires_at = expires_at;
                }
            }
            Entry::Ended { id, ending } => {
                if let Some(lease) = self.leases.get_mut(&id)
                    && lease.ending.replace(ending).is_none()
                {
                    self.ended.push_back((ending.at, id));
                    self.ended_bytes += lease.record.cost();
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
            let Some((at, id)) = self.ended.front().copied() else { return false };
            if self.ended_bytes <= self.args.remember_bytes && at + self.args.remember > now {
                return false;
            }
            self.ended.pop_front();
            if let Some(lease) = self.leases.remove(&id) {
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
        let running = self.leases.values().filter(|lease| lease.ending.is_none()).cloned();
        let ended = self.ended.iter().filter_map(|(_, id)| self.leases.get(id)).cloned();
        Snapshot {
            fence: self.fence,
            leases: running.chain(ended).collect(),
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
        self.leases.len()
    }

    /// How many cooldowns are kept.
    pub fn cooldowns(&self) -> usize {
        self.cooldowns.values().map(HashMap::len).sum()
    }
}
