//! The listeners as clients see them: over real sockets on loopback.

mod forward;
mod review;
mod server;
mod strictness;
mod tls;
pub(crate) mod wire;
