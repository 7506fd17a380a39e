//! The local backend: forward proxies inside this process (operator.md §10).
//!
//! - `engine`: one forward proxy, from the listener to the egress guard
//! - `marks`: what the state folder remembers of each instance
//! - [`LocalBackend`]: the provider contract over the two
//! - [`LocalConfig`]: what the composition root fills in from the providers file

mod backend;
mod config;
mod engine;
mod marks;

pub use backend::{LocalBackend, LocalEvent, Observer};
pub use config::{Limits, LocalConfig, Outside};
pub use engine::{Resolve, SystemResolver};

/// The type in the providers file.
pub const TYPE: &str = "local";
