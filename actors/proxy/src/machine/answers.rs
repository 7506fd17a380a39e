//! What the provider's answers mean (provider-contract.md §5, operator.md OP-10…18, 28).

use egress_protocol::provider::{DeleteOutcome, ErrorClass, Instance, InstanceState, Op};
use egress_protocol::resource::conditions::reason;
use egress_protocol::source::EventReason;
use egress_protocol::{InstanceId, Timestamp};

use super::{Answer, Doom, Effect, Fault, Machine, Purge, Sight, Trouble};

impl Machine {
    pub(super) fn answered(&mut self, now: Timestamp, epoch: u64, answer: Answer, out: &mut Vec<Effect>) {
        let Some(flight) = self.flight.take_if(|flight| flight.epoch == epoch) else { return };
        self.progress = None;
        match answer {
            Answer::Created(Ok(id)) => self.created(now, id, out),
            Answer::Got(Ok(instance)) => self.seen(now, &instance, out),
            Answer::Deleted(Ok(outcome)) => self.deleted(now, outcome, out),
            // Cancelled by us: it says nothing, and what to do instead is decided anew.
            Answer::Created(Err(fault)) | Answer::Got(Err(fault)) | Answer::Deleted(Err(fault))
                if flight.cancelled && fault.class == ErrorClass::Transient =>
            {
                self.poll_at = now;
            }
            Answer::Got(Err(fault)) if fault.class == ErrorClass::NotFound => self.not_found(now, out),
            Answer::Created(Err(fault)) => self.failed(now, Op::Create, &fault, out),
            Answer::Got(Err(fault)) => self.failed(now, Op::Get, &fault, out),
            Answer::Deleted(Err(fault)) => self.failed(now, Op::Delete, &fault, out),
        }
    }

    /// A call did what it was asked: nothing stands in the way any more.
    fn works(&mut self) {
        self.trouble = None;
        self.failures = 0;
        self.retry_at = None;
        self.latch = None;
    }

    fn created(&mut self, now: Timestamp, id: InstanceId, out: &mut Vec<Effect>) {
        self.works();
        self.announce(EventReason::Created, format!("instance {id}"), out);
        self.id = Some(id);
        self.sight = Sight { born: Some(now), ..Sight::default() };
        (self.polls, self.poll_at) = (0, now);
    }

    fn deleted(&mut self, now: Timestamp, outcome: DeleteOutcome, out: &mut Vec<Effect>) {
        self.works();
        let gone = outcome == DeleteOutcome::Gone;
        if gone && self.id.is_none() {
            return self.is_absent(now, out);
        }
        let again = self.purge.replace(Purge { at: now, gone }).is_some();
        self.sight.address = None;
        self.sight.confirmed = false;
        (self.polls, self.poll_at) = if self.id.is_none() && again { (2, now) } else { (0, now) };
        // Without an id there is nothing to read (PC-40): the delete, cheap when repeated (PC-37), is how one looks.
        self.retry_at = self.id.is_none().then_some(now + self.pace(self.settings.poll_deletion));
    }

    /// Nothing of ours is left.
    fn is_absent(&mut self, now: Timestamp, _out: &mut Vec<Effect>) {
        let pause = self.doom.take().and_then(|doom| doom.pause);
        self.works();
        self.retry_at = pause.map(|failures| now + self.dice.backoff(&self.settings, failures));
        (self.id, self.hash, self.purge) = (None, None, None);
        self.sight = Sight::default();
        self.replacing = false;
        (self.polls, self.poll_at) = (0, now);
        self.absent = self.object.deleting;
    }

    fn not_found(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        if !self.object.deleting && !self.has_to_go() {
            // It should run (OP-15). One that vanishes soon after its creation is a failed try.
            let pause = self.ended(now, None, "vanished");
            self.doom = Some(Doom { reason: reason::PROVISIONING, message: String::new(), pause });
        }
        self.is_absent(now, out);
    }

    /// An instance ended by itself: how long to pause before the next create, as failures in a row (OP-14).
    fn ended(&mut self, now: Timestamp, created_at: Option<Timestamp>, how: &str) -> Option<u32> {
        let born = created_at.or(self.sight.born);
        let young = born.is_some_and(|born| now.since(born) < self.settings.failed_try);
        self.tries.failed = if young { (self.tries.failed + 1).min(30) } else { 0 };
        self.tries.last = Some(how.to_owned());
        self.tries.failed.checked_sub(1)
    }

    fn seen(&mut self, now: Timestamp, instance: &Instance, out: &mut Vec<Effect>) {
        self.polls = self.polls.saturating_add(1).min(1000);
        self.trouble = None;
        self.failures = 0;
        self.retry_at = None;
        self.sight.detail.clone_from(&instance.state_detail);
        self.sight.born = instance.created_at.or(self.sight.born).or(Some(now));
        let drains = self.drains();
        if self.purge.is_some() || (self.object.deleting && !drains) {
            self.poll_at = now + self.pace(self.settings.poll_deletion);
            return;
        }
        if instance.deleting {
            // Somebody's delete, or ours of before a crash: wait until its name is free (PC-27).
            self.sight.address = None;
            self.purge = Some(Purge { at: now, gone: false });
            self.doom.get_or_insert_with(|| Doom {
                reason: reason::PROVISIONING,
                message: "the instance is being deleted at the backend".to_owned(),
                pause: None,
            });
            self.poll_at = now + self.pace(self.settings.poll_deletion);
            return;
        }
        match (instance.state, instance.ip) {
            (InstanceState::Running, Some(ip)) => self.runs(now, ip, out),
            (InstanceState::Running | InstanceState::Provisioning, _) => self.has_no_address(now),
            (InstanceState::Paused, ip) => {
                let cause = instance.state_detail.clone().unwrap_or_else(|| "paused".to_owned());
                if self.sight.paused.is_none() {
                    self.announce(EventReason::Paused, cause.clone(), out);
                }
                self.sight.paused = Some(cause);
                if !self.replacing {
                    self.sight.address = ip.or(self.sight.address);
                }
                self.poll_at = now + self.settings.poll_drift;
            }
            (InstanceState::Stopped | InstanceState::Terminated, _) => {
                let state = if instance.state == InstanceState::Stopped { "stopped" } else { "was terminated" };
                let how = match &instance.state_detail {
                    Some(detail) => format!("{state} by itself ({detail})"),
                    None => format!("{state} by itself"),
                };
                self.sight.address = None;
                self.sight.paused = None;
                if self.doom.is_none() && !self.object.deleting {
                    let pause = self.ended(now, instance.created_at, &how);
                    self.announce(EventReason::Replacing, format!("the instance {how}"), out);
                    self.doom = Some(Doom { reason: reason::PROVISIONING, message: format!("the instance {how}"), pause });
                }
            }
        }
    }

