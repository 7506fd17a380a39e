//! One actor of ours against a task with a channel of tokio: casts, and calls with an answer. Both in this process, on
//! the operator's runtime; a slice costs what the process costs meanwhile. The same of ours alone, on command, for the comparison of
//! two builds.

use std::time::Duration;

use egress_protocol::message::{Message, Never};
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Reply};
use egress_supervision::{Actor, Address, ChildSpec, Context, Failure, System};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::process::{own_cpu, say};
use crate::rounds::{self, Slice};
use crate::table::{Table, thousands};
use crate::{Outcome, progress, runtime};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Casts between two waits, so that neither mailbox grows without end.
const BURST: u64 = 512;
/// Messages of one slice.
const MESSAGES: u64 = 200_000;

#[derive(Debug)]
enum Ask {
    Cast(u64),
    Call(u64, Reply<u64>),
}

impl Message for Ask {
    fn kind(&self) -> &'static str {
        match self {
            Self::Cast(_) => "Cast",
            Self::Call(..) => "Call",
        }
    }
}

#[derive(Debug)]
struct Counter(u64);

impl Actor for Counter {
    type Message = Ask;
    type Internal = Never;
    type Args = ();
    const KIND: &'static str = "counter";

    async fn start(_: &Context<Self>, (): ()) -> Result<Self, Failure> {
        Ok(Self(0))
    }

    fn handle(&mut self, _: &Context<Self>, message: Ask) -> Result<(), Failure> {
        match message {
            Ask::Cast(n) => self.0 = self.0.wrapping_add(n),
            Ask::Call(n, reply_to) => {
                self.0 = self.0.wrapping_add(n);
                let _ = reply_to.send(self.0);
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::from(self.0)
    }
}

/// Whom the messages go to.
#[derive(Debug, Clone)]
enum Peer {
    Ours(Address<Ask>),
    Tokio(mpsc::Sender<(u64, Option<oneshot::Sender<u64>>)>),
}

impl Peer {
    async fn cast(&self, n: u64) -> Outcome<()> {
        match self {
            Self::Ours(address) => address.send(Ask::Cast(n))?,
            Self::Tokio(sender) => sender.send((n, None)).await.map_err(|_| "the task is gone")?,
        }
        Ok(())
    }

    async fn call(&self, n: u64) -> Outcome<u64> {
        match self {
            Self::Ours(address) => Ok(address.call(TIMEOUT, |reply_to| Ask::Call(n, reply_to)).await?),
            Self::Tokio(sender) => {
                let (reply_to, answer) = oneshot::channel();
                sender.send((n, Some(reply_to))).await.map_err(|_| "the task is gone")?;
                Ok(answer.await?)
            }
        }
    }

    async fn casts(self) -> Outcome<()> {
        for _ in 0..MESSAGES / BURST {
            for n in 1..BURST {
                self.cast(n).await?;
            }
            self.call(0).await?;
        }
        Ok(())
    }

    async fn calls(self, callers: u64) -> Outcome<()> {
        let mut running = JoinSet::new();
        for _ in 0..callers {
            let peer = self.clone();
            running.spawn(async move {
                for n in 0..MESSAGES / callers {
                    peer.call(n).await?;
                }
                Ok(())
            });
        }
        while let Some(ended) = running.join_next().await {
            let ended: Outcome<()> = ended?;
            ended?;
        }
        Ok(())
    }
}

/// What goes through an actor, and from how many callers (none: casts).
pub(crate) const KINDS: [(&str, u64); 3] = [("casts, 1 sender", 0), ("calls, 1 caller", 1), ("calls, 64 callers", 64)];

async fn messages(peer: Peer, callers: u64) -> Outcome<()> {
    if callers == 0 { peer.casts().await } else { peer.calls(callers).await }
}

/// Answers each line, a number of callers, with the messages per CPU-second that they had answered by an actor of ours.
pub(crate) fn serve() -> Outcome<()> {
    let runtime = runtime()?;
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let _root = runtime.block_on(system.start_root(ChildSpec::<Counter>::essential("counter", ())))?;
    say("ready")?;
    for line in std::io::stdin().lines() {
        let (callers, peer, before) = (line?.parse()?, Peer::Ours(system.address("counter")), own_cpu()?);
        runtime.block_on(async { runtime.handle().spawn(messages(peer, callers)).await })??;
        say(&(MESSAGES as f64 / (own_cpu()? - before)).to_string())?;
    }
    Ok(())
}

pub(crate) fn run(rounds: u32) -> Outcome<Vec<Table>> {
    progress("calls and casts");
    let runtime = runtime()?;
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let _root = runtime.block_on(system.start_root(ChildSpec::<Counter>::essential("counter", ())))?;
    let (sender, mut receiver) = mpsc::channel::<(u64, Option<oneshot::Sender<u64>>)>(1024);
    let mut tasks = JoinSet::new();
    tasks.spawn_on(
        async move {
            let mut sum = 0_u64;
            while let Some((n, reply_to)) = receiver.recv().await {
                sum = sum.wrapping_add(n);
                if let Some(reply_to) = reply_to {
                    let _ = reply_to.send(sum);
                }
            }
        },
        runtime.handle(),
    );
    let peers = [Peer::Ours(system.address("counter")), Peer::Tokio(sender)];
    let mut table = Table::new(
        "actors",
        format!("Messages through one actor, per CPU-second: median of {rounds} rounds [quartiles]"),
        &["messages", "ours", "tokio mpsc (+ oneshot)", "ratio"],
    );
    for (what, callers) in KINDS {
        let slices = rounds::run(rounds, peers.len(), |n| {
            let peer = peers[n].clone();
            let before = own_cpu()?;
            // On a worker, as in the operator, not on this thread.
            runtime.block_on(async { runtime.handle().spawn(messages(peer, callers)).await })??;
            Ok(Slice { done: MESSAGES as f64, cpu: own_cpu()? - before })
        })?;
        let rate = |n: usize| thousands(rounds::rate(&slices, n).median);
        table.row([what.to_owned(), rate(0), rate(1), rounds::ratio(&slices, 0, 1).ratio()]);
    }
    Ok(vec![table])
}
