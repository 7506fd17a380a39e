//! A supervisor with ten thousand children: how long it takes until all have started, until one that is killed has started
//! again, and until all have stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use egress_protocol::message::Never;
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Reply};
use egress_supervision::{Actor, Address, ChildSpec, Context, Failure, System};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::process::{own_cpu, say};
use crate::{Outcome, runtime};

pub(crate) const CHILDREN: usize = 10_000;

/// One round: seconds of the clock, and of a CPU for those parts in which nobody waits for a timer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) start: f64,
    pub(crate) start_cpu: f64,
    /// From the kill until the next life has started; 0.1 s of it are the backoff.
    pub(crate) restart: f64,
    pub(crate) stop: f64,
    pub(crate) stop_cpu: f64,
}

/// How many are still to start.
#[derive(Debug)]
struct Gate {
    left: AtomicUsize,
    open: Notify,
}

#[derive(Debug)]
struct Child;

impl Actor for Child {
    type Message = Never;
    type Internal = Never;
    type Args = Arc<Gate>;
    const KIND: &'static str = "child";

    async fn start(_: &Context<Self>, gate: Arc<Gate>) -> Result<Self, Failure> {
        if gate.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            gate.open.notify_one();
        }
        Ok(Self)
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Start them.
#[derive(Debug)]
struct Start(Reply<()>);

impl egress_protocol::message::Message for Start {
    fn kind(&self) -> &'static str {
        "Start"
    }
}

#[derive(Debug)]
struct Parent(Arc<Gate>);

impl Actor for Parent {
    type Message = Start;
    type Internal = Never;
    type Args = Arc<Gate>;
    const KIND: &'static str = "parent";

    async fn start(_: &Context<Self>, gate: Arc<Gate>) -> Result<Self, Failure> {
        Ok(Self(gate))
    }

    fn handle(&mut self, ctx: &Context<Self>, Start(done): Start) -> Result<(), Failure> {
        for n in 0..CHILDREN {
            ctx.start_child(ChildSpec::<Child>::retried(format!("child/{n}"), Arc::clone(&self.0)));
        }
        let _ = done.send(());
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

async fn round() -> Outcome<Round> {
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let gate = Arc::new(Gate { left: AtomicUsize::new(CHILDREN), open: Notify::new() });
    let root = system.start_root(ChildSpec::<Parent>::essential("parent", Arc::clone(&gate))).await?;
    let parent: Address<Start> = system.address("parent");

    let (begun, cpu) = (Instant::now(), own_cpu()?);
    parent.call(std::time::Duration::from_secs(60), Start).await?;
    gate.open.notified().await;
    let (start, start_cpu) = (begun.elapsed().as_secs_f64(), own_cpu()? - cpu);

    gate.left.store(1, Ordering::SeqCst);
    let begun = Instant::now();
    // The last one has said that it starts; that it is up may be a moment away.
    while !system.kill("child/5000") {
        tokio::task::yield_now().await;
    }
    gate.open.notified().await;
    let restart = begun.elapsed().as_secs_f64();

    let (begun, cpu) = (Instant::now(), own_cpu()?);
    root.stop().await;
    Ok(Round { start, start_cpu, restart, stop: begun.elapsed().as_secs_f64(), stop_cpu: own_cpu()? - cpu })
}

/// Answers each line with one round.
pub(crate) fn serve() -> Outcome<()> {
    let runtime = runtime()?;
    say("ready")?;
    for line in std::io::stdin().lines() {
        line?;
        let round = runtime.block_on(async { runtime.handle().spawn(round()).await })??;
        say(&serde_json::to_string(&round)?)?;
    }
    Ok(())
}
