//! One object's actor, `proxy/<namespace>/<name>`: performs what its [`Machine`] decides.
//!
//! - role: owns the state of one `Proxy`; nothing else writes its status (but for SV-2)
//! - supervised by: the directory (`proxies`); supervises: its prober (`prober/<namespace>/<name>`)
//! - receives: orders of the directory (through the desk), probe reports, the judge's view, questions; sends: provider
//!   calls, writes to the source, availability to the lease broker, its place in rollouts to the directory
//! - states: those of the machine
//! - failure policy: a crash restarts it from the object as last seen and the status last acknowledged; its running call
//!   is cancelled, which every provider survives (PC-12); given up after too many crashes, its supervisor shows it as
//!   Failed (SV-2)

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::{BROKER_ID, BrokerMessage};
use egress_protocol::message::Message;
use egress_protocol::prober::{self, ProbeTarget, ProberMessage};
use egress_protocol::provider::{self, CallContext, Op, Progress, ProviderMessage};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::resource::ProxyStatus;
use egress_protocol::source::{self, EventReason, ProxyEvent, SourceError, SourceMessage};
use egress_protocol::{InstallationId, ObjectKey};
use egress_supervision::{Actor, Address, AddressError, Context, Failure, Task, Timer};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::desk::{Desk, Orders};
use crate::machine::{Answer, Call, Effect, Input, Machine, Settings};

/// A write to the source is answered within this (OP-29).
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Beyond a call's own deadline, which its provider keeps; the longest create waits for an image of 4 h (LV-103).
const CALL_SLACK: Duration = Duration::from_secs(5 * 3600);

/// Starts a prober as the child of the given actor, or finds it there. Given by the composition root: actors do not
/// depend on each other.
pub type ProberFactory = Arc<dyn Fn(&Context<ProxyActor>, Arc<ProbeTarget>) -> Address<ProberMessage> + Send + Sync>;

/// What a proxy's actor is started from.
#[derive(Clone)]
pub struct ProxyArgs {
    pub(crate) desk: Arc<Desk>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) installation: InstallationId,
    pub(crate) prober: ProberFactory,
}

impl std::fmt::Debug for ProxyArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyArgs").finish_non_exhaustive()
    }
}

/// What the actor tells itself.
#[derive(Debug)]
pub enum ProxyInternal {
    /// It runs: look at the desk, in case the doorbell rang too early.
    Started,
    /// Something the machine waits for happened.
    Happened(Box<Input>),
}

impl Message for ProxyInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Happened(input) => input.kind(),
        }
    }
}

/// See the module's documentation.
pub struct ProxyActor {
    args: ProxyArgs,
    machine: Machine,
    /// As last read.
    orders: Arc<Orders>,
    call: Option<RunningCall>,
    /// The status on its way to the source.
    writing: Option<(u64, Arc<ProxyStatus>, Task)>,
    finalizer: Option<Task>,
    timer: Option<Timer>,
    prober: Option<Address<ProberMessage>>,
}

struct RunningCall {
    epoch: u64,
    cancel: CancellationToken,
    _task: Task,
}

impl Actor for ProxyActor {
    type Message = ProxyMessage;
    type Internal = ProxyInternal;
    type Args = ProxyArgs;
    const KIND: &'static str = "proxy";

