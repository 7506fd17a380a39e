//! The lease book: who holds which proxy until when, and what each target thinks of it. Pure: `now` and random bits are
//! passed in, nothing is awaited; what must happen elsewhere is left in [`Effects`].
//!
//! What must stay true, after every call (held by the tests, by these names):
//! - *capacity*: no proxy is granted beyond its `maxLeases` (LS-8)
//! - *one state*: a lease runs or has ended, never both; a proxy's count is the number of its running leases
//! - *numbers add up*: the five numbers of a refusal make its `matched` (LS-4)
//! - *only the fit*: no grant of a proxy that is unhealthy, cooling, cordoned, drained, full, or not for the caller
//! - *fence grows*: each grant's fence is larger than every earlier one (LS-2)
//!
//! Parts: [`fleet`] (proxies and where to find them), [`index`] and [`selectors`] (the order of LS-3 by selector), [`choosing`], [`preparing`],
//! [`leases`] and [`wheel`] (leases and when they end), [`passing`] (what time brings), [`cooldown`], [`draining`], [`targets`], [`refusal`],
//! [`opening`] (the time after a start), [`explain`], [`proxies`] (what proxies' actors and people say), [`report`], [`listing`].

mod choosing;
mod cooldown;
mod draining;
mod explain;
mod fleet;
mod index;
mod leases;
mod listing;
mod opening;
mod passing;
mod preparing;
mod proxies;
mod refusal;
mod report;
mod selectors;
mod targets;
#[cfg(test)]
mod tests;
mod wheel;

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::{
    Caller, Cordon, Ending, Entry, FieldError, GrantRequest, LeaseError, LeaseId, LeaseRecord, LeaseState, LeaseView, Snapshot,
    StoredCooldown,
};
use egress_protocol::time::format_duration;
use egress_protocol::{ObjectKey, Timestamp, Uid};
use hashbrown::HashMap;

use cooldown::Cooldowns;
use fleet::{Cold, Fleet, PerTarget};
use leases::{Leases, Place};
pub use listing::LeaseWalk;
use opening::Opening;
use passing::{BITE, Deadlines};
use preparing::Preparing;
pub use preparing::{Prepared, Worked};
pub use report::Reported;
use selectors::Selectors;
use targets::Targets;

/// Fast, and seeded at random by process: keys come from clients.
type Hash = foldhash::fast::RandomState;

/// How much a grant may end on its way (LS-12).
const BITE_OF_A_GRANT: usize = 2;
/// A proxy known from the journal only, which nobody published for so long, is gone.
const UNKNOWN_FOR: Duration = Duration::from_secs(600);

/// The limits of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BookSettings {
    /// `--lease-default-ttl`.
    pub default_ttl: Duration,
    /// `--lease-max-ttl`.
    pub max_ttl: Duration,
    /// `--drain-timeout`: holders renew at least three times within it.
    pub drain_timeout: Duration,
    /// `--lease-grace`: leases whose time ran out while renewals could not be served go on for so long (LS-10).
    pub grace: Duration,
    /// How long an ended lease is remembered (LS-7).
    pub remember: Duration,
    /// How many bytes of ended leases are remembered at most.
    pub remember_bytes: usize,
}

impl Default for BookSettings {
    fn default() -> Self {
        Self {
            default_ttl: Duration::from_secs(300),
            max_ttl: Duration::from_secs(24 * 3600),
            drain_timeout: Duration::from_secs(300),
            grace: Duration::from_secs(30),
            remember: Duration::from_secs(600),
            remember_bytes: 64 << 20,
        }
    }
}

/// Random bits for one grant.
#[derive(Debug, Clone, Copy)]
pub struct Entropy {
    /// Becomes the lease's id: from a generator that nobody can predict.
    pub id: [u8; 16],
    /// Spreads `Retry-After` over one to two times the wait.
    pub spread: u32,
}

/// What must happen outside the book.
#[derive(Debug, Clone, Default)]
pub struct Effects {
    /// For the journal, before the answer leaves.
    pub entries: Vec<Entry>,
    /// Probe these now (LS-7).
    pub probes: Vec<ObjectKey>,
    /// What lease holders say of proxies whose check URL is suspect: for the judge.
    pub testimony: Vec<Testimony>,
    /// For the log and for Events.
    pub cordons: Vec<CordonChange>,
    /// Likewise.
    pub drains: Vec<DrainBegun>,
    /// For these proxies' actors: no lease of theirs runs any more, with the time they asked for.
    pub drained: Vec<(ObjectKey, Timestamp)>,
}

