//! The children of a life: who they are, in which order they started, what their ends mean, how they are stopped.

use std::collections::HashMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use egress_protocol::metrics::Kind;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use ractor::{ActorCell, ActorId, ActorStatus as Phase, SupervisionEvent};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::address::Cell;
use crate::face::Line;
use crate::inspect::ActorStatus;
use crate::lives::{Birth, Lives, LivesOf};
use crate::shell::panic_text;
use crate::{Actor, ChildSpec, Decision, OnExhausted, Policy, RestartBudget, System};

/// Told of the first attempt's outcome.
pub(crate) type Started = Option<oneshot::Sender<Result<(), String>>>;

/// What an actor, or what it waits for, asks of the actor's shell.
pub(crate) enum Order {
    Start(Box<Start>),
    Stop(Box<str>),
    Begin(Box<Begin>),
}

/// A child to start.
pub(crate) struct Start {
    pub(crate) id: Arc<str>,
    pub(crate) kind: &'static str,
    pub(crate) budget: RestartBudget,
    pub(crate) on_exhausted: OnExhausted,
    pub(crate) started: Started,
    pub(crate) lives: Box<dyn Lives>,
}

impl Start {
    pub(crate) fn new<A: Actor>(
        system: System,
        cell: Arc<Cell<A::Message>>,
        above: Option<Arc<Line>>,
        spec: ChildSpec<A>,
        started: Started,
    ) -> Self {
        let Policy { budget, on_exhausted, stop_timeout } = spec.policy;
        let id = Arc::clone(&cell.face.id);
        let lives = LivesOf::<A>::prepare(system, cell, above, spec.args, stop_timeout);
        Self { id, kind: A::KIND, budget, on_exhausted, started, lives }
    }
}

/// A life of a child whose wait is over: nothing is left of the former one.
pub(crate) struct Begin {
    number: u64,
    id: Arc<str>,
    permit: OwnedSemaphorePermit,
}

/// A parent as its children see it.
pub(crate) trait Parent: Send + Sync {
    fn order(&self, order: Order);
    fn child_given_up(&self, child: Arc<str>, reason: Option<String>);
}

/// A child's crash that is its parent's too.
pub(crate) struct ChildCrash {
    id: Arc<str>,
    pub(crate) reason: String,
}

impl fmt::Display for ChildCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.reason)
    }
}

struct Child {
    kind: &'static str,
    /// Tells it from others of its id; in the order of the starts.
    number: u64,
    budget: RestartBudget,
    on_exhausted: OnExhausted,
    started: Started,
    lives: Box<dyn Lives>,
    now: Now,
    /// The parent believes so.
    given_up: bool,
}

enum Now {
    /// A ractor actor, linked to its parent's.
    Alive(ActorCell),
    /// Between two lives, or before the first; dropping the task ends the wait.
    Waiting { _wait: Option<AbortOnDropHandle<()>> },
}

impl Child {
    /// The ractor actor to be waited for; none, when there is none between two lives.
    fn ask_to_stop(&self) -> Option<ActorCell> {
        let Now::Alive(cell) = &self.now else { return None };
        // It takes in nothing more, its shell drops what waits, and then it stops.
        let _ = cell.drain();
        Some(cell.clone())
    }
}

/// Dropping it kills them, and through them the whole subtree.
pub(crate) struct Children {
    parent: Weak<dyn Parent>,
    by_id: HashMap<Arc<str>, Box<Child>>,
    /// Whose ractor actor it is that ractor tells of.
    alive: HashMap<ActorId, Arc<str>>,
    /// Asked to stop one by one and not yet ended. Their ids may be started again: the permits keep the lives apart.
    leaving: HashMap<ActorId, Box<Child>>,
    next: u64,
}

impl Children {
    pub(crate) fn new(parent: Weak<dyn Parent>) -> Self {
        Self { parent, by_id: HashMap::new(), alive: HashMap::new(), leaving: HashMap::new(), next: 0 }
    }

