//! The source of objects: the manifest folders (standalone) or the API server (cluster). Both serve these messages;
//! the actor's id is `source`.

use std::collections::HashSet;
use std::sync::Arc;

use tracing::Span;

use crate::ids::{ObjectKey, Uid};
use crate::message::{Message, Reply};
use crate::object::ProxyObject;
use crate::resource::ProxyStatus;
use crate::time::Timestamp;

/// The id of the source's actor.
pub const ACTOR_ID: &str = "source";

/// Why a write did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No object of that name and UID: the writer should stop.
    #[error("the object is gone")]
    Gone,
    /// Somebody else changed it: re-read (a new object is on its way) and decide again (OP-24).
    #[error("the object was changed meanwhile")]
    Conflict,
    /// The store did not take it: try again with backoff.
    #[error("the store did not take it: {0}")]
    Unavailable(String),
}

/// The UIDs of all objects that exist, for orphan collection (OG-2, OG-3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSet {
    /// Of every object: those being deleted, suspended ones and those whose document cannot be read included.
    pub uids: Arc<HashSet<Uid>>,
    /// Every object there is was read, and the reader was allowed to read them all. Nothing is an orphan by a set that is
    /// not complete, an empty one least of all (OG-6).
    pub complete: bool,
    /// When the read began. One that began before the instances were listed proves nothing (OG-3).
    pub as_of: Timestamp,
}

/// What the source is asked.
#[derive(Debug)]
pub enum SourceMessage {
    /// Persist a status. The answer comes after it is durable, and with the generation that is current then, so
    /// that a writer sees an edit that happened meanwhile (OP-16). Without an answer the writer repeats it.
    WriteStatus {
        /// Whose.
        key: ObjectKey,
        /// Of exactly this object.
        uid: Uid,
        /// All of it: replaces what was there.
        status: Arc<ProxyStatus>,
        /// What the write is part of: the parent of its span (OB-3).
        span: Span,
        /// The object's generation at the moment of the write.
        reply_to: Reply<Result<i64, SourceError>>,
    },
    /// Put our finalizer on the object (OP-11); answered when durable. An object that is being deleted takes none any
    /// more: `Gone`.
    AddFinalizer {
        /// Whose.
        key: ObjectKey,
        /// Of exactly this object.
        uid: Uid,
        /// What the write is part of (OB-3).
        span: Span,
        /// Done.
        reply_to: Reply<Result<(), SourceError>>,
    },
    /// Release it. A deleted object without a finalizer is gone; the source then sends `Gone` to the directory.
    RemoveFinalizer {
        /// Whose.
        key: ObjectKey,
        /// Of exactly this object.
        uid: Uid,
        /// What the write is part of (OB-3).
        span: Span,
        /// Done.
        reply_to: Reply<Result<(), SourceError>>,
    },
    /// Tell people (OP-9). Best effort; standalone: one log line at most.
    Publish {
        /// About whom.
        event: ProxyEvent,
    },
    /// Send every object to the directory again, then `Synced`: it restarted and knows nothing.
    Resend,
    /// Which objects exist, read now and not from a cache (OG-3). An error, or no answer, is no evidence of anything.
    LiveUids {
        /// The set, or why it could not be read.
        reply_to: Reply<Result<LiveSet, SourceError>>,
    },
    /// Every object as it is known now, for a replica that has nobody to ask (LS-10). Before the first full read: `None`.
    List {
        /// By namespace and name.
        reply_to: Reply<Option<Vec<Arc<ProxyObject>>>>,
    },
    /// What is not in order, for `/readyz?verbose`; answered at once.
    Faults {
        /// One line each; empty when all is well.
        reply_to: Reply<Vec<String>>,
    },
}

impl Message for SourceMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::WriteStatus { .. } => "WriteStatus",
            Self::AddFinalizer { .. } => "AddFinalizer",
            Self::RemoveFinalizer { .. } => "RemoveFinalizer",
            Self::Publish { .. } => "Publish",
            Self::Resend => "Resend",
            Self::LiveUids { .. } => "LiveUids",
            Self::List { .. } => "List",
            Self::Faults { .. } => "Faults",
        }
    }
}

/// A transition a person would look for (OP-9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyEvent {
    /// About whom.
    pub key: ObjectKey,
    /// Of exactly this object.
    pub uid: Uid,
    /// Which transition.
    pub reason: EventReason,
    /// In words, at most 1024 bytes, no secrets.
    pub note: String,
    /// When.
    pub at: Timestamp,
}

/// The reasons of OP-9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the words of OP-9")]
pub enum EventReason {
    Created,
    Running,
    Replacing,
    Failed,
    Unhealthy,
    Recovered,
    Deleted,
    Paused,
    CleanupSkipped,
    CheckUrlSuspect,
    EgressShared,
    Cordoned,
    Uncordoned,
    Draining,
}

impl EventReason {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Replacing => "Replacing",
            Self::Failed => "Failed",
            Self::Unhealthy => "Unhealthy",
            Self::Recovered => "Recovered",
            Self::Deleted => "Deleted",
            Self::Paused => "Paused",
            Self::CleanupSkipped => "CleanupSkipped",
            Self::CheckUrlSuspect => "CheckURLSuspect",
            Self::EgressShared => "EgressShared",
            Self::Cordoned => "Cordoned",
            Self::Uncordoned => "Uncordoned",
            Self::Draining => "Draining",
        }
    }
}
