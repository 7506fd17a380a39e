//! One object, its store, its backend, and the machine between them. Every effect is checked against the invariants as
//! it is emitted; what happens next is up to the test.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::ProxyAvailability;
use egress_protocol::object::{Annotations, CloudInit, CredentialsState, ProxyObject};
use egress_protocol::prober::{ProbeFailure, ProbeOutcome, ProbeReport, ProbeTarget};
use egress_protocol::provider::{DeleteOutcome, ErrorClass, Instance, InstanceState, Op};
use egress_protocol::resource::conditions::{self, Status, kind};
use egress_protocol::resource::{HealthCheck, Mode, Phase, ProxySpec, ProxyStatus};
use egress_protocol::source::{EventReason, SourceError};
use egress_protocol::{InstallationId, InstanceId, InstanceName, ObjectKey, Timestamp, Uid};

use crate::hash::SpecHash;
use crate::machine::{Answer, Call, Effect, Fault, Input, Machine, Settings};
use crate::rollout::Member;

/// What a backend has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Vm {
    /// The port it was made with: all that differs between versions of the object.
    pub(super) port: u16,
    pub(super) state: Vm1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Vm1 {
    Starting,
    Running,
    Paused,
    Stopped,
    Deleting,
}

/// A hand laid on the machine just before it hears of something, so that a rule of it is broken: a mutant.
pub(super) type Breaks = fn(&mut Machine, Input) -> Input;

#[derive(Debug, Clone)]
pub(super) struct World {
    /// What is wrong with the machine; nothing but where a test wants a mutant.
    pub(super) breaks: Option<Breaks>,
    pub(super) now: Timestamp,
    pub(super) settings: Arc<Settings>,
    pub(super) machine: Machine,
    /// As it is stored; its status is what was written last.
    pub(super) object: ProxyObject,
    /// The stored object is newer than the one the machine was handed.
    pub(super) stale: bool,
    pub(super) vm: Option<Vm>,
    pub(super) born: Timestamp,
    pub(super) ip: u8,
    pub(super) call: Option<(u64, Call, bool)>,
    pub(super) write: Option<(u64, Arc<ProxyStatus>)>,
    pub(super) finalizer: Option<bool>,
    pub(super) target: Option<Arc<ProbeTarget>>,
    pub(super) timer: Option<Timestamp>,
    pub(super) availability: Option<Arc<ProxyAvailability>>,
    pub(super) member: Member,
    pub(super) provider: Option<Arc<str>>,
    pub(super) events: Vec<(EventReason, String)>,
    pub(super) foreign: u32,
    pub(super) calls: Vec<Op>,
    pub(super) writes: u32,
    /// A replacement was asked for since the instance was made.
    pub(super) unwanted: bool,
    /// A lease of it runs.
    pub(super) leased: bool,
    /// When the leases are revoked, as the book was told first.
    pub(super) drain_by: Option<Timestamp>,
    /// It served before what happens now.
    pub(super) serves: bool,
}

pub(super) fn settings() -> Settings {
    Settings::default()
}

/// No waiting: every timer of the machine is due at once.
pub(super) fn impatient() -> Settings {
    let zero = Duration::ZERO;
    Settings {
        poll_provisioning: zero,
        poll_deletion: zero,
        poll_drift: zero,
        quota_retry: zero,
        backoff_max: zero,
        backoff_min: zero,
        poll_first: zero,
        repeat_delete: zero,
        write_interval: zero,
        drain_timeout: zero,
        ..Settings::default()
    }
}

pub(super) fn object() -> ProxyObject {
    ProxyObject {
        key: ObjectKey::new("default", "px-1"),
        uid: Uid::new("3f1c2a9e-0000-4000-8000-000000000001"),
        generation: 1,
        spec: Arc::new(ProxySpec {
            mode: Mode::Managed,
            provider: Some("lab".into()),
            placement: None,
            port: 3128,
            cloud_init: None,
            endpoint: None,
            attributes: std::collections::BTreeMap::new(),
            max_leases: 1,
            health_check: HealthCheck::default(),
            provisioning_timeout_seconds: 1800,
        }),
        status: Arc::default(),
        annotations: Annotations::default(),
        deleting: false,
        finalizer: false,
        suspended: false,
        cloud_init: CloudInit::None,
        credentials: CredentialsState::NotNeeded,
    }
}

pub(super) fn fault(class: ErrorClass) -> Fault {
    Fault { class, message: format!("lab: {}", class.result_label()), environment: false, retry_after: None }
}

