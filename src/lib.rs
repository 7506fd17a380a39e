//! The composition root of egress-proxies-operator: the only crate that knows every part.
//!
//! - [`app`]: settings → running tree → exit code; tests start it in-process
//! - [`demo`]: the demonstration pool of `standalone` without arguments
//! - [`http`]: what is served
//! - [`commands`]: the subcommands that are not a running process
//! - [`logging`]: one form for every line
//! - [`telemetry`]: spans to a collector
//! - [`tls`]: the one crypto backend

pub mod app;
pub mod commands;
pub mod demo;
pub mod http;
pub mod lifecycle;
pub mod logging;
pub mod telemetry;
pub mod tls;
pub mod version;
