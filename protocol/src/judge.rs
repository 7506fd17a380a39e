//! The judge of check URLs (HE-9): when most healthy proxies that share a URL fail for reasons of the target, the URL
//! is to blame. The actor's id is `judge`.

use std::sync::Arc;
use std::time::Duration;

use crate::ids::{ObjectKey, Uid};
use crate::message::Message;
use crate::prober::ProbeOutcome;
use crate::time::Timestamp;

/// The id of the judge's actor.
pub const ACTOR_ID: &str = "judge";

/// What the judge is told.
#[derive(Debug, Clone)]
pub enum JudgeMessage {
    /// A probe ended.
    Observed {
        /// Whose.
        key: ObjectKey,
        /// Of exactly this object.
        uid: Uid,
        /// The check URL it used.
        url: Arc<str>,
        /// Its provider, for shared egress addresses (HE-7); `None` for External.
        provider: Option<Arc<str>>,
        /// The verdict that stood before this result.
        was_healthy: bool,
        /// The verdict that stands after it.
        is_healthy: bool,
        /// When it started.
        started_at: Timestamp,
        /// When it ended.
        ended_at: Timestamp,
        /// The proxy's probe interval.
        interval: Duration,
        /// How it ended.
        outcome: ProbeOutcome,
    },
    /// The holder of a lease reported on a proxy whose check URL is suspect.
    Reported {
        /// Which proxy.
        key: ObjectKey,
        /// Of exactly this object.
        uid: Uid,
        /// The use failed (`timeout` or `error`); else traffic came through.
        failed: bool,
    },
    /// The proxy no longer uses that URL, or is gone.
    Forget {
        /// Whose.
        key: ObjectKey,
        /// Of exactly this object.
        uid: Uid,
    },
}

impl Message for JudgeMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Observed { .. } => "Observed",
            Self::Reported { .. } => "Reported",
            Self::Forget { .. } => "Forget",
        }
    }
}

/// What the judge holds of a check URL; sent to every proxy that uses it when it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suspicion {
    /// Failures of probes that began before `until` count for nothing; verdicts flipped by those at or after `since` are
    /// restored. Nothing is replaced, also after that.
    Suspect {
        /// The URL.
        url: Arc<str>,
        /// When the first of the failures started.
        since: Timestamp,
        /// Until when verdicts are held. It may have come already: the URL stays suspect until a probe of it passes.
        until: Timestamp,
        /// This proxy is the first of its namespace by name: it publishes the Event.
        speaks: bool,
    },
    /// A pass ended it.
    Cleared {
        /// The URL.
        url: Arc<str>,
    },
}
