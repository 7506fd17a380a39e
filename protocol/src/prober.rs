//! A proxy's probe loop, `prober/<namespace>/<name>`, child of the proxy's actor.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{ObjectKey, Uid};
use crate::judge::Suspicion;
use crate::message::Message;
use crate::object::Credentials;
use crate::resource::HealthCheck;
use crate::time::Timestamp;

/// The id of an object's prober in the tree.
pub fn actor_id(key: &ObjectKey) -> String {
    format!("prober/{key}")
}

/// What is probed. A change of host, port, UID, credentials or `health_check` comes with a new `epoch`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeTarget {
    /// Whose prober this is; the label `proxy` of its metrics.
    pub key: ObjectKey,
    /// Of exactly this object.
    pub uid: Uid,
    /// Results carry it back; a late one of an old configuration is told by it.
    pub epoch: u64,
    /// Name or address of the proxy.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// For `Proxy-Authorization`.
    pub credentials: Option<Arc<Credentials>>,
    /// Whether the endpoint is one that a user typed (External), which HE-10 judges; a provider's own address is not.
    pub external: bool,
    /// The provider entry it comes from, for shared egress addresses (HE-7); `None` for External.
    pub provider: Option<Arc<str>>,
    /// What to fetch and what counts.
    pub health_check: HealthCheck,
    /// The last written `Healthy`: after a restart it stands, and thresholds count from zero (HE-2).
    pub prior: Option<bool>,
}

/// What the prober is told by the proxy's actor.
#[derive(Debug, Clone)]
pub enum ProberMessage {
    /// Probe this from now on; the first time at once (within the ramp of HE-6).
    Configure {
        /// What.
        target: Arc<ProbeTarget>,
    },
    /// Probe now, and again every second while it fails, until the failure threshold decides (LS-7).
    Urgent,
    /// Probe now, once.
    Now,
    /// From the judge: the check URL is suspect, so the verdict is held, or no longer (HE-9). May be repeated.
    CheckUrl {
        /// Since when, or that it is over.
        suspicion: Suspicion,
    },
}

impl Message for ProberMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Configure { .. } => "Configure",
            Self::Urgent => "Urgent",
            Self::Now => "Now",
            Self::CheckUrl { .. } => "CheckUrl",
        }
    }
}

/// Why a probe failed (HE-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProbeFailure {
    /// No connection to the proxy, or closed before any answer.
    ConnectFailed,
    /// CONNECT answered non-2xx, or not HTTP.
    ProxyRefused,
    /// The proxy asks for other credentials.
    ProxyAuthRequired,
    /// The handshake with the target.
    TlsFailed,
    /// The target (or in absolute form, anyone) answered something else.
    UnexpectedStatus,
    /// Which stage, is in the message.
    Timeout,
    /// HE-10.
    NotAllowed,
}

impl ProbeFailure {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::ConnectFailed,
        Self::ProxyRefused,
        Self::ProxyAuthRequired,
        Self::TlsFailed,
        Self::UnexpectedStatus,
        Self::Timeout,
        Self::NotAllowed,
    ];

    /// As in messages and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ConnectFailed => "ConnectFailed",
            Self::ProxyRefused => "ProxyRefused",
            Self::ProxyAuthRequired => "ProxyAuthRequired",
            Self::TlsFailed => "TLSFailed",
            Self::UnexpectedStatus => "UnexpectedStatus",
            Self::Timeout => "Timeout",
            Self::NotAllowed => "NotAllowed",
        }
    }
}

/// How one probe ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// Traffic flows.
    Passed {
        /// From dialling to the answer.
        latency: Duration,
        /// The address the target saw, when it reports it (HE-7).
        egress_ip: Option<IpAddr>,
    },
    /// It does not.
    Failed {
        /// Why.
        failure: ProbeFailure,
        /// In words, without secrets or response bodies.
        message: String,
        /// The fault lies on the target's side as far as this probe can tell: `UnexpectedStatus`, `TLSFailed`,
        /// `ProxyRefused` with a 5xx, `Timeout` after CONNECT (HE-9).
        target_side: bool,
    },
}

impl ProbeOutcome {
    /// Whether it passed.
    pub const fn passed(&self) -> bool {
        matches!(self, Self::Passed { .. })
    }
}

/// One probe's result, as the prober tells its proxy's actor.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeReport {
    /// Of the target that was probed.
    pub epoch: u64,
    /// When it was started; one that began before a change does not count.
    pub started_at: Timestamp,
    /// When it ended: `checkedAt`.
    pub ended_at: Timestamp,
    /// How.
    pub outcome: ProbeOutcome,
    /// The standing verdict after this result, thresholds applied. `None`: still Unknown (cannot be after a result).
    pub healthy: bool,
    /// The verdict changed with this result.
    pub flipped: bool,
    /// Results in a row that contradict the verdict.
    pub contradicting: u32,
}
