//! When the check URL is at fault and not the proxies (HE-9): pure.
//!
//! The URL is suspect when at least 3, and more than half, of the so far healthy proxies that share it failed for a
//! reason of the target's side, each at last within two of their longest intervals, and no probe of the URL passed since
//! the first of these failures began. Any pass ends it. "So far healthy" is who is healthy now and who fell to exactly
//! these failures, so that a threshold of 1 does not hide an outage from the count. Verdicts are held for a bounded time
//! ([`hold`]).
//!
//! Cost: a result is constant work (and the logarithm of a map), whatever the fleet; only when the counts say that the
//! URL may be suspect are its proxies gone through.

pub mod egress;
pub mod hold;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::judge::Suspicion;
use egress_protocol::prober::ProbeOutcome;
use egress_protocol::{ObjectKey, Timestamp, Uid};

use hold::{Ended, Hold};

/// The fewest failing proxies that can put a URL under suspicion.
pub const FEWEST: usize = 3;

/// What a result says of the URL and of its proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// It answers.
    Passed,
    /// It failed, and the fault lies on the target's side as far as the probe could tell.
    TargetSide,
    /// It failed on the proxy's side: that says nothing about the URL.
    ProxySide,
}

impl From<&ProbeOutcome> for Evidence {
    fn from(outcome: &ProbeOutcome) -> Self {
        match outcome {
            ProbeOutcome::Passed { .. } => Self::Passed,
            ProbeOutcome::Failed { target_side: true, .. } => Self::TargetSide,
            ProbeOutcome::Failed { target_side: false, .. } => Self::ProxySide,
        }
    }
}

/// A result.
#[derive(Debug, Clone)]
pub struct Observation {
    /// Whose.
    pub key: ObjectKey,
    /// Of exactly this object.
    pub uid: Uid,
    /// The URL.
    pub url: Arc<str>,
    /// The verdict before.
    pub was_healthy: bool,
    /// The verdict after.
    pub is_healthy: bool,
    /// When the probe began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// The proxy's interval.
    pub interval: Duration,
    /// What it says.
    pub evidence: Evidence,
}

/// What follows from a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Tell this proxy.
    Tell {
        /// Which.
        key: ObjectKey,
        /// What.
        suspicion: Suspicion,
    },
    /// A URL came under suspicion.
    Suspected {
        /// Which.
        url: Arc<str>,
        /// How many fail.
        failing: usize,
        /// Out of how many that were healthy so far.
        healthy: usize,
    },
    /// A suspicion ended.
    Cleared {
        /// Of which URL.
        url: Arc<str>,
    },
    /// The URL stays suspect, but its failures count again.
    HoldEnded {
        /// Which.
        url: Arc<str>,
        /// Why.
        why: Ended,
    },
}

/// Every URL in use and the proxies that share it.
#[derive(Debug, Default)]
pub struct Judge {
    urls: HashMap<Arc<str>, Shared>,
    members: HashMap<ObjectKey, (Uid, Arc<str>)>,
}

/// One URL. The counts always are what counting the members would give.
#[derive(Debug, Default)]
struct Shared {
    members: BTreeMap<ObjectKey, Member>,
    counts: Counts,
    /// Marks of an earlier round, before the last pass, do not count.
    round: u64,
    last_pass: Option<Timestamp>,
    suspect: Option<Hold>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    healthy: usize,
    failing: usize,
    /// Failing and no longer healthy.
    fallen: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    healthy: bool,
    interval: Duration,
    mark: Option<Mark>,
}

/// Failures on the target's side since the last pass, that began while the proxy was healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    round: u64,
    first_began: Timestamp,
    last_ended: Timestamp,
}

