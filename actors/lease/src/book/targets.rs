//! What is known about targets: how many proxies are blocked for one, and whether the target itself is at fault (LS-7).
//!
//! A target is suspect while more than half of at least 5 proxies that were used for it within 2 minutes last reported
//! `timeout` or `error`. What must stay true: `failing` is the number of uses whose last report failed.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Timestamp;
use hashbrown::{HashMap, HashSet};

use super::Hash;

const WINDOW: Duration = Duration::from_secs(120);
const QUORUM: usize = 5;
/// Targets watched at most; beyond it new ones are leased for, but never held to be suspect.
const MAX_TARGETS: usize = 50_000;
const FEW_USES: usize = 64;
const PRUNE_EVERY: Duration = Duration::from_secs(1);
/// Uses remembered at most for one target.
const MAX_USES: usize = 20_000;

#[derive(Debug, Clone, Copy)]
struct Use {
    at: Timestamp,
    failed: bool,
}

#[derive(Debug, Clone, Default)]
struct Target {
    /// Proxies with a cooldown or a cordon for just this target.
    blocked: u32,
    /// By proxy: the last use, and whether its last report failed.
    uses: HashMap<u32, Use, Hash>,
    failing: usize,
    suspect: bool,
    pruned_at: Timestamp,
}

impl Target {
    fn prune(&mut self, now: Timestamp) {
        let failing = &mut self.failing;
        self.uses.retain(|_, used| {
            let keep = now.since(used.at) <= WINDOW;
            *failing -= usize::from(!keep && used.failed);
            keep
        });
    }

    /// Old uses leave at once where they are few, else once a second.
    fn judge(&mut self, now: Timestamp) {
        if self.uses.len() <= FEW_USES || now.since(self.pruned_at) >= PRUNE_EVERY {
            self.prune(now);
            self.pruned_at = now;
        }
        self.suspect = self.uses.len() >= QUORUM && self.failing * 2 > self.uses.len();
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Targets {
    by_name: HashMap<Arc<str>, Target, Hash>,
    /// Those held to be at fault.
    suspects: HashSet<Arc<str>, Hash>,
}

/// Judges a target, and files it with the suspects or takes it out.
fn judge(suspects: &mut HashSet<Arc<str>, Hash>, name: &Arc<str>, target: &mut Target, now: Timestamp) {
    let was = target.suspect;
    target.judge(now);
    match (was, target.suspect) {
        (false, true) => drop(suspects.insert(Arc::clone(name))),
        (true, false) => drop(suspects.remove(name)),
        (true, true) | (false, false) => {}
    }
}

impl Targets {
    /// The one copy of a target's name, so that leases share it.
    pub(crate) fn share(&self, target: &Arc<str>) -> Arc<str> {
        self.by_name.get_key_value(target).map_or_else(|| Arc::clone(target), |(shared, _)| Arc::clone(shared))
    }

    /// How many proxies are blocked for it.
    pub(crate) fn blocked(&self, target: &Arc<str>) -> u32 {
        self.by_name.get(target).map_or(0, |target| target.blocked)
    }

    pub(crate) fn block(&mut self, target: &Arc<str>) {
        self.by_name.entry(Arc::clone(target)).or_default().blocked += 1;
    }

    pub(crate) fn unblock(&mut self, target: &Arc<str>) {
        if let Some(target) = self.by_name.get_mut(target) {
            target.blocked = target.blocked.saturating_sub(1);
        }
    }

    fn watched(&mut self, target: &Arc<str>) -> Option<&mut Target> {
        if self.by_name.len() >= MAX_TARGETS && !self.by_name.contains_key(target) {
            return None;
        }
        Some(self.by_name.entry(Arc::clone(target)).or_default())
    }

    /// A proxy was granted for it.
    pub(crate) fn used(&mut self, target: &Arc<str>, proxy: u32, now: Timestamp) {
        let Some(target) = self.watched(target) else { return };
        let room = target.uses.len() < MAX_USES;
        match target.uses.get_mut(&proxy) {
            Some(used) => used.at = now,
            None if room => {
                target.uses.insert(proxy, Use { at: now, failed: false });
            }
            None => {}
        }
    }

    /// A proxy's holder reported on it.
    pub(crate) fn reported(&mut self, target: &Arc<str>, proxy: u32, failed: bool, now: Timestamp) {
        let name = target;
        let Some(target) = self.watched(name) else { return };
        if target.uses.len() < MAX_USES || target.uses.contains_key(&proxy) {
            if let Some(old) = target.uses.insert(proxy, Use { at: now, failed }) {
                target.failing -= usize::from(old.failed);
            }
            target.failing += usize::from(failed);
        }
        if let Some(target) = self.by_name.get_mut(name) {
            judge(&mut self.suspects, name, target, now);
        }
    }

    /// Whether it is held to be at fault.
    pub(crate) fn suspect(&self, target: &Arc<str>) -> bool {
        self.by_name.get(target).is_some_and(|target| target.suspect)
    }

    /// Whether anything is known about it.
    pub(crate) fn knows(&self, target: &Arc<str>) -> bool {
        self.by_name.contains_key(target)
    }

    /// How many are known.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// How many are held to be.
    pub(crate) fn suspects(&self) -> usize {
        self.suspects.len()
    }

    /// Judges the suspect ones anew; a suspicion ends when its evidence is old.
    pub(crate) fn judge(&mut self, now: Timestamp) {
        let suspects: Vec<Arc<str>> = self.suspects.iter().cloned().collect();
        for name in suspects {
            if let Some(target) = self.by_name.get_mut(&name) {
                judge(&mut self.suspects, &name, target, now);
            }
        }
    }

    /// Forgets what nobody used for a while.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        self.by_name.retain(|name, target| {
            judge(&mut self.suspects, name, target, now);
            target.blocked > 0 || !target.uses.is_empty()
        });
    }

    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, target) in &self.by_name {
            let failing = target.uses.values().filter(|used| used.failed).count();
            if failing != target.failing {
                return Err(format!("{name}: {failing} fail, counted {}", target.failing));
            }
            if target.suspect != self.suspects.contains(name) {
                return Err(format!("{name} is not filed as what it is"));
            }
        }
        if self.suspects.iter().any(|name| !self.by_name.contains_key(name)) {
            return Err("a suspect is not known".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn more_than_half_of_at_least_five_proxies_make_a_target_suspect_ls_7() {
        let target: Arc<str> = "shop.example".into();
        let mut targets = Targets::default();
        for proxy in 0..4 {
            targets.reported(&target, proxy, true, at(0));
        }
        assert!(!targets.suspect(&target), "four are too few");
        targets.used(&target, 4, at(1));
        targets.reported(&target, 0, true, at(1));
        assert!(targets.suspect(&target), "four of five failed");
        for proxy in 4..8 {
            targets.reported(&target, proxy, false, at(2));
        }
        assert!(!targets.suspect(&target), "half is not more than half");
    }

    #[test]
    fn a_suspicion_ends_when_its_evidence_is_two_minutes_old_ls_7() {
        let target: Arc<str> = "shop.example".into();
        let mut targets = Targets::default();
        for proxy in 0..5 {
            targets.reported(&target, proxy, true, at(0));
        }
        targets.judge(at(120));
        assert_eq!(targets.suspects(), 1);
        targets.judge(at(121));
        assert_eq!(targets.suspects(), 0);
        targets.sweep(at(121));
        assert!(targets.by_name.is_empty());
    }
}
