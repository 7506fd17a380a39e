//! What the subcommands do (OP-3). Each returns the exit code of OP-4.

pub mod client;
pub mod get;
pub mod table;
