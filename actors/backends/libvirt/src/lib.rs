//! Virtual machines on one's own libvirt hosts.
//!
//! **Not reachable from a providers file yet**: the types `kvm` and `kvm2` are not registered, and there is no backend behind
//! them. What is here is what the backend is made of, complete and tested on its own:
//!
//! - [`ssh`]: from a host's address, a key file and a known_hosts file to a link with its libvirtd, each stage of the way told
//!   apart when it fails
//!
//! Not here yet: the engine (create, get, delete, list), image fetches, the host actor, the check, configuration.

pub mod ssh;
