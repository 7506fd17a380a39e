//! Leases: what the book is told about proxies, the API's request and response types, and the messages of the
//! broker (`lease-broker`) and its journal (`lease-journal`).
//!
//! - [`request`]: what crawlers send, read strictly; each fault names its field
//! - [`item`], [`listing`]: proxies as the API lists them; [`answer`]: leases, reports, explanations; [`view`]: a lease as the book
//!   hands it over, cheap to clone and written to JSON by hand
//! - [`problem`]: every error as RFC 9457 says it
//! - [`broker`], [`journal`]: the messages

pub mod answer;
pub mod broker;
pub mod caller;
pub mod cursor;
pub mod id;
pub mod item;
pub mod journal;
pub mod json;
pub mod listing;
pub mod problem;
pub mod request;
pub mod view;

pub use answer::{
    Candidate, ExcludedBy, Explain, Lease, LeaseCredentials, LeaseList, LeaseProxy, LeaseState, MovedFrom, ReportAnswer, ReportCooldown,
};
pub use broker::{BrokerMessage, BrokerStats, ProviderSlots, SlotCounts};
pub use caller::Caller;
pub use cursor::Cursor;
pub use id::LeaseId;
pub use item::{CoolingItem, CordonItem, ProxyItem, ProxyList};
pub use journal::{Cooldown, CooldownOwner, Cordon, Ending, Entry, JournalMessage, LeaseRecord, Snapshot, StoredCooldown, StoredLease};
pub use listing::ProxyWalk;
pub use problem::{FieldError, LeaseError, Problem, ProblemCode, Refusal};
pub use request::{
    CordonRequest, GrantRequest, LeaseFilter, LeaseQuery, ProxyFilter, ProxyQuery, RenewRequest, ReportRequest, ReportResult, Selector,
    SelectorAttribute, parse_cordon, parse_grant, parse_lease_query, parse_proxy_query, parse_renew, parse_report, parse_target,
};
pub use view::{LeaseView, ProxyFragment};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{ObjectKey, Uid};
use crate::object::Credentials;
use crate::resource::conditions::{MESSAGE_LIMIT, Status, cut};
use crate::resource::{Mode, Phase};
use crate::time::Timestamp;

/// The id of the broker's actor.
pub const BROKER_ID: &str = "lease-broker";
/// The id of the journal's actor.
pub const JOURNAL_ID: &str = "lease-journal";

/// One proxy as its actor publishes it for listing and leasing. Sent on every change and after every probe; the
/// latest counts. Takes effect before the status is written (HE-5).
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyAvailability {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Of exactly this object; leases of another UID under the same name are not its own.
    pub uid: Uid,
    /// Who runs it.
    pub mode: Mode,
    /// The provider entry.
    pub provider: Option<Arc<str>>,
    /// OP-6.
    pub phase: Phase,
    /// Condition `Healthy` is True, neither given up (SV-2) nor paused (OP-6).
    pub healthy: bool,
    /// It was healthy by the record, and its actor, which has just begun, does not know yet whether it still runs (HE-2).
    pub awaited: bool,
    /// Why condition `Ready` is not True.
    pub unready: Option<Arc<Unready>>,
    /// Most proxies fail at its check URL at once (HE-9).
    pub check_url_suspect: bool,
    /// New grants are stopped whatever the health: being deleted or replaced, suspended. (`maxLeases: 0`, cordons and
    /// withheld credentials the book sees by itself.)
    pub draining: bool,
    /// Leases of it are waited for before its instance goes, until then at the latest; those that still run are revoked
    /// then (LS-16). Answered by `Drained` when none runs.
    pub drain_by: Option<Timestamp>,
    /// What `url` names: a name stays a name. `None` until known.
    pub host: Option<Arc<str>>,
    /// The address, if known.
    pub ip: Option<Arc<str>>,
    /// The address targets see, if known (HE-7).
    pub egress_ip: Option<Arc<str>>,
    /// The proxy port.
    pub port: u16,
    /// What crawlers select on.
    pub attributes: Arc<BTreeMap<String, String>>,
    /// Capacity.
    pub max_leases: u32,
    /// Of the last probe that passed.
    pub latency_millis: Option<i64>,
    /// End of the last probe.
    pub checked_at: Option<Timestamp>,
    /// For the holder of a lease only.
    pub credentials: Option<Arc<Credentials>>,
}

/// What holds a proxy back, as condition `Ready` says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unready {
    /// The condition's reason.
    pub reason: Arc<str>,
    /// Its message; may be empty.
    pub message: Arc<str>,
}

impl Unready {
    /// `None` for a proxy that is ready.
    pub fn of(ready: Status, reason: &str, message: &str) -> Option<Arc<Self>> {
        let message = cut(message.to_owned(), MESSAGE_LIMIT);
        (ready != Status::True).then(|| Arc::new(Self { reason: reason.into(), message: message.into() }))
    }
}

impl ProxyAvailability {
    /// What a client configures, once the host is known.
    pub fn url(&self) -> Option<String> {
        self.host.as_ref().map(|host| item::proxy_url(host, self.port))
    }
}
