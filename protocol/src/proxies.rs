//! The directory of all objects: one child actor per object. The actor's id is `proxies`.

use std::sync::Arc;

use crate::ids::{ObjectKey, Uid};
use crate::message::Message;
use crate::object::ProxyObject;

/// The id of the directory's actor.
pub const ACTOR_ID: &str = "proxies";

/// Some of many (`--max-unavailable`): a share, or a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Of a hundred, rounded down, at least one.
    Percent(u8),
    /// That many, at least one.
    Count(u32),
}

impl Share {
    /// How many of `total` that are; at least one.
    pub fn of(self, total: usize) -> usize {
        match self {
            Self::Percent(percent) => total.saturating_mul(usize::from(percent)) / 100,
            Self::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
        }
        .max(1)
    }

    /// Reads `1%`–`100%`, or a count of at least 1.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        match text.strip_suffix('%') {
            Some(percent) if digits(percent) => percent.parse().ok().filter(|n| (1..=100).contains(n)).map(Self::Percent),
            None if digits(text) => text.parse().ok().filter(|n| *n >= 1).map(Self::Count),
            Some(_) | None => None,
        }
    }
}

/// The targets of a provider, each with whether it is ready.
pub type TargetsReady = Arc<[(Arc<str>, bool)]>;

/// What the directory is told.
#[derive(Debug, Clone)]
pub enum ProxiesMessage {
    /// The object as it is now: route it to its actor, started if new. A new UID under a known name replaces the
    /// old actor (the source sends it only when the old object is gone).
    Apply {
        /// The object.
        object: Arc<ProxyObject>,
    },
    /// The object is gone for good (no finalizer held it any more): stop its actor, withdraw it from leasing.
    Gone {
        /// Which.
        key: ObjectKey,
        /// Of exactly this object.
        uid: Uid,
    },
    /// The source has sent every object that exists: actors of objects it did not send are stopped.
    Synced {
        /// The UIDs of all that exist.
        live: Vec<Uid>,
    },
    /// The lease broker restarted and knows no proxy: have every actor publish its availability again.
    Republish,
    /// A provider entry appeared, changed (new fingerprint) or went (`None`): tell the proxies that name it
    /// (OP-20, PC-59).
    ProviderChanged {
        /// The configured name.
        name: Arc<str>,
        /// A digest of the entry, its credential files included.
        fingerprint: Option<String>,
    },
    /// From the monitor after each round: how the targets of a provider were found. While the target that a proxy depends
    /// on is down, the proxy is not replaced for being Unhealthy (OP-33).
    ProviderHealth {
        /// The configured name.
        name: Arc<str>,
        /// Each target with whether it is ready; empty when nothing is known.
        targets: TargetsReady,
    },
    /// From a proxy's actor: what it says of its place in a rollout changed on its desk (OP-16, OP-33).
    MemberChanged {
        /// Whose.
        key: ObjectKey,
    },
    /// The provider freed capacity: waiters for quota may try again (OP-18).
    CapacityFreed {
        /// The configured name.
        provider: Arc<str>,
    },
}

impl Message for ProxiesMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Apply { .. } => "Apply",
            Self::Gone { .. } => "Gone",
            Self::Synced { .. } => "Synced",
            Self::Republish => "Republish",
            Self::ProviderChanged { .. } => "ProviderChanged",
            Self::ProviderHealth { .. } => "ProviderHealth",
            Self::MemberChanged { .. } => "MemberChanged",
            Self::CapacityFreed { .. } => "CapacityFreed",
        }
    }
}
