//! The state machine of one `Proxy` (operator.md §4): what happened goes in, what is to be done comes out. Pure.
//!
//! It is level-triggered: [`Machine::step`] takes in one fact, then decides from all facts what the next call is and
//! what the world should be told, and says only what differs from what it said before. Any input may be repeated.
//!
//! What must stay true after every step (tested as invariants in `machine/tests`):
//! - At most one provider call, one status write and one finalizer write are in flight.
//! - No create before the finalizer is on the object and the status with the hash of what is created, and no id, was
//!   acknowledged with a generation that this machine has seen (OP-11, OP-16).
//! - The record (`specHash`, `providerID`) always allows the next incarnation to go on: a hash without an id means that
//!   an instance made from it may exist; an id without a hash, or with another than the object's, means that the
//!   instance has to go. So no crash leaves two instances or an old one.
//! - Nothing that runs as specified is deleted.
//! - What serves is not removed while leases of it run, before the time that its holders are told (LS-16).
//! - While latched no call is made (OP-17), while suspended or foreign none at all (OP-30, OP-34).
//! - It is never stuck: it waits for an answer, for a timer it asked for, or for a change of its object or provider.
//!
//! A restart forgets a latch: whether the provider's entry or the retry annotation changed meanwhile is not recorded,
//! so one try is made.

mod answers;
mod drain;
mod health;
mod io;
mod next;
mod record;
mod settings;
mod tell;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use egress_protocol::object::ProxyObject;
use egress_protocol::prober::ProbeTarget;
use egress_protocol::provider::Op;
use egress_protocol::resource::ProxyStatus;
use egress_protocol::resource::conditions::{find, kind, reason};
use egress_protocol::source::SourceError;
use egress_protocol::{InstallationId, InstanceId, Timestamp};

pub use io::{Answer, Call, Effect, Fault, Input};
pub use settings::Settings;

use crate::hash::SpecHash;
use crate::rollout::Place;
use drain::Drain;
use health::Health;
use record::Record;
use settings::Dice;
use tell::Told;

/// How many transitions `/debug/proxies` shows (OB-4).
const HISTORY: usize = 50;

/// The state of one object's reconciling.
#[derive(Debug, Clone)]
pub struct Machine {
    settings: Arc<Settings>,
    installation: InstallationId,
    dice: Dice,
    /// Of the step.
    now: Timestamp,
    object: Arc<ProxyObject>,
    /// What the object asks for; `None` while that is unknown (OP-21) and for External.
    desired: Option<SpecHash>,
    attributes: Arc<BTreeMap<String, String>>,
    /// Fingerprint of the provider's entry.
    provider: Option<Arc<str>>,
    /// The provider's target is down: not replaced for being Unhealthy (OP-33).
    provider_down: bool,

    /// What an instance was, or is about to be, asked for with.
    hash: Option<Arc<str>>,
    id: Option<InstanceId>,
    /// At which it is reached: the one that the instance was made with, also while another one is declared (a machine that
    /// starts meanwhile does not know it, and takes the declared one).
    port: u16,
    finalizer: Finalizer,
    sight: Sight,
    /// Why the instance has to go although the object still wants one like it.
    doom: Option<Doom>,
    /// A delete was accepted, and the instance is not known to be gone.
    purge: Option<Purge>,
    /// Its leases are waited for before it goes (LS-16).
    drain: Option<Drain>,
    /// Its turn to be replaced has come.
    replacing: bool,
    /// The object is being deleted, and nothing of ours is left.
    absent: bool,
    /// The finalizer was released: the end.
    released: bool,
    /// The source does not know the object any more.
    gone: bool,

    flight: Option<Flight>,
    epochs: u64,
    progress: Option<String>,
    /// No create or delete before.
    retry_at: Option<Timestamp>,
    /// No read before.
    poll_at: Timestamp,
    /// Reads since the last create or delete.
    polls: u32,
    extra_poll_at: Option<Timestamp>,
    /// Failures in a row.
    failures: u32,
    trouble: Option<Trouble>,
    latch: Option<Latch>,
    /// Provisioning deadlines missed in a row (OP-22).
    timeouts: u32,
    tries: Tries,
    /// Repairs in a row after which it did not become healthy (OP-33).
    unhelped: u32,
    place: Place,

