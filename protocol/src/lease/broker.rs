//! What the lease broker is told and asked, `lease-broker`: by the proxies' actors, and by the HTTP layer on behalf of
//! crawlers. It answers every request at once (one with a
//! new selector may have to wait for some bites of work), or drops `reply_to` when it crashes: then the caller may ask again
//! (a grant whose answer was lost stays until its time is over).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{ObjectKey, Uid};
use crate::lease::ProxyAvailability;
use crate::lease::answer::{Explain, ReportAnswer};
use crate::lease::caller::Caller;
use crate::lease::id::LeaseId;
use crate::lease::item::{ProxyItem, ProxyList};
use crate::lease::problem::LeaseError;
use crate::lease::request::{CordonRequest, GrantRequest, LeaseFilter, ProxyFilter, ReportRequest};
use crate::lease::view::LeaseView;
use crate::message::{Message, Reply};
use crate::resource::Phase;

/// What the broker is told and asked.
#[derive(Debug)]
pub enum BrokerMessage {
    /// A proxy as it is now. May be repeated; the latest counts. Another UID under a known name replaces the old
    /// object, whose leases are revoked.
    Publish {
        /// All of it.
        proxy: Arc<ProxyAvailability>,
    },
    /// The object is gone: its leases are revoked, reason `deleted`; those of an External one end when the drain timeout is
    /// over (LS-16). Ignored for another UID than the known one.
    Withdraw {
        /// Which.
        key: ObjectKey,
        /// Of exactly this object.
        uid: Uid,
    },
    /// Every proxy there is: each is published by its actor. Until this was said, and each of them has spoken, a broker that
    /// has just begun refuses nobody for good (LS-4), for 10 s at most. May be repeated.
    Expect {
        /// Their UIDs.
        live: Vec<Uid>,
    },
    /// The system clock was set: what a person said in absolute time stays what it says.
    ClockSet {
        /// By so many milliseconds forward, or back where negative.
        millis: i64,
    },
    /// A probe passed: the suspicion that three failing reports raised is lifted (LS-7). May be repeated.
    ProbePassed {
        /// Whose.
        key: ObjectKey,
        /// Of exactly this object.
        uid: Uid,
    },
    /// LS-2.
    Grant {
        /// What is wanted.
        request: Box<GrantRequest>,
        /// Who asks.
        caller: Caller,
        /// The lease, or why not.
        reply_to: Reply<Result<LeaseView, LeaseError>>,
    },
    /// LS-5.
    Renew {
        /// Which.
        id: LeaseId,
        /// For how long from now; `None` = as granted.
        ttl: Option<Duration>,
        /// Who asks.
        caller: Caller,
        /// The lease as it is then.
        reply_to: Reply<Result<LeaseView, LeaseError>>,
    },
    /// LS-6. Unknown, ended and other tokens' leases are all the same: done.
    Release {
        /// Which.
        id: LeaseId,
        /// Who asks.
        caller: Caller,
        /// Done.
        reply_to: Reply<Result<(), LeaseError>>,
    },
    /// LS-7.
    Report {
        /// Of which lease.
        id: LeaseId,
        /// What was seen.
        request: Box<ReportRequest>,
        /// Who asks.
        caller: Caller,
        /// What it did.
        reply_to: Reply<Result<ReportAnswer, LeaseError>>,
    },
    /// LS-5.
    Get {
        /// Which.
        id: LeaseId,
        /// Who asks.
        caller: Caller,
        /// Running, or ended within the last 10 minutes.
        reply_to: Reply<Result<LeaseView, LeaseError>>,
    },
    /// Running leases, ordered by id (LS-5).
    ListLeases {
        /// Which.
        filter: LeaseFilter,
        /// After this one.
        after: Option<LeaseId>,
        /// At most so many.
        limit: usize,
        /// Who asks.
        caller: Caller,
        /// The page, and where the next one begins.
        reply_to: Reply<(Vec<LeaseView>, Option<String>)>,
    },
    /// Proxies, ordered by namespace and name (LS-1).
    ListProxies {
        /// Which.
        filter: Box<ProxyFilter>,
        /// After this one.
        after: Option<ObjectKey>,
        /// At most so many.
        limit: usize,
        /// Who asks.
        caller: Caller,
        /// The page.
        reply_to: Reply<ProxyList>,
    },
    /// One proxy (LS-1).
    GetProxy {
        /// Which.
        key: ObjectKey,
        /// Who asks.
        caller: Caller,
        /// `None`: none, or not for this caller.
        reply_to: Reply<Option<ProxyItem>>,
    },
    /// LS-17. Changes nothing.
    Explain {
        /// What would be wanted.
        request: Box<GrantRequest>,
        /// Who asks.
        caller: Caller,
        /// Why or why not.
        reply_to: Reply<Explain>,
    },
    /// Take a proxy out by hand (LS-16).
    Cordon {
        /// Which.
        key: ObjectKey,
        /// For what, until when, why.
        request: CordonRequest,
        /// Who asks.
        caller: Caller,
        /// The proxy as it is then.
        reply_to: Reply<Result<ProxyItem, LeaseError>>,
    },
    /// Lift a cordon; one that is not there is lifted too.
    Uncordon {
        /// Which.
        key: ObjectKey,
        /// For which target; `None` = the one for every target.
        target: Option<Arc<str>>,
        /// Who asks.
        caller: Caller,
        /// Done.
        reply_to: Reply<Result<(), LeaseError>>,
    },
    /// Lift a cooldown, of the proxy and of the address that targets see; one that is not there is lifted too (LS-7).
    LiftCooldown {
        /// Which.
        key: ObjectKey,
        /// For which target; `None` = the one for every target.
        target: Option<Arc<str>>,
        /// Who asks.
        caller: Caller,
        /// Done.
        reply_to: Reply<Result<(), LeaseError>>,
    },
    /// For the metrics and `/readyz`.
    Stats {
        /// Counted now.
        reply_to: Reply<BrokerStats>,
    },
}