pub(super) fn installation() -> InstallationId {
    InstallationId::new("ours")
}

const START: Timestamp = Timestamp::from_millis(1_767_323_045_000);

impl World {
    pub(super) fn new(object: ProxyObject, settings: Settings) -> Self {
        Self::with(object, settings, Some("f1".into()))
    }

    pub(super) fn with(object: ProxyObject, settings: Settings, provider: Option<Arc<str>>) -> Self {
        let settings = Arc::new(settings);
        let (machine, effects) =
            Machine::start(START, Arc::new(object.clone()), None, provider.clone(), installation(), Arc::clone(&settings), 7);
        let mut world = Self {
            breaks: None,
            now: START,
            settings,
            machine,
            object,
            stale: false,
            vm: None,
            born: START,
            ip: 7,
            call: None,
            write: None,
            finalizer: None,
            target: None,
            timer: None,
            availability: None,
            member: Member::default(),
            provider,
            events: Vec::new(),
            foreign: 0,
            calls: Vec::new(),
            writes: 0,
            unwanted: false,
            leased: false,
            drain_by: None,
            serves: false,
        };
        world.perform(effects);
        world
    }

    pub(super) fn input(&mut self, input: Input) {
        let input = match self.breaks {
            Some(breaks) => breaks(&mut self.machine, input),
            None => input,
        };
        let turns = matches!(&input, Input::Probed(report) if !report.healthy);
        self.serves = self.machine.serving() && !turns;
        let effects = self.machine.step(self.now, input);
        self.perform(effects);
    }

    /// The last lease ends, and the book says so when it was asked.
    pub(super) fn release(&mut self) {
        self.leased = false;
        if let Some(by) = self.availability.as_ref().and_then(|entry| entry.drain_by) {
            self.input(Input::Drained(by));
        }
    }

    /// The process dies between two steps and starts again from what is stored. What was on its way to the backend or the
    /// store arrives, or does not.
    pub(super) fn crash(&mut self, call_arrives: bool, write_arrives: bool) {
        if let Some((_, call, _)) = self.call.take()
            && call_arrives
        {
            self.execute(&call);
        }
        if let Some((_, status)) = self.write.take()
            && write_arrives
        {
            self.object.status = status;
        }
        if let Some(add) = self.finalizer.take()
            && write_arrives
        {
            self.set_finalizer(add);
        }
        (self.target, self.timer, self.availability, self.stale) = (None, None, None, false);
        if self.is_gone() {
            return;
        }
        let recorded = &self.object.status;
        self.serves = recorded.ip.is_some() && conditions::status(&recorded.conditions, kind::HEALTHY) == Status::True;
        let object = Arc::new(self.object.clone());
        let (machine, effects) =
            Machine::start(self.now, object, None, self.provider.clone(), installation(), Arc::clone(&self.settings), 7);
        self.machine = machine;
        self.perform(effects);
    }

    /// The stored object is gone: deleted, and nothing holds it.
    pub(super) fn is_gone(&self) -> bool {
        self.object.deleting && !self.object.finalizer
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        let mut drained = None;
        for effect in effects {
            match effect {
                Effect::Call { epoch, call } => {
                    assert!(self.call.is_none(), "at most one call in flight");
                    assert!(self.machine.latch.as_ref().is_none_or(|latch| latch.trying), "a latched proxy makes no call (OP-17)");
                    assert!(!self.machine.parked(), "no call for what is suspended or another's (OP-30, OP-34)");
                    self.check(&call);
                    self.calls.push(call.op());
                    self.call = Some((epoch, call, false));
                }
                Effect::Cancel { epoch } => {
                    let call = self.call.as_mut().expect("only a running call is cancelled");
                    assert_eq!(call.0, epoch);
                    call.2 = true;
                }
                Effect::WriteStatus { epoch, status } => {
                    assert!(self.write.is_none(), "at most one write in flight");
                    self.writes += 1;
                    self.write = Some((epoch, status));
                }
                Effect::AddFinalizer => {
                    assert!(self.finalizer.is_none() && !self.machine.object.deleting);
                    self.finalizer = Some(true);
                }
                Effect::RemoveFinalizer => {
                    assert!(self.finalizer.is_none() && self.machine.object.deleting);
                    assert!(
                        self.vm.is_none() || self.object.annotations.skip_cleanup || !self.object.is_managed(),
                        "the finalizer is released only when nothing is left (OP-11)"
                    );
                    self.finalizer = Some(false);
                }
                Effect::Probe(target) => self.target = Some(target),
                Effect::StopProber => self.target = None,
                Effect::Publish(availability) => {
                    // The book keeps to what it was told first.
                    self.drain_by = match (self.drain_by, availability.drain_by) {
                        (Some(first), Some(by)) => Some(first.min(by)),
                        (_, by) => by,
                    };
                    drained = availability.drain_by.filter(|_| !self.leased);
                    self.availability = Some(availability);
                }
                Effect::Announce { reason, note } => self.events.push((reason, note)),
                Effect::Foreign { .. } => self.foreign += 1,
                Effect::Member(member) => self.member = member,
                Effect::SetTimer(at) => self.timer = at,
            }
        }
        self.check_rest();
        if let Some(by) = drained {
            self.input(Input::Drained(by));
        }
    }

