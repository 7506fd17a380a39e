//! The engine over real sockets on loopback.

mod answers;
mod forwarding;
mod limits;
mod support;
mod traffic;
mod tunnels;
