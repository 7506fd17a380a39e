//! What an actor may do besides deciding.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use crate::{Actor, Address, ChildSpec, Failure, System};

/// An actor's hands: its address, clock, timers, tasks and children. Cheap to clone.
#[derive(Debug)]
pub struct Context<A: Actor> {
    marker: std::marker::PhantomData<fn(A)>,
}

impl<A: Actor> Clone for Context<A> {
    fn clone(&self) -> Self {
        unimplemented!()
    }
}

impl<A: Actor> Context<A> {
    /// The id in the tree.
    pub fn id(&self) -> &str {
        unimplemented!()
    }

    /// The tree, for addresses of peers.
    pub fn system(&self) -> &System {
        unimplemented!()
    }

    /// Now, by the one clock.
    pub fn now(&self) -> Timestamp {
        unimplemented!()
    }

    /// The metric families.
    pub fn metrics(&self) -> &Arc<Metrics> {
        unimplemented!()
    }

    /// This actor's own address.
    pub fn me(&self) -> Address<A::Message> {
        unimplemented!()
    }

    /// Sends an internal message to this incarnation.
    pub fn tell(&self, _message: A::Internal) {
        unimplemented!()
    }

    /// Sends an internal message to this incarnation after a while; dropping the timer cancels it.
    #[must_use = "a dropped timer is cancelled"]
    pub fn after(&self, _delay: Duration, _message: A::Internal) -> Timer {
        unimplemented!()
    }

    /// Cancelled when this incarnation stops or dies; give it to what the task waits for.
    pub fn cancelled(&self) -> CancellationToken {
        unimplemented!()
    }

    /// Runs a future beside the mailbox; its result is told to this incarnation. It is aborted when the [`Task`] is
    /// dropped or the incarnation ends; on an orderly stop it first gets [`crate::TASK_GRACE`] after cancellation. A panic in it crashes the
    /// actor.
    #[must_use = "a dropped task is aborted; `keep` lets it run until the actor ends"]
    pub fn spawn<F>(&self, _future: F) -> Task
    where
        F: Future<Output = A::Internal> + Send + 'static,
    {
        unimplemented!()
    }

    /// As [`Context::spawn`], for futures whose panic is an answer (PC-8): `on_panic` turns its text into the message.
    #[must_use = "a dropped task is aborted; `keep` lets it run until the actor ends"]
    pub fn spawn_catching<F>(&self, _future: F, _on_panic: impl FnOnce(String) -> A::Internal + Send + 'static) -> Task
    where
        F: Future<Output = A::Internal> + Send + 'static,
    {
        unimplemented!()
    }

    /// Starts a supervised child without waiting for it; its address is valid at once. A child of that id that is
    /// already there is left as it is.
    pub fn start_child<C: Actor>(&self, _spec: ChildSpec<C>) -> Address<C::Message> {
        unimplemented!()
    }

    /// Starts a supervised child and waits until it runs; for ordered start in [`Actor::start`].
    pub async fn start_child_and_wait<C: Actor>(&self, _spec: ChildSpec<C>) -> Result<Address<C::Message>, Failure> {
        unimplemented!()
    }

    /// Stops a child for good, in the background; a later child of the same id starts after it has ended.
    pub fn stop_child(&self, _id: &str) {
        unimplemented!()
    }
}

/// A running task. Dropping it aborts the task.
#[derive(Debug)]
pub struct Task {
    _private: (),
}

impl Task {
    /// Lets it run on its own until it ends or its actor does.
    pub fn keep(self) {
        unimplemented!()
    }
}

/// A pending timer. Dropping it cancels the message.
#[derive(Debug)]
pub struct Timer {
    _private: (),
}