    /// Carries out an order. `me` is the parent's ractor actor. The error is a child's crash, which is its parent's too.
    pub(crate) async fn take(&mut self, order: Order, me: ActorCell) -> Result<(), ChildCrash> {
        match order {
            Order::Start(start) => self.start(*start, me).await,
            Order::Begin(begin) => self.begin(*begin, me).await,
            Order::Stop(id) => {
                if let Some(child) = self.by_id.remove(&*id)
                    && let Some(cell) = child.ask_to_stop()
                {
                    self.alive.remove(&cell.get_id());
                    self.leaving.insert(cell.get_id(), child);
                }
                Ok(())
            }
        }
    }

    async fn start(&mut self, start: Start, me: ActorCell) -> Result<(), ChildCrash> {
        let Start { id, kind, budget, on_exhausted, started, mut lives } = start;
        if self.by_id.contains_key(&id) {
            if let Some(started) = started {
                let _ = started.send(Ok(()));
            }
            return Ok(());
        }
        let number = self.next;
        self.next += 1;
        lives.serve();
        let permit = Arc::clone(&lives.face().alive).try_acquire_owned();
        let now = Now::Waiting { _wait: None };
        let mut child = Box::new(Child { kind, number, budget, on_exhausted, started, lives, now, given_up: false });
        if permit.is_err() {
            child.wait(&id, Weak::clone(&self.parent), None);
        }
        self.by_id.insert(Arc::clone(&id), child);
        match permit {
            Ok(permit) => self.begin(Begin { number, id, permit }, me).await,
            Err(_) => Ok(()),
        }
    }

    /// Spawns the ractor actor of a life.
    async fn begin(&mut self, begin: Begin, me: ActorCell) -> Result<(), ChildCrash> {
        let Begin { number, id, permit } = begin;
        let Some(child) = self.by_id.get_mut(&id).filter(|child| child.number == number) else { return Ok(()) };
        let back = child.given_up.then(|| Weak::clone(&self.parent));
        let birth = Birth { permit, started: child.started.take(), back };
        // The arguments are cloned in there, by code that may panic.
        let begun = AssertUnwindSafe(async { child.lives.begin(birth, me.clone()).await }).catch_unwind().await;
        match begun.unwrap_or_else(|panic| Err(panic_text(panic.as_ref()))) {
            Ok(cell) => {
                self.alive.insert(cell.get_id(), id);
                child.now = Now::Alive(cell);
                Ok(())
            }
            // There is no child for a parent that ends.
            Err(_) if me.get_status() >= Phase::Draining => Ok(()),
            Err(reason) => self.crashed(&id, reason),
        }
    }

