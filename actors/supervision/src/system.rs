//! One tree.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use egress_protocol::message::Message;
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Timestamp};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::address::Cell;
use crate::face::Face;
use crate::incarnation::End;
use crate::runner;
use crate::signal::Signal;
use crate::{Actor, Address, ChildSpec, Failure, OnExhausted, RestartBudget};

struct Entry {
    face: Arc<Face>,
    cell: Arc<dyn Any + Send + Sync>,
}

impl Entry {
    /// Nobody serves it, none of its tasks is left, and nobody holds its address. Asked inside the map's lock, so that
    /// nobody can get at it meanwhile.
    fn is_unused(&self) -> bool {
        self.face.runners.load(Ordering::SeqCst) == 0 && self.face.alive.available_permits() == 1 && Arc::strong_count(&self.cell) == 1
    }
}

struct Inner {
    clock: Clock,
    metrics: Arc<Metrics>,
    cells: DashMap<Arc<str>, Entry>,
    created: AtomicU64,
    order: AtomicU64,
}

/// One supervised tree: the addresses of its actors, its clock and metrics. Cheap to clone; a process has one, tests as
/// many as they like.
#[derive(Clone)]
pub struct System {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "System({} actors)", self.inner.cells.len())
    }
}

impl System {
    /// An empty tree.
    pub fn new(clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self { inner: Arc::new(Inner { clock, metrics, cells: DashMap::new(), created: AtomicU64::new(0), order: AtomicU64::new(0) }) }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// The metric families.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.inner.metrics
    }

    /// The address of an actor by id, whether or not it is up now. Keep it: it stays valid across restarts. When two
    /// uses of one id disagree on the message type, the later gets an address that is never up (and the log an error).
    pub fn address<M: Message>(&self, id: &str) -> Address<M> {
        Address::new(self.cell(id))
    }

    pub(crate) fn cell<M: Message>(&self, id: &str) -> Arc<Cell<M>> {
        if let Some(entry) = self.inner.cells.get(id) {
            return Self::typed(id, &entry);
        }
        let made = Arc::new(Cell::<M>::new(id));
        let cell = {
            let entry =
                self.inner.cells.entry(Arc::clone(&made.face.id)).or_insert_with(|| Entry { face: Arc::clone(&made.face), cell: made });
            Self::typed(id, &entry)
        };
        // Now and then takes out what was only asked for, or could not be forgotten when it ended.
        if self.inner.created.fetch_add(1, Ordering::Relaxed) % 4096 == 4095 {
            self.inner.cells.retain(|_, entry| !entry.is_unused());
        }
        cell
    }

    fn typed<M: Message>(id: &str, entry: &Entry) -> Arc<Cell<M>> {
        Arc::clone(&entry.cell).downcast().unwrap_or_else(|_| {
            tracing::error!(actor = id, "two message types for one actor");
            Arc::new(Cell::new(id))
        })
    }

    /// Takes out an id that no runner serves any more and whose last task has ended, unless somebody still holds its
    /// address: then it stays, so that the address works again when the actor is started again.
    pub(crate) fn forget(&self, id: &str) {
        self.inner.cells.remove_if(id, |_, entry| entry.is_unused());
    }

    /// Orders siblings.
    pub(crate) fn next_order(&self) -> u64 {
        self.inner.order.fetch_add(1, Ordering::Relaxed)
    }

    /// Every actor that exists (an id with a runner).
    pub(crate) fn faces(&self) -> Vec<Arc<Face>> {
        self.inner
            .cells
            .iter()
            .filter(|entry| entry.face.runners.load(Ordering::Relaxed) > 0)
            .map(|entry| Arc::clone(&entry.face))
            .collect()
    }

    /// The ids, at or below that one, of which anything is left: a runner, or a task that is slow to notice that it was
    /// aborted. Reads only what stands beside the mailboxes, so that a thread outside the runtime may ask too.
    pub fn left_of(&self, id: &str) -> Vec<Arc<str>> {
        self.inner.cells.iter().filter(|entry| entry.face.is_left_of(id)).map(|entry| Arc::clone(&entry.face.id)).collect()
    }

    fn face(&self, id: &str) -> Option<Arc<Face>> {
        self.inner.cells.get(id).map(|entry| Arc::clone(&entry.face))
    }

    /// Starts the root and waits until it runs. The root is never restarted: its crash ends the tree. The limit of its
    /// stop is that of the whole tree's.
    #[expect(clippy::disallowed_methods, reason = "the root's runner; Root owns its handle")]
    pub async fn start_root<A: Actor>(&self, mut spec: ChildSpec<A>) -> Result<Root, Failure> {
        let limit = spec.policy.stop_timeout;
        spec.policy.budget = RestartBudget::none();
        spec.policy.on_exhausted = OnExhausted::Escalate;
        let (started, outcome) = oneshot::channel();
        let signal = Arc::<Signal>::default();
        let run = runner::prepare::<A>(self.clone(), self.cell(&spec.id), None, spec);
        let runner = tokio::spawn(run(Arc::clone(&signal), Some(started)));
        // Made before the wait: whoever loses interest meanwhile kills the tree.
        let mut root = Root { signal, limit, runner: Some(runner) };
        match outcome.await {
            Ok(Ok(())) => Ok(root),
            Ok(Err(reason)) => {
                root.failed().await;
                Err(Failure(reason))
            }
            Err(_) => Err(root.failed().await),
        }
    }

    /// The actors that exist, by kind: how many, and how many messages wait. For the metrics.
    pub fn counts(&self) -> Vec<(&'static str, u64, u64)> {
        let mut counts = std::collections::BTreeMap::<&'static str, (u64, u64)>::new();
        for face in self.faces() {
            let entry = counts.entry(face.kind()).or_default();
            entry.0 += 1;
            entry.1 += face.depth() as u64;
        }
        counts.into_iter().map(|(kind, (actors, depth))| (kind, actors, depth)).collect()
    }

    /// Makes the actor panic in its next message; for tests. `false` when it is not up.
    pub fn crash(&self, id: &str) -> bool {
        self.face(id).and_then(|face| face.probe.load_full()).is_some_and(|probe| probe.crash())
    }

    /// Kills the actor before its next message; for tests. `false` when it is not up.
    pub fn kill(&self, id: &str) -> bool {
        self.face(id).and_then(|face| face.probe.load_full()).is_some_and(|probe| {
            probe.kill();
            true
        })
    }
}

/// The running tree. Dropping it kills the tree.
pub struct Root {
    signal: Arc<Signal>,
    limit: Duration,
    runner: Option<JoinHandle<End>>,
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Root")
    }
}

impl Root {
    /// Resolves when the root ended by itself: its crash, or a child's that escalated.
    pub async fn failed(&mut self) -> Failure {
        let Some(runner) = self.runner.as_mut() else { return std::future::pending().await };
        let end = runner.await;
        self.runner = None;
        match end {
            Ok(End::Crashed(reason)) => Failure(reason),
            Ok(End::Stopped) => Failure("the root stopped by itself".to_owned()),
            Err(error) => Failure(error.to_string()),
        }
    }

    /// Stops the tree in reverse start order and waits for all of it, but not longer than the root's `stop_timeout`.
    pub async fn stop(mut self) {
        self.signal.stop();
        let Some(runner) = self.runner.as_mut() else { return };
        if tokio::time::timeout(self.limit, runner).await.is_err() {
            tracing::warn!("WARNING: the tree did not stop in time and was ended");
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Some(runner) = &self.runner {
            runner.abort();
        }
    }
}
