//! How peers know an actor: by an address that outlives its incarnations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use egress_protocol::message::{Message, Reply};

use crate::face::Face;

/// Puts a public message into the mailbox of one incarnation; hides which actor type receives it.
pub(crate) trait Inbox<M>: Send + Sync {
    /// `false` when the incarnation has ended.
    fn put(&self, message: M) -> bool;
    /// Messages that wait.
    fn depth(&self) -> usize;
}

/// What an id stands for: the public face of the actor and the mailbox of its current incarnation, if one is up.
pub(crate) struct Cell<M> {
    pub(crate) face: Arc<Face>,
    pub(crate) inbox: ArcSwapOption<Box<dyn Inbox<M>>>,
}

impl<M> Cell<M> {
    pub(crate) fn new(id: &str) -> Self {
        Self { face: Arc::new(Face::new(id)), inbox: ArcSwapOption::const_empty() }
    }
}

/// The stable address of an actor, by id. It outlives incarnations: while the actor is down, sending fails at once and
/// the sender repeats later (messages are level-triggered); nothing is queued for a future incarnation.
pub struct Address<M: Message> {
    cell: Arc<Cell<M>>,
}

impl<M: Message> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { cell: Arc::clone(&self.cell) }
    }
}

impl<M: Message> fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.id())
    }
}

/// Why a message or an answer did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No incarnation is up.
    #[error("not running")]
    Down,
    /// Too many messages wait (only from [`Address::call_shedding`]).
    #[error("overloaded")]
    Overloaded,
    /// No answer in time; the request may still be carried out.
    #[error("no answer in time")]
    Timeout,
    /// It crashed, stopped or dropped the request before it answered.
    #[error("went away before it answered")]
    Dropped,
}

impl<M: Message> Address<M> {
    pub(crate) const fn new(cell: Arc<Cell<M>>) -> Self {
        Self { cell }
    }

    /// The actor's id in the tree.
    pub fn id(&self) -> &str {
        &self.cell.face.id
    }

    /// Sends and forgets. `Err` when no incarnation is up (the message is dropped).
    pub fn send(&self, message: M) -> Result<(), AddressError> {
        let inbox = self.cell.inbox.load();
        let Some(inbox) = inbox.as_ref() else { return Err(AddressError::Down) };
        if inbox.put(message) { Ok(()) } else { Err(AddressError::Down) }
    }

    /// Asks and waits for the answer, at most `timeout`.
    pub async fn call<T: Send + 'static>(&self, timeout: Duration, message: impl FnOnce(Reply<T>) -> M + Send) -> Result<T, AddressError> {
        let (reply_to, answer) = Reply::channel();
        self.send(message(reply_to))?;
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(AddressError::Dropped),
            Err(_) => Err(AddressError::Timeout),
        }
    }

    /// As [`Address::call`], but refuses with `Overloaded` when `limit` messages or more wait.
    pub async fn call_shedding<T: Send + 'static>(
        &self,
        limit: u64,
        timeout: Duration,
        message: impl FnOnce(Reply<T>) -> M + Send,
    ) -> Result<T, AddressError> {
        if self.depth() >= limit {
            return Err(AddressError::Overloaded);
        }
        self.call(timeout, message).await
    }

    /// Messages sent and not yet taken up; none while no incarnation is up.
    pub fn depth(&self) -> u64 {
        self.cell.inbox.load().as_ref().map_or(0, |inbox| inbox.depth() as u64)
    }

    /// Whether an incarnation is up.
    pub fn is_up(&self) -> bool {
        self.cell.inbox.load().is_some()
    }
}
