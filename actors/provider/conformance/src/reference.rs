//! The reference backend: the contract over a cloud that lives in memory, so small that it can be read at one go. It passes
//! the conformance suite; [`Mutation`]s of it, each with one rule broken, fail the test named for that rule (PC-90, PC-91).
//! Also for the tests of those who call providers (PC-95).
//!
//! - `cloud`: two zones, machines, volumes, links, and hands to interfere
//! - `zone`: the host actor of a zone, which owns the link to it
//! - `client`: the seam: one method per backend call, each with its span, its line and its budget
//! - [`ReferenceBackend`]: the contract over the seam
//! - [`ReferenceFixture`]: what it supplies to the suite

mod artefact;
mod backend;
mod client;
mod cloud;
mod fixture;
mod mutation;
mod zone;

pub use backend::{ReferenceBackend, ReferenceConfig, Style};
pub use cloud::Cloud;
pub use fixture::ReferenceFixture;
pub use mutation::Mutation;

/// The type in the providers file.
pub const TYPE: &str = "reference";
