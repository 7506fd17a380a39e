//! The state machine of one Proxy, its actor, and the directory of all of them.
//!
//! - [`machine`]: what is to be done, from what happened: pure
//! - `status`, [`hash`], [`rollout`]: what the world is told, what an instance was made from, whose turn it is: pure
//! - [`ProxyActor`]: performs what the machine decides, one per object
//! - [`Directory`]: one child per object, and the rollout's book; they meet at a `desk`

mod actor;
mod desk;
mod directory;
pub mod hash;
pub mod machine;
pub mod rollout;
mod status;

pub use actor::{ProberFactory, ProxyActor, ProxyArgs, ProxyInternal};
pub use directory::{Directory, DirectoryArgs, DirectoryInternal};
pub use machine::Settings;
