//! Virtual machines on one's own libvirt hosts.
//!
//! **Not reachable from a providers file yet**: the types `kvm` and `kvm2` are not registered, and there is no backend behind
//! them. What is here is what the backend is made of, complete and tested on its own:
//!
//! - [`ssh`]: from a host's address, a key file and a known_hosts file to a link with its libvirtd, each stage of the way told
//!   apart when it fails
//! - [`profile`], [`settings`], [`placement`]: the two types, what an entry says, what a Proxy's placement means in it
//! - [`names`], [`mark`]: what things on a host are called, and whose they are
//! - [`domain`], [`volume`], [`xml`]: what libvirt is sent, and what is read of its answers
//! - [`state`], [`address`], [`class`]: what its answers mean
//! - [`cache`], [`qcow2`], [`space`]: what to do about images, and whether there is room
//!
//! - [`rpc`], [`engine`]: the calls of libvirt that operations make, and of these operations get, delete and list on one host
//!
//! All but [`ssh`], [`rpc`] and [`engine`] is pure: no I/O, no clock.
//!
//! Not here yet: create, image fetches, the neighbour table of a host (`neighbourFallback`), the host actor and the backend
//! over several hosts, the check, spans and the line of each call, configuration.

pub mod address;
pub mod cache;
pub mod class;
pub mod domain;
pub mod engine;
pub mod mark;
pub mod names;
pub mod placement;
pub mod profile;
pub mod qcow2;
pub mod rpc;
pub mod settings;
pub mod space;
pub mod ssh;
pub mod state;
pub mod volume;
pub mod xml;
