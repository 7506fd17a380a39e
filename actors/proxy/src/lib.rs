//! The state machine of one Proxy, its actor, and the directory of all of them.
//!
//! - [`machine`]: what is to be done, from what happened: pure
//! - `status`, [`hash`], [`rollout`]: what the world is told, what an instance was made from, whose turn it is: pure

pub mod hash;
pub mod machine;
pub mod rollout;
mod status;
