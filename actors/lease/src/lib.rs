//! Leases: the pure book, its journal, and the broker that serves it.
//!
//! - [`book`]: capacity, leases, cooldowns, cordons: decisions only, benchmarked on its own
//! - [`broker`]: the actor `lease-broker`
//! - [`journal`]: the actor `lease-journal`, which outlives the broker's crashes

pub mod book;
pub mod broker;
mod by_bits;
pub mod journal;

pub use book::{Book, BookSettings, Effects, Entropy};
pub use broker::{BrokerActor, BrokerArgs};
pub use journal::{JournalActor, JournalArgs};
