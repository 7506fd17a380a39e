//! The lives of one actor, one after another: start, restart with backoff, give up or escalate, stop.
//!
//! A runner is a task owned by the parent's incarnation. It never runs two lives at once: the next one starts when the
//! last task of the former has ended, also when the former belonged to a runner of a parent that crashed.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use egress_protocol::message::Message;
use egress_protocol::metrics::Kind;
use futures::FutureExt;

use crate::address::Cell;
use crate::children::{Run, Started};
use crate::face::{Alive, Face, Line};
use crate::incarnation::{End, live, panic_text};
use crate::inner::{Inner, Parent};
use crate::inspect::ActorStatus;
use crate::signal::Signal;
use crate::{Actor, ChildSpec, Decision, OnExhausted, System};

/// How a runner speaks of its parent and to it.
pub(crate) struct ParentLink {
    pub(crate) line: Arc<Line>,
    pub(crate) told: Weak<dyn Parent>,
}

impl ParentLink {
    fn tell(parent: Option<&Self>, child: &Arc<str>, reason: Option<String>) {
        if let Some(parent) = parent.and_then(|parent| parent.told.upgrade()) {
            parent.child_given_up(Arc::clone(child), reason);
        }
    }
}

/// A runner ready to be started, behind those that were made ready before.
pub(crate) fn prepare<A: Actor>(system: System, cell: Arc<Cell<A::Message>>, parent: Option<ParentLink>, spec: ChildSpec<A>) -> Run {
    let order = system.next_order();
    Box::new(move |signal, started| {
        Box::pin(async move {
            let mut lives = Lives { serving: Serving::new::<A>(system, cell, parent.as_ref(), order), parent, spec, given_up: false };
            lives.run(&signal, started).await
        })
    })
}

/// Counts this runner in for as long as it lives, and takes the id out of the tree with the last one.
struct Serving<M: Message> {
    system: System,
    face: Arc<Face>,
    cell: Option<Arc<Cell<M>>>,
}

impl<M: Message> Serving<M> {
    fn new<A: Actor<Message = M>>(system: System, cell: Arc<Cell<M>>, parent: Option<&ParentLink>, order: u64) -> Self {
        let face = Arc::clone(&cell.face);
        face.serve(A::KIND, parent.map(|parent| Arc::clone(&parent.line)), order);
        Self { system, face, cell: Some(cell) }
    }
}

impl<M: Message> Drop for Serving<M> {
    fn drop(&mut self) {
        self.cell = None;
        if self.face.runners.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.system.forget(&self.face.id);
        }
    }
}

struct Lives<A: Actor> {
    serving: Serving<A::Message>,
    parent: Option<ParentLink>,
    spec: ChildSpec<A>,
    /// The parent believes so.
    given_up: bool,
}

impl<A: Actor> Lives<A> {
    async fn run(&mut self, signal: &Arc<Signal>, mut started: Started) -> End {
        loop {
            let end = match self.live(signal, started.take()).await {
                End::Crashed(reason) if !signal.is_stopped() => self.crashed(reason),
                End::Stopped | End::Crashed(_) => Err(End::Stopped),
            };
            let wait = match end {
                Ok(wait) => wait,
                Err(end) => return end,
            };
            if signal.unless_stopped(tokio::time::sleep(wait)).await.is_none() {
                return End::Stopped;
            }
            self.serving.face.restarts.fetch_add(1, Ordering::Relaxed);
            self.serving.system.metrics().actor_restarts.get_or_create(&Kind { kind: A::KIND }).inc();
        }
    }

    /// One life, begun when nothing of the former one is left.
    async fn live(&mut self, signal: &Arc<Signal>, started: Started) -> End {
        let Serving { system, face, cell: Some(cell) } = &self.serving else { return End::Stopped };
        face.set_status(ActorStatus::Starting, system.now());
        let Some(Ok(permit)) = signal.unless_stopped(Arc::clone(&face.alive).acquire_owned()).await else { return End::Stopped };
        // The former life's shell may have had its say meanwhile.
        face.set_status(ActorStatus::Starting, system.now());
        let alive = Alive::new(permit, system.clone(), Arc::clone(face));
        let inner = Arc::new(Inner::<A>::new(system.clone(), Arc::clone(cell), Arc::clone(signal), alive));
        let (parent, given_up) = (self.parent.as_ref(), &mut self.given_up);
        let tell = move |outcome: Result<(), String>| {
            if outcome.is_ok() && std::mem::take(given_up) {
                ParentLink::tell(parent, &face.id, None);
            }
            if let Some(started) = started {
                let _ = started.send(outcome);
            }
        };
        // Handlers' panics are caught where they happen; what is left are those of `stopping`, of clones and of drops.
        let life = live::<A>(inner, self.spec.args.clone(), signal, self.spec.policy.stop_timeout, tell);
        match AssertUnwindSafe(life).catch_unwind().await {
            Ok(end) => end,
            Err(panic) => End::Crashed(panic_text(panic.as_ref())),
        }
    }

    /// How long to wait for the next life, or that there is none.
    fn crashed(&mut self, reason: String) -> Result<Duration, End> {
        let Serving { system, face, .. } = &self.serving;
        let now = system.now();
        let actor = &*face.id;
        match (self.spec.policy.budget.crashed(now), self.spec.policy.on_exhausted) {
            (Decision::RestartAfter(wait), _) => {
                face.crashed(ActorStatus::BackingOff, now, &reason);
                tracing::warn!(actor, reason, restart_in = wait.as_secs_f64(), "WARNING: an actor crashed and is restarted");
                Ok(wait)
            }
            (Decision::Exhausted, OnExhausted::Escalate) => {
                face.crashed(ActorStatus::GaveUp, now, &reason);
                tracing::error!(actor, reason, "an actor crashed more often than its budget allows; its parent ends too");
                Err(End::Crashed(reason))
            }
            (Decision::Exhausted, OnExhausted::RetryEvery(wait)) => {
                face.crashed(ActorStatus::GaveUp, now, &reason);
                tracing::warn!(
                    actor,
                    reason,
                    retry_in = wait.as_secs_f64(),
                    "WARNING: an actor crashed too often and is given up for a while"
                );
                self.given_up = true;
                self.spec.policy.budget.reset();
                ParentLink::tell(self.parent.as_ref(), &face.id, Some(reason));
                Ok(wait)
            }
        }
    }
}
