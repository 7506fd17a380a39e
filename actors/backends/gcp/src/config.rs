//! What the composition root fills in from the providers file (provider-gcp.md §1) and from the process.

use std::sync::Arc;
use std::time::Duration;

use egress_config::providers::gcp::{AddressMode, Credentials, GcpBlock};
use egress_protocol::InstallationId;

/// One entry of type `gcp`, validated.
#[derive(Debug, Clone, PartialEq)]
pub struct GcpConfig {
    /// The configured name.
    pub entry: Arc<str>,
    /// Whose instances are ours (PC-43).
    pub installation: InstallationId,
    /// `project`.
    pub project: String,
    /// `network`, a partial or full resource path.
    pub network: String,
    /// `subnetwork`.
    pub subnetwork: Option<String>,
    /// `networkTag`.
    pub network_tag: String,
    /// `addressMode`.
    pub address_mode: AddressMode,
    /// What a running backend takes over (GC-32).
    pub live: Live,
    /// `endpoint`, without a slash at its end.
    pub endpoint: String,
    /// Where tokens come from: the chain of GC-21, resolved where settings are read (GC-33).
    pub credentials: Credentials,
    /// `--gcp-wire-log-full-payloads` (GC-2).
    pub full_payloads: bool,
    /// How long calls may take, and how much one page holds.
    pub budgets: Budgets,
}

impl GcpConfig {
    /// What an entry says. `full_payloads` is the flag of GC-2.
    pub fn of(entry: impl Into<Arc<str>>, installation: InstallationId, block: &GcpBlock, full_payloads: bool) -> Self {
        Self {
            entry: entry.into(),
            installation,
            project: block.project.clone(),
            network: block.network.clone(),
            subnetwork: block.subnetwork.clone(),
            network_tag: block.network_tag.clone(),
            address_mode: block.address_mode,
            live: Live { disk_size_gb: block.disk_size_gb, quota_regions: block.quota_regions.clone() },
            endpoint: block.endpoint.clone(),
            credentials: block.credentials.clone(),
            full_payloads,
            budgets: Budgets::default(),
        }
    }
}

/// The keys that need no restart (GC-32).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// `diskSizeGb`.
    pub disk_size_gb: u32,
    /// `quotaRegions`.
    pub quota_regions: Vec<String>,
}

/// GC-27, in one place so that tests can shrink them (PC-65).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Of connecting.
    pub connect: Duration,
    /// Of one request.
    pub request: Duration,
    /// Of fetching a token.
    pub token: Duration,
    /// Of one page of a list.
    pub page: Duration,
    /// Instances on one page.
    pub page_size: u32,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            request: Duration::from_secs(30),
            token: Duration::from_secs(15),
            page: Duration::from_secs(60),
            page_size: 500,
        }
    }
}
