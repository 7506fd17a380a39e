//! The lives of one actor, one after another: start, restart with backoff, give up or escalate, stop.
//!
//! A runner is a task owned by the parent's incarnation. It never runs two lives at once: the next one starts when the
//! last task of the former has ended, also when the former belonged to a runner of a parent that crashed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use egress_protocol::message::Message;
use egress_protocol::metrics::Kind;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address::Cell;
use crate::context::Inner;
use crate::face::Alive;
use crate::incarnation::{End, Run, live};
use crate::inspect::ActorStatus;
use crate::{Actor, ChildSpec, Decision, OnExhausted, System};

type GivenUp = Arc<dyn Fn(String, Option<String>) + Send + Sync>;
type Started = Option<oneshot::Sender<Result<(), String>>>;

/// How a runner speaks of its parent and to it.
#[derive(Clone)]
pub(crate) struct ParentLink {
    pub(crate) id: Option<Arc<str>>,
    pub(crate) given_up: GivenUp,
}

/// A runner ready to be started.
pub(crate) fn prepare<A: Actor>(system: System, cell: Arc<Cell<A::Message>>, parent: ParentLink, spec: ChildSpec<A>) -> Run {
    Box::new(move |stop, started| Box::pin(run::<A>(system, cell, parent, spec, stop, started)))
}

/// Counts this runner in for as long as it lives, and takes the cell out of the tree with the last one.
struct Serving<M: Message> {
    system: System,
    cell: Arc<Cell<M>>,
}

impl<M: Message> Serving<M> {
    fn new(system: System, cell: Arc<Cell<M>>) -> Self {
        cell.face.runners.fetch_add(1, Ordering::SeqCst);
        Self { system, cell }
    }
}

impl<M: Message> Drop for Serving<M> {
    fn drop(&mut self) {
        if self.cell.face.runners.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.system.forget(&self.cell.face.id);
        }
    }
}

async fn run<A: Actor>(
    system: System,
    cell: Arc<Cell<A::Message>>,
    parent: ParentLink,
    spec: ChildSpec<A>,
    stop: CancellationToken,
    mut started: Started,
) -> End {
    let serving = Serving::new(system.clone(), cell);
    let face = Arc::clone(&serving.cell.face);
    let order = system.next_order();
    face.update(|words| {
        words.kind = A::KIND;
        words.parent = parent.id.clone();
        words.order = order;
    });
    let mut budget = spec.policy.budget.clone();
    let mut given_up = false;
    loop {
        face.set_status(ActorStatus::Starting, system.now());
        let Some(Ok(alive)) = stop.run_until_cancelled(Arc::clone(&face.alive).acquire_owned()).await else { return End::Stopped };
        face.emptied();
        let (mailbox, received) = mpsc::unbounded_channel();
        let (commands, commanded) = mpsc::unbounded_channel();
        let inner = Arc::new(Inner::<A> {
            system: system.clone(),
            cell: Arc::clone(&serving.cell),
            mailbox,
            commands,
            cancelled: CancellationToken::new(),
            aborted: CancellationToken::new(),
            killed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            alive: Arc::new(Alive::new(alive, system.clone(), Arc::clone(&face))),
        });
        let killed = inner.killed.clone();
        let first = started.take();
        let (came_back, parent_told, id) = (given_up, Arc::clone(&parent.given_up), spec.id.clone());
        let tell = move |outcome: Result<(), String>| {
            if came_back && outcome.is_ok() {
                parent_told(id, None);
            }
            if let Some(first) = first {
                let _ = first.send(outcome);
            }
        };
        let life = live::<A>(inner, received, commanded, spec.args.clone(), stop.clone(), tell);
        let end = tokio::select! {
            biased;
            () = killed.cancelled() => End::Crashed("killed".to_owned()),
            () = overdue(&stop, spec.policy.stop_timeout) => {
                tracing::warn!(actor = %spec.id, "WARNING: an actor did not stop in time and was ended");
                End::Stopped
            }
            end = life => end,
        };
        let reason = match end {
            End::Stopped => return End::Stopped,
            End::Crashed(reason) => reason,
        };
        if stop.is_cancelled() {
            return End::Stopped;
        }
        let now = system.now();
        let wait = match (budget.crashed(now), spec.policy.on_exhausted) {
            (Decision::RestartAfter(wait), _) => {
                face.crashed(ActorStatus::BackingOff, now, &reason);
                tracing::warn!(actor = %spec.id, reason, restart_in = wait.as_secs_f64(), "WARNING: an actor crashed and is restarted");
                wait
            }
            (Decision::Exhausted, OnExhausted::Escalate) => {
                face.crashed(ActorStatus::GaveUp, now, &reason);
                tracing::error!(actor = %spec.id, reason, "an actor crashed more often than its budget allows; its parent ends too");
                return End::Crashed(reason);
            }
            (Decision::Exhausted, OnExhausted::RetryEvery(wait)) => {
                face.crashed(ActorStatus::GaveUp, now, &reason);
                tracing::warn!(actor = %spec.id, reason, retry_in = wait.as_secs_f64(), "WARNING: an actor crashed too often and is given up for a while");
                given_up = true;
                budget.reset();
                (parent.given_up)(spec.id.clone(), Some(reason));
                wait
            }
        };
        if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
            return End::Stopped;
        }
        face.restarts.fetch_add(1, Ordering::Relaxed);
        system.metrics().actor_restarts.get_or_create(&Kind { kind: A::KIND }).inc();
    }
}

/// Resolves when a stop was asked for and its time is over.
async fn overdue(stop: &CancellationToken, limit: std::time::Duration) {
    stop.cancelled().await;
    tokio::time::sleep(limit).await;
}
