//! What an actor may do besides deciding.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::metrics::Metrics;
use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address::{Cell, Inbox};
use crate::face::{Alive, Probe};
use crate::incarnation::{Command, Envelope, Start, panic_text};
use crate::runner;
use crate::{Actor, Address, ChildSpec, Failure, System};

/// One incarnation as its context, its tasks and its address see it.
pub(crate) struct Inner<A: Actor> {
    pub(crate) system: System,
    pub(crate) cell: Arc<Cell<A::Message>>,
    pub(crate) mailbox: mpsc::UnboundedSender<Envelope<A>>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    /// The incarnation is ending: tasks should.
    pub(crate) cancelled: CancellationToken,
    /// The grace is over: tasks must.
    pub(crate) aborted: CancellationToken,
    /// Asks the runner to drop the incarnation.
    pub(crate) killed: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Shared with the tasks; the id's next incarnation waits for the last of them.
    pub(crate) alive: Arc<Alive>,
}

impl<A: Actor> Inner<A> {
    fn post(&self, envelope: Envelope<A>) -> bool {
        self.cell.face.sent();
        let posted = self.mailbox.send(envelope).is_ok();
        if !posted {
            self.cell.face.taken();
        }
        posted
    }
}

/// The mailbox as peers and inspection see it.
pub(crate) struct Mailbox<A: Actor>(pub(crate) Arc<Inner<A>>);

impl<A: Actor> Inbox<A::Message> for Mailbox<A> {
    fn put(&self, message: A::Message) -> bool {
        self.0.post(Envelope::Public(message))
    }
}

impl<A: Actor> Probe for Mailbox<A> {
    fn describe(&self, reply: oneshot::Sender<serde_json::Value>) -> bool {
        self.0.post(Envelope::Describe(reply))
    }

    fn crash(&self) -> bool {
        self.0.post(Envelope::Crash)
    }

    fn kill(&self) {
        self.0.killed.cancel();
    }
}

/// An actor's hands: its address, clock, timers, tasks and children. Cheap to clone.
pub struct Context<A: Actor> {
    pub(crate) inner: Arc<Inner<A>>,
}

impl<A: Actor> Clone for Context<A> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<A: Actor> std::fmt::Debug for Context<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Context({})", self.id())
    }
}

impl<A: Actor> Context<A> {
    /// The id in the tree.
    pub fn id(&self) -> &str {
        &self.inner.cell.face.id
    }

    /// The tree, for addresses of peers.
    pub fn system(&self) -> &System {
        &self.inner.system
    }

    /// Now, by the one clock.
    pub fn now(&self) -> Timestamp {
        self.inner.system.now()
    }

