//! The cluster's actors against the real API server, and against what a real one does not do on demand.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests say what is wrong by panicking, own their tasks, and are read by nobody but us"
)]

mod account;
mod bed;
mod health;
mod leadership;
mod relay;
mod rights;
mod source;
mod spans;
mod tree;
mod trouble;
