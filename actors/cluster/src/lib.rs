//! Everything of a cluster: the objects of the API server in place of manifest folders.
//!
//! - [`source`]: the actor `source`: Proxies and their Secrets in, status, finalizers and Events out
//! - [`leadership`]: the actor `leadership`: holds the Lease, starts and stops what only a leader runs
//! - [`health`]: the actor `provider-health`: writes `ProviderHealth` objects
//! - [`reviewer`]: the actor `metrics-reviewer`: whose token it is, and whether they may
//! - [`installation`], [`server_addresses`]: which cluster this is, and where its API server is
//! - `events`: pure: which Event is sent of what is announced; `lanes`: pure: who may send now
//! - `sending`: what every request of ours has in common: the fence before a write, lists page by page
//! - `paths`: where things are at the API server, and which of them we are about (OP-25)
//!
//! What must stay true: every write asks the fence right before it is sent (SV-4) and has a deadline (OP-29); nothing is asked
//! of Secrets but those with our labels; what is not known is never taken for what is not there.

mod events;
pub mod health;
mod lanes;
pub mod leadership;
mod paths;
mod place;
pub mod reviewer;
mod sending;
pub mod source;

pub use paths::Scope;
pub use place::{installation, server_addresses};
