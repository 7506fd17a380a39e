//! The gcp backend: one Compute Engine virtual machine per Proxy, with an external address of its own (provider-gcp.md).
//!
//! - `id`, `place`, `body`, `request`: what is asked for (pure); `model`: what is read of the answers
//! - `state`: what a status is read as (pure); `class`: what a failure means (pure)
//! - `operations`: what the last operation makes of a 404 (pure); `tokens`: which token is in use (pure)
//! - `credentials`: where a token comes from; `client`: the HTTP client behind one `send`; `wire`: the wire tier of the log
//! - `host`: the actor `host/<entry>/api` that owns client, token and operations; `api`: the way to it
//! - [`GcpBackend`]: the provider contract over the calls
//! - [`GcpConfig`]: what the composition root fills in from the providers file
//!
//! What must stay true: no request is sent twice but after a refused token, then with the same `requestId`; what is not
//! ours by its labels is never touched; a 404 is NotFound only when no insert is running or has failed untold; neither a
//! token nor user-data is in any line, span or error.

mod api;
mod backend;
mod body;
mod check;
mod class;
mod client;
mod config;
mod credentials;
mod error;
mod host;
mod id;
mod model;
mod operations;
mod place;
mod request;
mod state;
#[cfg(test)]
mod testing;
mod tokens;
mod wire;

pub use backend::GcpBackend;
pub use config::{Budgets, GcpConfig, Live};

/// The type in the providers file.
pub const TYPE: &str = "gcp";