    health: Health,
    record: Record,
    told: Told,
    /// The earliest time at which something may have to be done.
    wake: Option<Timestamp>,
    step: &'static str,
    history: VecDeque<Transition>,
}

/// What is known of the instance.
#[derive(Debug, Clone, Default)]
struct Sight {
    /// The address it is probed and leased at.
    address: Option<Ipv4Addr>,
    /// Reads in a row without it.
    misses: u32,
    detail: Option<String>,
    /// Suspended, and why.
    paused: Option<String>,
    /// When the create was answered, or the backend says it was made.
    born: Option<Timestamp>,
    /// Known to run since this machine started.
    confirmed: bool,
}

/// Where our finalizer stands.
#[derive(Debug, Clone, Default)]
struct Finalizer {
    held: bool,
    /// The source has shown it, so that its absence means that somebody took it away (O2: a stale object does not).
    shown: bool,
    writing: Option<bool>,
    not_before: Option<Timestamp>,
    failures: u32,
}

/// Why an instance has to go.
#[derive(Debug, Clone)]
struct Doom {
    reason: &'static str,
    message: String,
    /// It ended by itself too soon: pause before the next create (OP-14).
    pause: Option<u32>,
}

/// A removal on its way.
#[derive(Debug, Clone)]
struct Purge {
    /// When delete was called last.
    at: Timestamp,
    /// It said that nothing is left.
    gone: bool,
}

/// The call in flight.
#[derive(Debug, Clone)]
struct Flight {
    epoch: u64,
    op: Op,
    since: Timestamp,
    cancelled: bool,
}

/// What does not work right now.
#[derive(Debug, Clone)]
struct Trouble {
    reason: &'static str,
    message: String,
}

/// Permanent (OP-17, OP-22).
#[derive(Debug, Clone)]
struct Latch {
    reason: &'static str,
    message: String,
    /// The environment's fault: tried again then.
    retry_at: Option<Timestamp>,
    /// Being tried again.
    trying: bool,
}

/// Instances that ended by themselves soon after their creation (OP-14).
#[derive(Debug, Clone, Default)]
struct Tries {
    failed: u32,
    last: Option<String>,
}

/// For `/debug/proxies`.
#[derive(Debug, Clone, serde::Serialize)]
struct Transition {
    at: Timestamp,
    cause: &'static str,
    from: &'static str,
    to: &'static str,
}

impl Machine {
    /// The machine of an object, from its recorded status, and the first things to do. `recorded` is a status known to
    /// be written later than the object's own.
    pub fn start(
        now: Timestamp,
        object: Arc<ProxyObject>,
        recorded: Option<Arc<ProxyStatus>>,
        provider: Option<Arc<str>>,
        installation: InstallationId,
        settings: Arc<Settings>,
        seed: u64,
    ) -> (Self, Vec<Effect>) {
        let recorded = recorded.unwrap_or_else(|| Arc::clone(&object.status));
        let mut machine = Self {
            settings,
            installation,
            dice: Dice::new(seed),
            now,
            desired: if object.is_managed() { SpecHash::of(&object) } else { None },
            attributes: Arc::new(object.spec.attributes.clone()),
            provider,
            provider_down: false,
            hash: None,
            id: None,
            port: object.spec.port,
            finalizer: Finalizer { held: object.finalizer, shown: object.finalizer, ..Finalizer::default() },
            sight: Sight::default(),
            doom: None,
            purge: None,
            drain: None,
            replacing: false,
            absent: false,
            released: false,
            gone: false,
            flight: None,
            epochs: 0,
            progress: None,
            retry_at: None,
            poll_at: now,
            polls: 0,
            extra_poll_at: None,
            failures: 0,
            trouble: None,
            latch: None,
            timeouts: 0,
            tries: Tries::default(),
            unhelped: 0,
            place: Place::None,
            health: Health::starting(now),
            record: Record::default(),
            told: Told::default(),
            wake: None,
            step: "Starting",
            history: VecDeque::new(),
            object,
        };
        machine.load(&recorded);
        let mut out = Vec::new();
        machine.go_on(now, "Start", &mut out);
        (machine, out)
    }

    /// Takes in what happened and says what is to be done.
    pub fn step(&mut self, now: Timestamp, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        let cause = input.kind();
        self.now = now;
        self.absorb(now, input, &mut out);
        self.go_on(now, cause, &mut out);
        out
    }

