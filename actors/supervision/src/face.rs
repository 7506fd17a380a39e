//! What can be seen of an actor from outside without asking it: counters and a few words beside its mailbox.
//!
//! The actor writes, inspection and metrics read. The one lock here guards words for people and is held for the
//! length of a copy; no actor waits for another one through it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use egress_protocol::Timestamp;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::System;
use crate::inspect::{ActorStatus, LastError};

/// Held by an incarnation and by each of its tasks. When the last of them has ended, the id's next incarnation may start,
/// and an id that nobody serves any more leaves the tree.
pub(crate) struct Alive {
    permit: Option<OwnedSemaphorePermit>,
    system: System,
    face: Arc<Face>,
}

impl Alive {
    pub(crate) const fn new(permit: OwnedSemaphorePermit, system: System, face: Arc<Face>) -> Self {
        Self { permit: Some(permit), system, face }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.system.forget(&self.face.id);
    }
}

/// Questions to an incarnation whose type nobody needs to know.
pub(crate) trait Probe: Send + Sync {
    /// Asks for [`crate::Actor::describe`]; `false` when the incarnation has ended or such a question waits already (OB-4).
    fn describe(&self, reply: oneshot::Sender<Value>) -> bool;
    /// The message in hand, and since when.
    fn handling(&self) -> Option<(&'static str, Instant)>;
    /// Messages that wait.
    fn depth(&self) -> usize;
    /// Makes it panic in its next message.
    fn crash(&self) -> bool;
    /// Ends it before its next message.
    fn kill(&self);
}

/// An actor and those above it. It outlives them, so that whoever is left of a subtree is known to be part of it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) id: Arc<str>,
    above: Option<Arc<Self>>,
}

impl Line {
    /// Whether it leads through that actor.
    pub(crate) fn has(&self, id: &str) -> bool {
        let mut line = Some(self);
        while let Some(here) = line {
            if &*here.id == id {
                return true;
            }
            line = here.above.as_deref();
        }
        false
    }
}

/// The public face of an id.
pub(crate) struct Face {
    pub(crate) id: Arc<str>,
    /// Parents' records of a child of this id: one, or for a moment two when a stopped child is started again.
    pub(crate) records: AtomicUsize,
    /// Held by the incarnation and its tasks: the next one starts only when the last of them has ended.
    pub(crate) alive: Arc<Semaphore>,
    pub(crate) probe: ArcSwapOption<Box<dyn Probe>>,
    pub(crate) restarts: AtomicU64,
    words: Mutex<Words>,
}

/// What is told to people.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    pub(crate) kind: &'static str,
    /// Its parent and those above.
    pub(crate) above: Option<Arc<Line>>,
    /// Itself and those above; made with its first child.
    line: Option<Arc<Line>>,
    pub(crate) order: u64,
    pub(crate) status: ActorStatus,
    pub(crate) since: Timestamp,
    pub(crate) last_error: Option<LastError>,
}

impl Face {
    pub(crate) fn new(id: &str) -> Self {
        Self {
            id: id.into(),
            records: AtomicUsize::new(0),
            alive: Arc::new(Semaphore::new(1)),
            probe: ArcSwapOption::const_empty(),
            restarts: AtomicU64::new(0),
            words: Mutex::new(Words {
                kind: "",
                above: None,
                line: None,
                order: 0,
                status: ActorStatus::Starting,
                since: Timestamp::default(),
                last_error: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn words(&self) -> Words {
        self.lock().clone()
    }

    pub(crate) fn set_status(&self, status: ActorStatus, now: Timestamp) {
        let mut words = self.lock();
        words.status = status;
        words.since = now;
    }

    pub(crate) fn crashed(&self, status: ActorStatus, now: Timestamp, message: &str) {
        let mut words = self.lock();
        words.status = status;
        words.since = now;
        words.last_error = Some(LastError { at: now, message: message.to_owned() });
    }

    /// Messages that wait; none while no incarnation is up.
    pub(crate) fn depth(&self) -> usize {
        self.probe.load().as_ref().map_or(0, |probe| probe.depth())
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.lock().kind
    }

    /// What its children stand below.
    pub(crate) fn line(&self) -> Arc<Line> {
        let mut words = self.lock();
        let above = words.above.clone();
        Arc::clone(words.line.get_or_insert_with(|| Arc::new(Line { id: Arc::clone(&self.id), above })))
    }

    /// Whether anything of it is left that stands at or below that actor: a parent's record of it, or a task that is slow to notice its end.
    pub(crate) fn is_left_of(&self, id: &str) -> bool {
        let left = self.records.load(Ordering::SeqCst) > 0 || self.alive.available_permits() == 0;
        left && (&*self.id == id || self.lock().above.as_ref().is_some_and(|line| line.has(id)))
    }

    /// A parent begins to keep a child of this id: what is counted and told is counted and told anew.
    pub(crate) fn serve(&self, kind: &'static str, above: Option<Arc<Line>>, order: u64) {
        self.records.fetch_add(1, Ordering::SeqCst);
        self.restarts.store(0, Ordering::Relaxed);
        let mut words = self.lock();
        words.kind = kind;
        words.above = above;
        words.line = None;
        words.order = order;
        words.last_error = None;
    }
}
