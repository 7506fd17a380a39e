//! The provider actor: order per instance, deadlines, admission and measurement round a backend.
//!
//! - [`Backend`] is the seam that every backend implements
//! - [`Ground`] is what a backend stands on: host actors, tracked tasks, the fence; [`Call`] is what travels with each call
//! - [`ownership`] reads whose instance it is from its labels: pure
//! - `queue` decides which call may run: pure
//! - the crate `egress-conformance` beside this one is the suite that every backend passes
//! - [`ProviderActor`] (`provider/<entry>`) runs one backend; [`ProvidersActor`] (`providers`) has one child per entry and
//!   follows the providers file

mod actor;
mod backend;
mod call;
mod ground;
pub mod ownership;
mod providers;
mod queue;
mod verdict;

pub use actor::{BuildBackend, ProviderActor, ProviderArgs, ProviderInternal};
pub use backend::{Backend, BackendError, Call, CallEnd, Location, Subject};
pub use ground::{Caller, Ground, HOST_KIND, Host, HostError, Tasks};
pub use providers::{MakeEntries, ProviderEntry, ProvidersActor, ProvidersArgs, ProvidersInternal};
pub use verdict::Verdict;

/// How long a create whose caller has its answer may go on to remove what it made (PC-23).
pub const CLEANUP_BUDGET: std::time::Duration = std::time::Duration::from_secs(10);
