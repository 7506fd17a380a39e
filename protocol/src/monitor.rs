//! Provider checks (provider-health.md): what the monitor tells its readers, and the seam through which a cluster writes
//! `ProviderHealth` objects. The monitor's id is `monitor`.

use std::sync::Arc;
use std::time::Duration;

use crate::message::{Message, Reply};
use crate::resource::ProviderHealthStatus;
use crate::time::Timestamp;

/// The id of the monitor.
pub const ACTOR_ID: &str = "monitor";

/// The id of whoever writes `ProviderHealth` objects: nobody standalone (PH-48).
pub const PUBLISHER_ID: &str = "provider-health";

/// The last round, whole: one entry per provider that was checked, in the order of the file. Empty before the first round.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HealthSnapshot {
    /// The providers.
    pub providers: Vec<ProviderChecked>,
}

/// What became of one provider's check.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderChecked {
    /// The configured name.
    pub name: Arc<str>,
    /// As `ProviderHealth` shows it.
    pub status: Arc<ProviderHealthStatus>,
    /// When the check finished, in full.
    pub finished: Timestamp,
    /// How long each target's check took, in the order of `status.targets`.
    pub latencies: Vec<Duration>,
}

impl HealthSnapshot {
    /// The entry of that name.
    pub fn provider(&self, name: &str) -> Option<&ProviderChecked> {
        self.providers.iter().find(|checked| &*checked.name == name)
    }
}

/// What the monitor is asked.
#[derive(Debug)]
pub enum MonitorMessage {
    /// The last round, never half of one; answered at once (PH-16).
    Snapshot {
        /// Shared, never changed afterwards.
        reply_to: Reply<Arc<HealthSnapshot>>,
    },
}

impl Message for MonitorMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Snapshot { .. } => "Snapshot",
        }
    }
}

/// What the writer of `ProviderHealth` objects is told. Lossy: what was not written is written with the next round (PH-22).
#[derive(Debug, Clone)]
pub enum PublisherMessage {
    /// Write this provider's status: read the object, make it if it is absent, take over the transition times it has
    /// ([`ProviderHealthStatus::keep_times`]), patch it once (PH-20, PH-21).
    Publish {
        /// The configured name, a DNS label.
        name: Arc<str>,
        /// All of it.
        status: Arc<ProviderHealthStatus>,
    },
    /// Delete our objects of providers that are not among these (PH-25, PH-26).
    Cleanup {
        /// The configured names.
        keep: Vec<Arc<str>>,
    },
}

impl Message for PublisherMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Publish { .. } => "Publish",
            Self::Cleanup { .. } => "Cleanup",
        }
    }
}
