//! The client against a server of ours that does what libvirt does and what it should not, and against a real libvirtd.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "tests say what is wrong by panicking, own their tasks, and read where skips are counted"
)]

mod calls;
mod ends;
mod real;
mod server;
mod streams;