/// A proxy waits for its leases (LS-16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainBegun {
    /// Which.
    pub key: ObjectKey,
    /// Of exactly this object.
    pub uid: Uid,
    /// How many run.
    pub leases: u32,
    /// At the latest then.
    pub by: Timestamp,
}

/// A report on a proxy whose check URL is suspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Testimony {
    /// Of which proxy.
    pub key: ObjectKey,
    /// Of exactly this object.
    pub uid: Uid,
    /// The use failed; else traffic came through.
    pub failed: bool,
}

/// A cordon came or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CordonChange {
    /// Of which proxy.
    pub key: ObjectKey,
    /// Of exactly this object.
    pub uid: Uid,
    /// For which target; `None` = for every one.
    pub target: Option<Arc<str>>,
    /// What happened.
    pub what: CordonTurn,
}

/// See [`CordonChange`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CordonTurn {
    /// It holds now, in place of an earlier one.
    Placed(Cordon),
    /// Lifted by the holder of the token of that name.
    Lifted(Arc<str>),
    /// Its time was over.
    Over,
}

/// The book. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Book {
    settings: BookSettings,
    fleet: Fleet,
    selectors: Selectors,
    preparing: Preparing,
    leases: Leases,
    cooldowns: Cooldowns,
    /// Of objects that nobody published yet.
    waiting_cordons: HashMap<Uid, PerTarget<Cordon>, Hash>,
    targets: Targets,
    deadlines: Deadlines,
    /// Of the last grant.
    fence: u64,
    effects: Effects,
    /// Until then proxies that only the journal knows are waited for.
    unknown_until: Option<Timestamp>,
    /// `None`: every proxy was heard of.
    opening: Option<Opening>,
    swept_at: Timestamp,
    judged_at: Timestamp,
}

/// How much is remembered.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) cooldowns: usize,
    pub(crate) deadlines: usize,
    pub(crate) targets: usize,
}

impl Book {
    /// An empty book. Fences start at the clock's microseconds (LS-2).
    pub fn new(settings: BookSettings, now: Timestamp) -> Self {
        Self {
            settings,
            fleet: Fleet::default(),
            selectors: Selectors::default(),
            preparing: Preparing::default(),
            leases: Leases::new(now),
            cooldowns: Cooldowns::default(),
            waiting_cordons: HashMap::default(),
            targets: Targets::default(),
            deadlines: Deadlines::default(),
            fence: u64::try_from(now.as_millis()).unwrap_or(0).saturating_mul(1000),
            effects: Effects::default(),
            unknown_until: None,
            opening: None,
            swept_at: now,
            judged_at: now,
        }
    }

    /// The book that a journal kept. Leases hold their places although nobody published their proxies yet.
    pub fn restore(settings: BookSettings, snapshot: Snapshot, now: Timestamp) -> Self {
        let mut book = Self::new(settings, now);
        if snapshot.fence > 0 {
            book.fence = snapshot.fence;
        }
        book.unknown_until = Some(now + UNKNOWN_FOR);
        for StoredCooldown { owner, target, cooldown, by } in snapshot.cooldowns {
            book.cooldowns.set(owner, target, cooldown, &by);
        }
        for (uid, target, cordon) in snapshot.cordons {
            book.waiting_cordons.entry(uid).or_default().set(target.as_ref(), Some(cordon));
        }
        let mut leases = snapshot.leases;
        // A later object of a name shows that the earlier one is gone.
        leases.sort_by_key(|lease| (lease.ending.map(|ending| ending.at), lease.record.fence));
        let (running, ended): (Vec<_>, Vec<_>) = leases.into_iter().partition(|lease| lease.ending.is_none());
        for lease in ended {
            if let Some(ending) = lease.ending {
                book.leases.remember(lease.record, lease.expires_at, ending);
            }
        }
        for lease in running {
            let key = ObjectKey::new(Arc::clone(&lease.record.proxy.proxy().namespace), Arc::clone(&lease.record.proxy.proxy().name));
            let slot = match book.fleet.by_key(&key) {
                Some(slot) if book.fleet.cold(slot).uid == lease.record.uid => slot,
                other => {
                    if let Some(old) = other {
                        book.remove_proxy(old, now);
                    }
                    book.fleet.insert(key, lease.record.uid.clone(), Arc::clone(&lease.record.proxy))
                }
            };
            let hot = book.fleet.hot_mut(slot);
            hot.last_fence = hot.last_fence.max(lease.record.fence);
            let mut expires_at = lease.expires_at;
            if expires_at <= now {
                // Its holder may have tried to renew it.
                expires_at = now + settings.grace;
                book.effects.entries.push(Entry::Renewed { id: lease.record.id, expires_at });
            }
            book.leases.begin(lease.record, expires_at, slot, &mut book.fleet);
        }
        book
    }

