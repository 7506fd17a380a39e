//! Whole-system tests, grouped by promise. One binary, so that everything is linked once.
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

mod architecture;
mod bad_input;
mod callers;
mod clock;
mod cluster;
mod crash;
mod demo;
mod files;
mod gcp;
mod guard;
mod hostile;
mod leases;
mod lifecycle;
mod live;
mod node;
mod scale;
mod secrets;
mod supervision;
mod support;
mod suspicion;
mod third_party;
mod traces;
