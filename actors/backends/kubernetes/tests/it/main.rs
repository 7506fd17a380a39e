//! The backend against an API server: a double that tests tell what to answer (U), and a real one (A); and Squid itself, as
//! Debian packages it (S) (K8-21).
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

mod apiserver;
mod classes;
mod conformance;
mod squid;
mod support;
mod wire;
