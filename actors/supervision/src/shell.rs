//! The ractor actor that is one life of an actor of ours: from `start` to its end.
//!
//! `start` runs in the shell's own task for as long as it does not wait, and else in a task beside it, so that the shell
//! hears of children that end, of stops and of kills meanwhile. What comes for the actor before its state is there is kept.

use std::any::Any;
use std::future::{Future, ready};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use egress_protocol::message::Message;
use egress_protocol::metrics::Kind;
use futures::FutureExt;
use prometheus_client::metrics::histogram::Histogram;
use ractor::{ActorProcessingErr, ActorRef, ActorStatus as Phase, SupervisionEvent};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::batch::{Batch, Next};
use crate::children::{Children, Parent, Started};
use crate::context::Context;
use crate::envelope::Envelope;
use crate::inner::Inner;
use crate::inspect::ActorStatus;
use crate::{Actor, Failure};

/// An actor that has much to do lets others run after this long: where two actors keep both cores busy, everything else waits
/// for one of them (docs/performance.md, leases that expire). tokio's own budget does the same after some hundred messages.
const SLICE: Duration = Duration::from_micros(100);

/// What ractor runs. All it knows is in the [`Life`].
pub(crate) struct Shell<A>(PhantomData<fn() -> A>);

impl<A> Default for Shell<A> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

/// One life. Dropping it ends it as a kill does.
pub(crate) struct Life<A: Actor> {
    ctx: Context<A>,
    /// None while it starts.
    actor: Option<A>,
    starting: Option<Box<Starting<A>>>,
    /// Made for the first child.
    children: Option<Box<Children>>,
    durations: Histogram,
    /// When this stretch of work began.
    busy_since: Option<Instant>,
    batch: Batch,
    stop_timeout: Duration,
}

/// What only a life that starts needs.
struct Starting<A: Actor> {
    args: Option<A::Args>,
    task: Option<AbortOnDropHandle<()>>,
    /// What came for the actor meanwhile.
    early: Vec<Envelope<A>>,
    started: Started,
    back: Option<Weak<dyn Parent>>,
}

/// What is left to do when a handler has returned.
enum Then<A: Actor> {
    Nothing,
    GiveWay,
    /// Others run before the batch ends.
    Batch,
    /// Something for the shell that may wait.
    Shell(Box<Envelope<A>>),
    Crash(String),
}

impl<A: Actor> ractor::Actor for Shell<A> {
    type Msg = Envelope<A>;
    /// None when it has ended: ractor hands what is left to the supervisor, and the state must not be dropped there.
    type State = Option<Box<Life<A>>>;
    type Arguments = Box<Life<A>>;

    async fn pre_start(&self, me: ActorRef<Envelope<A>>, life: Box<Life<A>>) -> Result<Self::State, ActorProcessingErr> {
        life.ctx.inner.born(me.into());
        Ok(Some(life))
    }

    async fn post_start(&self, _: ActorRef<Envelope<A>>, state: &mut Self::State) -> Result<(), ActorProcessingErr> {
        let begun = state.as_mut().map_or(Ok(()), |life| life.start());
        begun.map_err(|reason| crashed(state, reason))
    }

    // Not an `async fn`: the message would be kept in the future, and every idle actor keeps room for that.
    fn handle(
        &self,
        me: ActorRef<Envelope<A>>,
        envelope: Envelope<A>,
        state: &mut Self::State,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        let then = match state {
            // Asked to stop: what waits is dropped, and its askers know.
            Some(_) if me.get_status() >= Phase::Draining => Then::Nothing,
            Some(life) => life.receive(envelope),
            None => Then::Nothing,
        };
        async move {
            let result = match (then, state.as_mut()) {
                (Then::GiveWay, _) => {
                    tokio::task::yield_now().await;
                    Ok(())
                }
                (Then::Batch, Some(life)) => {
                    tokio::task::yield_now().await;
                    life.others_ran()
                }
                (Then::Shell(envelope), Some(life)) => Box::pin(life.serve(*envelope, me)).await,
                (Then::Crash(reason), _) => Err(reason),
                (Then::Nothing | Then::Batch | Then::Shell(_), _) => Ok(()),
            };
            result.map_err(|reason| crashed(state, reason))
        }
    }

