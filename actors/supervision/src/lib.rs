//! One supervised tree of actors.
//!
//! An [`Actor`] here is a value with synchronous handlers: a handler decides and returns, it cannot await. Whatever is
//! slow is a tracked task ([`Context::spawn`]) whose result comes back as an internal message and whose life ends with
//! its actor. Every actor may supervise children ([`Context::start_child`]); restart, backoff, giving up, ordered stop
//! and inspection are the shell's work and the same everywhere.
//!
//! Each life of an actor is an actor of the library [`ractor`] in one generic shell, linked to its supervisor's. Of ractor are
//! the mailbox, the loop that serves it, the links, and the news of a child's end; what is made of that news is ours.
//!
//! - [`Address`] is how peers know an actor: by id, stable across restarts of the actor and of its parents.
//! - [`System`] is one tree: its addresses, clock, metrics and the questions about it.
//! - [`RestartBudget`] is the pure part: when to restart, how long to wait, when to give up.

mod address;
mod batch;
mod budget;
mod children;
mod context;
mod envelope;
mod face;
mod guardian;
mod inner;
mod inspect;
mod latest;
mod lives;
mod shell;
mod spec;
mod system;
mod weak;

pub use address::{Address, AddressError};
pub use budget::{Decision, RestartBudget};
pub use context::{Context, Task, Timer};
pub use guardian::Root;
pub use inspect::{ActorStatus, Handling, LastError, Node};
pub use latest::Latest;
pub use spec::{ChildSpec, OnExhausted, Policy};
pub use system::System;
pub use weak::WeakContext;

use std::future::Future;

use egress_protocol::message::Message;
use tokio::time::Duration;

/// Why an actor can no longer trust its state. Returning it from a handler restarts the actor from what its source
/// says; expected failures are values, not this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    /// Any error, in words.
    pub fn new(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// One actor: role, state and decisions. See the crate's documentation for what a handler may do.
pub trait Actor: Sized + Send + 'static {
    /// What peers may send.
    type Message: Message;
    /// What only the actor itself sends: ticks, results of its tasks.
    type Internal: Message;
    /// What it is started from, each time; state comes from the source, not from the previous incarnation.
    type Args: Clone + Send + Sync + 'static;
    /// The `kind` of `/debug/actors` and of the metrics.
    const KIND: &'static str;

    /// Builds the state. May await (children in order, a first read); an error counts as a crash.
    fn start(ctx: &Context<Self>, args: Self::Args) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Decides on a public message.
    fn handle(&mut self, ctx: &Context<Self>, message: Self::Message) -> Result<(), Failure>;

    /// Decides on an internal one.
    fn handle_internal(&mut self, ctx: &Context<Self>, message: Self::Internal) -> Result<(), Failure>;

    /// A child was given up (its budget is spent; it is retried per its policy) or came back after that.
    fn child_given_up(&mut self, _ctx: &Context<Self>, _child: &str, _reason: Option<&str>) {}

    /// How many messages are handled at most before [`Actor::batch_done`]. 0: it is not called.
    const BATCH: u32 = 0;

    /// Does once for several messages what each of them left to do. Called when no message waits any more, after
    /// others had their turn, and after [`Actor::BATCH`] messages. Not called on a crash or a kill.
    fn batch_done(&mut self, _ctx: &Context<Self>) -> Result<(), Failure> {
        Ok(())
    }

    /// The state for people: no secrets, cheap, names as in the spec.
    fn describe(&self) -> serde_json::Value;

    /// The last thing before an orderly stop, after the children have stopped and while tasks may still end. Not
    /// called on a crash or a kill: never put here what must happen.
    fn stopping(&mut self, _ctx: &Context<Self>) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// How long an orderly stop waits for tasks that were asked to end before it aborts them.
pub const TASK_GRACE: Duration = Duration::from_secs(1);
