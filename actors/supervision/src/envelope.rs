//! What is in the mailbox of a life: messages for its actor, orders for its shell.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::Actor;
use crate::children::Order;

/// ractor puts each into a box of its own, so its size is that of an allocation and of no channel.
pub(crate) enum Envelope<A: Actor> {
    Public(A::Message),
    Internal(A::Internal),
    Describe(oneshot::Sender<Value>),
    Crash,
    TaskPanicked(Box<str>),
    ChildGivenUp(Box<GivenUp>),
    /// Nothing but a reason to look whether the life is to end.
    Killed,
    /// The state, or why there is none.
    Started(Box<Result<A, String>>),
    Order(Order),
}

impl<A: Actor> Envelope<A> {
    /// Whether it counts as a message that waits.
    pub(crate) const fn is_message(&self) -> bool {
        !matches!(self, Self::Killed | Self::Started(_) | Self::Order(_))
    }
}

/// A child was given up, or came back (without a reason).
pub(crate) struct GivenUp {
    pub(crate) child: Arc<str>,
    pub(crate) reason: Option<String>,
}
