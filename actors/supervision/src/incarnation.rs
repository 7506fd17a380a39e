//! One life of an actor: from `start` to its end, with its mailbox and the runners of its children.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use egress_protocol::message::Message;
use egress_protocol::metrics::Kind;
use futures::FutureExt;
use futures::future::BoxFuture;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::context::{Context, Inner, Mailbox};
use crate::inspect::ActorStatus;
use crate::{Actor, Failure, TASK_GRACE};

/// How many messages are handled before children and stop are looked at again.
const BATCH: usize = 32;

/// What a mailbox holds.
pub(crate) enum Envelope<A: Actor> {
    Public(A::Message),
    Internal(A::Internal),
    Describe(oneshot::Sender<Value>),
    Crash,
    TaskPanicked(String),
    ChildGivenUp { child: String, reason: Option<String> },
}

/// What an actor asks of its own shell.
pub(crate) enum Command {
    Start(Start),
    Stop { id: String },
}

/// A child to run.
pub(crate) struct Start {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    /// Told of the first attempt's outcome.
    pub(crate) started: Option<oneshot::Sender<Result<(), String>>>,
    pub(crate) run: Run,
}

/// A runner, still to be given its stop token and whom to tell of the first attempt.
pub(crate) type Run = Box<dyn FnOnce(CancellationToken, Option<oneshot::Sender<Result<(), String>>>) -> BoxFuture<'static, End> + Send>;

/// How a life, or a runner, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// As asked.
    Stopped,
    /// With a reason: a panic's text, a failure, a kill.
    Crashed(String),
}

struct Child {
    kind: &'static str,
    order: u64,
    stop: CancellationToken,
}

/// The runners of an incarnation's children. Dropping it aborts them, and through them the whole subtree.
#[derive(Default)]
struct Children {
    runners: JoinSet<(u64, String, End)>,
    by_id: HashMap<String, Child>,
    next: u64,
}

impl Children {
    fn command(&mut self, command: Command) {
        match command {
            Command::Start(start) => self.start(start),
            Command::Stop { id } => {
                if let Some(child) = self.by_id.remove(&id) {
                    child.stop.cancel();
                }
            }
        }
    }

    fn start(&mut self, start: Start) {
        if self.by_id.contains_key(&start.id) {
            if let Some(started) = start.started {
                let _ = started.send(Ok(()));
            }
            return;
        }
        let (order, stop) = (self.next, CancellationToken::new());
        self.next += 1;
        let (id, run) = (start.id.clone(), (start.run)(stop.clone(), start.started));
        self.by_id.insert(start.id, Child { kind: start.kind, order, stop });
        self.runners.spawn(async move { (order, id, run.await) });
    }

    /// A runner has ended; a crash is the parent's too.
    fn ended(&mut self, order: u64, id: &str, end: End) -> Result<(), String> {
        if self.by_id.get(id).is_some_and(|child| child.order == order) {
            self.by_id.remove(id);
        }
        match end {
            End::Stopped => Ok(()),
            End::Crashed(reason) => Err(format!("{id}: {reason}")),
        }
    }

    /// Stops all: in reverse order of their start, neighbours of one kind together.
    async fn stop(&mut self) {
        let mut order: Vec<Child> = self.by_id.drain().map(|(_, child)| child).collect();
        order.sort_unstable_by_key(|child| child.order);
        while let Some(last) = order.pop() {
            let mut waiting = std::collections::HashSet::from([last.order]);
            last.stop.cancel();
            while let Some(neighbour) = order.pop_if(|child| child.kind == last.kind) {
                neighbour.stop.cancel();
                waiting.insert(neighbour.order);
            }
            while !waiting.is_empty() {
                let Some(ended) = self.runners.join_next().await else { break };
                if let Ok((order, _, _)) = ended {
                    waiting.remove(&order);
                }
            }
        }
        // What was stopped one by one before may still be on its way out.
        while self.runners.join_next().await.is_some() {}
    }
}

