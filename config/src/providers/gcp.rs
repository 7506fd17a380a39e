//! The block `gcp:` (provider-gcp.md §1): virtual machines on Google Compute Engine.
//!
//! What must stay true: what ends up in a path or a query of the API is checked here; the environment is asked for
//! credentials here and nowhere else (GC-33).

mod credentials;
mod read;

use super::{CredentialFile, ProviderBlock, Type};
pub use credentials::{Credentials, METADATA_HOST};
pub(super) use read::check_endpoint;

pub(super) static TYPE: Type = Type {
    name: "gcp",
    block_required: true,
    live: &["diskSizeGb", "quotaRegions"],
    files,
    warnings: |_| Vec::new(),
    read: |node, sink| Some(ProviderBlock::Gcp(read::block(node?, &credentials::Environment::of_process(), sink)?)),
};

/// Where the API is unless an entry says otherwise.
pub const ENDPOINT: &str = "https://compute.googleapis.com";

/// What an entry of type `gcp` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GcpBlock {
    /// `project`: an id, or a number, with a domain before it if it is an old one.
    pub project: String,
    /// `network`, a partial or full resource path.
    pub network: String,
    /// `subnetwork`: `regions/REGION/subnetworks/NAME` or a full path.
    pub subnetwork: Option<String>,
    /// `networkTag`: what firewall rules go by.
    pub network_tag: String,
    /// `diskSizeGb`, 10–65536.
    pub disk_size_gb: u32,
    /// `addressMode`.
    pub address_mode: AddressMode,
    /// `quotaRegions`: whose quotas a check shows; at most 20, each once.
    pub quota_regions: Vec<String>,
    /// What the chain of Application Default Credentials came to, `credentialsFile` first (GC-21).
    pub credentials: Credentials,
    /// `endpoint`, without a slash at its end.
    pub endpoint: String,
}

/// Which of a virtual machine's addresses the proxy is reached at (GC-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressMode {
    /// An ephemeral external one.
    #[default]
    External,
    /// That in the network: operator and clients need a route, egress needs Cloud NAT (GC-25).
    Internal,
}

fn files(block: &ProviderBlock) -> Vec<CredentialFile> {
    match block {
        ProviderBlock::Gcp(block) => block.credentials.file().into_iter().collect(),
        ProviderBlock::Local(_)
        | ProviderBlock::Kubernetes(_)
        | ProviderBlock::Kvm(_)
        | ProviderBlock::Kvm2(_)
        | ProviderBlock::Proxmox(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