    /// What must happen outside because of the calls since the last time.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Whether the calls since the last time left nothing to do outside.
    pub fn effects_are_empty(&self) -> bool {
        let Effects { entries, probes, testimony, cordons, drains, drained } = &self.effects;
        entries.is_empty() && probes.is_empty() && testimony.is_empty() && cordons.is_empty() && drains.is_empty() && drained.is_empty()
    }

    /// Grants the best proxy (LS-2, LS-3), or says why none qualifies (LS-4).
    pub fn grant(&mut self, request: &GrantRequest, caller: &Caller, entropy: Entropy, now: Timestamp) -> Result<LeaseView, LeaseError> {
        let ttl = self.checked_ttl(request.ttl.unwrap_or(self.settings.default_ttl))?;
        self.expire(now, BITE_OF_A_GRANT);
        let mut found = self.choose(request, caller, now);
        while found.is_none() && self.expire(now, BITE) > 0 {
            found = self.choose(request, caller, now);
        }
        let Some(proxy) = found else { return Err(self.refuse(request, caller, entropy.spread, now)) };
        self.fence += 1;
        if let Some(target) = &request.target {
            self.targets.used(target, proxy, now);
        }
        let cold = self.fleet.cold(proxy);
        let record = Arc::new(LeaseRecord {
            id: LeaseId::from_bytes(entropy.id),
            fence: self.fence,
            token: Arc::clone(&caller.token_name),
            owner: request.owner.clone(),
            target: request.target.as_ref().map(|target| self.targets.share(target)),
            uid: cold.uid.clone(),
            proxy: Arc::clone(&cold.fragment),
            granted_at: now,
            ttl,
        });
        self.fleet.hot_mut(proxy).last_fence = self.fence;
        self.effects.entries.push(Entry::Granted(Arc::clone(&record)));
        let slot = self.leases.begin(record, now + ttl, proxy, &mut self.fleet);
        let mut view = self.view(Place::Running(slot), now);
        if !caller.anonymous {
            view.credentials = self.fleet.cold(proxy).published.as_ref().and_then(|proxy| proxy.credentials.clone());
        }
        Ok(view)
    }

    fn checked_ttl(&self, ttl: Duration) -> Result<Duration, LeaseError> {
        if ttl > self.settings.max_ttl {
            let message = format!("must be at most {}", format_duration(self.settings.max_ttl));
            return Err(LeaseError::Invalid(vec![FieldError::new("ttl", message)]));
        }
        Ok(ttl)
    }

    /// A lease as its caller may see it.
    fn visible(&mut self, id: LeaseId, caller: &Caller, now: Timestamp) -> Result<Place, LeaseError> {
        let place = self.leases.find(id).ok_or(LeaseError::UnknownLease)?;
        let lease = self.leases.get(place);
        if !caller.owns(&lease.record.token) {
            return Err(LeaseError::UnknownLease);
        }
        match place {
            Place::Running(slot) if lease.expires_at <= now => {
                self.end(slot, LeaseState::Expired, "expired", lease.expires_at);
                self.leases.find(id).ok_or(LeaseError::UnknownLease)
            }
            Place::Running(_) | Place::Ended(_) => Ok(place),
        }
    }

