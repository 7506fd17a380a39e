//! Proves with real traffic that a proxy works: the probe, its schedule and verdicts, the judge of check URLs.
//!
//! - [`probe`]: one fetch through a proxy, and why it failed (HE-1, HE-3, HE-7)
//! - [`guard`]: what no user may make us connect to (HE-10)
//! - [`schedule`], [`hysteresis`]: when to probe and what results mean; pure (HE-2, HE-6)
//! - [`actor`]: one prober per proxy
//! - [`judge`]: when the check URL is at fault, and who shares an egress address; pure (HE-7, HE-9), run by
//!   [`judge_actor`]
//!
//! What must stay true: credentials go to the proxy and nowhere else; what a target answers never reaches a message
//! (but for one address, HE-7); a proxy has at most one probe in flight.

pub mod actor;
pub mod guard;
pub mod hysteresis;
pub mod judge;
pub mod judge_actor;
pub mod probe;
pub mod resolve;
pub mod schedule;
pub mod settings;
mod targets;

pub use actor::{ProberActor, spec};
pub use guard::{Guard, GuardPolicy};
pub use judge_actor::JudgeActor;
pub use probe::tls;
pub use resolve::Resolver;
pub use settings::ProbeSettings;
