//! The provider actor through its messages, over a scripted backend, under a paused clock.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

mod answers;
mod follow;
mod ground;
mod order;
mod support;
mod tree;