    async fn start(ctx: &Context<Self>, args: ProxyArgs) -> Result<Self, Failure> {
        let orders = args.desk.read();
        let (machine, effects) = Machine::start(
            ctx.now(),
            Arc::clone(&orders.object),
            args.desk.recorded(),
            orders.provider.clone(),
            args.installation.clone(),
            Arc::clone(&args.settings),
            rand::random(),
        );
        let mut actor = Self { args, machine, orders, call: None, writing: None, finalizer: None, timer: None, prober: None };
        actor.reconcile(ctx, "Started", effects);
        let place = actor.orders.place.clone();
        let down = actor.orders.provider_down;
        actor.step(ctx, Input::ProviderDown(down));
        actor.step(ctx, Input::Place(place));
        ctx.tell(ProxyInternal::Started);
        Ok(actor)
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProxyMessage) -> Result<(), Failure> {
        match message {
            ProxyMessage::Wake => self.look(ctx),
            ProxyMessage::Probed { report } => {
                // A prober that crashed before it read its last orders goes by the ones before.
                if let (Some(prober), Some(target)) = (&self.prober, self.machine.probed_target())
                    && target.epoch != report.epoch
                {
                    let _ = prober.send(ProberMessage::Configure { target: Arc::clone(target) });
                }
                let (passed, object) = (report.outcome.passed(), &self.orders.object);
                if passed {
                    let (key, uid) = (object.key.clone(), object.uid.clone());
                    self.tell_broker(ctx, BrokerMessage::ProbePassed { key, uid });
                }
                self.step(ctx, Input::Probed(report));
            }
            ProxyMessage::ProbeNow => {
                if let Some(prober) = &self.prober {
                    // A prober that is down probes at once when it is back.
                    let _ = prober.send(ProberMessage::Urgent);
                }
            }
            ProxyMessage::Drained { by } => self.step(ctx, Input::Drained(by)),
            ProxyMessage::CheckUrl { suspicion } => self.step(ctx, Input::CheckUrl(suspicion)),
            ProxyMessage::EgressShared { other, address } => {
                let note = format!("targets see {address}, as they do for {other}");
                self.announce(ctx, EventReason::EgressShared, note);
            }
            ProxyMessage::Explain { reply_to } => {
                let _ = reply_to.send(self.machine.explain(ctx.now()));
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: ProxyInternal) -> Result<(), Failure> {
        let input = match message {
            ProxyInternal::Started => {
                self.look(ctx);
                return Ok(());
            }
            ProxyInternal::Happened(input) => *input,
        };
        match &input {
            Input::Answered { epoch, .. } => {
                self.call.take_if(|call| call.epoch == *epoch);
            }
            Input::StatusWritten { epoch, result } => {
                if let Some((_, status, _)) = self.writing.take_if(|(writing, ..)| writing == epoch)
                    && result.is_ok()
                {
                    // Before anything is done that relies on it.
                    self.args.desk.record(status);
                }
            }
            Input::FinalizerWritten(_) => self.finalizer = None,
            Input::TimerDue => self.timer = None,
            Input::Object(_)
            | Input::Progress { .. }
            | Input::Probed(_)
            | Input::CheckUrl(_)
            | Input::Provider(_)
            | Input::ProviderDown(_)
            | Input::CapacityFreed
            | Input::Place(_)
            | Input::Drained(_)
            | Input::Republish => {}
        }
        self.step(ctx, input);
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        self.machine.summary()
    }

    async fn stopping(&mut self, ctx: &Context<Self>) {
        // The directory has withdrawn it already, but a last word of ours may have come after that.
        if self.args.desk.is_dismissed() {
            let object = &self.orders.object;
            self.tell_broker(ctx, BrokerMessage::Withdraw { key: object.key.clone(), uid: object.uid.clone() });
        }
    }
}

impl ProxyActor {
    /// Takes in what changed on the desk.
    fn look(&mut self, ctx: &Context<Self>) {
        let orders = self.args.desk.read();
        let last = std::mem::replace(&mut self.orders, Arc::clone(&orders));
        if !Arc::ptr_eq(&last.object, &orders.object) && last.object != orders.object {
            self.step(ctx, Input::Object(Arc::clone(&orders.object)));
        }
        if last.provider != orders.provider {
            self.step(ctx, Input::Provider(orders.provider.clone()));
        }
        if last.provider_down != orders.provider_down {
            self.step(ctx, Input::ProviderDown(orders.provider_down));
        }
        if last.place != orders.place {
            self.step(ctx, Input::Place(orders.place.clone()));
        }
        if last.freed != orders.freed {
            self.step(ctx, Input::CapacityFreed);
        }
        if last.republish != orders.republish {
            self.step(ctx, Input::Republish);
        }
    }

    fn step(&mut self, ctx: &Context<Self>, input: Input) {
        let event = input.kind();
        let effects = self.machine.step(ctx.now(), input);
        self.reconcile(ctx, event, effects);
    }

    /// Performs what a step decided, below a span of its own when that does something (OB-3). A provider call of it is the
    /// span's child, so that the span ends with the call.
    fn reconcile(&mut self, ctx: &Context<Self>, event: &'static str, effects: Vec<Effect>) {
        if !effects.iter().any(Effect::acts) {
            return self.perform(ctx, effects);
        }
        let object = &self.orders.object;
        let span = tracing::info_span!(
            target: "otel", parent: None, "proxy.reconcile",
            otel.kind = "internal", proxy = %object.key, provider.name = object.spec.provider.as_deref(), proxy.event = event,
        );
        span.in_scope(|| self.perform(ctx, effects));
    }

    fn perform(&mut self, ctx: &Context<Self>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Call { epoch, call } => self.start_call(ctx, epoch, call),
                Effect::Cancel { epoch } => {
                    if let Some(call) = self.call.as_ref().filter(|call| call.epoch == epoch) {
                        call.cancel.cancel();
                    }
                }
                Effect::WriteStatus { epoch, status } => self.write_status(ctx, epoch, status),
                Effect::AddFinalizer => self.write_finalizer(ctx, true),
                Effect::RemoveFinalizer => self.write_finalizer(ctx, false),
                Effect::Probe(target) => self.probe(ctx, target),
                Effect::StopProber => {
                    self.prober = None;
                    ctx.stop_child(&prober::actor_id(&self.key()));
                }
                Effect::Publish(proxy) => self.tell_broker(ctx, BrokerMessage::Publish { proxy }),
                Effect::Announce { reason, note } => self.announce(ctx, reason, note),
                Effect::Foreign { owner } => tracing::warn!(
                    proxy = %self.key(), owner, installation = %self.args.installation,
                    "WARNING: this Proxy belongs to another installation and is left alone; limit each operator to its own \
                     namespace, or clear status.installation to take it over"
                ),
                Effect::Member(member) => {
                    self.args.desk.set_member(member);
                    // A directory that is down reads the desk when it is back, with a new actor for it.
                    let directory = ctx.system().address::<ProxiesMessage>(proxies::ACTOR_ID);
                    let _ = directory.send(ProxiesMessage::MemberChanged { key: self.key() });
                }
                Effect::SetTimer(at) => {
                    self.timer = at.map(|at| ctx.after(at.since(ctx.now()), happened(Input::TimerDue)));
                }
            }
        }
    }

