//! SSH to a host, and through it to libvirtd's socket (LV-79…87).
//!
//! - [`Credentials`]: key and known_hosts, read on every dial
//! - [`KnownHosts`]: which host keys are trusted; pure
//! - [`dial`]: TCP, SSH, the socket, libvirt's own handshake, within one budget
//! - [`Link`] and [`Driver`]: what comes out of it
//! - [`DialError`]: at which [`Stage`] it failed, and what that means; pure

mod credentials;
mod cut;
mod dial;
mod fault;
mod known_hosts;

pub use credentials::{Credentials, Files};
pub use dial::{Driver, KEEPALIVE, Link, Target, Timing, dial};
pub use fault::{CredentialFault, DialError, Fault, HealthReasons, HostKeyFault, Stage};
pub use known_hosts::{KnownHosts, UnreadableRevocation, Verdict, lookup_name};
