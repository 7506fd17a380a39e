//! What the next call is, from all that is known.

use std::sync::Arc;

use egress_protocol::object::CloudInit;
use egress_protocol::provider::{CreateRequest, InstanceKey, Op};
use egress_protocol::resource::conditions::{Status, reason};
use egress_protocol::source::EventReason;
use egress_protocol::{InstanceName, Secret, Timestamp};
use std::time::Duration;

use super::{Call, Doom, Effect, Flight, Latch, Machine};
use crate::rollout::{Place, Want};

/// The one thing to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nothing, until something changes.
    Rest(&'static str),
    /// Nothing before.
    Wait(Timestamp, &'static str),
    /// First the record must say so (OP-16).
    Record,
    AddFinalizer,
    RemoveFinalizer,
    /// Decide on what to create.
    Ask,
    Create,
    Get,
    Delete,
}

impl Machine {
    pub(super) fn decide(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        self.record.confirm = false;
        if self.gone || self.released || self.parked() {
            self.drain = None;
            self.cancel(out);
            self.step = if self.gone || self.released { "Gone" } else { "Parked" };
            return;
        }
        self.notice(now, out);
        loop {
            let next = if self.object.is_managed() { self.next(now) } else { self.next_external() };
            if let Some(flight) = &self.flight {
                if self.useless(flight.op) {
                    self.cancel(out);
                }
                self.step = match self.flight.as_ref().map(|flight| flight.op) {
                    Some(Op::Create) => "Creating",
                    Some(Op::Delete) => "Deleting",
                    _ => "Reading",
                };
                return;
            }
            let (step, done) = match next {
                Next::Rest(step) => (step, true),
                Next::Wait(at, step) => {
                    self.wake_at(at);
                    (step, true)
                }
                Next::Record => {
                    self.record.confirm = true;
                    ("Recording", true)
                }
                Next::AddFinalizer => (self.write_finalizer(now, true, out), true),
                Next::RemoveFinalizer => (self.write_finalizer(now, false, out), true),
                Next::Ask => {
                    self.hash = self.desired.as_ref().map(|hash| Arc::clone(hash.current()));
                    self.adopt_port();
                    ("Recording", false)
                }
                Next::Create => (self.create(now, out), true),
                Next::Get => (self.call(now, Call::Get(self.key()), "Reading", out), true),
                Next::Delete => (self.call(now, Call::Delete(self.key()), "Deleting", out), true),
            };
            self.step = step;
            if done {
                return;
            }
        }
    }

    fn next_external(&self) -> Next {
        if self.object.deleting && self.finalizer.held { Next::RemoveFinalizer } else { Next::Rest("Idle") }
    }

    fn next(&self, now: Timestamp) -> Next {
        if self.object.deleting {
            return if !self.finalizer.held {
                Next::Rest("Gone")
            } else if self.object.annotations.skip_cleanup || self.absent {
                Next::RemoveFinalizer
            } else if self.drains() {
                // Should it vanish meanwhile, nobody is waited for.
                let reads = self.id.is_some() && self.provider.is_some();
                if !reads {
                    Next::Rest("Draining")
                } else if now < self.poll_at {
                    Next::Wait(self.poll_at, "Draining")
                } else {
                    Next::Get
                }
            } else if self.provider.is_none() {
                Next::Rest("ProviderNotConfigured")
            } else {
                self.next_removal(now)
            };
        }
        if let Some(latch) = &self.latch
            && !latch.trying
        {
            return latch.retry_at.map_or(Next::Rest("Latched"), |at| Next::Wait(at, "Latched"));
        }
        if !self.finalizer.held && (self.id.is_some() || self.hash.is_some()) {
            return Next::AddFinalizer;
        }
        if self.provider.is_none() {
            return Next::Rest("ProviderNotConfigured");
        }
        if self.has_to_go() && (self.replacing || self.purge.is_some() || self.doom.is_some()) {
            return if self.purge.is_none() && !self.removal_is_recorded() { Next::Record } else { self.next_removal(now) };
        }
        if self.id.is_some() {
            return if now < self.poll_at { Next::Wait(self.poll_at, "Idle") } else { Next::Get };
        }
        let Some(desired) = &self.desired else { return Next::Rest("CloudInitUnresolved") };
        if !self.finalizer.held {
            Next::AddFinalizer
        } else if !self.hash.as_deref().is_some_and(|hash| desired.matches(hash)) {
            Next::Ask
        } else if let Some(at) = self.retry_at.filter(|at| now < *at) {
            Next::Wait(at, "Waiting")
        } else if !self.record.confirms(&self.object, self.hash.as_deref(), self.id.as_ref()) {
            Next::Record
        } else {
            Next::Create
        }
    }

    /// Delete, read until it is gone (OP-11, PC-41).
    fn next_removal(&self, now: Timestamp) -> Next {
        let wait = |at: Option<Timestamp>, next: Next| match at {
            Some(at) if now < at => Next::Wait(at, "Removing"),
            _ => next,
        };
        match &self.purge {
            None => wait(self.retry_at, Next::Delete),
            Some(_) if self.id.is_none() => wait(self.retry_at, Next::Delete),
            Some(_) if now < self.poll_at => Next::Wait(self.poll_at, "Removing"),
            // It was read since, and was still there.
            Some(purge) if self.polls > 0 && now.since(purge.at) >= self.settings.repeat_delete => wait(self.retry_at, Next::Delete),
            Some(_) => Next::Get,
        }
    }

    /// Whether what exists, or may exist, is not what the object wants.
    pub(super) fn has_to_go(&self) -> bool {
        self.doom.is_some() || self.purge.is_some() || self.outdated()
    }

    /// Whether it was asked for with something else.
    pub(super) fn outdated(&self) -> bool {
        if self.id.is_none() && self.hash.is_none() {
            return false;
        }
        self.desired.as_ref().is_some_and(|desired| !self.hash.as_deref().is_some_and(|hash| desired.matches(hash)))
    }

    fn removal_is_recorded(&self) -> bool {
        self.record.provisioned() != Status::True && self.record.spec_hash() == self.hash.as_deref()
    }

    /// Serving right now: replacing it takes a proxy out of rotation.
    pub(super) fn serving(&self) -> bool {
        self.sight.address.is_some() && self.sight.paused.is_none() && self.health.verdict() == Some(true)
    }

    /// The place it asks for or holds (OP-16, OP-33).
    pub(super) fn wants(&self) -> Option<Want> {
        if !self.object.is_managed() || self.object.deleting || self.parked() || self.gone {
            return None;
        }
        match self.place {
            // Held until Healthy, and as declared.
            Place::Granted(Want::Rollout) if !self.serving() || self.outdated() => Some(Want::Rollout),
            // Held until it is known whether it helped.
            Place::Granted(Want::Repair) if self.has_to_go() || self.id.is_none() || self.health.verdict().is_none() => {
                (self.latch.is_none()).then_some(Want::Repair)
            }
            _ if self.outdated() && !self.replacing && self.serving() && self.secret().is_some() => Some(Want::Rollout),
            _ if self.unhealthy_for_too_long().is_some_and(|due| due.is_none()) => Some(Want::Repair),
            _ => None,
        }
    }

    /// The Secret whose rollout this proxy is part of.
    pub(super) fn secret(&self) -> Option<Arc<str>> {
        match &self.object.cloud_init {
            CloudInit::Resolved { secret, .. } => secret.clone(),
            CloudInit::None | CloudInit::Unresolved { .. } => {
                self.object.spec.cloud_init.as_ref()?.secret_ref.as_ref().map(|secret| Arc::from(secret.name.as_str()))
            }
        }
    }

    /// OP-33: `Some(None)` when it is due, `Some(Some(at))` when it will be.
    fn unhealthy_for_too_long(&self) -> Option<Option<Timestamp>> {
        let after = self.object.spec.health_check.replace_after_seconds;
        let since = self.health.unhealthy_since()?;
        let idle = self.sight.address.is_some() && self.sight.paused.is_none() && !self.has_to_go() && self.latch.is_none();
        if after == 0 || !self.object.is_managed() || !idle || self.health.suspect() || self.provider_down {
            return None;
        }
        let due = since + Duration::from_secs(u64::from(after));
        Some((self.now < due).then_some(due))
    }

    /// Turns of time and place that change what is to be done.
    fn notice(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        if !self.object.is_managed() {
            return;
        }
        if self.object.deleting {
            return self.drain_before_removal(now);
        }
        if let Some(latch) = &mut self.latch
            && !latch.trying
            && latch.retry_at.is_some_and(|at| now >= at)
        {
            latch.trying = true;
            self.retry_at = None;
            self.poll_at = self.poll_at.min(now);
            if latch.reason == reason::PROVISIONING_TIMEOUT && self.id.is_some() && self.purge.is_none() {
                self.doom = Some(Doom { reason: reason::PROVISIONING_TIMEOUT, message: latch.message.clone(), pause: None });
            }
        }
        self.notice_deadline(now, out);
        if let Some(Some(due)) = self.unhealthy_for_too_long() {
            self.wake_at(due);
        }
        if self.place == Place::Granted(Want::Repair) && self.unhealthy_for_too_long() == Some(None) {
            let note = format!("unhealthy for longer than {} s", self.object.spec.health_check.replace_after_seconds);
            self.doom = Some(Doom { reason: reason::REPLACING, message: note.clone(), pause: self.unhelped.checked_sub(1) });
            self.unhelped = (self.unhelped + 1).min(30);
            // An id without a hash: recorded, it survives a crash.
            self.hash = None;
            self.begin_replacing(note, out);
        }
        let outdated = self.outdated() && self.provider.is_some() && self.latch.as_ref().is_none_or(|latch| latch.trying);
        if outdated && !self.replacing {
            let needs_place = self.serving() && self.secret().is_some();
            let may_go = !needs_place || self.place == Place::Granted(Want::Rollout);
            if !may_go {
                self.drain = None;
            } else if !self.waits_for_leases(now) {
                let note = if self.hash.is_none() { "asked for by annotation" } else { "its definition changed" };
                self.begin_replacing(note.to_owned(), out);
            }
            return;
        }
        // Back to what it was: nobody has to leave.
        self.drain = None;
        if self.replacing && !self.has_to_go() {
            // Before anything was done: look at it anew.
            self.replacing = false;
            self.poll_at = now;
        }
    }

    fn begin_replacing(&mut self, note: String, out: &mut Vec<Effect>) {
        self.replacing = true;
        self.drain = None;
        self.retry_at = None;
        if self.id.is_some() {
            self.announce(EventReason::Replacing, note, out);
        }
        self.sight.address = None;
        self.sight.confirmed = false;
    }

    /// OP-22: replaced once, then latched as the environment's fault.
    fn notice_deadline(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        let waits = self.id.is_some() && self.sight.address.is_none() && self.sight.paused.is_none();
        let Some(born) = self.sight.born else { return };
        if !waits || self.has_to_go() || self.latch.as_ref().is_some_and(|latch| !latch.trying) {
            return;
        }
        let limit = Duration::from_secs(u64::from(self.object.spec.provisioning_timeout_seconds));
        if now < born + limit {
            self.wake_at(born + limit);
            return;
        }
        let detail = self.sight.detail.as_deref().unwrap_or("no detail from the provider");
        let limit = egress_protocol::time::format_duration(limit);
        let message = format!("no address within {limit}: {detail}");
        self.timeouts = (self.timeouts + 1).min(2);
        if self.timeouts < 2 && self.latch.is_none() {
            self.announce(EventReason::Replacing, message.clone(), out);
            self.doom = Some(Doom { reason: reason::PROVISIONING_TIMEOUT, message, pause: None });
        } else {
            self.latch(now, reason::PROVISIONING_TIMEOUT, message, true, out);
        }
    }

    pub(super) fn latch(&mut self, now: Timestamp, reason: &'static str, message: String, environment: bool, out: &mut Vec<Effect>) {
        let retry_at = environment.then_some(now + self.settings.quota_retry);
        if self.latch.as_ref().is_none_or(|latch| latch.message != message) {
            self.announce(EventReason::Failed, message.clone(), out);
        }
        self.latch = Some(Latch { reason, message, retry_at, trying: false });
        self.trouble = None;
        self.failures = 0;
    }

    /// Whether the answer to a running call is of no use any more.
    fn useless(&self, op: Op) -> bool {
        let deleting = self.object.deleting;
        match op {
            _ if deleting && self.object.annotations.skip_cleanup => true,
            Op::Create => deleting || self.has_to_go(),
            Op::Get => deleting && self.purge.is_none() && !self.drains(),
            Op::Delete | Op::List => false,
        }
    }

    fn cancel(&mut self, out: &mut Vec<Effect>) {
        if let Some(flight) = &mut self.flight
            && !flight.cancelled
        {
            flight.cancelled = true;
            out.push(Effect::Cancel { epoch: flight.epoch });
        }
    }

    fn write_finalizer(&mut self, now: Timestamp, add: bool, out: &mut Vec<Effect>) -> &'static str {
        let step = if add { "AddingFinalizer" } else { "RemovingFinalizer" };
        if self.finalizer.writing.is_some() {
            return step;
        }
        if let Some(at) = self.finalizer.not_before.filter(|at| now < *at) {
            self.wake_at(at);
            return step;
        }
        self.finalizer.writing = Some(add);
        if !add {
            // Before the release: with it the object is gone, and so is this machine's actor.
            self.announce_end(out);
        }
        out.push(if add { Effect::AddFinalizer } else { Effect::RemoveFinalizer });
        step
    }

    fn create(&mut self, now: Timestamp, out: &mut Vec<Effect>) -> &'static str {
        let cloud_init = match &self.object.cloud_init {
            CloudInit::Resolved { bytes, .. } => Arc::clone(bytes),
            CloudInit::None | CloudInit::Unresolved { .. } => Arc::new(Secret::new(Vec::new())),
        };
        let request = CreateRequest {
            name: InstanceName::of(&self.object.uid),
            uid: self.object.uid.clone(),
            installation: self.installation.clone(),
            namespace: Arc::clone(&self.object.key.namespace),
            proxy_name: Arc::clone(&self.object.key.name),
            placement: self.object.spec.placement.clone().unwrap_or_default(),
            cloud_init,
            port: self.object.spec.port,
        };
        self.call(now, Call::Create(request), "Creating", out)
    }

    fn key(&self) -> InstanceKey {
        // The placement tells where to look only for what was made from it.
        let as_declared = self.desired.is_some() && !self.outdated();
        let placement = self.object.spec.placement.clone().filter(|_| as_declared).unwrap_or_default();
        InstanceKey {
            id: self.id.clone(),
            name: InstanceName::of(&self.object.uid),
            uid: self.object.uid.clone(),
            installation: self.installation.clone(),
            namespace: Arc::clone(&self.object.key.namespace),
            placement,
        }
    }

    fn call(&mut self, now: Timestamp, call: Call, step: &'static str, out: &mut Vec<Effect>) -> &'static str {
        self.epochs += 1;
        self.progress = None;
        self.flight = Some(Flight { epoch: self.epochs, op: call.op(), since: now, cancelled: false });
        out.push(Effect::Call { epoch: self.epochs, call });
        step
    }
}
