//! A proxy's prober.
//!
//! - role: probes one proxy on its schedule, applies thresholds, tells the verdict
//! - id `prober/<namespace>/<name>`; child of the proxy's actor; supervises nobody
//! - receives [`ProberMessage`] from the proxy's actor and the judge; sends `Probed` to the proxy's actor, `Observed` and
//!   `Forget` to the judge
//! - states: waiting for a slot (one timer) or probing (one task). Both carry a serial, so that a late tick or result of
//!   an old configuration is ignored. Urgent: probing each second until the threshold decides or a probe passes.
//! - failure policy: a crash forgets the streak, never the verdict or the target: both are in [`ProberArgs`]. A message
//!   to an actor that is down is lost; the next result says the same again.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::judge::{self, JudgeMessage, Suspicion};
use egress_protocol::message::Message;
use egress_protocol::metrics::{ProxyLabel, ProxyReason};
use egress_protocol::prober::{ProbeOutcome, ProbeReport, ProbeTarget, ProberMessage, actor_id};
use egress_protocol::proxy::ProxyMessage;
use egress_supervision::{Actor, Address, ChildSpec, Context, Failure, Task, Timer};
use http::Uri;
use tracing::{Instrument, Span, field};

use crate::hysteresis::{Hysteresis, Thresholds};
use crate::judge::Evidence;
use crate::probe::{OwnFault, probe};
use crate::schedule::{Schedule, URGENT_EVERY};
use crate::settings::ProbeSettings;
use crate::targets::Slot;

/// What a prober is started from, each time.
#[derive(Debug, Clone)]
pub struct ProberArgs {
    /// What to probe, the verdict that stands as its `prior` (HE-2: a restart changes no verdict).
    target: Slot,
    settings: Arc<ProbeSettings>,
}

/// A prober as the child of its proxy's actor. When there is one of that id already, which cannot be told because it is
/// starting or waits for its restart, it takes this target over before its next probe.
pub fn spec(target: Arc<ProbeTarget>, settings: Arc<ProbeSettings>) -> ChildSpec<ProberActor> {
    let id = actor_id(&target.key);
    ChildSpec::retried(id, ProberArgs { target: settings.targets.place(target), settings })
}

/// What a prober tells itself.
#[derive(Debug)]
pub enum ProberInternal {
    /// Probe now.
    Tick {
        /// Of the timer that was meant.
        serial: u32,
    },
    /// A probe ended.
    Ended {
        /// Of the probe that was meant.
        serial: u32,
        /// When it began.
        started_at: Timestamp,
        /// When it ended.
        ended_at: Timestamp,
        /// How; or that this machine could not even try.
        outcome: Result<ProbeOutcome, OwnFault>,
    },
}

impl Message for ProberInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Tick { .. } => "Tick",
            Self::Ended { .. } => "Ended",
        }
    }
}

/// One proxy's probe loop.
#[derive(Debug)]
pub struct ProberActor {
    args: ProberArgs,
    target: Arc<ProbeTarget>,
    proxy: Address<ProxyMessage>,
    judge: Address<JudgeMessage>,
    hysteresis: Hysteresis,
    /// Of the timer or probe that counts; any other's message is late.
    serial: u32,
    timer: Option<Timer>,
    probing: Option<Task>,
    urgent: bool,
    /// Asked for evidence while a probe ran: what began before the question does not answer it.
    again: bool,
    last: Option<Last>,
}

/// The last result, for people.
#[derive(Debug, Clone, Copy)]
struct Last {
    ended_at: Timestamp,
    result: &'static str,
}

impl Actor for ProberActor {
    type Message = ProberMessage;
    type Internal = ProberInternal;
    type Args = ProberArgs;
    const KIND: &'static str = "prober";

