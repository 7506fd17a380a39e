//! What an actor may do besides deciding.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::metrics::Metrics;
use futures::FutureExt;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::children::{Order, Parent, Start, Started};
use crate::envelope::Envelope;
use crate::inner::Inner;
use crate::shell::panic_text;
use crate::{Actor, Address, ChildSpec, Failure, System};

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

    /// Sends an internal message to this incarnation after a while. Dropping the timer cancels it; a message that is
    /// in the mailbox already still arrives, so a tick that must not be late carries an epoch.
    #[must_use = "a dropped timer is cancelled"]
    pub fn after(&self, delay: Duration, message: A::Internal) -> Timer {
        // A tick that would not be handled any more is not waited for.
        let cancelled = self.cancelled();
        Timer {
            _task: self.start_task(async move {
                cancelled.run_until_cancelled(tokio::time::sleep(delay)).await?;
                Some(Envelope::Internal(message))
            }),
        }
    }

    /// Cancelled when this incarnation stops or dies; give it to what the task waits for.
    pub fn cancelled(&self) -> CancellationToken {
        self.inner.cancelled().clone()
    }

    /// Runs a future beside the mailbox; its result is told to this incarnation and to no later one. It is aborted when
    /// the [`Task`] is dropped or the incarnation ends; on an orderly stop it first gets [`crate::TASK_GRACE`] after
    /// cancellation, but its result is not handled any more. A panic in it crashes the actor.
    #[must_use = "a dropped task is aborted; `keep` lets it run until the actor ends"]
    pub fn spawn<F>(&self, future: F) -> Task
    where
        F: Future<Output = A::Internal> + Send + 'static,
    {
        self.start_task(AssertUnwindSafe(future).catch_unwind().map(|result| match result {
            Ok(message) => Some(Envelope::Internal(message)),
            Err(panic) => Some(Envelope::TaskPanicked(panic_text(panic.as_ref()).into())),
        }))
    }

    /// As [`Context::spawn`], for futures whose panic is an answer (PC-8): `on_panic` turns its text into the message.
    #[must_use = "a dropped task is aborted; `keep` lets it run until the actor ends"]
    pub fn spawn_catching<F>(&self, future: F, on_panic: impl FnOnce(String) -> A::Internal + Send + 'static) -> Task
    where
        F: Future<Output = A::Internal> + Send + 'static,
    {
        self.spawn(AssertUnwindSafe(future).catch_unwind().map(|result| match result {
            Ok(message) => message,
            Err(panic) => on_panic(panic_text(panic.as_ref())),
        }))
    }

    #[expect(clippy::disallowed_methods, reason = "the one helper that tracks tasks")]
    fn start_task<F>(&self, future: F) -> Task
    where
        F: Future<Output = Option<Envelope<A>>> + Send + 'static,
    {
        let tasks = self.inner.tasks();
        let (aborted, alive, inner) = (tasks.aborted.clone(), Arc::clone(&self.inner.alive), Arc::downgrade(&self.inner));
        let tracked = tasks.running.track_future(async move {
            let result = aborted.run_until_cancelled(future).await;
            if let (Some(envelope), Some(inner)) = (result.flatten(), inner.upgrade()) {
                inner.post(envelope);
            }
            drop(alive);
        });
        Task { abort: Some(tokio::spawn(tracked).abort_handle()) }
    }

    /// Starts a supervised child without waiting for it; its address is valid at once. A child of that id that is
    /// already there is left as it is.
    pub fn start_child<C: Actor>(&self, spec: ChildSpec<C>) -> Address<C::Message> {
        self.order(spec, None)
    }

    /// Starts a supervised child and waits until it runs; for ordered start in [`Actor::start`]. The error is that of
    /// the first attempt; return it, and the child ends with its parent.
    pub async fn start_child_and_wait<C: Actor>(&self, spec: ChildSpec<C>) -> Result<Address<C::Message>, Failure> {
        let (started, outcome) = oneshot::channel();
        let id = spec.id.clone();
        let address = self.order(spec, Some(started));
        match outcome.await {
            Ok(Ok(())) => Ok(address),
            Ok(Err(reason)) => Err(Failure(format!("{id}: {reason}"))),
            Err(_) => Err(Failure(format!("{id}: it or its parent ended before it ran"))),
        }
    }

    fn order<C: Actor>(&self, spec: ChildSpec<C>, started: Started) -> Address<C::Message> {
        let (system, above) = (self.inner.system.clone(), self.inner.cell.face.line());
        let cell = system.cell::<C::Message>(&spec.id);
        let address = Address::new(Arc::clone(&cell));
        self.inner.order(Order::Start(Box::new(Start::new(system, cell, Some(above), spec, started))));
        address
    }

    /// Stops a child for good, in the background; a later child of the same id starts after it has ended.
    pub fn stop_child(&self, id: &str) {
        self.inner.order(Order::Stop(id.into()));
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
