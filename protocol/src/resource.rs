//! The kinds `Proxy` and `ProviderHealth` (operator.md §3, provider-health.md §2): types, defaults, validation.
//!
//! - [`proxy`], [`provider_health`]: the types, with what one field may hold
//! - [`rules`], [`grammar`]: what spans fields, and the patterns: one table for CEL and for us (OP-32)
//! - [`crd`]: the CRDs made of both; [`validate`]: the same judgement offline, every fault at once
//! - [`secrets`]: what an object gets from the Secrets it names
//! - [`conditions`]: how a condition is built, found and compared

pub mod conditions;
pub mod crd;
pub mod grammar;
pub mod provider_health;
pub mod proxy;
pub mod rules;
mod schema;
pub mod secrets;
pub mod validate;

pub use provider_health::{ProviderHealth, ProviderHealthStatus};
pub use proxy::{CloudInitSpec, Endpoint, HealthCheck, Mode, Phase, Placement, Proxy, ProxySpec, ProxyStatus, SecretKeyRef, SecretNameRef};

/// The API group of both kinds.
pub const GROUP: &str = "crawl.example.com";
/// Their version.
pub const VERSION: &str = "v1alpha1";
/// The finalizer of Managed proxies (OP-11).
pub const FINALIZER: &str = "crawl.example.com/instance-cleanup";
/// Releases the finalizer without touching the backend when `"true"` (OP-11).
pub const ANNOTATION_SKIP_CLEANUP: &str = "crawl.example.com/skip-cleanup";
/// A changed value ends a latch (OP-17).
pub const ANNOTATION_RETRY: &str = "crawl.example.com/retry";
/// A changed value replaces the instance once (OP-33).
pub const ANNOTATION_REPLACE: &str = "crawl.example.com/replace";
/// The label a cloud-init Secret must carry, with the value `"true"`.
pub const LABEL_CLOUD_INIT: &str = "crawl.example.com/cloud-init";
/// The label a credentials Secret must carry, with the value `"true"`.
pub const LABEL_CREDENTIALS: &str = "crawl.example.com/proxy-credentials";
