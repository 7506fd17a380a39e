//! What a backend stands on: the actor it runs in, as far as a backend may use it (PC-99).
//!
//! A backend that talks to something over a link of its own (a hypervisor, an API endpoint) keeps what it knows of that link
//! in a *host*: a child actor `host/<entry>/<host>` that owns it, so that no lock is needed. A host is an ordinary
//! [`Actor`] of kind `host`; its messages carry the [`Caller`] they are sent for:
//!
//! ```ignore
//! enum LinkMessage {
//!     Ping { caller: Caller, reply_to: Reply<Result<Duration, LinkError>> },
//! }
//!
//! impl Actor for Link {
//!     const KIND: &'static str = HOST_KIND;
//!     fn handle(&mut self, ctx: &Context<Self>, message: LinkMessage) -> Result<(), Failure> {
//!         let LinkMessage::Ping { caller, reply_to } = message;
//!         let client = self.client.clone();
//!         // The request is a task of the host: it ends with it, and its caller is told so.
//!         ctx.spawn(async move { client.ping(&caller.call).await; … }.instrument(caller.span)).keep();
//!         Ok(())
//!     }
//!     // …
//! }
//!
//! // In the backend's constructor:
//! let link = ground.start_host::<Link>("rack-1", LinkArgs { … });
//! // In an operation:
//! let answer = link.ask(call, |caller, reply_to| LinkMessage::Ping { caller, reply_to }).await?;
//! ```
//!
//! What must stay true: a host's crash fails the calls that it carried, once, as Transient, and nobody else's (PC-8,
//! PC-101); hosts and tasks end with the life of the actor they were started from; a task asks [`Ground::fence`] right
//! before each of its requests (PC-102).

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use egress_protocol::Timestamp;
use egress_protocol::leadership::Fence;
use egress_protocol::message::{Message, Reply};
use egress_protocol::metrics::Metrics;
use egress_supervision::{Actor, Address, ChildSpec, Context, Policy, System, WeakContext};
use futures::future::BoxFuture;
use tracing::{Instrument, Span};

use crate::actor::{ProviderActor, ProviderInternal};
use crate::{Call, CallEnd};

/// The kind of every host in `/debug/actors` and in the metrics.
pub const HOST_KIND: &str = "host";

/// Runs what must go on although its caller left; a backend's part of [`Ground`] that tests can replace.
pub trait Tasks: Send + Sync + 'static {
    /// Runs it to its end, or to the end of the backend.
    fn run(&self, task: BoxFuture<'static, ()>);
}

/// What a backend is built on. Clones are one; keeping one keeps nothing of the actor.
#[derive(Clone)]
pub struct Ground {
    entry: Arc<str>,
    fence: Fence,
    system: System,
    actor: WeakContext<ProviderActor>,
    /// Starts of hosts that the actor waits for before it takes calls; `None` when it takes them already.
    first: Arc<Mutex<Option<Vec<BoxFuture<'static, ()>>>>>,
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").field("entry", &self.entry).finish_non_exhaustive()
    }
}

impl Ground {
    pub(crate) fn new(ctx: &Context<ProviderActor>, entry: Arc<str>, fence: Fence) -> Self {
        Self { entry, fence, system: ctx.system().clone(), actor: ctx.downgrade(), first: Arc::new(Mutex::new(Some(Vec::new()))) }
    }

    /// Waits until the hosts that the constructor started are up, or have failed for the first time.
    pub(crate) async fn hosts_are_up(&self) {
        let starts = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        futures::future::join_all(starts.into_iter().flatten()).await;
    }

    /// The configured name.
    pub fn entry(&self) -> &Arc<str> {
        &self.entry
    }

    /// Whether this process may act. A task that outlives a call asks it right before each request (PC-102).
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// Now, by the one clock.
    pub fn now(&self) -> Timestamp {
        self.system.now()
    }

