//! The cooldowns by owner and target, and how many each token's name holds of them (LS-15).
//!
//! What must stay true: the counts are those of the entries; an owner without entries and holders is not there.

use std::sync::Arc;

use egress_protocol::lease::{Cooldown, CooldownOwner, Entry};
use egress_protocol::{Timestamp, Uid};
use hashbrown::HashMap;

use super::FORGIVEN_AFTER;
use crate::book::Hash;

/// Of how many targets the reports of one token's name may cool one proxy, or one address.
const TARGETS_OF_A_TOKEN: usize = 1000;

/// A cooldown and the token's name whose report began it: it counts in that name's share.
#[derive(Debug, Clone)]
struct Held {
    cooldown: Cooldown,
    by: Arc<str>,
}

/// What one token's name holds of one owner's cooldowns.
#[derive(Debug, Clone, Default)]
struct Share {
    count: usize,
    /// No cooldown of it is over before.
    full_until: Timestamp,
}

#[derive(Debug, Clone, Default)]
struct Owned {
    by_target: HashMap<Option<Arc<str>>, Held, Hash>,
    shares: HashMap<Arc<str>, Share, Hash>,
    /// Of an address: who has it.
    holders: Vec<u32>,
    /// Of an address: since when nobody has.
    left_at: Timestamp,
}

/// Every cooldown that is in force or counts for the next one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cooldowns {
    by_owner: HashMap<CooldownOwner, Owned, Hash>,
    count: usize,
    /// How many of them each token's name began.
    by_token: HashMap<Arc<str>, usize, Hash>,
}

/// Takes one off a count, and the count off its table when it was the last.
fn uncount(counts: &mut HashMap<Arc<str>, usize, Hash>, by: &Arc<str>) {
    if let Some(count) = counts.get_mut(by) {
        *count -= 1;
        if *count == 0 {
            counts.remove(by);
        }
    }
}

impl Owned {
    /// Removes those that `gone` names, and tells `dropped` of each.
    fn retain(
        &mut self,
        by_token: &mut HashMap<Arc<str>, usize, Hash>,
        mut gone: impl FnMut(&Held) -> bool,
        mut dropped: impl FnMut(&Option<Arc<str>>),
    ) {
        let shares = &mut self.shares;
        self.by_target.retain(|target, held| {
            let goes = gone(held);
            if goes {
                dropped(target);
                uncount(by_token, &held.by);
                if let Some(share) = shares.get_mut(&held.by) {
                    share.count -= 1;
                }
            }
            !goes
        });
        shares.retain(|_, share| share.count > 0);
    }
}

impl Cooldowns {
    pub(super) fn get(&self, owner: &CooldownOwner, target: &Option<Arc<str>>) -> Option<Cooldown> {
        self.by_owner.get(owner)?.by_target.get(target).map(|held| held.cooldown)
    }

    /// The proxies that have an address.
    pub(super) fn holders(&self, address: &CooldownOwner) -> Option<&[u32]> {
        self.by_owner.get(address).map(|owned| owned.holders.as_slice())
    }

    /// A proxy has that address from now on.
    pub(super) fn hold(&mut self, address: &CooldownOwner, slot: u32) {
        self.by_owner.entry(address.clone()).or_default().holders.push(slot);
    }

    /// A proxy has it no longer.
    pub(super) fn let_go(&mut self, address: &CooldownOwner, slot: u32, now: Timestamp) {
        let Some(owned) = self.by_owner.get_mut(address) else { return };
        owned.holders.retain(|holder| *holder != slot);
        owned.left_at = now;
        if owned.holders.is_empty() && owned.by_target.is_empty() {
            self.by_owner.remove(address);
        }
    }

    /// Who began a cooldown.
    pub(super) fn begun_by(&self, owner: &CooldownOwner, target: &Option<Arc<str>>) -> Arc<str> {
        self.by_owner.get(owner).and_then(|owned| owned.by_target.get(target)).map_or_else(|| "".into(), |held| Arc::clone(&held.by))
    }

    /// Answers with who began it.
    pub(crate) fn set(&mut self, owner: CooldownOwner, target: Option<Arc<str>>, cooldown: Cooldown, by: &Arc<str>) -> Arc<str> {
        let owned = self.by_owner.entry(owner).or_default();
        if let Some(held) = owned.by_target.get_mut(&target) {
            held.cooldown = cooldown;
            return Arc::clone(&held.by);
        }
        owned.by_target.insert(target, Held { cooldown, by: Arc::clone(by) });
        owned.shares.entry(Arc::clone(by)).or_default().count += 1;
        *self.by_token.entry(Arc::clone(by)).or_default() += 1;
        self.count += 1;
        Arc::clone(by)
    }