    fn probe(&mut self, ctx: &Context<Self>, target: Arc<ProbeTarget>) {
        match &self.prober {
            Some(prober) if prober.send(ProberMessage::Configure { target: Arc::clone(&target) }).is_ok() => return,
            // It is down, to come back with its old orders: another one takes its place.
            Some(_) => ctx.stop_child(&prober::actor_id(&target.key)),
            None => {}
        }
        self.prober = Some((self.args.prober)(ctx, target));
    }

    fn key(&self) -> ObjectKey {
        self.orders.object.key.clone()
    }

    /// A broker that is down asks for everything when it is back.
    fn tell_broker(&self, ctx: &Context<Self>, message: BrokerMessage) {
        let _ = ctx.system().address::<BrokerMessage>(BROKER_ID).send(message);
    }

    fn start_call(&mut self, ctx: &Context<Self>, epoch: u64, call: Call) {
        let op = call.op();
        let entry = self.orders.object.spec.provider.clone().unwrap_or_default();
        let provider = ctx.system().address::<ProviderMessage>(&provider::actor_id(&entry));
        let cancel = ctx.cancelled().child_token();
        let (progress, mut texts) = Progress::channel();
        let context = CallContext { progress, ..CallContext::new(op, cancel.clone()) };
        let guard = cancel.clone().drop_guard();
        let me = ctx.clone();
        let task = ctx.spawn(async move {
            let _guard = guard;
            let asked = ask(&provider, call, context);
            tokio::pin!(asked);
            let answer = loop {
                tokio::select! {
                    answer = &mut asked => break answer,
                    Ok(()) = texts.changed() => {
                        let text = texts.borrow_and_update().clone();
                        if let Some(text) = text {
                            me.tell(happened(Input::Progress { epoch, text }));
                        }
                    }
                }
            };
            let answer = answer.unwrap_or_else(|error| Answer::lost(op, &format!("provider/{entry}: {error}")));
            happened(Input::Answered { epoch, answer })
        });
        self.call = Some(RunningCall { epoch, cancel, _task: task });
    }

