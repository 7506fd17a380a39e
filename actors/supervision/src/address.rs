//! How peers know an actor.

use std::fmt;
use std::time::Duration;

use egress_protocol::message::{Message, Reply};

/// The stable address of an actor, by id. It outlives incarnations: while the actor is down, sending fails at once and
/// the sender repeats later (messages are level-triggered); nothing is queued for a future incarnation.
pub struct Address<M: Message> {
    marker: std::marker::PhantomData<fn(M)>,
}

impl<M: Message> Clone for Address<M> {
    fn clone(&self) -> Self {
        unimplemented!()
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
    /// The actor's id in the tree.
    pub fn id(&self) -> &str {
        unimplemented!()
    }

    /// Sends and forgets. `Err` when no incarnation is up (the message is dropped).
    pub fn send(&self, _message: M) -> Result<(), AddressError> {
        unimplemented!()
    }

    /// Asks and waits for the answer, at most `timeout`.
    pub async fn call<T: Send + 'static>(
        &self,
        _timeout: Duration,
        _message: impl FnOnce(Reply<T>) -> M + Send,
    ) -> Result<T, AddressError> {
        unimplemented!()
    }

    /// As [`Address::call`], but refuses with `Overloaded` when more than `limit` messages wait.
    pub async fn call_shedding<T: Send + 'static>(
        &self,
        _limit: u64,
        _timeout: Duration,
        _message: impl FnOnce(Reply<T>) -> M + Send,
    ) -> Result<T, AddressError> {
        unimplemented!()
    }

    /// Messages sent and not yet handled.
    pub fn depth(&self) -> u64 {
        unimplemented!()
    }

    /// Whether an incarnation is up.
    pub fn is_up(&self) -> bool {
        unimplemented!()
    }
}
