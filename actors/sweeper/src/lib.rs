//! Orphan collection (operator.md §7): instances and secondary resources that no `Proxy` has any more.
//!
//! - [`sweep`] decides what may be deleted: pure
//! - [`SweeperActor`] lists, reads the live set, asks for deletes, counts and logs

mod actor;
pub mod sweep;

pub use actor::{SweeperActor, SweeperArgs, SweeperInternal, spec};

/// The sweeper's id in the tree. Nobody sends to it.
pub const ACTOR_ID: &str = "sweeper";
