//! Objects without a cluster (OP-2, OP-30): manifest folders in, status and deletions out.
//!
//! - [`StateFolder`]: what survives the process: installation id, one record per object; locked, durable, private
//! - [`ManifestFolders`]: the folders that were given, and whether the process may start with them
//! - `folder`: pure: what the files say, when they may be believed, what follows for the known objects
//! - `scan`: reading the folders; `secrets`: pure: what an object gets from the Secrets it names
//! - [`ManifestsActor`]: the source's actor, served as `egress_protocol::source`
//!
//! What must stay true: nothing is created, changed or removed before its files stood still; an object is announced
//! only as it is recorded, so that a crash never takes back what somebody has seen; contents of Secrets stay in memory.

mod actor;
mod folder;
mod ledger;
mod parse;
mod scan;
mod secrets;
mod start;
mod state;

pub use actor::{ManifestsActor, ManifestsArgs, Pace, spec};
pub use folder::Home;
pub use start::{DEMONSTRATION, ManifestFolders, StartError};
pub use state::{Inspection, Record, StateError, StateFolder, inspect};