    /// LS-5: ends `ttl` from now instead.
    pub fn renew(&mut self, id: LeaseId, ttl: Option<Duration>, caller: &Caller, now: Timestamp) -> Result<LeaseView, LeaseError> {
        let place = self.visible(id, caller, now)?;
        let lease = self.leases.get(place);
        let slot = match (place, lease.ending) {
            (Place::Running(slot), _) => slot,
            (Place::Ended(_), None) => return Err(LeaseError::UnknownLease),
            (Place::Ended(_), Some(Ending { reason, at, .. })) => {
                let (granted_at, expires_at) = (lease.record.granted_at, lease.expires_at);
                return Err(LeaseError::Ended { reason, granted_at, expires_at, ended_at: at });
            }
        };
        let expires_at = now + self.checked_ttl(ttl.unwrap_or(lease.record.ttl))?;
        self.leases.renew(slot, expires_at, &mut self.fleet);
        self.effects.entries.push(Entry::Renewed { id, expires_at });
        Ok(self.view(place, now))
    }

    /// LS-6: done, whatever the id was. Whether a lease ended by it is for the log.
    pub fn release(&mut self, id: LeaseId, caller: &Caller, now: Timestamp) -> bool {
        let Ok(Place::Running(slot)) = self.visible(id, caller, now) else { return false };
        self.end(slot, LeaseState::Released, "released", now);
        true
    }

    /// LS-5.
    pub fn get(&mut self, id: LeaseId, caller: &Caller, now: Timestamp) -> Result<LeaseView, LeaseError> {
        let place = self.visible(id, caller, now)?;
        Ok(self.view(place, now))
    }

    /// A lease at this moment, without credentials.
    fn view(&self, place: Place, now: Timestamp) -> LeaseView {
        let lease = self.leases.get(place);
        let (runs, known) = match place {
            Place::Running(slot) => (true, Some(self.leases.runs(slot).proxy)),
            Place::Ended(_) => (false, self.fleet.by_uid(&lease.record.uid)),
        };
        let cold = known.map(|proxy| self.fleet.cold(proxy));
        let unhealthy = !cold.is_some_and(Cold::is_well);
        let doubtful = cold.is_some_and(Cold::is_doubtful);
        let of_now = cold.filter(|_| runs);
        let left = if runs { lease.expires_at.since(now) } else { Duration::ZERO };
        LeaseView {
            record: Arc::clone(&lease.record),
            proxy: Arc::clone(of_now.map_or(&lease.record.proxy, |cold| &cold.fragment)),
            expires_at: lease.expires_at,
            expires_in_seconds: left.as_secs(),
            renew_after_seconds: (left / 3).min(self.settings.drain_timeout / 3).as_secs(),
            proxy_unhealthy: unhealthy,
            drain_by: of_now.and_then(|cold| cold.drain_by),
            target_suspect: lease.record.target.as_ref().is_some_and(|target| self.targets.suspect(target)),
            check_url_suspect: doubtful,
            ending: lease.ending,
            credentials: None,
        }
    }

    fn end(&mut self, slot: u32, state: LeaseState, reason: &'static str, at: Timestamp) {
        let ending = Ending { state, reason, at };
        let (id, proxy) = self.leases.end(slot, ending, &mut self.fleet);
        self.effects.entries.push(Entry::Ended { id, ending });
        self.selectors.lowered(proxy, &self.fleet);
        // One in, a few out.
        while self.leases.forget(Timestamp::from_millis(i64::MIN), self.settings.remember_bytes) {}
        self.mind_the_last(proxy, at);
    }

    /// Leases that run.
    pub fn active_leases(&self) -> usize {
        self.leases.active()
    }

    /// Selectors whose order is kept; for people.
    pub fn indexes(&self) -> usize {
        self.selectors.len()
    }

    /// Targets held to be at fault.
    pub fn suspect_targets(&self) -> usize {
        self.targets.suspects()
    }

    /// Proxies known.
    pub fn proxies(&self) -> usize {
        self.fleet.len()
    }

    /// How much is remembered, for tests.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> Counts {
        Counts { cooldowns: self.cooldowns.len(), deadlines: self.deadlines.len(), targets: self.targets.len() }
    }

    /// What must stay true between calls; for tests.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        self.fleet.check()?;
        self.selectors.check(&self.fleet)?;
        self.leases.check(&self.fleet)?;
        self.targets.check()?;
        self.cooldowns.check()?;
        self.check_deadlines()?;
        self.check_openness()
    }
}