    fn runs(&mut self, now: Timestamp, ip: std::net::Ipv4Addr, out: &mut Vec<Effect>) {
        self.latch = None;
        self.timeouts = 0;
        self.poll_at = now + self.settings.poll_drift;
        let born = self.sight.born;
        if born.is_some_and(|born| now.since(born) >= self.settings.failed_try) {
            self.tries = super::Tries::default();
        }
        self.sight.paused = None;
        if self.replacing {
            return;
        }
        if self.sight.address != Some(ip) {
            self.announce(EventReason::Running, format!("address {ip}"), out);
        }
        self.sight.address = Some(ip);
        self.sight.misses = 0;
        self.sight.confirmed = true;
    }

    /// Not usable yet, or a running one that stopped reporting its address (OP-13, PC-62).
    fn has_no_address(&mut self, now: Timestamp) {
        self.sight.paused = None;
        self.poll_at = now + self.pace(self.settings.poll_provisioning);
        if self.sight.address.is_some() {
            self.sight.misses = self.sight.misses.saturating_add(1);
            if self.sight.misses > self.settings.address_grace {
                self.poll_at = now + self.settings.poll_drift;
            }
            self.drop_lost_address();
        }
    }

    /// Kept for some reads, and as long after that as its probes pass.
    pub(super) fn drop_lost_address(&mut self) {
        if self.sight.misses >= self.settings.address_grace && self.health.verdict() != Some(true) {
            self.sight.address = None;
            self.sight.misses = 0;
            self.sight.confirmed = false;
            // The deadline of OP-22 counts anew.
            self.sight.born = Some(self.now);
        }
    }

    /// The first read after a create or delete follows at once, the next soon after it.
    fn pace(&self, steady: std::time::Duration) -> std::time::Duration {
        if self.polls <= 1 { self.settings.poll_first.min(steady) } else { steady }
    }

    fn failed(&mut self, now: Timestamp, op: Op, fault: &Fault, out: &mut Vec<Effect>) {
        let deleting = self.object.deleting;
        let removing = (deleting && !self.drains()) || self.purge.is_some() || self.replacing || self.doom.is_some();
        if op == Op::Get && fault.class == ErrorClass::Permanent && self.purge.as_ref().is_some_and(|purge| purge.gone) {
            // Nothing can be read there any more, and the delete said that nothing is left (PC-35, PC-42).
            return self.is_absent(now, out);
        }
        if op == Op::Get && !removing && self.sight.address.is_some() {
            // What was proven stays (OP-28).
            let steady = match fault.class {
                ErrorClass::Transient | ErrorClass::NotFound => self.settings.poll_drift,
                ErrorClass::QuotaExceeded | ErrorClass::Permanent => self.settings.quota_retry,
            };
            self.trouble = Some(Trouble { reason: reason_of(fault.class), message: fault.message.clone() });
            self.poll_at = now + fault.retry_after.unwrap_or(steady);
            return;
        }
        if let Some(latch) = &mut self.latch {
            // The try of what the environment kept from working failed as well (PC-59).
            latch.trying = false;
            latch.retry_at = Some(now + self.settings.quota_retry);
            if fault.class == ErrorClass::Permanent {
                latch.message.clone_from(&fault.message);
                if !fault.environment {
                    latch.retry_at = None;
                }
            }
            return;
        }
        if fault.class == ErrorClass::Permanent && !deleting && !(op == Op::Get && removing) {
            return self.latch(now, reason::PERMANENT_ERROR, fault.message.clone(), fault.environment, out);
        }
        let wait = match (fault.retry_after, fault.class) {
            (Some(wait), _) => wait,
            (None, ErrorClass::QuotaExceeded) => self.settings.quota_retry,
            (None, _) => self.dice.backoff(&self.settings, self.failures),
        };
        if fault.class != ErrorClass::QuotaExceeded {
            self.failures = (self.failures + 1).min(30);
        }
        self.trouble = Some(Trouble { reason: reason_of(fault.class), message: fault.message.clone() });
        if op == Op::Get {
            self.poll_at = now + wait;
        } else {
            self.retry_at = Some(now + wait);
            // Whether a failed delete did something shows in a read, should the instance be wanted after all.
            self.poll_at = now;
        }
        if op == Op::Delete && self.purge.is_some() {
            self.poll_at = now + wait;
        }
    }
}

/// How a class shows in `Provisioned`.
const fn reason_of(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::NotFound | ErrorClass::Transient => reason::TRANSIENT_ERROR,
        ErrorClass::QuotaExceeded => reason::QUOTA_EXCEEDED,
        ErrorClass::Permanent => reason::PERMANENT_ERROR,
    }
}
