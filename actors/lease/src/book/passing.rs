//! What time alone brings about, in bounded bites (LS-8, LS-12).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::lease::LeaseState;

use super::Book;

/// How much one message may end: whoever asks meanwhile waits for one bite at most (docs/performance.md, leases that expire).
pub(crate) const BITE: usize = 16;
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const JUDGE_EVERY: Duration = Duration::from_secs(1);

/// Something of a proxy ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ends {
    Cooling,
    Cordon,
    /// The wait for its leases.
    Drain,
}

/// What waits for its time: at most one entry for each cooldown in force and each timed cordon.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deadlines(BTreeSet<(Timestamp, Ends, u32, Option<Arc<str>>)>);

impl Deadlines {
    /// It ends at another time now.
    pub(crate) fn moved(&mut self, what: Ends, slot: u32, target: &Option<Arc<str>>, from: Option<Timestamp>, to: Option<Timestamp>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.0.remove(&(from, what, slot, target.clone()));
        }
        if let Some(to) = to {
            self.0.insert((to, what, slot, target.clone()));
        }
    }

    fn pop_due(&mut self, now: Timestamp) -> Option<(Ends, u32, Option<Arc<str>>)> {
        self.0
            .first()
            .is_some_and(|(at, ..)| *at <= now)
            .then(|| self.0.pop_first())
            .flatten()
            .map(|(_, what, slot, target)| (what, slot, target))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(crate) fn has(&self, at: Timestamp, what: Ends, slot: u32, target: Option<&Arc<str>>) -> bool {
        self.0.contains(&(at, what, slot, target.cloned()))
    }
}

impl Book {
    /// Ends at most `limit` leases, cooldowns and cordons whose time is over, and answers how many.
    pub(crate) fn expire(&mut self, now: Timestamp, limit: usize) -> usize {
        let mut done = 0;
        while done < limit {
            if let Some(slot) = self.leases.pop_due(now) {
                let at = self.leases.runs(slot).lease.expires_at;
                self.end(slot, LeaseState::Expired, "expired", at);
            } else if let Some((what, slot, target)) = self.deadlines.pop_due(now) {
                match what {
                    Ends::Cooling => self.refresh_cooling(slot, &target, now),
                    Ends::Cordon => self.lift(slot, &target, None),
                    Ends::Drain => self.revoke_one(slot, now),
                }
            } else {
                break;
            }
            done += 1;
        }
        done
    }

    /// What time alone brings about, in a bounded bite; `true` when more is due.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        self.open_no_longer_than(now);
        let expired = self.expire(now, BITE);
        let mut forgotten = 0;
        while forgotten < BITE && self.leases.forget(now - self.settings.remember, self.settings.remember_bytes) {
            forgotten += 1;
        }
        if now.since(self.judged_at) >= JUDGE_EVERY {
            self.judged_at = now;
            self.targets.judge(now);
            self.selectors.sweep(&mut self.fleet, now);
        }
        if now.since(self.swept_at) >= SWEEP_EVERY {
            self.swept_at = now;
            self.targets.sweep(now);
            self.sweep_cooldowns(now);
        }
        if self.unknown_until.is_some_and(|until| until <= now) {
            self.unknown_until = None;
            self.drop_unknown(now);
        }
        expired == BITE || forgotten == BITE
    }
}
