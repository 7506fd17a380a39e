//! `provider/<entry>`: one configured provider.
//!
//! Role: every call of the contract goes through here and is answered exactly once, in time whatever the backend does
//! (PC-64). Supervised by `providers`; supervises the hosts that its backend starts (PC-99). Receives [`ProviderMessage`]; sends
//! [`ProxiesMessage::CapacityFreed`] to `proxies`. State: the queue, the calls under way, the last failure. A call waits
//! (for its name, then for a slot), runs as a task, and is answered by whichever is first: the backend, the caller's
//! cancellation, the deadline. Failure policy: a panic in a backend call is that call's Transient error (PC-8); a crash of
//! the actor drops its replies (callers ask again) and builds the backend anew, from what the backend itself knows.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::leadership::Fence;
use egress_protocol::message::{Message, Reply};
use egress_protocol::metrics::ProviderRequest;
use egress_protocol::provider::{
    CallContext, DeleteOutcome, ErrorClass, Op, ProviderError, ProviderFault, ProviderMessage, ProviderSummary, TargetVerdict,
};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_supervision::{Actor, Context, Failure};
use serde_json::json;
use tokio::time::Instant;
use tracing::{Instrument, Span, field};

use crate::backend::CallEnd;
use crate::call::{About, Job, Outcome, Pending, Waiter};
use crate::queue::{CallId, Limits, Queue, Stage};
use crate::{Backend, BackendError, Call, Ground};

/// Builds the backend on its ground, for each incarnation of the actor. It neither dials nor panics (PC-73); an error counts
/// as a crash.
pub type BuildBackend = Arc<dyn Fn(&Ground) -> Result<Arc<dyn Backend>, Failure> + Send + Sync>;

/// What the actor is started from.
#[derive(Clone)]
pub struct ProviderArgs {
    /// The configured name.
    pub name: Arc<str>,
    /// `maxConcurrentCreates`, per location.
    pub max_concurrent_creates: usize,
    /// How long running traffic may end on an orderly stop (OP-5).
    pub stop_grace: Duration,
    /// Closed: no call starts (SV-4).
    pub fence: Fence,
    /// Makes the backend.
    pub build: BuildBackend,
}

impl fmt::Debug for ProviderArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderArgs").field("name", &self.name).finish_non_exhaustive()
    }
}

/// See the module.
pub struct ProviderActor {
    name: Arc<str>,
    backend: Arc<dyn Backend>,
    stop_grace: Duration,
    fence: Fence,
    queue: Queue,
    calls: HashMap<CallId, Pending>,
    next: CallId,
    last_error: Option<ProviderFault>,
    /// A create was refused for quota since capacity was last freed.
    short: bool,
    /// Hosts that were given up for a while, with the reason.
    hosts_given_up: BTreeMap<String, String>,
}

/// What the actor tells itself.
#[derive(Debug)]
pub enum ProviderInternal {
    /// The backend brought back what it had.
    #[doc(hidden)]
    Started,
    #[doc(hidden)]
    Ended(CallEnded),
    #[doc(hidden)]
    Due(CallDue),
    #[doc(hidden)]
    Outside(CallOutside),
    #[doc(hidden)]
    Checked,
    #[doc(hidden)]
    TaskEnded,
}

/// A backend call ended.
#[derive(Debug)]
pub struct CallEnded(CallId, Outcome);

/// A call's caller gave up, or its time is over.
#[derive(Debug)]
pub struct CallDue(CallId, CallEnd);

/// A call goes outside, or with a reply wants to come back (PC-100).
#[derive(Debug)]
pub struct CallOutside(CallId, Option<Reply<()>>);

impl ProviderInternal {
    pub(crate) const fn went_outside(id: CallId) -> Self {
        Self::Outside(CallOutside(id, None))
    }

    /// Answered when the call has a slot again.
    pub(crate) const fn wants_back(id: CallId, reply_to: Reply<()>) -> Self {
        Self::Outside(CallOutside(id, Some(reply_to)))
    }
}

impl Message for ProviderInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Ended(_) => "Ended",
            Self::Due(_) => "Due",
            Self::Outside(_) => "Outside",
            Self::Checked => "Checked",
            Self::TaskEnded => "TaskEnded",
        }
    }
}