    /// What ractor tells of a child; `stopping`: its parent is on its way out.
    pub(crate) fn hear(&mut self, event: SupervisionEvent, stopping: bool) -> Result<(), ChildCrash> {
        let (cell, crash) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell, Some(error.to_string())),
            SupervisionEvent::ActorTerminated(cell, _, reason) => (cell, reason.filter(|reason| reason != DRAINED)),
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        if self.leaving.remove(&cell.get_id()).is_some() {
            return Ok(());
        }
        let Some(id) = self.alive.remove(&cell.get_id()) else { return Ok(()) };
        match crash {
            Some(reason) if !stopping => self.crashed(&id, reason),
            // A crash on the way out changes nothing.
            Some(_) | None => {
                self.by_id.remove(&id);
                Ok(())
            }
        }
    }

    /// Restarts it after a while, gives it up, or hands its crash on to its parent.
    fn crashed(&mut self, id: &Arc<str>, reason: String) -> Result<(), ChildCrash> {
        let Some(child) = self.by_id.get_mut(id) else { return Ok(()) };
        let (face, now, actor) = (child.lives.face(), child.lives.system().now(), &**id);
        let wait = match (child.budget.crashed(now), child.on_exhausted) {
            (Decision::RestartAfter(wait), _) => {
                face.crashed(ActorStatus::BackingOff, now, &reason);
                tracing::warn!(actor, reason, restart_in = wait.as_secs_f64(), "WARNING: an actor crashed and is restarted");
                wait
            }
            (Decision::Exhausted, OnExhausted::Escalate) => {
                face.crashed(ActorStatus::GaveUp, now, &reason);
                tracing::error!(actor, reason, "an actor crashed more often than its budget allows; its parent ends too");
                self.by_id.remove(id);
                return Err(ChildCrash { id: Arc::clone(id), reason });
            }
            (Decision::Exhausted, OnExhausted::RetryEvery(wait)) => {
                face.crashed(ActorStatus::GaveUp, now, &reason);
                tracing::warn!(
                    actor,
                    reason,
                    retry_in = wait.as_secs_f64(),
                    "WARNING: an actor crashed too often and is given up for a while"
                );
                child.given_up = true;
                child.budget.reset();
                if let Some(parent) = self.parent.upgrade() {
                    parent.child_given_up(Arc::clone(id), Some(reason));
                }
                wait
            }
        };
        child.wait(id, Weak::clone(&self.parent), Some(wait));
        Ok(())
    }

    /// The parent is told that it is.
    pub(crate) fn is_back(&mut self, id: &str) {
        if let Some(child) = self.by_id.get_mut(id) {
            child.given_up = false;
        }
    }

    /// Stops all and waits for them: in reverse order of their start, neighbours of one kind together. Meanwhile ractor
    /// tells the parent nothing, so that whatever ends has ended for good.
    pub(crate) async fn stop(&mut self) {
        self.by_id.retain(|_, child| matches!(child.now, Now::Alive(_)));
        let mut order: Vec<(u64, &'static str, Arc<str>)> =
            self.by_id.iter().map(|(id, child)| (child.number, child.kind, Arc::clone(id))).collect();
        order.sort_unstable_by_key(|(number, ..)| *number);
        while let Some((_, kind, id)) = order.pop() {
            let mut together = vec![id];
            while let Some((.., id)) = order.pop_if(|(_, other, _)| *other == kind) {
                together.push(id);
            }
            let mut ended: FuturesUnordered<_> = together
                .into_iter()
                .filter_map(|id| self.by_id.get(&id).and_then(|child| child.ask_to_stop()).map(|cell| (id, cell)))
                .map(|(id, cell)| async move {
                    let _ = cell.wait(None).await;
                    id
                })
                .collect();
            while let Some(id) = ended.next().await {
                self.by_id.remove(&id);
            }
        }
        // What was stopped one by one before may still be on its way out.
        for (_, child) in self.leaving.drain() {
            if let Now::Alive(cell) = &child.now {
                let _ = cell.wait(None).await;
            }
        }
    }
}

impl Drop for Children {
    /// ractor kills the children of what ends, but for those that are on their way out already.
    fn drop(&mut self) {
        for child in self.by_id.values().chain(self.leaving.values()) {
            if let Now::Alive(cell) = &child.now {
                cell.kill();
            }
        }
    }
}

/// Why ractor says that an actor ended that was asked to stop.
const DRAINED: &str = "Drained";

impl Child {
    /// Has its next life begin after `pause`, and when nothing of the former one is left.
    #[expect(clippy::disallowed_methods, reason = "the wait of a child; its handle is kept")]
    fn wait(&mut self, id: &Arc<str>, parent: Weak<dyn Parent>, pause: Option<Duration>) {
        let (number, id, kind) = (self.number, Arc::clone(id), self.kind);
        let (system, face) = (self.lives.system().clone(), Arc::clone(self.lives.face()));
        let wait = tokio::spawn(async move {
            if let Some(pause) = pause {
                tokio::time::sleep(pause).await;
                face.restarts.fetch_add(1, Ordering::Relaxed);
                system.metrics().actor_restarts.get_or_create(&Kind { kind }).inc();
            }
            face.set_status(ActorStatus::Starting, system.now());
            let Ok(permit) = Arc::clone(&face.alive).acquire_owned().await else { return };
            if let Some(parent) = parent.upgrade() {
                parent.order(Order::Begin(Box::new(Begin { number, id, permit })));
            }
        });
        self.now = Now::Waiting { _wait: Some(AbortOnDropHandle::new(wait)) };
    }
}
