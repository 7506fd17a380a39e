//! What an incarnation shares with whoever holds a handle to it: its mailbox, its tasks, and that it is alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address::{Cell, Inbox};
use crate::face::{Alive, Probe};
use crate::mailbox::{Envelope, GivenUp, Mailbox};
use crate::signal::Signal;
use crate::{Actor, System, TASK_GRACE};

/// One incarnation as its context, its tasks, its children and its address see it.
pub(crate) struct Inner<A: Actor> {
    pub(crate) system: System,
    pub(crate) cell: Arc<Cell<A::Message>>,
    pub(crate) mailbox: Mailbox<A>,
    handling: Mutex<Option<(&'static str, Instant)>>,
    /// One question at a time (OB-4).
    pub(crate) asked: AtomicBool,
    /// The incarnation is ending: tasks should.
    cancelled: OnceLock<CancellationToken>,
    /// Made for the first task.
    tasks: OnceLock<Tasks>,
    /// Shared with the tasks; the id's next incarnation waits for the last of them.
    pub(crate) alive: Arc<Alive>,
}

pub(crate) struct Tasks {
    pub(crate) running: TaskTracker,
    /// The grace is over: tasks must end.
    pub(crate) aborted: CancellationToken,
}

impl<A: Actor> Inner<A> {
    pub(crate) fn new(system: System, cell: Arc<Cell<A::Message>>, signal: Arc<Signal>, alive: Alive) -> Self {
        Self {
            system,
            cell,
            mailbox: Mailbox::new(signal),
            handling: Mutex::new(None),
            asked: AtomicBool::new(false),
            cancelled: OnceLock::new(),
            tasks: OnceLock::new(),
            alive: Arc::new(alive),
        }
    }

    pub(crate) fn set_handling(&self, handling: Option<(&'static str, Instant)>) {
        *self.handling.lock().unwrap_or_else(PoisonError::into_inner) = handling;
    }

    pub(crate) fn cancelled(&self) -> &CancellationToken {
        self.cancelled.get_or_init(CancellationToken::new)
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        self.tasks.get_or_init(|| Tasks { running: TaskTracker::new(), aborted: CancellationToken::new() })
    }

    /// Peers and inspection can reach it, or no longer.
    pub(crate) fn open(self: &Arc<Self>) {
        self.cell.face.probe.store(Some(Arc::new(Box::new(Arc::clone(self)))));
        self.cell.inbox.store(Some(Arc::new(Box::new(Arc::clone(self)))));
    }

    pub(crate) fn close(&self) {
        self.cell.inbox.store(None);
        self.cell.face.probe.store(None);
        self.mailbox.close();
    }

    /// Waits for the tasks that were asked to end, but not for long.
    pub(crate) async fn grace(&self) {
        if let Some(tasks) = self.tasks.get() {
            tasks.running.close();
            if tokio::time::timeout(TASK_GRACE, tasks.running.wait()).await.is_err() {
                tracing::debug!(
                    actor = &*self.cell.face.id,
                    tasks = tasks.running.len(),
                    "tasks are aborted: they did not end when asked to"
                );
            }
        }
    }

    /// Whatever way a life ends, nobody can reach it any more and its tasks end with it, also those started from now on.
    pub(crate) fn end(&self) {
        self.close();
        self.cancelled().cancel();
        self.tasks().aborted.cancel();
    }
}

impl<A: Actor> Inbox<A::Message> for Arc<Inner<A>> {
    fn put(&self, message: A::Message) -> bool {
        self.mailbox.post(Envelope::Public(message))
    }

    fn depth(&self) -> usize {
        self.mailbox.depth()
    }
}

impl<A: Actor> Probe for Arc<Inner<A>> {
    fn describe(&self, reply: oneshot::Sender<serde_json::Value>) -> bool {
        !self.asked.swap(true, Ordering::SeqCst) && self.mailbox.post(Envelope::Describe(reply))
    }

    fn handling(&self) -> Option<(&'static str, Instant)> {
        *self.handling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn depth(&self) -> usize {
        self.mailbox.depth()
    }

    fn crash(&self) -> bool {
        self.mailbox.post(Envelope::Crash)
    }

    fn kill(&self) {
        self.mailbox.kill();
    }
}

/// A parent as the runners of its children see it.
pub(crate) trait Parent: Send + Sync {
    fn child_given_up(&self, child: Arc<str>, reason: Option<String>);
}

impl<A: Actor> Parent for Inner<A> {
    fn child_given_up(&self, child: Arc<str>, reason: Option<String>) {
        self.mailbox.post(Envelope::ChildGivenUp(Box::new(GivenUp { child, reason })));
    }
}