    /// Whether a report of `by` may begin a cooldown; those of its share that are over make room (LS-15).
    pub(super) fn has_room(
        &mut self,
        owner: &CooldownOwner,
        target: &Option<Arc<str>>,
        by: &Arc<str>,
        most: usize,
        now: Timestamp,
        effects: &mut Vec<Entry>,
    ) -> bool {
        if let Some(owned) = self.by_owner.get_mut(owner) {
            if owned.by_target.contains_key(target) {
                return true;
            }
            let share = owned.shares.get(by).cloned().unwrap_or_default();
            if share.count >= TARGETS_OF_A_TOKEN {
                if now < share.full_until {
                    return false;
                }
                let before = owned.by_target.len();
                owned.retain(
                    &mut self.by_token,
                    |held| held.by == *by && held.cooldown.until <= now,
                    |target| effects.push(Entry::CooldownDropped { owner: owner.clone(), target: target.clone() }),
                );
                self.count -= before - owned.by_target.len();
                let first = owned.by_target.values().filter(|held| held.by == *by).map(|held| held.cooldown.until).min();
                if let Some(share) = owned.shares.get_mut(by)
                    && share.count >= TARGETS_OF_A_TOKEN
                {
                    share.full_until = first.unwrap_or(now);
                    return false;
                }
            }
        }
        self.count < most && self.by_token.get(by).is_none_or(|count| *count < most / 2)
    }

    /// Removes one; whether it was there.
    pub(super) fn drop_one(&mut self, owner: &CooldownOwner, target: &Option<Arc<str>>) -> bool {
        let Some(owned) = self.by_owner.get_mut(owner) else { return false };
        let Some(held) = owned.by_target.remove(target) else { return false };
        self.count -= 1;
        uncount(&mut self.by_token, &held.by);
        if let Some(share) = owned.shares.get_mut(&held.by) {
            share.count -= 1;
            share.full_until = Timestamp::default();
            if share.count == 0 {
                owned.shares.remove(&held.by);
            }
        }
        if owned.by_target.is_empty() && owned.holders.is_empty() {
            self.by_owner.remove(owner);
        }
        true
    }

    /// Removes all of an owner's; whether there were some.
    pub(super) fn drop_all(&mut self, owner: &CooldownOwner) -> bool {
        let Some(owned) = self.by_owner.get_mut(owner) else { return false };
        let dropped = owned.by_target.len();
        owned.retain(&mut self.by_token, |_| true, |_| {});
        if owned.holders.is_empty() {
            self.by_owner.remove(owner);
        }
        self.count -= dropped;
        dropped > 0
    }

    pub(super) fn targets(&self, owner: &CooldownOwner) -> Vec<Option<Arc<str>>> {
        self.by_owner.get(owner).map_or_else(Vec::new, |owned| owned.by_target.keys().cloned().collect())
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Forgets what is over and forgiven, and addresses that nobody held for a day.
    pub(super) fn sweep(&mut self, now: Timestamp, known: impl Fn(&Uid) -> bool, effects: &mut Vec<Entry>) {
        let (count, by_token) = (&mut self.count, &mut self.by_token);
        self.by_owner.retain(|owner, owned| {
            let before = owned.by_target.len();
            let gone = match owner {
                CooldownOwner::Object(uid) => !known(uid),
                CooldownOwner::Address(_) => owned.holders.is_empty() && now.since(owned.left_at) >= FORGIVEN_AFTER,
            };
            let over = |held: &Held| gone || (held.cooldown.until <= now && now.since(held.cooldown.reported_at) >= FORGIVEN_AFTER);
            owned.retain(by_token, over, |target| {
                effects.push(Entry::CooldownDropped { owner: owner.clone(), target: target.clone() });
            });
            *count -= before - owned.by_target.len();
            !owned.by_target.is_empty() || !owned.holders.is_empty()
        });
    }

    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut by_token: HashMap<Arc<str>, usize, Hash> = HashMap::default();
        for (owner, owned) in &self.by_owner {
            let mut shares: HashMap<Arc<str>, usize, Hash> = HashMap::default();
            for held in owned.by_target.values() {
                *shares.entry(Arc::clone(&held.by)).or_default() += 1;
                *by_token.entry(Arc::clone(&held.by)).or_default() += 1;
            }
            let counted: HashMap<Arc<str>, usize, Hash> = owned.shares.iter().map(|(by, share)| (Arc::clone(by), share.count)).collect();
            if counted != shares {
                return Err(format!("{owner:?} has {shares:?} cooldowns, counted {counted:?}"));
            }
        }
        let count: usize = by_token.values().sum();
        if by_token == self.by_token && count == self.count {
            Ok(())
        } else {
            Err(format!("{by_token:?} cooldowns, counted {:?} and {}", self.by_token, self.count))
        }
    }
}
