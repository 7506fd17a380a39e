//! What the lease journal keeps, `lease-journal`: entries as they happen, and the state they fold to (LS-9).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::ids::Uid;
use crate::lease::answer::LeaseState;
use crate::lease::id::LeaseId;
use crate::lease::request::ReportResult;
use crate::lease::view::ProxyFragment;
use crate::message::{Message, Reply};
use crate::time::Timestamp;

/// What the journal is asked.
#[derive(Debug)]
pub enum JournalMessage {
    /// Entries come through this channel from now on, in the order of what happened; what the former one still holds counts before. The
    /// memory store has an entry once it is in the channel: whoever sent it may crash.
    Attach {
        /// Batches of entries.
        entries: mpsc::UnboundedReceiver<Vec<Entry>>,
    },
    /// Entries wait in the channel. Said now and then, so that a single grant wakes nobody.
    Fold,
    /// Hand over everything that is kept: the broker starts.
    Load {
        /// All of it, entries sent before included.
        reply_to: Reply<Box<Snapshot>>,
    },
}

impl Message for JournalMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Attach { .. } => "Attach",
            Self::Fold => "Fold",
            Self::Load { .. } => "Load",
        }
    }
}

/// One thing that must not be forgotten.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// A lease was granted.
    Granted(Arc<LeaseRecord>),
    /// It ends at another time now.
    Renewed {
        /// Which.
        id: LeaseId,
        /// When it ends.
        expires_at: Timestamp,
    },
    /// It ended.
    Ended {
        /// Which.
        id: LeaseId,
        /// How.
        ending: Ending,
    },
    /// A cooldown as it is now; replaces the one of that owner and target.
    Cooled {
        /// Whose.
        owner: CooldownOwner,
        /// For which target; `None` = general.
        target: Option<Arc<str>>,
        /// What holds.
        cooldown: Cooldown,
        /// The name of the token whose report began it.
        by: Arc<str>,
    },
    /// One was lifted, or counts for nothing any more.
    CooldownDropped {
        /// Whose.
        owner: CooldownOwner,
        /// For which target.
        target: Option<Arc<str>>,
    },
    /// Every cooldown of an owner ended: the object is gone, or its address changed.
    CooldownsDropped {
        /// Whose.
        owner: CooldownOwner,
    },
    /// A cordon; replaces the one of that object and target.
    Cordoned {
        /// Whose.
        uid: Uid,
        /// For which target; `None` = for every one.
        target: Option<Arc<str>>,
        /// What holds.
        cordon: Cordon,
    },
    /// A cordon was lifted or its time was over.
    Uncordoned {
        /// Whose.
        uid: Uid,
        /// For which target.
        target: Option<Arc<str>>,
    },
    /// Every cordon of an object ended with it.
    CordonsDropped {
        /// Whose.
        uid: Uid,
    },
}

/// What never changes about a lease.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseRecord {
    /// Its id.
    pub id: LeaseId,
    /// Larger than that of every earlier grant.
    pub fence: u64,
    /// The name of the token it belongs to.
    pub token: Arc<str>,
    /// As given.
    pub owner: Option<Arc<str>>,
    /// As given, in lower case.
    pub target: Option<Arc<str>>,
    /// The leased object.
    pub uid: Uid,
    /// The proxy as it was at the grant.
    pub proxy: Arc<ProxyFragment>,
    /// When.
    pub granted_at: Timestamp,
    /// For how long; a renewal without one of its own takes it again.
    pub ttl: Duration,
}

impl LeaseRecord {
    /// What a lease costs in the book and in the memory store together, its texts aside: records, places in tables, and
    /// what the allocator adds (557 bytes were measured).
    const OVERHEAD: usize = 560;

    /// What it costs to remember it, in bytes.
    pub fn cost(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        Self::OVERHEAD + text(&self.owner) + text(&self.target)
    }
}

/// How and when a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// Never `Active`.
    pub state: LeaseState,
    /// `expired`, `released`, `deleted`, `replaced`.
    pub reason: &'static str,
    /// When.
    pub at: Timestamp,
}

/// To whom a cooldown belongs (LS-7).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CooldownOwner {
    /// The object.
    Object(Uid),
    /// The address that targets see, whoever holds it.
    Address(Arc<str>),
}

/// A cooldown and what is remembered for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooldown {
    /// Until then; in the past when it is over.
    pub until: Timestamp,
    /// How often it doubled; `None` after a success, or when only explicit ones were set.
    pub level: Option<u8>,
    /// When the last report that cooled came in.
    pub reported_at: Timestamp,
    /// The result that was reported.
    pub reason: ReportResult,
}

/// Taken out by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cordon {
    /// Until then; `None` = until lifted.
    pub until: Option<Timestamp>,
    /// As given.
    pub reason: Arc<str>,
    /// The name of the token.
    pub by: Arc<str>,
}

/// Everything the journal keeps.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The largest fence ever granted; 0 when nothing was.
    pub fence: u64,
    /// Running ones, and those that ended so recently that they are remembered (in order of their end).
    pub leases: Vec<StoredLease>,
    /// Every cooldown that still matters.
    pub cooldowns: Vec<StoredCooldown>,
    /// Every cordon.
    pub cordons: Vec<(Uid, Option<Arc<str>>, Cordon)>,
}

/// A cooldown as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCooldown {
    /// Whose.
    pub owner: CooldownOwner,
    /// For which target; `None` = general.
    pub target: Option<Arc<str>>,
    /// What holds.
    pub cooldown: Cooldown,
    /// The name of the token whose report began it.
    pub by: Arc<str>,
}

/// A lease as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredLease {
    /// What never changes.
    pub record: Arc<LeaseRecord>,
    /// When it ends or was to end.
    pub expires_at: Timestamp,
    /// `None` while it runs.
    pub ending: Option<Ending>,
}
