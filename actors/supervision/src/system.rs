//! One tree.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use egress_protocol::message::Message;
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Timestamp};

use crate::Address;
use crate::address::Cell;
use crate::face::Face;

struct Entry {
    face: Arc<Face>,
    cell: Arc<dyn Any + Send + Sync>,
}

impl Entry {
    /// It is nobody's child, none of its tasks is left, and nobody holds its address. Asked inside the map's lock, so that
    /// nobody can get at it meanwhile.
    fn is_unused(&self) -> bool {
        self.face.records.load(Ordering::SeqCst) == 0 && self.face.alive.available_permits() == 1 && Arc::strong_count(&self.cell) == 1
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

    /// Takes out an id that is nobody's child any more and whose last task has ended, unless somebody still holds its
    /// address: then it stays, so that the address works again when the actor is started again.
    pub(crate) fn forget(&self, id: &str) {
        self.inner.cells.remove_if(id, |_, entry| entry.is_unused());
    }

    /// Orders siblings.
    pub(crate) fn next_order(&self) -> u64 {
        self.inner.order.fetch_add(1, Ordering::Relaxed)
    }

    /// Every actor that exists (an id that is somebody's child).
    pub(crate) fn faces(&self) -> Vec<Arc<Face>> {
        self.inner
            .cells
            .iter()
            .filter(|entry| entry.face.records.load(Ordering::Relaxed) > 0)
            .map(|entry| Arc::clone(&entry.face))
            .collect()
    }

    /// The ids, at or below that one, of which anything is left: a parent's record of it, or a task that is slow to notice that it was
    /// aborted. Reads only what stands beside the mailboxes, so that a thread outside the runtime may ask too.
    pub fn left_of(&self, id: &str) -> Vec<Arc<str>> {
        self.inner.cells.iter().filter(|entry| entry.face.is_left_of(id)).map(|entry| Arc::clone(&entry.face.id)).collect()
    }

    fn face(&self, id: &str) -> Option<Arc<Face>> {
        self.inner.cells.get(id).map(|entry| Arc::clone(&entry.face))
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
