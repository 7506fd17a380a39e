//! From an address to a link.

mod ends;
mod host;
mod sshd;
mod stages;
pub mod support;
