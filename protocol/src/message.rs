//! What every message of an actor can say of itself.

use std::fmt;

use tokio::sync::oneshot;

/// The port on which a request is answered, once. Dropping it unanswered tells the asker so.
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// A port and the end where the answer arrives.
    pub fn channel() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// Answers. The error hands the answer back: the asker gave up, which is no fault of the one who answers.
    pub fn send(self, answer: T) -> Result<(), T> {
        self.0.send(answer)
    }

    /// Ends when the asker gives up.
    pub async fn closed(&mut self) {
        self.0.closed().await;
    }

    /// Whether the asker gave up.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> From<oneshot::Sender<T>> for Reply<T> {
    fn from(sender: oneshot::Sender<T>) -> Self {
        Self(sender)
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// A message of an actor. `kind` is what `/debug/actors` shows under `handling.message`.
pub trait Message: Send + 'static {
    /// The variant's name, without its content.
    fn kind(&self) -> &'static str;
}

/// For actors that receive nothing of the sort (no public, or no internal messages).
#[derive(Debug, Clone, Copy)]
pub enum Never {}

impl Message for Never {
    fn kind(&self) -> &'static str {
        match *self {}
    }
}