    fn handle_supervisor_evt(
        &self,
        me: ActorRef<Envelope<A>>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> impl Future<Output = Result<(), ActorProcessingErr>> + Send {
        let stopping = me.get_status() >= Phase::Draining;
        let children = state.as_mut().and_then(|life| life.children.as_mut());
        let heard = children.map_or(Ok(()), |children| children.hear(event, stopping));
        ready(heard.map_err(|crash| crashed(state, crash.to_string())))
    }

    async fn post_stop(&self, _: ActorRef<Envelope<A>>, state: &mut Self::State) -> Result<(), ActorProcessingErr> {
        if let Some(life) = state.take() {
            life.stop().await;
        }
        Ok(())
    }
}

/// Ends the life before ractor tells the supervisor of it.
fn crashed<A: Actor>(state: &mut Option<Box<Life<A>>>, reason: String) -> ActorProcessingErr {
    state.take().and_then(|mut life| life.end()).unwrap_or(reason).into()
}

impl<A: Actor> Life<A> {
    pub(crate) fn new(
        inner: Arc<Inner<A>>,
        args: A::Args,
        stop_timeout: Duration,
        started: Started,
        back: Option<Weak<dyn Parent>>,
    ) -> Self {
        let durations = inner.system.metrics().actor_handle_duration.get_or_create_owned(&Kind { kind: A::KIND });
        Self {
            ctx: Context { inner },
            actor: None,
            starting: Some(Box::new(Starting { args: Some(args), task: None, early: Vec::new(), started, back })),
            children: None,
            durations,
            busy_since: None,
            batch: Batch::default(),
            stop_timeout,
        }
    }