    /// The metric families.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.inner.system.metrics()
    }

    /// This actor's own address.
    pub fn me(&self) -> Address<A::Message> {
        Address::new(Arc::clone(&self.inner.cell))
    }

    /// Sends an internal message to this incarnation.
    pub fn tell(&self, message: A::Internal) {
        self.inner.post(Envelope::Internal(message));
    }

    /// Sends an internal message to this incarnation after a while; dropping the timer cancels it.
    #[must_use = "a dropped timer is cancelled"]
    pub fn after(&self, delay: Duration, message: A::Internal) -> Timer {
        Timer {
            _task: self.start_task(async move {
                tokio::time::sleep(delay).await;
                Envelope::Internal(message)
            }),
        }
    }

    /// Cancelled when this incarnation stops or dies; give it to what the task waits for.
    pub fn cancelled(&self) -> CancellationToken {
        self.inner.cancelled.clone()
    }

    /// Runs a future beside the mailbox; its result is told to this incarnation. It is aborted when the [`Task`] is
    /// dropped or the incarnation ends; on an orderly stop it first gets [`crate::TASK_GRACE`] after cancellation. A
    /// panic in it crashes the actor.
    #[must_use = "a dropped task is aborted; `keep` lets it run until the actor ends"]
    pub fn spawn<F>(&self, future: F) -> Task
    where
        F: Future<Output = A::Internal> + Send + 'static,
    {
        self.start_task(async move {
            match AssertUnwindSafe(future).catch_unwind().await {
                Ok(message) => Envelope::Internal(message),
                Err(panic) => Envelope::TaskPanicked(panic_text(panic.as_ref())),
            }
        })
    }

    /// As [`Context::spawn`], for futures whose panic is an answer (PC-8): `on_panic` turns its text into the message.
    #[must_use = "a dropped task is aborted; `keep` lets it run until the actor ends"]
    pub fn spawn_catching<F>(&self, future: F, on_panic: impl FnOnce(String) -> A::Internal + Send + 'static) -> Task
    where
        F: Future<Output = A::Internal> + Send + 'static,
    {
        self.start_task(async move {
            match AssertUnwindSafe(future).catch_unwind().await {
                Ok(message) => Envelope::Internal(message),
                Err(panic) => Envelope::Internal(on_panic(panic_text(panic.as_ref()))),
            }
        })
    }

    #[expect(clippy::disallowed_methods, reason = "the one helper that tracks tasks")]
    fn start_task<F>(&self, future: F) -> Task
    where
        F: Future<Output = Envelope<A>> + Send + 'static,
    {
        let (aborted, alive, inner) = (self.inner.aborted.clone(), Arc::clone(&self.inner.alive), Arc::downgrade(&self.inner));
        let tracked = self.inner.tasks.track_future(async move {
            let result = aborted.run_until_cancelled(future).await;
            if let (Some(envelope), Some(inner)) = (result, inner.upgrade()) {
                inner.post(envelope);
            }
            drop(alive);
        });
        Task { abort: Some(tokio::spawn(tracked).abort_handle()) }
    }

    /// Starts a supervised child without waiting for it; its address is valid at once. A child of that id that is
    /// already there is left as it is.
    pub fn start_child<C: Actor>(&self, spec: ChildSpec<C>) -> Address<C::Message> {
        self.command(spec, None)
    }

    /// Starts a supervised child and waits until it runs; for ordered start in [`Actor::start`]. The error is that of
    /// the first attempt; return it, and the child ends with its parent.
    pub async fn start_child_and_wait<C: Actor>(&self, spec: ChildSpec<C>) -> Result<Address<C::Message>, Failure> {
        let (started, outcome) = oneshot::channel();
        let id = spec.id.clone();
        let address = self.command(spec, Some(started));
        match outcome.await {
            Ok(Ok(())) => Ok(address),
            Ok(Err(reason)) => Err(Failure(format!("{id}: {reason}"))),
            Err(_) => Err(Failure(format!("{id}: its parent is ending"))),
        }
    }

    fn command<C: Actor>(&self, spec: ChildSpec<C>, started: Option<oneshot::Sender<Result<(), String>>>) -> Address<C::Message> {
        let cell = self.inner.system.cell::<C::Message>(&spec.id);
        let address = Address::new(Arc::clone(&cell));
        let start = Start {
            id: spec.id.clone(),
            kind: C::KIND,
            started,
            run: runner::prepare::<C>(self.inner.system.clone(), cell, self.parent_link(), spec),
        };
        let _ = self.inner.commands.send(Command::Start(start));
        address
    }

    fn parent_link(&self) -> runner::ParentLink {
        let inner = Arc::downgrade(&self.inner);
        runner::ParentLink {
            id: Some(self.id().into()),
            given_up: Arc::new(move |child, reason| {
                if let Some(inner) = inner.upgrade() {
                    inner.post(Envelope::ChildGivenUp { child, reason });
                }
            }),
        }
    }

    /// Stops a child for good, in the background; a later child of the same id starts after it has ended.
    pub fn stop_child(&self, id: &str) {
        let _ = self.inner.commands.send(Command::Stop { id: id.to_owned() });
    }
}

/// A running task. Dropping it aborts the task.
#[derive(Debug)]
pub struct Task {
    abort: Option<AbortHandle>,
}

impl Task {
    /// Lets it run on its own until it ends or its actor does.
    pub fn keep(mut self) {
        self.abort = None;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(abort) = &self.abort {
            abort.abort();
        }
    }
}

/// A pending timer. Dropping it cancels the message.
#[derive(Debug)]
pub struct Timer {
    _task: Task,
}
