//! Every metric family of OB-1 that is counted as things happen, named and described once. Handles are cheap clones;
//! what is read at scrape time (phases, slots, actors) is encoded by the composition root from the parts' answers.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// `{proxy}`; the label is empty with `--per-proxy-metrics=false`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct ProxyLabel {
    pub proxy: Option<String>,
}

/// `{proxy,reason}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct ProxyReason {
    pub proxy: Option<String>,
    pub reason: &'static str,
}

/// `{provider,op,result}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct ProviderRequest {
    pub provider: String,
    pub op: &'static str,
    pub result: &'static str,
}

/// `{provider}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct ProviderLabel {
    pub provider: String,
}

/// `{provider,result}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct GcDeletion {
    pub provider: String,
    pub result: &'static str,
}

/// `{reason}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct Reason {
    pub reason: &'static str,
}

/// `{provider,target,result}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct Report {
    pub provider: String,
    pub target: String,
    pub result: &'static str,
}

/// `{host}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct Host {
    pub host: String,
}

/// `{listener,reason}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct Refused {
    /// Such as `discovery`; of local proxies `local`.
    pub listener: &'static str,
    /// `connections`: all places are taken; `descriptors`: those that are left are kept for other listeners.
    pub reason: &'static str,
}

/// `{listener}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct Listener {
    pub listener: &'static str,
}

/// `{kind}`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
#[allow(missing_docs, reason = "label names")]
pub struct Kind {
    pub kind: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

fn probe_buckets() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

fn handle_buckets() -> Histogram {
    Histogram::new(exponential_buckets(1e-6, 4.0, 10))
}

/// The counted families. One per process (tests: one per tree).
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field is the family whose help text is given in `register`")]
pub struct Metrics {
    pub healthcheck_duration: Histograms<ProxyLabel>,
    pub healthcheck_failures: Family<ProxyReason, Counter>,
    pub provider_requests: Family<ProviderRequest, Counter>,
    pub gc_deletions: Family<GcDeletion, Counter>,
    pub lease_grants: Counter,
    pub lease_refusals: Family<Reason, Counter>,
    pub lease_reports: Family<Report, Counter>,
    pub check_url_suspect: Family<Host, Gauge>,
    pub egress_shared: Family<ProviderLabel, Gauge>,
    pub targets_suspect: Gauge,
    pub providers_config_valid: Gauge,
    pub connections_refused: Family<Refused, Counter>,
    pub connections_displaced: Family<Listener, Counter>,
    pub actor_restarts: Family<Kind, Counter>,
    pub actor_handle_duration: Histograms<Kind>,
    /// `--per-proxy-metrics`.
    pub per_proxy: bool,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(true)
    }
}

impl Metrics {
    /// Fresh families, not yet registered.
    pub fn new(per_proxy: bool) -> Self {
        Self {
            healthcheck_duration: Family::new_with_constructor(probe_buckets as fn() -> Histogram),
            healthcheck_failures: Family::default(),
            provider_requests: Family::default(),
            gc_deletions: Family::default(),
            lease_grants: Counter::default(),
            lease_refusals: Family::default(),
            lease_reports: Family::default(),
            check_url_suspect: Family::default(),
            egress_shared: Family::default(),
            targets_suspect: Gauge::default(),
            providers_config_valid: Gauge::default(),
            connections_refused: Family::default(),
            connections_displaced: Family::default(),
            actor_restarts: Family::default(),
            actor_handle_duration: Family::new_with_constructor(handle_buckets as fn() -> Histogram),
            per_proxy,
        }
    }

    /// The value of the label `proxy`.
    pub fn proxy_label(&self, key: &crate::ids::ObjectKey) -> Option<String> {
        self.per_proxy.then(|| key.to_string())
    }

    /// Removes the series of a proxy that is gone.
    pub fn forget_proxy(&self, key: &crate::ids::ObjectKey) {
        if !self.per_proxy {
            return;
        }
        let proxy = Some(key.to_string());
        self.healthcheck_duration.remove(&ProxyLabel { proxy: proxy.clone() });
        for failure in crate::prober::ProbeFailure::ALL {
            self.healthcheck_failures.remove(&ProxyReason { proxy: proxy.clone(), reason: failure.as_str() });
        }
    }

    /// Names and describes every family. The encoder adds `_total` to counters and a full stop to the help.
    pub fn register(&self, registry: &mut Registry) {
        let r = registry.sub_registry_with_prefix("proxy_operator");
        r.register_with_unit(
            "healthcheck_duration",
            "How long probes through the proxy took, passed ones only",
            Unit::Seconds,
            self.healthcheck_duration.clone(),
        );
        r.register("healthcheck_failures", "Failed probes by reason", self.healthcheck_failures.clone());
        r.register("provider_requests", "Answered provider calls by operation and result", self.provider_requests.clone());
        r.register(
            "gc_deletions",
            "Orphans that collection deleted or tried to, by result; dry_run: it would have",
            self.gc_deletions.clone(),
        );
        r.register("lease_grants", "Leases granted", self.lease_grants.clone());
        r.register("lease_refusals", "Lease requests refused, by problem code", self.lease_refusals.clone());
        r.register(
            "lease_reports",
            "Reports by provider, target and result; the 100 busiest targets, the rest as other",
            self.lease_reports.clone(),
        );
        r.register("check_url_suspect", "1 while a check URL is held to be at fault, not the proxies", self.check_url_suspect.clone());
        r.register("egress_shared", "Proxies that share an egress address with another of the provider", self.egress_shared.clone());
        r.register("targets_suspect", "Targets held to be at fault, not the proxies", self.targets_suspect.clone());
        r.register("providers_config_valid", "1 if the providers file on disk is the one in force", self.providers_config_valid.clone());
        r.register(
            "connections_refused",
            "Connections that were answered 503 and closed, by listener and what was short",
            self.connections_refused.clone(),
        );
        r.register(
            "connections_displaced",
            "Connections that had waited longest and were closed for others, by listener",
            self.connections_displaced.clone(),
        );
        r.register("actor_restarts", "Restarts of actors by kind", self.actor_restarts.clone());
        r.register_with_unit(
            "actor_handle_duration",
            "How long actors took to handle a message, by kind",
            Unit::Seconds,
            self.actor_handle_duration.clone(),
        );
    }

    /// Shared by value.
    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }
}