    async fn start(ctx: &Context<Self>, args: ProberArgs) -> Result<Self, Failure> {
        let target = args.target.load();
        let mut prober = Self {
            proxy: ctx.system().address(&target.key.actor_id()),
            judge: ctx.system().address(judge::ACTOR_ID),
            hysteresis: Hysteresis::new(target.prior),
            args,
            target,
            serial: 0,
            timer: None,
            probing: None,
            urgent: false,
            again: false,
            last: None,
        };
        prober.first(ctx);
        Ok(prober)
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProberMessage) -> Result<(), Failure> {
        match message {
            ProberMessage::Configure { target } => self.configure(ctx, target),
            ProberMessage::Urgent => {
                self.urgent = true;
                self.now(ctx);
            }
            ProberMessage::Now => self.now(ctx),
            ProberMessage::CheckUrl { suspicion } => self.suspicion(&suspicion),
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: ProberInternal) -> Result<(), Failure> {
        match message {
            ProberInternal::Tick { serial } if serial == self.serial => {
                let target = self.args.target.load();
                if target.epoch == self.target.epoch && target.uid == self.target.uid {
                    self.begin(ctx);
                } else {
                    self.configure(ctx, target);
                }
            }
            ProberInternal::Ended { serial, started_at, ended_at, outcome } if serial == self.serial => {
                self.probing = None;
                match outcome {
                    Ok(outcome) => self.ended(ctx, started_at, ended_at, outcome),
                    Err(fault) => self.no_evidence(ctx, started_at, &fault),
                }
            }
            ProberInternal::Tick { .. } | ProberInternal::Ended { .. } => {}
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let target = &self.target;
        let host = target.health_check.url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        serde_json::json!({
            "host": &*target.host,
            "port": target.port,
            "epoch": target.epoch,
            "checkUrlHost": host,
            "healthy": self.hysteresis.verdict(),
            "contradicting": self.hysteresis.contradicting(),
            "heldUntil": self.hysteresis.held_until(),
            "probing": self.probing.is_some(),
            "urgent": self.urgent,
            "lastResult": self.last.map(|last| last.result),
            "checkedAt": self.last.map(|last| last.ended_at),
        })
    }

    /// The proxy lost its host or is gone: its series leave (HE-2). A crash does not come here, so a restart keeps them.
    async fn stopping(&mut self, ctx: &Context<Self>) {
        (self.timer, self.probing) = (None, None);
        ctx.metrics().forget_proxy(&self.target.key);
        let _ = self.judge.send(JudgeMessage::Forget { key: self.target.key.clone(), uid: self.target.uid.clone() });
    }
}

impl ProberActor {
    fn configure(&mut self, ctx: &Context<Self>, target: Arc<ProbeTarget>) {
        if target.epoch == self.target.epoch && target.uid == self.target.uid {
            return;
        }
        let old = std::mem::replace(&mut self.target, Arc::clone(&target));
        if (&old.uid, &old.host, old.port) != (&target.uid, &target.host, target.port) {
            ctx.metrics().forget_proxy(&target.key);
        }
        let same_url = old.health_check.url == target.health_check.url && old.uid == target.uid;
        if !same_url {
            let _ = self.judge.send(JudgeMessage::Forget { key: old.key.clone(), uid: old.uid.clone() });
        }
        let held_until = self.hysteresis.held_until().filter(|_| same_url);
        self.hysteresis = Hysteresis::new(target.prior);
        if let Some(until) = held_until {
            self.hysteresis.hold(ctx.now(), until);
        }
        self.args.target.store(target);
        self.urgent = false;
        self.again = false;
        self.last = None;
        self.first(ctx);
    }

    /// The first probe of a configuration: at once, within the ramp (HE-6).
    fn first(&mut self, ctx: &Context<Self>) {
        let wait = self.args.settings.ramp.reserve(ctx.now());
        self.wait(ctx, wait);
    }

    fn now(&mut self, ctx: &Context<Self>) {
        if self.probing.is_some() {
            self.again = true;
        } else {
            self.begin(ctx);
        }
    }

    /// Waits for the next probe; whatever was waited for or ran before is dropped.
    fn wait(&mut self, ctx: &Context<Self>, wait: Duration) {
        self.serial = self.serial.wrapping_add(1);
        self.probing = None;
        self.timer = Some(ctx.after(wait, ProberInternal::Tick { serial: self.serial }));
    }

    fn begin(&mut self, ctx: &Context<Self>) {
        self.serial = self.serial.wrapping_add(1);
        self.timer = None;
        let serial = self.serial;
        let (target, settings, clock) = (Arc::clone(&self.target), Arc::clone(&self.args.settings), ctx.system().clock());
        let started_at = ctx.now();
        self.probing = Some(ctx.spawn(async move {
            let span = probe_span(&target, &settings);
            let outcome = probe(&target, &settings).instrument(span.clone()).await;
            tell(&span, &outcome);
            ProberInternal::Ended { serial, started_at, ended_at: clock.now(), outcome }
        }));
    }

    fn ended(&mut self, ctx: &Context<Self>, started_at: Timestamp, ended_at: Timestamp, outcome: ProbeOutcome) {
        let target = Arc::clone(&self.target);
        let was_healthy = self.hysteresis.verdict() == Some(true);
        let passed = outcome.passed();
        let judgement = self.hysteresis.observe(Evidence::from(&outcome), started_at, Thresholds::from(&target.health_check));
        if judgement.flipped {
            self.remember();
        }
        self.measure(ctx, &outcome);
        self.last = Some(Last { ended_at, result: result(&outcome) });
        tracing::debug!(
            proxy = %target.key, result = result(&outcome), healthy = judgement.healthy, contradicting = judgement.contradicting,
            duration = ended_at.since(started_at).as_secs_f64(), "health probe"
        );
        let report = ProbeReport {
            epoch: target.epoch,
            started_at,
            ended_at,
            outcome: outcome.clone(),
            healthy: judgement.healthy,
            flipped: judgement.flipped,
            contradicting: judgement.contradicting,
        };
        // Whoever is down is told the standing verdict with the next result.
        let _ = self.proxy.send(ProxyMessage::Probed { report });
        let _ = self.judge.send(JudgeMessage::Observed {
            key: target.key.clone(),
            uid: target.uid.clone(),
            url: target.health_check.url.as_str().into(),
            provider: target.provider.clone(),
            was_healthy,
            is_healthy: judgement.healthy,
            started_at,
            ended_at,
            interval: ProbeSettings::interval(&target.health_check),
            outcome,
        });
        self.schedule(ctx, started_at, passed);
    }

    /// After a probe: at once when asked meanwhile, in a second while urgency lasts, else in the next slot.
    fn schedule(&mut self, ctx: &Context<Self>, started_at: Timestamp, passed: bool) {
        let now = ctx.now();
        let again = std::mem::take(&mut self.again);
        let undecided = !passed && self.hysteresis.verdict() == Some(true) && !self.hysteresis.held(now);
        let wait = if again {
            Duration::ZERO
        } else if self.urgent && undecided {
            (started_at + URGENT_EVERY).since(now)
        } else {
            self.urgent = false;
            let interval = ProbeSettings::interval(&self.target.health_check);
            Schedule::new(&self.target.uid, interval).after(started_at, now).since(now)
        };
        self.wait(ctx, wait);
    }

    /// This machine could not open a connection: no result, no verdict, the next slot as usual.
    fn no_evidence(&mut self, ctx: &Context<Self>, started_at: Timestamp, fault: &OwnFault) {
        if self.args.settings.may_complain(ctx.now()) {
            tracing::warn!(error = %fault, "WARNING: probes cannot be made, verdicts stay as they are");
        }
        self.again = false;
        self.schedule(ctx, started_at, false);
    }

    fn suspicion(&mut self, suspicion: &Suspicion) {
        let mine = |url: &str| url == self.target.health_check.url;
        match suspicion {
            Suspicion::Suspect { url, since, until, .. } if mine(url) => {
                let before = self.hysteresis.verdict();
                self.hysteresis.hold(*since, *until);
                if before != self.hysteresis.verdict() {
                    self.remember();
                }
            }
            Suspicion::Cleared { url } if mine(url) => self.hysteresis.release(),
            Suspicion::Suspect { .. } | Suspicion::Cleared { .. } => {}
        }
    }

    /// Keeps the verdict for the next incarnation.
    fn remember(&self) {
        self.args.target.remember(&self.target, self.hysteresis.verdict());
    }

    fn measure(&self, ctx: &Context<Self>, outcome: &ProbeOutcome) {
        let metrics = ctx.metrics();
        let proxy = metrics.proxy_label(&self.target.key);
        match outcome {
            ProbeOutcome::Passed { latency, .. } => {
                metrics.healthcheck_duration.get_or_create(&ProxyLabel { proxy }).observe(latency.as_secs_f64());
            }
            ProbeOutcome::Failed { failure, .. } => {
                let _ = metrics.healthcheck_failures.get_or_create(&ProxyReason { proxy, reason: failure.as_str() }).inc();
            }
        }
    }
}

/// HE-8: a probe is a trace of its own, or none.
fn probe_span(target: &ProbeTarget, settings: &ProbeSettings) -> Span {
    if !settings.traced {
        return Span::none();
    }
    tracing::info_span!(
        target: "otel", parent: None, "health.probe",
        otel.kind = "client", otel.status_code = field::Empty, proxy = %target.key, probe.result = field::Empty,
    )
}

fn tell(span: &Span, outcome: &Result<ProbeOutcome, OwnFault>) {
    let result = outcome.as_ref().map_or("NotTried", result);
    span.record("probe.result", result);
    if !outcome.as_ref().is_ok_and(ProbeOutcome::passed) {
        span.record("otel.status_code", "ERROR");
    }
}

fn result(outcome: &ProbeOutcome) -> &'static str {
    match outcome {
        ProbeOutcome::Passed { .. } => "Passed",
        ProbeOutcome::Failed { failure, .. } => failure.as_str(),
    }
}