impl Message for BrokerMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Publish { .. } => "Publish",
            Self::Expect { .. } => "Expect",
            Self::Withdraw { .. } => "Withdraw",
            Self::ClockSet { .. } => "ClockSet",
            Self::ProbePassed { .. } => "ProbePassed",
            Self::Grant { .. } => "Grant",
            Self::Renew { .. } => "Renew",
            Self::Release { .. } => "Release",
            Self::Report { .. } => "Report",
            Self::Get { .. } => "Get",
            Self::ListLeases { .. } => "ListLeases",
            Self::ListProxies { .. } => "ListProxies",
            Self::GetProxy { .. } => "GetProxy",
            Self::Explain { .. } => "Explain",
            Self::Cordon { .. } => "Cordon",
            Self::Uncordon { .. } => "Uncordon",
            Self::LiftCooldown { .. } => "LiftCooldown",
            Self::Stats { .. } => "Stats",
        }
    }
}

/// What the metrics read from the broker at scrape time (OB-1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BrokerStats {
    /// `proxy_operator_leases_active`.
    pub active_leases: u64,
    /// `proxy_operator_proxies{phase}`.
    pub phases: BTreeMap<Phase, u64>,
    /// `proxy_operator_lease_slots{provider,state}`, by provider.
    pub slots: Vec<ProviderSlots>,
    /// End of the probe that is longest ago, of the proxies that were ever probed: `proxy_operator_oldest_probe_seconds`.
    pub oldest_probe: Option<crate::time::Timestamp>,
    /// Whether leases survive the end of the process (LS-9).
    pub durable: bool,
}

/// The places of one provider's proxies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderSlots {
    /// The entry; empty for External proxies.
    pub provider: Arc<str>,
    /// Its places.
    pub slots: SlotCounts,
}

/// Places by state: a leased place is `leased`, whatever its proxy's state; a free one is what its proxy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the states of `lease_slots`")]
pub struct SlotCounts {
    pub free: u64,
    pub leased: u64,
    pub cooling: u64,
    pub unhealthy: u64,
    pub drained: u64,
}
