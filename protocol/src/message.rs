//! What every message of an actor can say of itself.

/// The port on which a request is answered, once. Sending fails when the caller gave up: ignore that.
pub type Reply<T> = ractor::RpcReplyPort<T>;

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