impl Judge {
    /// Takes a result.
    pub fn observe(&mut self, seen: &Observation) -> Vec<Effect> {
        let mut effects = Vec::new();
        let known = self.members.get(&seen.key).is_some_and(|(uid, url)| *uid == seen.uid && *url == seen.url);
        if !known {
            self.leave(&seen.key, Some(&seen.url), &mut effects);
            self.members.insert(seen.key.clone(), (seen.uid.clone(), Arc::clone(&seen.url)));
        }
        let shared = self.urls.entry(Arc::clone(&seen.url)).or_default();
        shared.take(seen);
        if seen.evidence == Evidence::Passed {
            shared.pass(seen.ended_at);
            if shared.suspect.take().is_some() {
                effects.push(Effect::Cleared { url: Arc::clone(&seen.url) });
                effects.extend(
                    shared
                        .members
                        .keys()
                        .map(|key| Effect::Tell { key: key.clone(), suspicion: Suspicion::Cleared { url: Arc::clone(&seen.url) } }),
                );
            }
            return effects;
        }
        if let Some(hold) = &mut shared.suspect {
            // One that came later, or that does not know of the hold (it was restarted) and fell.
            if !known || (seen.was_healthy && !seen.is_healthy) {
                effects.push(tell(&seen.key, &seen.url, hold, false));
            }
            if hold.lapses(seen.ended_at) {
                effects.push(Effect::HoldEnded { url: Arc::clone(&seen.url), why: Ended::Time });
            }
        } else if let Some(since) = shared.verdict(seen.ended_at) {
            let hold = Hold::new(since, seen.ended_at);
            effects.push(Effect::Suspected {
                url: Arc::clone(&seen.url),
                failing: shared.counts.failing,
                healthy: shared.counts.so_far_healthy(),
            });
            let mut namespace = None;
            effects.extend(shared.members.keys().map(|key| {
                let speaks = namespace.replace(&key.namespace) != Some(&key.namespace);
                tell(key, &seen.url, &hold, speaks)
            }));
            shared.suspect = Some(hold);
        }
        effects
    }

    /// Takes what the holder of a lease said of a proxy whose URL is suspect: whether its use failed. That at least 3, and
    /// more than half, of the proxies reported on fail elsewhere too ends the hold: two destinations that fail through the
    /// same proxies are more likely the proxies' fault.
    pub fn report(&mut self, key: &ObjectKey, uid: &Uid, failed: bool, now: Timestamp) -> Vec<Effect> {
        let Some((_, url)) = self.members.get(key).filter(|(known, _)| known == uid) else { return Vec::new() };
        let Some(shared) = self.urls.get_mut(url) else { return Vec::new() };
        let Some(hold) = &mut shared.suspect else { return Vec::new() };
        if !hold.reported(key, failed, now) {
            return Vec::new();
        }
        let mut effects = vec![Effect::HoldEnded { url: Arc::clone(url), why: Ended::Reports }];
        effects.extend(shared.members.keys().map(|key| tell(key, url, hold, false)));
        effects
    }

    /// The proxy no longer uses its URL, or is gone.
    pub fn forget(&mut self, key: &ObjectKey, uid: &Uid) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.knows(key, uid) {
            self.leave(key, None, &mut effects);
        }
        effects
    }

    /// Whether exactly this object was seen and not forgotten.
    pub fn knows(&self, key: &ObjectKey, uid: &Uid) -> bool {
        self.members.get(key).is_some_and(|(known, _)| known == uid)
    }

    /// The URLs under suspicion.
    pub fn suspects(&self) -> impl Iterator<Item = &Arc<str>> {
        self.urls.iter().filter(|(_, shared)| shared.suspect.is_some()).map(|(url, _)| url)
    }

    /// How many URLs are in use.
    pub fn urls(&self) -> usize {
        self.urls.len()
    }

    /// Takes a proxy off its URL; one that goes to another is told that the old suspicion is none of its business.
    fn leave(&mut self, key: &ObjectKey, next: Option<&Arc<str>>, effects: &mut Vec<Effect>) {
        let Some((_, url)) = self.members.remove(key) else { return };
        let Some(shared) = self.urls.get_mut(&url) else { return };
        if let Some(member) = shared.members.remove(key) {
            shared.counts.remove(&member, shared.round);
        }
        if let Some(hold) = &mut shared.suspect {
            hold.forget(key);
        }
        let suspect = shared.suspect.is_some();
        if suspect && next.is_some_and(|next| *next != url) {
            effects.push(Effect::Tell { key: key.clone(), suspicion: Suspicion::Cleared { url: Arc::clone(&url) } });
        }
        if shared.members.is_empty() {
            self.urls.remove(&url);
            if suspect {
                effects.push(Effect::Cleared { url });
            }
        }
    }
}

