//! The election, decided (OP-1, SV-4): when to look at the Lease, when to write it, and what that makes of us.
//!
//! What must stay true:
//! - the fence is open at most for the renew deadline after the request that renewed the Lease was *sent*;
//! - the Lease of another is written only when it stood still for as long as it lasts, by our own monotonic clock and
//!   counted from the *answer* that showed it, and only over that very version;
//! - where a holder may not know yet that it lost the Lease (it was deleted, cleared or given to us by hand) we wait as
//!   long as that all the same;
//! - nothing is written while the branch of an earlier leadership still ends.
//!
//! So two fences of one Lease are never open at once, as long as no clock gains on another by more than the lease duration
//! has over the renew deadline. Wall clocks are written for people to read and never compared with ours.

mod words;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use words::{Effect, Input, Now, Outcome, RELEASED, Record, Terms, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Following,
    /// Until then; `fenced` once that has passed and was told.
    Leading {
        until: Duration,
        fenced: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Look,
    Write,
}

/// Whom a Lease is with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Me,
    Other,
    /// Given up by its holder.
    Released,
    /// Deleted, never made, or without a holder for whatever reason.
    Nobody,
}

/// One candidate. At most one call is under way.
#[derive(Debug)]
pub(crate) struct Elector {
    terms: Terms,
    phase: Phase,
    clearing: bool,
    calling: bool,
    next: Next,
    due: Duration,
    /// As seen last; `None` before the first look and when there is none.
    record: Option<Record>,
    settled: bool,
    /// From then on no other holder can still believe in its leadership.
    free_at: Duration,
    /// Stamps of writes that may still be carried out, all over the version seen last.
    unknown: Vec<i64>,
    conflicts: u32,
    stamp: i64,
    /// The last [`Effect::Follow`].
    told: Option<Effect>,
    trouble: Option<String>,
}

impl Elector {
    /// A candidate that has seen nothing. `clearing`: something is left of the branch of an earlier life.
    pub(crate) fn new(terms: Terms, clearing: bool, now: Now) -> Self {
        Self {
            terms,
            phase: Phase::Following,
            clearing,
            calling: false,
            next: Next::Look,
            due: now.mono,
            record: None,
            settled: false,
            free_at: now.mono,
            unknown: Vec::new(),
            conflicts: 0,
            stamp: 0,
            told: None,
            trouble: None,
        }
    }

    /// When to say [`Input::Tick`] next, if nothing else happens before.
    pub(crate) fn wake(&self) -> Option<Duration> {
        let due = (!self.calling).then_some(self.due);
        let fence = match self.phase {
            Phase::Leading { until, fenced: false } => Some(until),
            Phase::Leading { fenced: true, .. } | Phase::Following => None,
        };
        due.into_iter().chain(fence).min()
    }

    /// Whether we lead, fenced or not.
    pub(crate) const fn leads(&self) -> bool {
        matches!(self.phase, Phase::Leading { .. })
    }

    /// Whether the Lease was seen once.
    pub(crate) const fn settled(&self) -> bool {
        self.settled
    }

    /// Whether the Lease may be in our name: it is to be released.
    pub(crate) fn may_hold(&self) -> bool {
        self.leads() || self.calling || !self.unknown.is_empty() || self.holder() == Holder::Me
    }

    /// Why the last call failed.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Takes in what happened and says what to do.
    pub(crate) fn step(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        match input {
            Input::Tick => {}
            Input::Cleared => {
                self.clearing = false;
                self.due = now.mono;
            }
            Input::Looked(looked) => self.looked(now, looked, &mut out),
            Input::Wrote { sent, outcome } => self.wrote(now, sent, outcome, &mut out),
        }
        if let Phase::Leading { until, fenced } = &mut self.phase
            && !*fenced
            && now.mono >= *until
        {
            *fenced = true;
            out.push(Effect::Fenced);
        }
        if !self.calling && now.mono >= self.due {
            self.calling = true;
            out.push(match self.next {
                Next::Look => Effect::Look,
                Next::Write => Effect::Write(self.write(now)),
            });
        }
        out
    }

    fn write(&mut self, now: Now) -> Write {
        // Never the same twice: it is how a write is known again, and how others see that we renew.
        self.stamp = now.wall.max(self.stamp + 1);
        self.unknown.push(self.stamp);
        Write {
            base: self.record.as_ref().map(|record| Arc::clone(&record.version)),
            stamp: self.stamp,
            takes: self.holder() != Holder::Me,
        }
    }

    fn looked(&mut self, now: Now, looked: Result<Option<Record>, String>, out: &mut Vec<Effect>) {
        self.calling = false;
        match looked {
            Ok(record) => {
                self.well(out);
                self.observe(now, record);
                self.judge(now, out);
            }
            Err(reason) => {
                self.failed(now, reason, out);
                self.next = Next::Look;
            }
        }
    }

    fn wrote(&mut self, now: Now, sent: Duration, outcome: Outcome, out: &mut Vec<Effect>) {
        self.calling = false;
        match outcome {
            Outcome::Done(record) => {
                self.well(out);
                self.observe(now, Some(record));
                self.conflicts = 0;
                self.renewed(now, sent, out);
            }
            Outcome::Conflict => {
                self.well(out);
                self.unknown.pop();
                self.conflicts += 1;
                self.next = Next::Look;
                // The look tells who was first; if that does not settle it, not in a tight loop.
                self.due = if self.conflicts == 1 { now.mono } else { now.mono + self.terms.again() };
            }
            Outcome::Gone => {
                self.well(out);
                self.unknown.pop();
                self.observe(now, None);
                self.judge(now, out);
            }
            Outcome::Failed(reason) => {
                self.failed(now, reason, out);
                self.next = if self.leads() { Next::Write } else { Next::Look };
            }
        }
    }

