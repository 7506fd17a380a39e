//! What the parts say to each other and to the world: definitions and constructors, no I/O.
//!
//! - [`resource`]: the kinds `Proxy` and `ProviderHealth`, their defaults, validation and conditions
//! - [`object`]: a `Proxy` as the source hands it over, with its Secrets resolved
//! - [`provider`]: the provider contract (requests, instances, error classes)
//! - [`lease`]: request and response types of the HTTP API, and what the broker and its journal are told
//! - [`review`]: may the bearer of a token do that
//! - [`leadership`]: the fence, and what a replica knows of the leader
//! - [`source`], [`proxies`], [`proxy`], [`prober`], [`judge`], [`monitor`]: the messages of each actor
//! - [`metrics`]: every metric family, named once
//! - [`hop`]: which header fields stay on one hop
//! - [`net`]: classes of addresses and the lists that make exceptions
//!
//! Message conventions: named fields; a reply port is `reply_to`; commands are imperative, events are past
//! tense; every message may be repeated (level-triggered). A dropped `reply_to` is an answer too: the receiver
//! crashed or is gone, and the sender must be able to ask again.

pub mod hop;
pub mod ids;
pub mod judge;
pub mod leadership;
pub mod lease;
pub mod message;
pub mod metrics;
pub mod monitor;
pub mod net;
pub mod object;
pub mod prober;
pub mod provider;
pub mod proxies;
pub mod proxy;
pub mod resource;
pub mod review;
pub mod secret;
pub mod source;
pub mod time;

pub use ids::{InstallationId, InstanceId, InstanceName, ObjectKey, Uid};
pub use message::{Message, Reply};
pub use secret::Secret;
pub use time::{Clock, Timestamp};
