//! What time alone brings about, in bounded bites (LS-8, LS-12).

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::LeaseState;
use egress_protocol::{Timestamp, Uid};

use super::Book;

/// How much one message may end: whoever asks meanwhile waits for one bite at most (docs/performance.md, leases that expire).
pub(crate) const BITE: usize = 16;
const SWEEP_EVERY: Duration = Duration::from_secs(60);
const JUDGE_EVERY: Duration = Duration::from_secs(1);

/// Something ends by itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deadline {
    Cooling { uid: Uid, target: Option<Arc<str>> },
    Cordon { uid: Uid, target: Option<Arc<str>> },
}

impl Book {
    pub(crate) fn wait_for(&mut self, at: Timestamp, deadline: Deadline) {
        self.deadlines.push(Reverse((at, deadline)));
    }

    /// Ends at most `limit` leases, cooldowns and cordons whose time is over, and answers how many.
    pub(crate) fn expire(&mut self, now: Timestamp, limit: usize) -> usize {
        let mut done = 0;
        while done < limit {
            if let Some(slot) = self.leases.pop_due(now) {
                let at = self.leases.get(slot).expires_at;
                self.end(slot, LeaseState::Expired, "expired", at);
            } else if self.deadlines.peek().is_some_and(|Reverse((at, _))| *at <= now) {
                if let Some(Reverse((_, deadline))) = self.deadlines.pop() {
                    self.pass(&deadline, now);
                }
            } else {
                break;
            }
            done += 1;
        }
        done
    }

    fn pass(&mut self, deadline: &Deadline, now: Timestamp) {
        match deadline {
            Deadline::Cooling { uid, target } => {
                if let Some(slot) = self.fleet.by_uid(uid) {
                    self.refresh_cooling(slot, target, now);
                }
            }
            Deadline::Cordon { uid, target } => {
                if let Some(slot) = self.fleet.by_uid(uid)
                    && self
                        .fleet
                        .cold(slot)
                        .cordons
                        .get(target.as_ref())
                        .is_some_and(|cordon| cordon.until.is_some_and(|until| until <= now))
                {
                    self.lift(slot, target);
                }
            }
        }
    }

    /// What time alone brings about, in a bounded bite; `true` when more is due.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        self.open_no_longer_than(now);
        let expired = self.expire(now, BITE);
        let mut forgotten = 0;
        while forgotten < BITE && self.leases.forget(now - self.settings.remember, self.settings.remember_at_most) {
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