    /// A write of ours is in the Lease.
    fn renewed(&mut self, now: Now, sent: Duration, out: &mut Vec<Effect>) {
        let until = sent + self.terms.renew_deadline;
        self.next = Next::Write;
        if now.mono >= until {
            // The answer took so long that it is worth nothing: once more.
            self.due = now.mono;
            return;
        }
        self.due = (sent + self.terms.retry).max(now.mono);
        out.push(Effect::Extend(until));
        match self.phase {
            Phase::Following => {
                self.told = None;
                out.push(Effect::Lead);
            }
            Phase::Leading { fenced: true, .. } => out.push(Effect::Renewed),
            Phase::Leading { fenced: false, .. } => {}
        }
        self.phase = Phase::Leading { until, fenced: false };
    }

    /// Takes in the Lease as it is now, and from when on nobody else can believe to hold it. A leader that learns of it
    /// may have to leave.
    fn observe(&mut self, now: Now, record: Option<Record>) {
        let first = !std::mem::replace(&mut self.settled, true);
        let before = std::mem::replace(&mut self.record, record);
        let moved = before.as_ref().map(|record| &record.version) != self.record.as_ref().map(|record| &record.version);
        let ours = self.is_of_ours(before.as_ref());
        if moved {
            // Writes over another version can come to nothing any more.
            self.unknown.clear();
        }
        // Who touches labels or annotations renews nothing.
        let claim = |record: &Option<Record>| record.as_ref().map(|r| (r.holder.clone(), r.lasts, r.renewed, r.transitions));
        if !first && claim(&before) == claim(&self.record) {
            return;
        }
        let lasts = |record: Option<&Record>| record.and_then(|record| record.lasts).unwrap_or(self.terms.lease);
        match self.holder() {
            Holder::Released => self.free_at = now.mono,
            // Our former life's, or nobody's as far as was ever seen.
            Holder::Me | Holder::Nobody if first || ours => self.free_at = now.mono,
            // Not by its holder, who may not know yet.
            Holder::Me | Holder::Nobody => self.free_at = now.mono + lasts(before.as_ref()).max(self.terms.lease),
            Holder::Other => self.free_at = now.mono + lasts(self.record.as_ref()),
        }
    }

    /// Whether the Lease is as we wrote it.
    fn is_of_ours(&self, before: Option<&Record>) -> bool {
        let stamp = self.record.as_ref().and_then(|record| record.renewed);
        let was_ours = self.leads().then(|| before.and_then(|record| record.renewed)).flatten();
        stamp.is_some_and(|stamp| self.unknown.contains(&stamp) || was_ours == Some(stamp))
    }

    /// Decides on the Lease as it was just seen.
    fn judge(&mut self, now: Now, out: &mut Vec<Effect>) {
        let soon = if self.conflicts > 1 { now.mono + self.terms.again() } else { now.mono };
        if let Phase::Leading { until, .. } = self.phase {
            let holder = self.holder();
            // Past the fence somebody else may have led meanwhile, and may not know yet that the Lease is gone.
            let keeps = match holder {
                Holder::Me => now.mono >= self.free_at,
                Holder::Nobody | Holder::Released => now.mono < until,
                Holder::Other => false,
            };
            if keeps {
                if holder != Holder::Me {
                    out.push(Effect::Disowned);
                }
                (self.next, self.due) = (Next::Write, soon);
                return;
            }
            self.phase = Phase::Following;
            self.clearing = true;
            out.push(Effect::Lose);
        }
        self.follow(out);
        if !self.clearing && now.mono >= self.free_at {
            (self.next, self.due) = (Next::Write, soon);
        } else {
            self.conflicts = 0;
            let look = now.mono + self.terms.look();
            let free = if self.free_at > now.mono { self.free_at } else { look };
            (self.next, self.due) = (Next::Look, look.min(free));
        }
    }

    fn follow(&mut self, out: &mut Vec<Effect>) {
        let other = self.record.as_ref().filter(|_| self.holder() == Holder::Other);
        let (leader, address) = other.map_or((None, None), |record| (record.holder.clone(), record.address.clone()));
        let follow = Effect::Follow { leader, address };
        if self.told.as_ref() != Some(&follow) {
            out.push(follow.clone());
            self.told = Some(follow);
        }
    }

    fn holder(&self) -> Holder {
        let Some(record) = &self.record else { return Holder::Nobody };
        match record.holder.as_deref() {
            Some(holder) if *holder == *self.terms.me => Holder::Me,
            Some(holder) if !holder.is_empty() => Holder::Other,
            Some(_) | None if record.lasts == Some(RELEASED) => Holder::Released,
            Some(_) | None => Holder::Nobody,
        }
    }

    fn failed(&mut self, now: Now, reason: String, out: &mut Vec<Effect>) {
        self.due = now.mono + if self.leads() { self.terms.again() } else { self.terms.look() };
        if self.trouble.replace(reason.clone()).is_none() {
            out.push(Effect::Trouble(reason));
        }
    }

    fn well(&mut self, out: &mut Vec<Effect>) {
        if self.trouble.take().is_some() {
            out.push(Effect::Well);
        }
    }
}
