//! The prober against an in-process zoo of proxies and targets, most of them ill-behaved (HE-1…12).

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails is a test that fails")]

mod actors;
mod real;
mod reasons;
mod tunnels;
mod zoo;
