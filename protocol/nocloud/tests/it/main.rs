//! Seeds before readers that none of us wrote. A reader that the machine lacks skips its test by name.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "tests say what is wrong by panicking, and read where skips are counted"
)]

mod agent;
mod image;
mod multipart;
mod support;
