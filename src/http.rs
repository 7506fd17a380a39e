//! The listeners: they translate between HTTP and messages and hold no state of their own.
//!
//! - [`server`], [`connection`], [`listener`]: one server for all of them, as actors
//! - [`tls`], [`certificate`]: the same over TLS
//! - [`actor`]: their parent; also keeps the tokens of a file current
//! - [`auth`], [`host`], [`body`], [`query`], [`problem`]: who may ask, and how a request is read and refused
//! - [`discovery`], [`debug`], [`metrics`], [`health`]: what is served
//! - `forward`: what a replica does that does not lead
//! - `trace`: one span per API request
//! - [`openapi`]: the contract of the API, generated from the handlers

pub mod actor;
pub mod auth;
pub mod body;
pub mod certificate;
pub mod connection;
pub mod debug;
pub mod discovery;
mod forward;
pub mod health;
mod host;
pub mod listener;
pub mod metrics;
pub mod openapi;
pub mod problem;
pub mod query;
pub mod server;
pub mod tls;
mod trace;

#[cfg(test)]
pub(crate) mod tests;
