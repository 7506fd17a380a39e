//! The kubernetes backend: one Pod that runs a real Squid per Proxy, in the Proxy's namespace (provider-kubernetes.md).
//!
//! - `pod`: the Pod of a request (pure); `squid`: the configuration it runs with (pure)
//! - `state`: what a Pod's status is read as (pure); `id`: the grammar of ids (pure)
//! - `class`: what a failed call means (pure)
//! - `api`: the calls, each one span and one line; `host`: the actor `host/<entry>/api`, which owns the client and sends them
//! - [`KubernetesBackend`]: the provider contract over them
//! - [`KubernetesConfig`]: what the composition root fills in from the providers file
//!
//! What must stay true: nothing is remembered between operations; no call is made twice but after a refused token; what
//! is not ours by its labels is never touched; cloud-init never reaches a Pod.

mod api;
mod backend;
mod check;
mod class;
mod config;
mod host;
mod id;
mod pod;
mod squid;
mod state;

pub use backend::KubernetesBackend;
pub use config::{Budgets, KubernetesConfig};

/// The type in the providers file.
pub const TYPE: &str = "kubernetes";
