//! The listeners as clients see them: over real sockets on loopback.

mod server;
mod strictness;
pub(crate) mod wire;