    fn write_status(&mut self, ctx: &Context<Self>, epoch: u64, status: Arc<ProxyStatus>) {
        let source = ctx.system().address::<SourceMessage>(source::ACTOR_ID);
        let (key, uid, written) = (self.key(), self.orders.object.uid.clone(), Arc::clone(&status));
        let span = Span::current();
        let task = ctx.spawn(async move {
            let asked = source.call(WRITE_TIMEOUT, |reply_to| SourceMessage::WriteStatus { key, uid, status: written, span, reply_to });
            happened(Input::StatusWritten { epoch, result: asked.await.unwrap_or_else(unavailable) })
        });
        self.writing = Some((epoch, status, task));
    }

    fn write_finalizer(&mut self, ctx: &Context<Self>, add: bool) {
        let source = ctx.system().address::<SourceMessage>(source::ACTOR_ID);
        let (key, uid, span) = (self.key(), self.orders.object.uid.clone(), Span::current());
        self.finalizer = Some(ctx.spawn(async move {
            let asked = source.call(WRITE_TIMEOUT, |reply_to| match add {
                true => SourceMessage::AddFinalizer { key, uid, span, reply_to },
                false => SourceMessage::RemoveFinalizer { key, uid, span, reply_to },
            });
            happened(Input::FinalizerWritten(asked.await.unwrap_or_else(unavailable)))
        }));
    }

    /// The log line of a transition (OB-2) and its Event (OP-9).
    fn announce(&self, ctx: &Context<Self>, reason: EventReason, note: String) {
        let object = &self.orders.object;
        let (proxy, provider, detail) = (&object.key, object.spec.provider.as_deref(), note.as_str());
        match reason {
            EventReason::Created => tracing::info!(%proxy, provider, detail, "proxy created"),
            EventReason::Running => tracing::info!(%proxy, provider, detail, "proxy running"),
            EventReason::Replacing => tracing::info!(%proxy, provider, detail, "proxy replaced"),
            EventReason::Failed => tracing::info!(%proxy, provider, detail, "proxy failed"),
            EventReason::Deleted => tracing::info!(%proxy, provider, detail, "proxy deleted"),
            EventReason::Unhealthy => tracing::info!(%proxy, provider, detail, "proxy unhealthy"),
            EventReason::Recovered => tracing::info!(%proxy, provider, detail, "proxy recovered"),
            EventReason::Paused => tracing::info!(%proxy, provider, detail, "proxy paused"),
            EventReason::CleanupSkipped => {
                tracing::warn!(%proxy, provider, detail, "WARNING: proxy released without cleaning up, what is left is not ours any more");
            }
            // Said by others: the judge, the lease broker.
            EventReason::CheckUrlSuspect
            | EventReason::EgressShared
            | EventReason::Cordoned
            | EventReason::Uncordoned
            | EventReason::Draining => {}
        }
        let event = ProxyEvent { key: object.key.clone(), uid: object.uid.clone(), reason, note, at: ctx.now() };
        let _ = ctx.system().address::<SourceMessage>(source::ACTOR_ID).send(SourceMessage::Publish { event });
    }
}

fn happened(input: Input) -> ProxyInternal {
    ProxyInternal::Happened(Box::new(input))
}

fn unavailable<T>(error: AddressError) -> Result<T, SourceError> {
    Err(SourceError::Unavailable(error.to_string()))
}

/// One provider call. The provider answers within its deadline whatever its backend does; the timeout is for one that
/// does not.
async fn ask(provider: &Address<ProviderMessage>, call: Call, context: CallContext) -> Result<Answer, AddressError> {
    let slack = if call.op() == Op::Create { CALL_SLACK } else { WRITE_TIMEOUT };
    let timeout = context.deadline + slack;
    match call {
        Call::Create(request) => {
            let asked = provider.call(timeout, |reply_to| ProviderMessage::Create { request, call: context, reply_to });
            Ok(Answer::Created(asked.await?.map_err(Into::into)))
        }
        Call::Get(key) => {
            let asked = provider.call(timeout, |reply_to| ProviderMessage::Get { key, call: context, reply_to });
            Ok(Answer::Got(asked.await?.map_err(Into::into)))
        }
        Call::Delete(key) => {
            let asked = provider.call(timeout, |reply_to| ProviderMessage::Delete { key, call: context, reply_to });
            Ok(Answer::Deleted(asked.await?.map_err(Into::into)))
        }
    }
}

impl std::fmt::Debug for ProxyActor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyActor").field("key", &self.orders.object.key).finish_non_exhaustive()
    }
}