fn tell(key: &ObjectKey, url: &Arc<str>, hold: &Hold, speaks: bool) -> Effect {
    let suspicion = Suspicion::Suspect { url: Arc::clone(url), since: hold.since, until: hold.until, speaks };
    Effect::Tell { key: key.clone(), suspicion }
}

impl Shared {
    /// Writes a result into its member.
    fn take(&mut self, seen: &Observation) {
        let before = self.members.get(&seen.key).copied();
        let mark = before.and_then(|member| member.mark).filter(|mark| mark.round == self.round);
        let counts = seen.evidence == Evidence::TargetSide
            && (seen.was_healthy || mark.is_some())
            && self.last_pass.is_none_or(|pass| seen.started_at >= pass);
        let mark = counts.then(|| Mark {
            round: self.round,
            first_began: mark.map_or(seen.started_at, |mark| mark.first_began.min(seen.started_at)),
            last_ended: seen.ended_at,
        });
        let after = Member { healthy: seen.is_healthy, interval: seen.interval, mark };
        if let Some(before) = before {
            self.counts.remove(&before, self.round);
        }
        self.counts.add(&after, self.round);
        self.members.insert(seen.key.clone(), after);
    }

    /// No failure before this pass counts any more.
    fn pass(&mut self, at: Timestamp) {
        self.last_pass = self.last_pass.max(Some(at));
        self.round += 1;
        self.counts.failing = 0;
        self.counts.fallen = 0;
    }

    /// When the failures began that put the URL under suspicion, if they do.
    fn verdict(&mut self, now: Timestamp) -> Option<Timestamp> {
        if !self.counts.suffice() {
            return None;
        }
        let round = self.round;
        let marked = |member: &Member| member.mark.is_some_and(|mark| mark.round == round);
        let longest = self.members.values().filter(|member| marked(member)).map(|member| member.interval).max()?;
        let horizon = now - longest.saturating_mul(2);
        for member in self.members.values_mut().filter(|member| marked(member)) {
            if member.mark.is_some_and(|mark| mark.last_ended < horizon) {
                self.counts.remove(member, round);
                member.mark = None;
                self.counts.add(member, round);
            }
        }
        if !self.counts.suffice() {
            return None;
        }
        self.members.values().filter_map(|member| member.mark).filter(|mark| mark.round == round).map(|mark| mark.first_began).min()
    }
}

impl Counts {
    fn so_far_healthy(&self) -> usize {
        self.healthy + self.fallen
    }

    fn suffice(&self) -> bool {
        self.failing >= FEWEST && self.failing * 2 > self.so_far_healthy()
    }

    fn add(&mut self, member: &Member, round: u64) {
        let [healthy, failing, fallen] = Self::of(member, round);
        self.healthy += healthy;
        self.failing += failing;
        self.fallen += fallen;
    }

    fn remove(&mut self, member: &Member, round: u64) {
        let [healthy, failing, fallen] = Self::of(member, round);
        self.healthy -= healthy;
        self.failing -= failing;
        self.fallen -= fallen;
    }

    fn of(member: &Member, round: u64) -> [usize; 3] {
        let failing = member.mark.is_some_and(|mark| mark.round == round);
        [usize::from(member.healthy), usize::from(failing), usize::from(failing && !member.healthy)]
    }
}

#[cfg(test)]
mod tests;