    /// The metric families.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.system.metrics()
    }

    /// The tree, for addresses of peers.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The id of a host in the tree.
    pub fn host_id(&self, host: &str) -> String {
        format!("{HOST_KIND}/{}/{host}", self.entry)
    }

    /// Starts the host of that name; a crash restarts it (SV-2). One that is there is left as it is. Those that a constructor
    /// starts are up before the first call; later ones are not waited for. So a host's start neither dials nor waits.
    pub fn start_host<A: Actor>(&self, host: &str, args: A::Args) -> Host<A::Message> {
        self.start_host_with::<A>(host, args, Policy::default())
    }

    /// As [`Ground::start_host`], with a policy of its own: how long its `stopping` may take, for one.
    pub fn start_host_with<A: Actor>(&self, host: &str, args: A::Args, policy: Policy) -> Host<A::Message> {
        let id = self.host_id(host);
        let host = Host { address: self.system.address(&id) };
        let Some(ctx) = self.actor.upgrade() else { return host };
        let spec = ChildSpec::<A> { id, args, policy };
        match &mut *self.first.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(starts) => starts.push(Box::pin(async move {
                // Its first failure is told by its supervision, which tries again.
                let _ = ctx.start_child_and_wait(spec).await;
            })),
            None => drop(ctx.start_child(spec)),
        }
        host
    }

    /// Stops a host for good, in the background. One that is started anew under its name begins when it has ended.
    pub fn stop_host(&self, host: &str) {
        if let Some(ctx) = self.actor.upgrade() {
            ctx.stop_child(&self.host_id(host));
        }
    }

    /// Runs a future beside the actor's mailbox. It ends with the actor; a panic in it is logged and ends it alone.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let Some(ctx) = self.actor.upgrade() else { return };
        let entry = Arc::clone(&self.entry);
        let work = async move {
            task.await;
            ProviderInternal::TaskEnded
        };
        let panicked = move |panic| {
            tracing::error!(provider = %entry, panic, "a task of the backend panicked");
            ProviderInternal::TaskEnded
        };
        ctx.spawn_catching(work.instrument(Span::current()), panicked).keep();
    }
}

impl Tasks for Ground {
    fn run(&self, task: BoxFuture<'static, ()>) {
        self.spawn(task);
    }
}

/// For whom a host does something: the call that bounds it, and the span that its spans belong under (PC-101).
#[derive(Debug, Clone)]
pub struct Caller {
    /// The caller's call.
    pub call: Call,
    /// The span of the caller.
    pub span: Span,
}

impl Caller {
    /// Of a call that is made in the current span.
    pub fn here(call: &Call) -> Self {
        Self { call: call.clone(), span: Span::current() }
    }
}

/// Why a host did not answer. Every one of these is Transient.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// No life of it is up: it is starting, restarting, or was stopped.
    #[error("{0} is not running")]
    Down(String),
    /// It crashed, was killed or stopped before it answered.
    #[error("{0} went away before it answered")]
    WentAway(String),
    /// The call ended first.
    #[error("{}", match .0 { CallEnd::Cancelled => "cancelled", CallEnd::Overdue => "out of time" })]
    Ended(CallEnd),
}

/// The way to a host. It stays valid across the host's restarts.
pub struct Host<M: Message> {
    address: Address<M>,
}

impl<M: Message> Clone for Host<M> {
    fn clone(&self) -> Self {
        Self { address: self.address.clone() }
    }
}

impl<M: Message> fmt::Debug for Host<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({})", self.address.id())
    }
}

impl<M: Message> Host<M> {
    /// The host's address in the tree.
    pub fn address(&self) -> &Address<M> {
        &self.address
    }

    /// Tells the host something that needs no answer.
    pub fn tell(&self, message: M) -> Result<(), HostError> {
        self.address.send(message).map_err(|_| HostError::Down(self.address.id().to_owned()))
    }

    /// Asks the host for the sake of a call, and waits for the answer or the end of the call.
    pub async fn ask<T: Send + 'static>(&self, call: &Call, message: impl FnOnce(Caller, Reply<T>) -> M + Send) -> Result<T, HostError> {
        let (reply_to, answer) = Reply::channel();
        self.tell(message(Caller::here(call), reply_to))?;
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| HostError::WentAway(self.address.id().to_owned())),
            end = call.ended() => Err(HostError::Ended(end)),
        }
    }
}
