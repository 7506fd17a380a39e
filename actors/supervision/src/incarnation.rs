//! One life of an actor: from `start` to its end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use egress_protocol::message::Message;
use egress_protocol::metrics::Kind;
use futures::FutureExt;
use tokio::time::Instant;

use crate::children::Children;
use crate::context::Context;
use crate::inner::Inner;
use crate::inspect::ActorStatus;
use crate::mailbox::{Envelope, Next};
use crate::signal::Signal;
use crate::{Actor, Failure};

/// An actor that has much to do lets others run after this long: where two actors keep both cores busy, everything else waits
/// for one of them (docs/performance.md, leases that expire),
const SLICE: Duration = Duration::from_micros(100);
/// or after this many messages.
const BATCH: u32 = 256;

/// How a life, or a runner, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// As asked.
    Stopped,
    /// With a reason: a panic's text, a failure, a kill.
    Crashed(String),
}

/// Runs one life to its end. Dropping the future ends it as a kill does.
pub(crate) async fn live<A: Actor>(
    inner: Arc<Inner<A>>,
    args: A::Args,
    signal: &Signal,
    stop_timeout: Duration,
    started: impl FnOnce(Result<(), String>),
) -> End {
    let ctx = Context { inner };
    let inner = &ctx.inner;
    let _ending = Ending(inner);
    let mut children = Children::new(Arc::downgrade(inner));

    let mut actor = match start(&ctx, args, &mut children, signal).await {
        Ok(actor) => actor,
        Err(End::Stopped) => {
            started(Err("stopped while it started".to_owned()));
            inner.close();
            inner.cell.face.set_status(ActorStatus::Stopping, ctx.now());
            children.stop(&inner.mailbox).await;
            inner.cancelled().cancel();
            inner.grace().await;
            return End::Stopped;
        }
        Err(End::Crashed(reason)) => {
            started(Err(reason.clone()));
            return End::Crashed(reason);
        }
    };
    inner.cell.face.set_status(ActorStatus::Running, ctx.now());
    inner.open();
    started(Ok(()));

    if let Err(reason) = serve(&mut actor, &ctx, &mut children, signal).await {
        return End::Crashed(reason);
    }

    inner.close();
    inner.cell.face.set_status(ActorStatus::Stopping, ctx.now());
    children.stop(&inner.mailbox).await;
    inner.cancelled().cancel();
    let own = async {
        actor.stopping(&ctx).await;
        inner.grace().await;
    };
    if tokio::time::timeout(stop_timeout, own).await.is_err() {
        tracing::warn!(actor = ctx.id(), "WARNING: an actor did not stop in time and was ended");
    }
    End::Stopped
}

/// Whatever way a life ends, nobody can reach it any more and its tasks end with it.
struct Ending<'a, A: Actor>(&'a Inner<A>);

impl<A: Actor> Drop for Ending<'_, A> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Builds the state, and starts the children it asks for meanwhile.
async fn start<A: Actor>(ctx: &Context<A>, args: A::Args, children: &mut Children<A>, signal: &Signal) -> Result<A, End> {
    let mut starting = Box::pin(signal.unless_stopped(AssertUnwindSafe(async { A::start(ctx, args).await }).catch_unwind()));
    loop {
        tokio::select! {
            biased;
            command = ctx.inner.mailbox.next_command() => children.command(command).map_err(End::Crashed)?,
            result = &mut starting => return match result {
                None => Err(End::Stopped),
                Some(Ok(result)) => result.map_err(|Failure(reason)| End::Crashed(reason)),
                Some(Err(panic)) => Err(End::Crashed(panic_text(panic.as_ref()))),
            },
        }
    }
}

/// Handles messages until a stop is asked for (`Ok`) or the life cannot go on.
async fn serve<A: Actor>(actor: &mut A, ctx: &Context<A>, children: &mut Children<A>, signal: &Signal) -> Result<(), String> {
    let mailbox = &ctx.inner.mailbox;
    let durations = ctx.metrics().actor_handle_duration.get_or_create_owned(&Kind { kind: A::KIND });
    // When this stretch of work began, when its last message was done, how many it were.
    let mut stretch: Option<(Instant, Instant, u32)> = None;
    loop {
        if signal.is_stopped() {
            ctx.inner.set_handling(None);
            return Ok(());
        }
        if mailbox.is_killed() {
            return Err("killed".to_owned());
        }
        match mailbox.take() {
            Some(Next::Command(command)) => children.command(command)?,
            Some(Next::Message(envelope)) => {
                let (since, begun, count) = stretch.unwrap_or_else(|| {
                    let now = Instant::now();
                    (now, now, 0)
                });
                handle_one(actor, ctx, envelope, begun)?;
                let done = Instant::now();
                durations.observe((done - begun).as_secs_f64());
                stretch = Some((since, done, count + 1));
                if count + 1 >= BATCH || done - since > SLICE {
                    ctx.inner.set_handling(None);
                    tokio::task::yield_now().await;
                    stretch = None;
                }
            }
            None => {
                if stretch.take().is_some() {
                    ctx.inner.set_handling(None);
                }
                mailbox.something().await;
            }
        }
    }
}

fn handle_one<A: Actor>(actor: &mut A, ctx: &Context<A>, envelope: Envelope<A>, begun: Instant) -> Result<(), String> {
    let kind = match &envelope {
        Envelope::Public(message) => message.kind(),
        Envelope::Internal(message) => message.kind(),
        Envelope::Describe(_) => "Describe",
        Envelope::Crash => "Crash",
        Envelope::TaskPanicked(_) => "TaskPanicked",
        Envelope::ChildGivenUp(_) => "ChildGivenUp",
    };
    ctx.inner.set_handling(Some((kind, begun)));
    let result = catch_unwind(AssertUnwindSafe(|| match envelope {
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
    }));
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
