//! The tree as its users see it: restarts, addresses, tasks, stops, questions.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests, also where they are not test functions")]

mod addresses;
mod batches;
mod inspection;
mod puppet;
mod restarts;
mod stops;
mod tasks;
