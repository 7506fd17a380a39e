//! The runners of an incarnation's children: who they are, in which order they started, how they are stopped.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::Actor;
use crate::incarnation::{End, panic_text};
use crate::inner::Inner;
use crate::mailbox::Mailbox;
use crate::signal::Signal;

/// Told of the first attempt's outcome.
pub(crate) type Started = Option<oneshot::Sender<Result<(), String>>>;

/// A runner, still to be given its signal and whom to tell of the first attempt.
pub(crate) type Run = Box<dyn FnOnce(Arc<Signal>, Started) -> BoxFuture<'static, End> + Send>;

/// What an actor, or a child of it, asks of the actor's shell.
pub(crate) enum Command {
    Start(Box<Start>),
    Stop(Box<str>),
    Ended { order: u64, id: Arc<str>, end: End },
}

/// A child to run.
pub(crate) struct Start {
    pub(crate) id: Arc<str>,
    pub(crate) kind: &'static str,
    pub(crate) started: Started,
    pub(crate) run: Run,
}

struct Child {
    kind: &'static str,
    order: u64,
    signal: Arc<Signal>,
    abort: AbortHandle,
}

/// Dropping it aborts the runners, and through them the whole subtree.
pub(crate) struct Children<A: Actor> {
    parent: Weak<Inner<A>>,
    by_id: HashMap<Arc<str>, Child>,
    /// Asked to stop one by one and not yet ended. Their ids may be started again: the runners sort it out.
    leaving: HashMap<u64, AbortHandle>,
    next: u64,
}

impl<A: Actor> Children<A> {
    pub(crate) fn new(parent: Weak<Inner<A>>) -> Self {
        Self { parent, by_id: HashMap::new(), leaving: HashMap::new(), next: 0 }
    }

    /// The error is a child's crash, which is its parent's too.
    pub(crate) fn command(&mut self, command: Command) -> Result<(), String> {
        match command {
            Command::Start(start) => self.start(*start),
            Command::Stop(id) => {
                if let Some(child) = self.by_id.remove(&*id) {
                    child.signal.stop();
                    self.leaving.insert(child.order, child.abort);
                }
            }
            Command::Ended { order, id, end } => {
                self.leaving.remove(&order);
                if self.by_id.get(&id).is_some_and(|child| child.order == order) {
                    self.by_id.remove(&id);
                }
                if let End::Crashed(reason) = end {
                    return Err(format!("{id}: {reason}"));
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a child's runner; its handle is kept and aborted here")]
    fn start(&mut self, start: Start) {
        let Start { id, kind, started, run } = start;
        if self.by_id.contains_key(&id) {
            if let Some(started) = started {
                let _ = started.send(Ok(()));
            }
            return;
        }
        let (order, signal) = (self.next, Arc::<Signal>::default());
        self.next += 1;
        let (run, parent, child) = (run(Arc::clone(&signal), started), Weak::clone(&self.parent), Arc::clone(&id));
        let runner = tokio::spawn(async move {
            // A runner catches what its actor does; should it fail itself, its parent cannot know what is true any more.
            let end = AssertUnwindSafe(run).catch_unwind().await;
            let end = end.unwrap_or_else(|panic| End::Crashed(panic_text(panic.as_ref())));
            if let Some(parent) = parent.upgrade() {
                parent.mailbox.command(Command::Ended { order, id: child, end });
            }
        });
        self.by_id.insert(id, Child { kind, order, signal, abort: runner.abort_handle() });
    }

    /// Stops all and waits for them: in reverse order of their start, neighbours of one kind together.
    pub(crate) async fn stop(&mut self, mailbox: &Mailbox<A>) {
        let mut order: Vec<(u64, &'static str, Arc<str>)> =
            self.by_id.iter().map(|(id, child)| (child.order, child.kind, Arc::clone(id))).collect();
        order.sort_unstable_by_key(|(order, ..)| *order);
        while let Some((last, kind, id)) = order.pop() {
            let mut together = vec![(last, id)];
            while let Some((neighbour, _, id)) = order.pop_if(|(_, other, _)| *other == kind) {
                together.push((neighbour, id));
            }
            let mut waiting = HashSet::new();
            for (order, id) in together {
                if let Some(child) = self.by_id.get(&id) {
                    child.signal.stop();
                    waiting.insert(order);
                }
            }
            self.gone(mailbox, waiting).await;
        }
        // What was stopped one by one before may still be on its way out.
        let leaving = self.leaving.keys().copied().collect();
        self.gone(mailbox, leaving).await;
    }

    /// Waits until all of them have ended.
    async fn gone(&mut self, mailbox: &Mailbox<A>, mut waiting: HashSet<u64>) {
        while !waiting.is_empty() {
            let command = mailbox.next_command().await;
            if let Command::Ended { order, .. } = &command {
                waiting.remove(order);
                // A crash on the way out changes nothing: its parent is on its way out too.
                let _ = self.command(command);
            }
        }
    }
}

impl<A: Actor> Drop for Children<A> {
    fn drop(&mut self) {
        self.by_id.values().for_each(|child| child.abort.abort());
        self.leaving.values().for_each(AbortHandle::abort);
    }
}