    /// The invariants of a call, on the truth rather than on what the machine holds for it.
    fn check(&self, call: &Call) {
        let stored = &self.object.status;
        match call {
            Call::Create(request) => {
                assert!(self.object.finalizer, "no create before the finalizer (OP-11)");
                let known = &self.machine.object;
                let spec = Arc::new(ProxySpec { port: request.port, ..(*known.spec).clone() });
                let asked = SpecHash::of(&ProxyObject { spec, ..ProxyObject::clone(known) });
                let stored = stored.spec_hash.as_deref().unwrap_or_default();
                assert!(asked.is_some_and(|asked| asked.matches(stored)), "no create before its hash is recorded (OP-16)");
                assert_eq!(self.object.status.provider_id, None, "no create while an instance is recorded");
                if let Some(vm) = &self.vm {
                    assert_eq!(vm.port, request.port, "never two instances for one UID, nor an old one taken for a new one");
                }
            }
            Call::Delete(_) => {
                let known = &self.machine.object;
                let runs = self.vm.as_ref().is_some_and(|vm| vm.state == Vm1::Running);
                let waited = !self.leased || !self.serves || !runs || self.drain_by.is_some_and(|by| self.now >= by);
                assert!(waited, "what serves is not removed while leases of it run (LS-16)");
                if let Some(vm) = &self.vm
                    && !known.deleting
                    && !self.unwanted
                    && matches!(vm.state, Vm1::Running | Vm1::Starting | Vm1::Paused)
                {
                    assert_ne!(vm.port, known.spec.port, "never a delete of what runs as specified");
                }
            }
            Call::Get(key) => assert!(key.id.is_some(), "a read needs an id"),
        }
    }

    /// It is never stuck.
    fn check_rest(&self) {
        let waits = self.call.is_some() || self.write.is_some() || self.finalizer.is_some() || self.timer.is_some();
        let machine = &self.machine;
        let settled = machine.released
            || machine.gone
            || machine.parked()
            || machine.latch.is_some()
            || machine.provider.is_none()
            || !machine.object.is_managed()
            || (machine.object.deleting && !machine.finalizer.held)
            || (machine.desired.is_none() && machine.id.is_none());
        assert!(waits || settled || self.stale, "stuck in {}: {:#}", machine.step, machine.explain(self.now));
    }

