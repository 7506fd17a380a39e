//! Settings: raw text in, validated types out, with every fault of a document at once.
//!
//! - [`cli`]: flags and environment → the settings of a command (OP-27)
//! - [`manifest`]: manifest files → `Proxy` and `Secret` documents (OP-30)
//! - [`providers`]: the providers file → its entries (PC-77..82)
//! - [`TelemetrySettings`]: whether spans are exported (OB-3)
//! - [`open`]: files that a user named, regular ones only
//! - [`tokens`]: the token file of the discovery API (operator.md §6)
//! - [`validate_files`]: what the command `validate` says about files (OP-3)
//! - [`crds`]: what the command `crds` prints
//!
//! What must stay true: this is the only crate that reads the environment and files of settings; nothing starts from a
//! document that has a fault; a fault names file, path and reason and never shows a text that may be a secret.

#[cfg(test)]
mod chart;
pub mod cli;
#[cfg(test)]
mod committed;
mod crds;
mod fault;
mod files;
pub mod manifest;
pub mod open;
pub mod providers;
mod reader;
mod telemetry;
pub mod tokens;
mod yaml;

pub use crds::crds;
pub use fault::Fault;
pub use files::{Report, validate_files};
pub use telemetry::TelemetrySettings;
