//! The settings of a running process, validated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::InstallationId;
use egress_protocol::net::AllowList;
use egress_protocol::proxies::Share;

use crate::providers::ProvidersConfig;
use crate::telemetry::TelemetrySettings;
use crate::tokens::Tokens;

/// What `standalone` runs with (OP-27). Files that were named have been read once and found good.
#[derive(Debug, Clone)]
pub struct StandaloneSettings {
    /// Where the objects come from.
    pub objects: Objects,
    /// `--state`.
    pub state: PathBuf,
    /// What `run` has too.
    pub common: CommonSettings,
}

/// What `run` runs with (OP-27).
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--proxy-namespace`; `None`: all (OP-25).
    pub namespace: Option<Arc<str>>,
    /// `--leader-elect` and what belongs to it; `None`: there is one replica.
    pub election: Option<ElectionSettings>,
    /// The name under which Events are reported.
    pub instance: String,
    /// The namespace that the operator lives in: part of the installation id (PC-51).
    pub own_namespace: String,
    /// `--pod-ip`.
    pub pod_ip: Option<IpAddr>,
    /// `--gc-allow-namespaced`.
    pub gc_allow_namespaced: bool,
    /// `--metrics-secure` (OB-1); true only where metrics are served.
    pub metrics_secure: bool,
    /// What `standalone` has too.
    pub common: CommonSettings,
}

/// How one of several replicas becomes the leader (SV-4). The lease duration exceeds the renew deadline, which is at least
/// twice the retry period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionSettings {
    /// `--leader-election-id`.
    pub id: String,
    /// `--leader-election-namespace`, or the Pod's own.
    pub namespace: String,
    /// `<pod name>_<pod UID>`; outside a Pod the host's name and a random part.
    pub identity: String,
    /// `--leader-election-lease-duration`, whole seconds.
    pub lease_duration: Duration,
    /// `--leader-election-renew-deadline`.
    pub renew_deadline: Duration,
    /// `--leader-election-retry-period`.
    pub retry_period: Duration,
}

/// What both ways to run have.
#[derive(Debug, Clone)]
pub struct CommonSettings {
    /// The entries of `--providers-config`, or the built-in one.
    pub providers: ProvidersConfig,
    /// The file they came from.
    pub providers_file: Option<PathBuf>,
    /// `--discovery-bind-address`.
    pub discovery: BindAddress,
    /// Who may call.
    pub tokens: TokenSource,
    /// `--debug-bind-address`; `None` is off.
    pub debug: Option<BindAddress>,
    /// `--metrics-bind-address`; `None` is off.
    pub metrics: Option<BindAddress>,
    /// `--health-probe-bind-address`; `None` is off.
    pub health: Option<BindAddress>,
    /// `--installation-id`; `None`: the one of the state folder or of the cluster.
    pub installation: Option<InstallationId>,
    /// How often backends are asked (OP-10).
    pub polls: PollSettings,
    /// How leases are granted.
    pub leases: LeaseSettings,
    /// How orphans are collected.
    pub gc: GcSettings,
    /// How providers are checked.
    pub checks: CheckRounds,
    /// `--max-unavailable` (OP-16).
    pub max_unavailable: Share,
    /// `--log-format`; `None`: text on a terminal, else JSON.
    pub log_format: Option<LogFormat>,
    /// `--log-level`, of the grammar `LEVEL` and `TARGET=LEVEL`, separated by commas.
    pub log_level: String,
    /// `--per-proxy-metrics`.
    pub per_proxy_metrics: bool,
    /// `--gcp-wire-log-full-payloads` (GC-2).
    pub gcp_full_payloads: bool,
    /// `--trace-health-probes` (HE-8).
    pub trace_health_probes: bool,
    /// The `OTEL_*` variables.
    pub telemetry: TelemetrySettings,
    /// `--check-ca-file`.
    pub check_ca_file: Option<PathBuf>,
    /// `--check-url-allow`.
    pub check_url_allow: AllowList,
    /// `--endpoint-allow`.
    pub endpoint_allow: AllowList,
    /// `--egress-allow`.
    pub egress_allow: AllowList,
}

/// Where objects come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objects {
    /// The demonstration pool.
    Demonstration,
    /// The folders of `--manifests`, as they were given; never empty.
    Folders(Vec<PathBuf>),
}

/// Who may call the discovery API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// Everybody.
    Open,
    /// The holder of `DISCOVERY_TOKEN`.
    Variable(Tokens),
    /// The holders of the tokens in `--discovery-token-file`, which is re-read on change.
    File {
        /// The file.
        path: PathBuf,
        /// What it held.
        tokens: Tokens,
    },
}

/// OP-10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollSettings {
    /// `--poll-provisioning`.
    pub provisioning: Duration,
    /// `--poll-deletion`.
    pub deletion: Duration,
    /// `--poll-drift`.
    pub drift: Duration,
    /// `--quota-retry`.
    pub quota_retry: Duration,
    /// `--backoff-max`.
    pub backoff_max: Duration,
}

/// How leases are granted. The store is `memory`, the only one of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSettings {
    /// `--lease-default-ttl`.
    pub default_ttl: Duration,
    /// `--lease-max-ttl`.
    pub max_ttl: Duration,
    /// `--lease-grace`.
    pub grace: Duration,
    /// `--lease-queue-limit`.
    pub queue_limit: u32,
    /// `--drain-timeout`.
    pub drain_timeout: Duration,
}

/// Orphan collection (OG-1…4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcSettings {
    /// `--gc-interval`; zero is off.
    pub interval: Duration,
    /// `--gc-min-age`.
    pub min_age: Duration,
    /// `--gc-max-deletes`, per provider and round.
    pub max_deletes: u32,
    /// `--gc-dry-run`.
    pub dry_run: bool,
}

/// Rounds of provider checks (PH-8, PH-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckRounds {
    /// `--provider-check-interval`; zero is off.
    pub interval: Duration,
    /// `--provider-check-timeout`, or what stands for 0; never zero.
    pub timeout: Duration,
}

/// The form of the log's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

/// Where a listener listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindAddress {
    /// `:PORT`: on every address of the machine. Port 0 is any free one.
    All(u16),
    /// On one address.
    One(SocketAddr),
}

impl BindAddress {
    /// What to bind, the first that works: a machine without IPv6 has no `[::]`.
    pub fn candidates(self) -> Vec<SocketAddr> {
        match self {
            Self::All(port) => {
                vec![SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port), SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)]
            }
            Self::One(address) => vec![address],
        }
    }

    /// Whether only this machine can reach it.
    pub fn is_loopback(self) -> bool {
        matches!(self, Self::One(address) if address.ip().is_loopback())
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let number = port.parse().ok()?;
        match host {
            "" => Some(Self::All(number)),
            "localhost" => Some(Self::One(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), number))),
            _ => text.parse().ok().map(Self::One),
        }
    }
}