/// Runs one life to its end. Dropping the future is a kill.
pub(crate) async fn live<A: Actor>(
    inner: Arc<Inner<A>>,
    mut mailbox: mpsc::UnboundedReceiver<Envelope<A>>,
    mut commands: mpsc::UnboundedReceiver<Command>,
    args: A::Args,
    stop: CancellationToken,
    started: impl FnOnce(Result<(), String>),
) -> End {
    let ctx = Context { inner: Arc::clone(&inner) };
    let _ending = Ending(Arc::clone(&inner));
    let mut children = Children::default();

    let actor = {
        let mut starting = Box::pin(AssertUnwindSafe(A::start(&ctx, args)).catch_unwind());
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => { started(Err("stopped while it started".to_owned())); return End::Stopped; }
                Some(command) = commands.recv() => children.command(command),
                Some(ended) = children.runners.join_next() => {
                    if let Ok((order, id, end)) = ended && let Err(reason) = children.ended(order, &id, end) {
                        started(Err(reason.clone()));
                        return End::Crashed(reason);
                    }
                }
                result = &mut starting => break match result {
                    Ok(result) => result.map_err(|Failure(reason)| reason),
                    Err(panic) => Err(panic_text(panic.as_ref())),
                },
            }
        }
    };
    let mut actor = match actor {
        Ok(actor) => actor,
        Err(reason) => {
            started(Err(reason.clone()));
            return End::Crashed(reason);
        }
    };

    inner.cell.face.set_status(ActorStatus::Running, ctx.now());
    inner.cell.face.probe.store(Some(Arc::new(Box::new(Mailbox(Arc::clone(&inner))))));
    inner.cell.inbox.store(Some(Arc::new(Box::new(Mailbox(Arc::clone(&inner))))));
    started(Ok(()));

    let durations = ctx.metrics().actor_handle_duration.get_or_create_owned(&Kind { kind: A::KIND });
    let mut batch = Vec::with_capacity(1);
    let end = loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break End::Stopped,
            Some(command) = commands.recv() => children.command(command),
            Some(ended) = children.runners.join_next() => {
                if let Ok((order, id, end)) = ended && let Err(reason) = children.ended(order, &id, end) {
                    break End::Crashed(reason);
                }
            }
            _ = mailbox.recv_many(&mut batch, BATCH) => {
                let outcome = batch.drain(..).try_for_each(|envelope| handle_one(&mut actor, &ctx, envelope, &durations));
                if let Err(reason) = outcome {
                    break End::Crashed(reason);
                }
            }
        }
    };

    inner.cell.inbox.store(None);
    inner.cell.face.probe.store(None);
    if end == End::Stopped {
        inner.cell.face.set_status(ActorStatus::Stopping, ctx.now());
        children.stop().await;
        inner.cancelled.cancel();
        actor.stopping(&ctx).await;
        inner.tasks.close();
        let _ = tokio::time::timeout(TASK_GRACE, inner.tasks.wait()).await;
    }
    end
}

/// Whatever way a life ends, nobody can reach it any more and its tasks end with it.
struct Ending<A: Actor>(Arc<Inner<A>>);

impl<A: Actor> Drop for Ending<A> {
    fn drop(&mut self) {
        self.0.cell.inbox.store(None);
        self.0.cell.face.probe.store(None);
        self.0.cancelled.cancel();
        self.0.aborted.cancel();
    }
}

fn handle_one<A: Actor>(actor: &mut A, ctx: &Context<A>, envelope: Envelope<A>, durations: &Histogram) -> Result<(), String> {
    let face = &ctx.inner.cell.face;
    face.taken();
    let kind = match &envelope {
        Envelope::Public(message) => message.kind(),
        Envelope::Internal(message) => message.kind(),
        Envelope::Describe(_) => "Describe",
        Envelope::Crash => "Crash",
        Envelope::TaskPanicked(_) => "TaskPanicked",
        Envelope::ChildGivenUp { .. } => "ChildGivenUp",
    };
    let begun = tokio::time::Instant::now();
    let since = ctx.now();
    face.update(|words| words.handling = Some((kind, since)));
    let result = catch_unwind(AssertUnwindSafe(|| match envelope {
        Envelope::Public(message) => actor.handle(ctx, message),
        Envelope::Internal(message) => actor.handle_internal(ctx, message),
        Envelope::Describe(reply) => {
            face.asked.store(0, std::sync::atomic::Ordering::SeqCst);
            let _ = reply.send(actor.describe());
            Ok(())
        }
        Envelope::Crash => provoked(),
        Envelope::TaskPanicked(text) => Err(Failure(format!("a task panicked: {text}"))),
        Envelope::ChildGivenUp { child, reason } => {
            actor.child_given_up(ctx, &child, reason.as_deref());
            Ok(())
        }
    }));
    durations.observe(begun.elapsed().as_secs_f64());
    face.update(|words| words.handling = None);
    match result {
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