    /// The stored object changes.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut ProxyObject)) {
        change(&mut self.object);
        self.object.generation += 1;
        self.stale = true;
    }

    /// The stored object changes in something that no generation counts.
    pub(super) fn touch(&mut self, change: impl FnOnce(&mut ProxyObject)) {
        change(&mut self.object);
        self.stale = true;
    }

    /// That long without trouble.
    pub(super) fn live(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            if self.stale || self.call.is_some() || self.write.is_some() || self.finalizer.is_some() {
                assert!(self.go_on());
            } else {
                self.pass(until.since(self.now));
            }
        }
    }

    pub(super) fn set_port(&mut self, port: u16) {
        self.edit(|object| object.spec = Arc::new(ProxySpec { port, ..(*object.spec).clone() }));
    }

    pub(super) fn ask_for_replacement(&mut self) {
        self.object.annotations.replace = Some(format!("{}", self.object.generation));
        self.stale = true;
    }

    /// The machine is handed the stored object.
    pub(super) fn deliver(&mut self) {
        self.stale = false;
        self.unwanted |= self.machine.id.is_some() && self.machine.object.annotations.replace != self.object.annotations.replace;
        self.input(Input::Object(Arc::new(self.object.clone())));
    }

    pub(super) fn set_provider(&mut self, provider: Option<&str>) {
        self.provider = provider.map(Into::into);
        self.input(Input::Provider(self.provider.clone()));
    }

    fn set_finalizer(&mut self, add: bool) {
        self.object.finalizer = add;
    }

    pub(super) fn id(&self) -> InstanceId {
        InstanceId::new(format!("lab/{}", InstanceName::of(&self.object.uid)))
    }

    /// What a backend does with a call, and what it answers.
    pub(super) fn execute(&mut self, call: &Call) -> Answer {
        match call {
            Call::Create(request) => match &self.vm {
                Some(vm) if vm.state == Vm1::Deleting => Answer::Created(Err(fault(ErrorClass::Transient))),
                Some(vm) => {
                    assert_eq!(vm.port, request.port, "adopts what it would have made");
                    Answer::Created(Ok(self.id()))
                }
                None => {
                    self.vm = Some(Vm { port: request.port, state: Vm1::Starting });
                    self.born = self.now;
                    self.unwanted = false;
                    Answer::Created(Ok(self.id()))
                }
            },
            Call::Get(_) => Answer::Got(match &self.vm {
                None => Err(fault(ErrorClass::NotFound)),
                Some(vm) => {
                    // Seen down, it is disposed of, also if somebody starts it meanwhile (OP-14).
                    self.unwanted |= vm.state == Vm1::Stopped;
                    Ok(self.instance(vm))
                }
            }),
            Call::Delete(_) => Answer::Deleted(Ok(match &mut self.vm {
                None => DeleteOutcome::Gone,
                Some(vm) => {
                    vm.state = Vm1::Deleting;
                    DeleteOutcome::InProgress
                }
            })),
        }
    }

    fn instance(&self, vm: &Vm) -> Instance {
        let state = match vm.state {
            Vm1::Starting => InstanceState::Provisioning,
            Vm1::Running => InstanceState::Running,
            Vm1::Paused => InstanceState::Paused,
            Vm1::Stopped | Vm1::Deleting => InstanceState::Stopped,
        };
        Instance {
            id: self.id(),
            name: InstanceName::of(&self.object.uid),
            state,
            state_detail: (vm.state != Vm1::Running).then(|| format!("{:?}", vm.state)),
            deleting: vm.state == Vm1::Deleting,
            ip: (vm.state == Vm1::Running).then(|| std::net::Ipv4Addr::new(192, 0, 2, self.ip)),
            uid: self.object.uid.clone(),
            installation: installation(),
            created_at: Some(self.born),
        }
    }

    /// The running call is carried out and answered.
    pub(super) fn answer(&mut self) {
        let (epoch, call, _) = self.call.take().expect("a call runs");
        let answer = self.execute(&call);
        self.input(Input::Answered { epoch, answer });
    }

    /// The running call fails, after it was carried out or before.
    pub(super) fn fail(&mut self, fault: Fault, carried_out: bool) {
        let (epoch, call, _) = self.call.take().expect("a call runs");
        if carried_out {
            self.execute(&call);
        }
        let answer = match call.op() {
            Op::Create => Answer::Created(Err(fault)),
            Op::Delete => Answer::Deleted(Err(fault)),
            Op::Get | Op::List => Answer::Got(Err(fault)),
        };
        self.input(Input::Answered { epoch, answer });
    }

    pub(super) fn written(&mut self) {
        let (epoch, status) = self.write.take().expect("a write runs");
        self.object.status = status;
        self.input(Input::StatusWritten { epoch, result: Ok(self.object.generation) });
    }

    pub(super) fn not_written(&mut self, error: SourceError, arrives: bool) {
        let (epoch, status) = self.write.take().expect("a write runs");
        if arrives {
            self.object.status = status;
        }
        self.input(Input::StatusWritten { epoch, result: Err(error) });
    }

    pub(super) fn finalizer_written(&mut self) {
        let add = self.finalizer.take().expect("a finalizer write runs");
        self.set_finalizer(add);
        if !add {
            // The object is gone with it.
            assert!(self.vm.is_none() || self.object.annotations.skip_cleanup, "nothing is left behind");
        }
        self.input(Input::FinalizerWritten(Ok(())));
        if add {
            self.stale = true;
        }
    }

    pub(super) fn probe(&mut self, healthy: bool, target_side: bool) {
        self.probe_with(healthy, ProbeFailure::ConnectFailed, "connection refused", target_side);
    }

    /// A probe ends; one that does not pass fails so.
    pub(super) fn probe_with(&mut self, healthy: bool, failure: ProbeFailure, message: &str, target_side: bool) {
        let Some(target) = self.target.clone() else { return };
        let outcome = if healthy {
            ProbeOutcome::Passed { latency: Duration::from_millis(12), egress_ip: None }
        } else {
            ProbeOutcome::Failed { failure, message: message.into(), target_side }
        };
        let flipped = self.machine.health.verdict() != Some(healthy);
        let report =
            ProbeReport { epoch: target.epoch, started_at: self.now, ended_at: self.now, outcome, healthy, flipped, contradicting: 0 };
        self.input(Input::Probed(report));
    }

    /// Time passes until the machine's timer at most.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.timer.filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.timer = None;
            self.input(Input::TimerDue);
            if self.call.is_some() || self.write.is_some() || self.finalizer.is_some() {
                return;
            }
        }
        self.now = until;
    }

    /// One thing that would happen by itself in a world without trouble; `false` when nothing is left to happen.
    pub(super) fn go_on(&mut self) -> bool {
        if self.is_gone() {
            return false;
        }
        if self.stale {
            self.deliver();
        } else if self.write.is_some() {
            self.written();
        } else if self.finalizer.is_some() {
            self.finalizer_written();
        } else if self.call.is_some() {
            self.answer();
        } else if let Some(at) = self.timer {
            self.pass(at.since(self.now));
        } else {
            return false;
        }
        if let Some(vm) = &mut self.vm {
            match vm.state {
                Vm1::Starting => vm.state = Vm1::Running,
                Vm1::Deleting => self.vm = None,
                Vm1::Running | Vm1::Paused | Vm1::Stopped => {}
            }
        }
        true
    }

    /// Everything goes well until the machine is where it wants to be.
    pub(super) fn settle(&mut self) {
        for _ in 0..400 {
            if self.is_at_rest() || !self.go_on() {
                return;
            }
        }
        panic!("does not settle: {:#}", self.machine.explain(self.now));
    }

    /// All writes go through; calls are left alone.
    pub(super) fn settle_writes(&mut self) {
        for _ in 0..20 {
            if self.stale {
                self.deliver();
            } else if self.write.is_some() {
                self.written();
            } else if self.finalizer.is_some() {
                self.finalizer_written();
            } else if self.timer.is_some_and(|at| at.since(self.now) <= Duration::from_secs(1)) {
                let at = self.timer.expect("a timer");
                let calling = self.call.is_some();
                self.pass(at.since(self.now));
                if self.call.is_some() && !calling {
                    return;
                }
            } else {
                return;
            }
        }
    }

    /// The object is gone, or latched, or runs as declared and says so.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_gone() || (!self.stale && self.write.is_none() && self.finalizer.is_none() && (self.is_latched() || self.runs()))
    }

    fn is_latched(&self) -> bool {
        self.machine.latch.as_ref().is_some_and(|latch| latch.retry_at.is_none()) && self.call.is_none() && !self.object.deleting
    }

    /// It runs as declared, and the record says so.
    pub(super) fn runs(&self) -> bool {
        let status = &self.object.status;
        let phase = matches!(status.phase, Some(Phase::Running | Phase::Ready | Phase::Unhealthy));
        let as_declared = self.vm.as_ref().is_some_and(|vm| vm.port == self.object.spec.port && vm.state == Vm1::Running);
        let recorded = SpecHash::of(&self.object).is_some_and(|hash| hash.matches(status.spec_hash.as_deref().unwrap_or_default()));
        let id = status.provider_id.as_deref() == Some(self.id().as_str());
        phase && as_declared && recorded && id && !self.object.deleting && status.observed_generation == Some(self.object.generation)
    }

    pub(super) fn phase(&self) -> Phase {
        self.machine.facts().phase()
    }

    /// Status and reason of a condition as it would be written.
    pub(super) fn provisioned(&self) -> (&'static str, &'static str, String) {
        let said = self.machine.facts().provisioned.expect("managed");
        (said.status.as_str(), said.reason, said.message)
    }

    /// Runs until the proxy is Ready.
    pub(super) fn ready() -> Self {
        let mut world = Self::new(object(), settings());
        world.settle();
        world.probe(true, false);
        world.pass(Duration::from_secs(2));
        world.settle();
        assert_eq!(world.phase(), Phase::Ready);
        world.calls.clear();
        world.events.clear();
        world.writes = 0;
        world
    }
}
