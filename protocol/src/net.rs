//! Which addresses are open to the world, and the lists that make exceptions (HE-10, LO-1, `--egress-allow`).
//!
//! The classes are those of the IANA special-purpose address registries (RFC 6890, RFC 8190; content of 2025 with
//! RFC 9602, RFC 9637 and RFC 9780). What a registry does not call globally reachable is not, and neither is IPv6 space
//! that nobody was given. An IPv6 form that carries an IPv4 address is only as good as that address: it is where the
//! packet ends up.
//!
//! Nothing here resolves a name: whoever connects decides on the address connected to.

mod allow;
mod special;

pub use allow::AllowList;
pub use special::{embedded_ipv4, globally_reachable, is_link_local_or_metadata, special_purpose};
