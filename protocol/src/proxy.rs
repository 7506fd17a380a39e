//! One object's actor, `proxy/<namespace>/<name>`: what its prober, the broker, the judge and people tell it.

use std::net::IpAddr;

use crate::ids::ObjectKey;
use crate::judge::Suspicion;
use crate::message::{Message, Reply};
use crate::prober::ProbeReport;
use crate::time::Timestamp;

/// What others tell a proxy's actor. (Its object comes from the directory, inside the same crate.)
#[derive(Debug)]
pub enum ProxyMessage {
    /// From the directory: the orders on this actor's desk changed (object, provider, place in a rollout). Look at
    /// them; one that waits stands for all that came since (SV-3).
    Wake,
    /// A probe ended. One whose epoch is not the current one is ignored (HE-2).
    Probed {
        /// What happened.
        report: ProbeReport,
    },
    /// Reports of failing leases ask for evidence now (LS-7): probe at once and repeat a failed one every second
    /// until the failure threshold decides.
    ProbeNow,
    /// From the lease broker: no lease runs any more of the proxy that was published with this time (LS-16). May be
    /// repeated.
    Drained {
        /// `drain_by` of what was published.
        by: Timestamp,
    },
    /// The judge suspects, or no longer suspects, the check URL this proxy uses (HE-9).
    CheckUrl {
        /// Since when, or that it is over.
        suspicion: Suspicion,
    },
    /// Another proxy of the same provider shows targets the same address (HE-7): tell people.
    EgressShared {
        /// Which one.
        other: ObjectKey,
        /// The address both have.
        address: IpAddr,
    },
    /// For `/debug/proxies/{ns}/{name}` (OB-4): the machine with its last 50 transitions and the next timer.
    /// Answered at once.
    Explain {
        /// Redacted JSON.
        reply_to: Reply<serde_json::Value>,
    },
}

impl Message for ProxyMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Wake => "Wake",
            Self::Probed { .. } => "Probed",
            Self::ProbeNow => "ProbeNow",
            Self::Drained { .. } => "Drained",
            Self::CheckUrl { .. } => "CheckUrl",
            Self::EgressShared { .. } => "EgressShared",
            Self::Explain { .. } => "Explain",
        }
    }
}
