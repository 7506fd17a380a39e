//! Provider health (provider-health.md): can each provider's backend be reached and used right now?
//!
//! - [`status`]: what a check comes to, and which transitions are told: pure
//! - [`MonitorActor`] runs the rounds, keeps the last one, tells log, directory and publisher

mod actor;
pub mod status;

pub use actor::{MonitorActor, MonitorArgs, MonitorInternal, spec};
