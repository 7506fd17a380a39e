//! What a life shares with whoever holds a handle to it: its mailbox, its tasks, and that it is alive.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ractor::ActorCell;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::address::{Cell, Inbox};
use crate::children::{Order, Parent};
use crate::envelope::{Envelope, GivenUp};
use crate::face::{Alive, Probe};
use crate::{Actor, System, TASK_GRACE};

/// One life as its context, its tasks, its children and its address see it.
pub(crate) struct Inner<A: Actor> {
    pub(crate) system: System,
    pub(crate) cell: Arc<Cell<A::Message>>,
    /// Its ractor actor, known before anything of it runs.
    shell: OnceLock<ActorCell>,
    /// Messages that wait: ractor's mailboxes do not tell.
    waiting: AtomicUsize,
    killed: AtomicBool,
    handling: Mutex<Option<(&'static str, Instant)>>,
    /// One question at a time (OB-4).
    pub(crate) asked: AtomicBool,
    /// The life is ending: tasks should.
    cancelled: OnceLock<CancellationToken>,
    /// Made for the first task.
    tasks: OnceLock<Tasks>,
    /// Shared with the tasks; the id's next life waits for the last of them.
    pub(crate) alive: Arc<Alive>,
}

pub(crate) struct Tasks {
    pub(crate) running: TaskTracker,
    /// The grace is over: tasks must end.
    pub(crate) aborted: CancellationToken,
}

impl<A: Actor> Inner<A> {
    pub(crate) fn new(system: System, cell: Arc<Cell<A::Message>>, alive: Alive) -> Self {
        Self {
            system,
            cell,
            shell: OnceLock::new(),
            waiting: AtomicUsize::new(0),
            killed: AtomicBool::new(false),
            handling: Mutex::new(None),
            asked: AtomicBool::new(false),
            cancelled: OnceLock::new(),
            tasks: OnceLock::new(),
            alive: Arc::new(alive),
        }
    }

    /// From now on it can be sent to.
    pub(crate) fn born(&self, shell: ActorCell) {
        let _ = self.shell.set(shell);
    }

    /// `false` when the life is over or on its way out: the envelope is dropped.
    pub(crate) fn post(&self, envelope: Envelope<A>) -> bool {
        let Some(shell) = self.shell.get() else { return false };
        // Counted first, so that it is never taken up before it was counted.
        let counted = usize::from(envelope.is_message());
        self.waiting.fetch_add(counted, Ordering::Relaxed);
        let sent = shell.send_message(envelope).is_ok();
        if !sent {
            self.waiting.fetch_sub(counted, Ordering::Relaxed);
        }
        sent
    }

    /// A message is taken up.
    pub(crate) fn took(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Messages that wait.
    pub(crate) fn depth(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
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
        self.post(Envelope::Public(message))
    }

    fn depth(&self) -> usize {
        Inner::depth(self)
    }
}

impl<A: Actor> Probe for Arc<Inner<A>> {
    fn describe(&self, reply: oneshot::Sender<serde_json::Value>) -> bool {
        !self.asked.swap(true, Ordering::SeqCst) && self.post(Envelope::Describe(reply))
    }

    fn handling(&self) -> Option<(&'static str, Instant)> {
        *self.handling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn depth(&self) -> usize {
        Inner::depth(self)
    }

    fn crash(&self) -> bool {
        self.post(Envelope::Crash)
    }

    /// Not ractor's kill: that would hand the state to the supervisor, to be dropped there.
    fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.post(Envelope::Killed);
    }
}

impl<A: Actor> Parent for Inner<A> {
    fn order(&self, order: Order) {
        self.post(Envelope::Order(order));
    }

    fn child_given_up(&self, child: Arc<str>, reason: Option<String>) {
        self.post(Envelope::ChildGivenUp(Box::new(GivenUp { child, reason })));
    }
}