    /// Begins to build the state.
    #[expect(clippy::disallowed_methods, reason = "the start of a life; its handle is kept")]
    fn start(&mut self) -> Result<(), String> {
        let Some(starting) = &mut self.starting else { return Ok(()) };
        let Some(args) = starting.args.take() else { return Ok(()) };
        let ctx = self.ctx.clone();
        let start = AssertUnwindSafe(async move { A::start(&ctx, args).await }).catch_unwind();
        let mut start = Box::pin(start.map(|result| match result {
            Ok(result) => result.map_err(|Failure(reason)| reason),
            Err(panic) => Err(panic_text(panic.as_ref())),
        }));
        if let Some(result) = start.as_mut().now_or_never() {
            return self.started(result).map(drop);
        }
        let inner = Arc::clone(&self.ctx.inner);
        starting.task = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let result = start.await;
            inner.post(Envelope::Started(Box::new(result)));
        })));
        Ok(())
    }

    /// It runs, or cannot. Gives what came for the actor meanwhile.
    fn started(&mut self, result: Result<A, String>) -> Result<Vec<Envelope<A>>, String> {
        let Some(starting) = self.starting.take() else { return Ok(Vec::new()) };
        let Starting { early, started, back, .. } = *starting;
        let inner = &self.ctx.inner;
        let outcome = result.map(|actor| {
            self.actor = Some(actor);
            inner.cell.face.set_status(ActorStatus::Running, self.ctx.now());
            inner.open();
            if let Some(parent) = back.and_then(|parent| parent.upgrade()) {
                parent.child_given_up(Arc::clone(&inner.cell.face.id), None);
            }
        });
        if let Some(started) = started {
            let _ = started.send(outcome.clone());
        }
        outcome.map(|()| early)
    }

    /// What can be done at once.
    fn receive(&mut self, envelope: Envelope<A>) -> Then<A> {
        if self.ctx.inner.is_killed() {
            return Then::Crash("killed".to_owned());
        }
        if !envelope.is_message() {
            return Then::Shell(Box::new(envelope));
        }
        if let Some(starting) = &mut self.starting {
            starting.early.push(envelope);
            return Then::Nothing;
        }
        self.message(envelope).unwrap_or_else(Then::Crash)
    }

    /// What is not for the actor.
    async fn serve(&mut self, envelope: Envelope<A>, me: ActorRef<Envelope<A>>) -> Result<(), String> {
        match envelope {
            Envelope::Order(order) => {
                let inner = &self.ctx.inner;
                let parent = || Arc::downgrade(inner) as Weak<dyn Parent>;
                let children = self.children.get_or_insert_with(|| Box::new(Children::new(parent())));
                children.take(order, me.into()).await.map_err(|crash| crash.to_string())
            }
            Envelope::Started(result) => {
                for envelope in self.started(*result)? {
                    if me.get_status() >= Phase::Draining {
                        break;
                    }
                    if self.ctx.inner.is_killed() {
                        return Err("killed".to_owned());
                    }
                    match self.message(envelope)? {
                        Then::GiveWay => tokio::task::yield_now().await,
                        Then::Batch => self.batch_done()?,
                        Then::Nothing | Then::Shell(_) | Then::Crash(_) => {}
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Handles one message.
    fn message(&mut self, envelope: Envelope<A>) -> Result<Then<A>, String> {
        let Some(actor) = &mut self.actor else { return Ok(Then::Nothing) };
        let inner = &self.ctx.inner;
        if let Envelope::ChildGivenUp(news) = &envelope
            && news.reason.is_none()
            && let Some(children) = &mut self.children
        {
            children.is_back(&news.child);
        }
        let begun = Instant::now();
        inner.took();
        handle(actor, &self.ctx, envelope, begun)?;
        let done = Instant::now();
        self.durations.observe((done - begun).as_secs_f64());
        let waiting = inner.depth();
        let is_long = done - *self.busy_since.get_or_insert(begun) > SLICE;
        if waiting == 0 || is_long {
            inner.set_handling(None);
            self.busy_since = None;
        }
        if A::BATCH > 0 {
            match self.batch.handled(waiting, A::BATCH) {
                Next::On => {}
                Next::GiveWay => return Ok(Then::Batch),
                Next::End => self.batch_done()?,
            }
        }
        Ok(if is_long && waiting > 0 { Then::GiveWay } else { Then::Nothing })
    }

    /// After others had their turn.
    fn others_ran(&mut self) -> Result<(), String> {
        if self.batch.goes_on(self.ctx.inner.depth()) { Ok(()) } else { self.batch_done() }
    }

    fn batch_done(&mut self) -> Result<(), String> {
        self.batch.end();
        let Some(actor) = &mut self.actor else { return Ok(()) };
        caught(|| actor.batch_done(&self.ctx))
    }

    /// An orderly end: children, tasks, `stopping`.
    async fn stop(mut self: Box<Self>) {
        let inner = Arc::clone(&self.ctx.inner);
        if let Some(mut starting) = self.starting.take() {
            if let Some(started) = starting.started.take() {
                let _ = started.send(Err("stopped while it started".to_owned()));
            }
            if let Some(task) = starting.task.take() {
                task.abort();
                let _ = task.await;
            }
        }
        inner.close();
        inner.cell.face.set_status(ActorStatus::Stopping, self.ctx.now());
        if self.batch.is_open()
            && let Err(reason) = self.batch_done()
        {
            tracing::warn!(actor = self.ctx.id(), reason, "WARNING: an actor could not end its last work when it stopped");
        }
        if let Some(children) = &mut self.children {
            children.stop().await;
        }
        inner.cancelled().cancel();
        let own = async {
            if let Some(actor) = &mut self.actor {
                actor.stopping(&self.ctx).await;
            }
            inner.grace().await;
        };
        if tokio::time::timeout(self.stop_timeout, own).await.is_err() {
            tracing::warn!(actor = self.ctx.id(), "WARNING: an actor did not stop in time and was ended");
        }
    }

    /// Whatever way it ends, the state is dropped here, the children are killed, nobody can reach it any more and its tasks end
    /// with it. The text of the panic, when the state's own end goes wrong.
    fn end(&mut self) -> Option<String> {
        let actor = self.actor.take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(actor)));
        self.ctx.inner.end();
        dropped.err().map(|panic| panic_text(panic.as_ref()))
    }
}

impl<A: Actor> Drop for Life<A> {
    fn drop(&mut self) {
        self.end();
    }
}

fn handle<A: Actor>(actor: &mut A, ctx: &Context<A>, envelope: Envelope<A>, begun: Instant) -> Result<(), String> {
    let kind = match &envelope {
        Envelope::Public(message) => message.kind(),
        Envelope::Internal(message) => message.kind(),
        Envelope::Describe(_) => "Describe",
        Envelope::Crash => "Crash",
        Envelope::TaskPanicked(_) => "TaskPanicked",
        Envelope::ChildGivenUp(_) => "ChildGivenUp",
        Envelope::Killed | Envelope::Started(_) | Envelope::Order(_) => return Ok(()),
    };
    ctx.inner.set_handling(Some((kind, begun)));
    caught(|| match envelope {
        Envelope::Public(message) => actor.handle(ctx, message),
        Envelope::Internal(message) => actor.handle_internal(ctx, message),
        Envelope::Describe(reply) => {
            ctx.inner.asked.store(false, Ordering::SeqCst);
            let _ = reply.send(actor.describe());
            Ok(())
        }
        Envelope::Crash => provoked(),
        Envelope::TaskPanicked(text) => Err(Failure(format!("a task panicked: {text}"))),
        Envelope::ChildGivenUp(news) => {
            actor.child_given_up(ctx, &news.child, news.reason.as_deref());
            Ok(())
        }
        Envelope::Killed | Envelope::Started(_) | Envelope::Order(_) => Ok(()),
    })
}

/// Why an actor can go on no longer, whichever way it says so.
fn caught(work: impl FnOnce() -> Result<(), Failure>) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Failure(reason))) => Err(reason),
        Err(panic) => Err(panic_text(panic.as_ref())),
    }
}

#[expect(clippy::panic, reason = "the test hook of System::crash")]
fn provoked() -> Result<(), Failure> {
    panic!("made to panic by a test")
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