impl fmt::Debug for ProviderActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderActor").field("name", &self.name).field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl Actor for ProviderActor {
    type Message = ProviderMessage;
    type Internal = ProviderInternal;
    type Args = ProviderArgs;
    const KIND: &'static str = "provider";

    async fn start(ctx: &Context<Self>, args: ProviderArgs) -> Result<Self, Failure> {
        let ground = Ground::new(ctx, Arc::clone(&args.name), args.fence.clone());
        let backend = (args.build)(&ground)?;
        ground.hosts_are_up().await;
        let starting = Arc::clone(&backend);
        let provider = Arc::clone(&args.name);
        ctx.spawn_catching(
            async move {
                starting.start().await;
                ProviderInternal::Started
            },
            move |panic| {
                tracing::error!(%provider, panic, "starting the backend panicked");
                ProviderInternal::Started
            },
        )
        .keep();
        Ok(Self {
            name: args.name,
            backend,
            stop_grace: args.stop_grace,
            fence: args.fence,
            queue: Queue::new(Limits::with_creates(args.max_concurrent_creates.max(1))),
            calls: HashMap::new(),
            next: 0,
            last_error: None,
            short: false,
            hosts_given_up: BTreeMap::new(),
        })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProviderMessage) -> Result<(), Failure> {
        match message {
            ProviderMessage::Create { request, call, reply_to } => {
                self.receive(ctx, Job::Create(request), call, Waiter::Create(reply_to));
            }
            ProviderMessage::Get { key, call, reply_to } => self.receive(ctx, Job::Get(key), call, Waiter::Get(reply_to)),
            ProviderMessage::Delete { key, call, reply_to } => self.receive(ctx, Job::Delete(key), call, Waiter::Delete(reply_to)),
            ProviderMessage::List { call, reply_to } => self.receive(ctx, Job::List, call, Waiter::List(reply_to)),
            ProviderMessage::Check { call, reply_to } => self.check(ctx, call, reply_to),
            ProviderMessage::Describe { reply_to } => {
                let _ = reply_to.send(self.summary());
            }
            ProviderMessage::Reconfigure { settings } => {
                if !self.backend.reconfigure(&settings) {
                    return Err(Failure::new("the backend cannot take its new settings over"));
                }
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: ProviderInternal) -> Result<(), Failure> {
        match message {
            ProviderInternal::Ended(CallEnded(id, outcome)) => {
                self.answer(ctx, id, outcome);
                self.end(ctx, id);
            }
            ProviderInternal::Due(CallDue(id, why)) => self.due(ctx, id, why),
            ProviderInternal::Outside(CallOutside(id, None)) => {
                if let Some(next) = self.queue.go_outside(id) {
                    self.run(ctx, next);
                }
            }
            ProviderInternal::Outside(CallOutside(id, Some(reply_to))) => self.come_back(id, reply_to),
            ProviderInternal::Started | ProviderInternal::Checked | ProviderInternal::TaskEnded => {}
        }
        Ok(())
    }

    fn child_given_up(&mut self, _: &Context<Self>, child: &str, reason: Option<&str>) {
        match reason {
            Some(reason) => drop(self.hosts_given_up.insert(child.to_owned(), reason.to_owned())),
            None => drop(self.hosts_given_up.remove(child)),
        }
    }

    fn describe(&self) -> serde_json::Value {
        let running: Vec<_> = self
            .calls
            .iter()
            .filter(|(id, _)| self.queue.stage(**id) == Some(Stage::Runs))
            .take(20)
            .map(|(_, call)| {
                json!({
                    "op": call.op.as_str(),
                    "instance": call.about.name,
                    "forMillis": u64::try_from(call.received.elapsed().as_millis()).unwrap_or(u64::MAX),
                })
            })
            .collect();
        json!({
            "type": self.backend.type_name(),
            "callsInFlight": self.in_flight(),
            "waiting": self.queue.waiting(),
            "outside": self.queue.outside(),
            "hostsGivenUp": self.hosts_given_up,
            "running": running,
            "lastError": self.last_error,
        })
    }

    async fn stopping(&mut self, _: &Context<Self>) {
        self.backend.stop(self.stop_grace).await;
    }
}

impl ProviderActor {
    /// Not answered yet, waiting ones included.
    fn in_flight(&self) -> usize {
        self.calls.values().filter(|call| call.waiter.is_some()).count()
    }

    fn summary(&self) -> ProviderSummary {
        ProviderSummary {
            name: Arc::clone(&self.name),
            type_: self.backend.type_name(),
            calls_in_flight: self.in_flight(),
            last_error: self.last_error.clone(),
        }
    }

    fn receive(&mut self, ctx: &Context<Self>, job: Job, call: CallContext, waiter: Waiter) {
        let id = self.next;
        self.next += 1;
        let received = Instant::now();
        let (op, about) = (job.op(), job.about());
        let ticket = job.ticket(self.backend.as_ref());
        let refused = refusal(&job);
        let pending = Pending {
            op,
            location: ticket.slot.as_ref().map(|(location, _)| location.clone()),
            waiter: Some(waiter),
            job: Some(job),
            call: Call::until(received + call.deadline)
                .with_cancel(ctx.cancelled().child_token())
                .with_progress(call.progress)
                .with_fence(self.fence.clone())
                .with_slot(ctx.downgrade(), id),
            span: span(op, &self.name, &about, &call.span),
            about,
            received,
            allowed: call.deadline,
            back: None,
            watch: None,
            work: None,
        };
        let seen = pending.call.clone();
        self.calls.insert(id, pending);
        if let Some(error) = refused {
            self.answer(ctx, id, Outcome::Failed(error));
            self.calls.remove(&id);
            return;
        }
        if call.cancel.is_cancelled() {
            self.answer(ctx, id, Outcome::Failed(BackendError::transient("cancelled before it began")));
            self.calls.remove(&id);
            return;
        }
        let caller = call.cancel;
        let watch = ctx.spawn(async move {
            let why = tokio::select! {
                biased;
                () = caller.cancelled() => CallEnd::Cancelled,
                why = seen.ended() => why,
            };
            ProviderInternal::Due(CallDue(id, why))
        });
        if let Some(pending) = self.calls.get_mut(&id) {
            pending.watch = Some(watch);
        }
        if self.queue.arrive(id, ticket) {
            self.run(ctx, id);
        }
    }

    /// A call that waited outside goes on when there is a slot for it.
    fn come_back(&mut self, id: CallId, reply_to: Reply<()>) {
        let runs = self.queue.come_back(id);
        let Some(pending) = self.calls.get_mut(&id) else { return };
        if runs {
            let _ = reply_to.send(());
        } else {
            pending.back = Some(reply_to);
        }
    }

    /// Runs a call that has its name and its slot, unless leadership ended while it waited; or lets it go on.
    fn run(&mut self, ctx: &Context<Self>, id: CallId) {
        let Some(pending) = self.calls.get_mut(&id) else { return };
        if let Some(back) = pending.back.take() {
            let _ = back.send(());
            return;
        }
        let Some(job) = pending.job.take() else { return };
        let (backend, call) = (Arc::clone(&self.backend), pending.call.clone());
        let work = async move {
            let outcome = match call.fence.check() {
                Ok(()) => job.run(backend, call).await,
                Err(fenced) => Outcome::Failed(fenced.into()),
            };
            ProviderInternal::Ended(CallEnded(id, outcome))
        }
        .instrument(pending.span.clone());
        pending.work = Some(ctx.spawn_catching(work, move |panic| {
            ProviderInternal::Ended(CallEnded(id, Outcome::Failed(BackendError::transient(format!("the backend panicked: {panic}")))))
        }));
    }

    /// Cancelled or out of time: answered now. A create that has begun keeps its name, and its slot if it runs, until it has
    /// cleared up.
    fn due(&mut self, ctx: &Context<Self>, id: CallId, why: CallEnd) {
        let Some(stage) = self.queue.stage(id) else { return };
        let Some(pending) = self.calls.get(&id) else { return };
        let doing = match stage {
            Stage::AwaitsName => "waiting for another call for this instance",
            Stage::AwaitsSlot => "waiting for a free slot",
            Stage::Runs => "the backend was working on it",
            Stage::Outside => "waiting for what it needs",
        };
        let message = match why {
            CallEnd::Cancelled => format!("cancelled while {doing}"),
            CallEnd::Overdue => format!("no answer within {:?} while {doing}", pending.allowed),
        };
        pending.call.cancel.cancel();
        let clears_up = pending.op == Op::Create && pending.job.is_none();
        if clears_up {
            self.queue.stay_outside(id);
        }
        self.answer(ctx, id, Outcome::Failed(BackendError::transient(message)));
        if !clears_up {
            self.end(ctx, id);
        }
    }

    /// The call is over: its task is dropped, what waited for its name or its slot runs.
    fn end(&mut self, ctx: &Context<Self>, id: CallId) {
        self.calls.remove(&id);
        for next in self.queue.leave(id) {
            self.run(ctx, next);
        }
    }

    /// Answers, once; measures; says so.
    fn answer(&mut self, ctx: &Context<Self>, id: CallId, outcome: Outcome) {
        let Some(pending) = self.calls.get_mut(&id) else { return };
        let Some(waiter) = pending.waiter.take() else { return };
        pending.watch = None;
        let (op, about, span) = (pending.op, pending.about.clone(), pending.span.clone());
        let (received, location) = (pending.received, pending.location.clone());
        let freed = matches!(outcome, Outcome::Deleted(DeleteOutcome::Gone));
        let told = waiter.answer(outcome, op, &self.name, &about);
        let result = told.as_ref().map_or_else(|error| error.class.result_label(), |_| "ok");
        span.in_scope(|| {
            if let Ok(Some(id)) = &told {
                span.record("provider.id", id.as_str());
            }
            span.record("provider.result", result);
            // Gone is what a deleted instance is: no failure of the call.
            if let Err(error) = &told
                && error.class != ErrorClass::NotFound
            {
                span.record("otel.status_code", "ERROR");
            }
            let labels = ProviderRequest { provider: self.name.to_string(), op: op.as_str(), result };
            ctx.metrics().provider_requests.get_or_create(&labels).inc();
            let error = told.as_ref().err();
            tracing::debug!(
                provider = %self.name,
                op = op.as_str(),
                instance = about.name.as_ref().map(field::display),
                location = location.as_ref().map(field::display),
                result,
                duration = received.elapsed().as_secs_f64(),
                error = error.map(|error| field::display(&error.message)),
                "provider call"
            );
        });
        if let Err(error) = &told {
            self.remember(ctx, error);
        }
        if freed && std::mem::take(&mut self.short) {
            // Lossy: whoever waits for quota asks again in its own time.
            let proxies = ctx.system().address::<ProxiesMessage>(proxies::ACTOR_ID);
            let _ = proxies.send(ProxiesMessage::CapacityFreed { provider: Arc::clone(&self.name) });
        }
    }

    fn remember(&mut self, ctx: &Context<Self>, error: &ProviderError) {
        match error.class {
            // Gone is what a deleted instance is: no fault.
            ErrorClass::NotFound => return,
            ErrorClass::QuotaExceeded => self.short |= error.op == Op::Create,
            ErrorClass::Transient | ErrorClass::Permanent => {}
        }
        self.last_error = Some(ProviderFault { at: ctx.now(), message: format!("{}: {}", error.op.as_str(), error.message) });
    }

    /// PC-48: beside everything, never counted. A panic, an overdue check or a closed fence drops the reply.
    fn check(&self, ctx: &Context<Self>, call: CallContext, reply_to: Reply<Option<Vec<TargetVerdict>>>) {
        if !self.fence.holds() {
            return;
        }
        let backend = Arc::clone(&self.backend);
        let cancel = ctx.cancelled().child_token();
        let deadline = Instant::now() + call.deadline;
        let seen = Call::until(deadline).with_cancel(cancel.clone()).with_progress(call.progress).with_fence(self.fence.clone());
        let bound = seen.clone();
        let caller = call.cancel;
        let work = async move {
            let overdue = async {
                tokio::select! {
                    () = caller.cancelled() => {}
                    _ = bound.ended() => {}
                }
                cancel.cancel();
                tokio::time::sleep(CHECK_GRACE).await;
            };
            let verdicts = async {
                match backend.check(&seen) {
                    Some(check) => Some(check.await),
                    None => None,
                }
            };
            tokio::select! {
                biased;
                verdicts = verdicts => { let _ = reply_to.send(verdicts); }
                () = overdue => {}
            }
            ProviderInternal::Checked
        };
        ctx.spawn_catching(work, |_| ProviderInternal::Checked).keep();
    }
}

/// What a check that was told to end may still take (PH-28).
const CHECK_GRACE: Duration = Duration::from_secs(1);

/// What is refused before any call (PC-50).
fn refusal(job: &Job) -> Option<BackendError> {
    match job {
        Job::Create(request) if request.uid.as_str().trim().is_empty() => Some(BackendError::permanent("the UID is empty")),
        Job::Get(key) if key.id.is_none() => Some(BackendError::permanent("get needs the id of an instance")),
        Job::Create(_) | Job::Get(_) | Job::Delete(_) | Job::List => None,
    }
}

/// PC-85. The name of a span is part of its type, hence the four.
fn span(op: Op, provider: &Arc<str>, about: &About, parent: &Span) -> Span {
    macro_rules! provider_span {
        ($name:literal) => {
            tracing::info_span!(
                parent: parent,
                $name,
                otel.kind = "client",
                otel.status_code = field::Empty,
                provider.name = %provider,
                provider.id = about.id.as_ref().map(field::display),
                provider.result = field::Empty,
                instance = about.name.as_ref().map(field::display),
            )
        };
    }
    match op {
        Op::Create => provider_span!("provider.create"),
        Op::Get => provider_span!("provider.get"),
        Op::Delete => provider_span!("provider.delete"),
        Op::List => provider_span!("provider.list"),
    }
}