    fn go_on(&mut self, now: Timestamp, cause: &'static str, out: &mut Vec<Effect>) {
        self.wake = None;
        let before = self.step;
        self.decide(now, out);
        self.tell(now, out);
        if self.step != before {
            self.history.push_back(Transition { at: now, cause, from: before, to: self.step });
            if self.history.len() > HISTORY {
                self.history.pop_front();
            }
        }
    }

    /// Takes over what was recorded.
    fn load(&mut self, status: &Arc<ProxyStatus>) {
        self.record.adopt(Arc::clone(status));
        self.hash = status.spec_hash.as_deref().map(Arc::from);
        self.id = status.provider_id.as_deref().map(InstanceId::new);
        let ip = status.ip.as_deref().and_then(|ip| ip.parse().ok());
        self.sight.address = if self.id.is_some() { ip } else { None };
        let timed_out = find(&status.conditions, kind::PROVISIONED).is_some_and(|c| c.reason == reason::PROVISIONING_TIMEOUT);
        self.timeouts = u32::from(timed_out);
        // Whom nothing runs for, "its instance is known to run" does not apply to.
        self.sight.confirmed = !self.object.is_managed();
        self.health.load(status);
    }

    fn absorb(&mut self, now: Timestamp, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Object(object) => self.object_changed(now, object),
            Input::Answered { epoch, answer } => self.answered(now, epoch, answer, out),
            Input::Progress { epoch, text } => {
                if self.flight.as_ref().is_some_and(|flight| flight.epoch == epoch) {
                    self.progress = Some(text);
                }
            }
            Input::StatusWritten { epoch, result } => self.status_written(now, epoch, result),
            Input::FinalizerWritten(result) => self.finalizer_written(now, result),
            Input::Probed(report) => self.probed(now, &report, out),
            Input::CheckUrl(suspicion) => self.suspected(now, suspicion, out),
            Input::Provider(fingerprint) => {
                if self.provider != fingerprint {
                    self.provider = fingerprint;
                    self.try_again(now);
                }
            }
            Input::ProviderDown(down) => self.provider_down = down,
            Input::CapacityFreed => {
                let waits = self.trouble.as_ref().is_some_and(|trouble| trouble.reason == reason::QUOTA_EXCEEDED);
                if waits && self.latch.is_none() {
                    self.retry_at = None;
                    self.poll_at = self.poll_at.min(now);
                }
            }
            Input::Place(place) => self.place = place,
            Input::Drained(by) => self.drained(by),
            Input::Republish => self.told.forget_availability(),
            Input::TimerDue => self.told.forget_timer(),
        }
    }

    fn object_changed(&mut self, now: Timestamp, object: Arc<ProxyObject>) {
        let old = std::mem::replace(&mut self.object, object);
        let new = Arc::clone(&self.object);
        if new.finalizer {
            (self.finalizer.held, self.finalizer.shown) = (true, true);
        } else if self.finalizer.shown {
            (self.finalizer.held, self.finalizer.shown) = (false, false);
        }
        // The remedy of OP-34 was applied: this object is new to us.
        if self.owner_of(&old).is_some() && self.owner_of(&new).is_none() {
            self.load(&new.status);
            self.try_again(now);
        }
        if old.spec != new.spec || old.cloud_init != new.cloud_init {
            self.desired = if new.is_managed() { SpecHash::of(&new) } else { None };
            if *self.attributes != new.spec.attributes {
                self.attributes = Arc::new(new.spec.attributes.clone());
            }
        }
        self.adopt_port();
        let begins_deletion = new.deleting && !old.deleting;
        let resumes = old.suspended && !new.suspended;
        if old.generation != new.generation || old.annotations.retry != new.annotations.retry || begins_deletion || resumes {
            self.try_again(now);
        }
        if old.cloud_init != new.cloud_init {
            self.retry_at = None;
        }
        if old.annotations.replace != new.annotations.replace && new.annotations.replace.is_some() && self.id.is_some() {
            // An id without a hash: recorded, it survives a crash (OP-33).
            self.hash = None;
        }
    }

    /// The declared port counts once nothing runs that was made with another.
    fn adopt_port(&mut self) {
        let unknown = self.desired.is_none() && self.id.is_some() && self.object.is_managed();
        if !unknown && !self.outdated() {
            self.port = self.object.spec.port;
        }
    }

    /// Something changed that may have been the cause of the trouble: no more waiting, no latch (OP-17, PC-59).
    fn try_again(&mut self, now: Timestamp) {
        self.latch = None;
        self.retry_at = None;
        self.failures = 0;
        self.poll_at = self.poll_at.min(now);
        if self.object.deleting {
            self.timeouts = 0;
        }
    }

    /// The other installation that owns the object (OP-34).
    fn owner_of<'a>(&self, object: &'a ProxyObject) -> Option<&'a str> {
        object.status.installation.as_deref().filter(|owner| *owner != self.installation.as_str())
    }

    /// No call, no write: another's object, or one of a folder that was not given.
    fn parked(&self) -> bool {
        self.object.suspended || self.owner_of(&self.object).is_some()
    }

    fn finalizer_written(&mut self, now: Timestamp, result: Result<(), SourceError>) {
        let Some(adding) = self.finalizer.writing.take() else { return };
        match result {
            Ok(()) if adding => {
                self.finalizer = Finalizer { held: true, shown: self.finalizer.shown && self.finalizer.held, ..Finalizer::default() };
            }
            Ok(()) => {
                self.finalizer = Finalizer::default();
                self.released = true;
            }
            Err(SourceError::Gone) => self.gone = true,
            Err(SourceError::Conflict) => self.finalizer.not_before = Some(now + self.settings.write_interval),
            Err(SourceError::Unavailable(_)) => {
                self.finalizer.not_before = Some(now + self.dice.backoff(&self.settings, self.finalizer.failures));
                self.finalizer.failures = (self.finalizer.failures + 1).min(30);
            }
        }
    }

    /// Runs nothing before `at`: whatever could be done then is looked at then.
    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// The address traffic goes to, if it is one.
    fn address(&self) -> Option<IpAddr> {
        match &self.object.spec.endpoint {
            Some(endpoint) => endpoint.host.parse().ok(),
            None => self.sight.address.map(IpAddr::V4),
        }
    }

    /// What is being probed.
    pub fn probed_target(&self) -> Option<&Arc<ProbeTarget>> {
        self.told.target()
    }

    /// For people (`/debug/actors`): no secrets.
    pub fn summary(&self) -> serde_json::Value {
        serde_json::json!({"phase": self.facts().phase().as_str(), "step": self.step})
    }

    /// For people (`/debug/proxies/{ns}/{name}`): no secrets.
    pub fn explain(&self, now: Timestamp) -> serde_json::Value {
        let facts = self.facts();
        let said = |said: &crate::status::Said| serde_json::json!({"status": said.status.as_str(), "reason": said.reason, "message": said.message});
        let mut state = serde_json::json!({
            "namespace": self.object.key.namespace, "name": self.object.key.name, "uid": self.object.uid,
            "generation": self.object.generation, "phase": facts.phase().as_str(), "step": self.step,
            "healthy": said(&facts.healthy), "failures": self.failures, "failedTries": self.tries.failed,
            "transitions": self.history,
        });
        let mut put = |name: &str, value: Option<serde_json::Value>| {
            if let (Some(object), Some(value)) = (state.as_object_mut(), value) {
                object.insert(name.to_owned(), value);
            }
        };
        put("provisioned", facts.provisioned.as_ref().map(said));
        put("specHash", self.hash.as_deref().map(Into::into));
        put("desiredHash", self.desired.as_ref().map(|hash| hash.current().as_ref().into()));
        put("providerID", self.id.as_ref().map(|id| id.as_str().into()));
        put("ip", self.address().map(|ip| ip.to_string().into()));
        put("trouble", self.trouble.as_ref().map(|trouble| trouble.message.as_str().into()));
        put(
            "call",
            self.flight.as_ref().map(|flight| {
                let millis = u64::try_from(now.since(flight.since).as_millis()).unwrap_or(u64::MAX);
                serde_json::json!({"op": flight.op.as_str(), "forMillis": millis, "cancelled": flight.cancelled})
            }),
        );
        put("nextTimer", self.told.timer().map(|at| at.to_string().into()));
        state
    }
}
