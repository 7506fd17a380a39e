//! SSH against a server in this process, which does what a test tells it, and against Debian's sshd.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "tests say what is wrong by panicking, own their tasks, and read where skips are counted"
)]

mod definitions;
mod images;
mod ssh;
