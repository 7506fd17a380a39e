//! The block `proxmox:` (provider-proxmox.md §1): virtual machines cloned from a template over the API of Proxmox VE.
//!
//! The type is not among the registered ones ([`super::TYPES`]): no file can name it before there is a backend.
//!
//! What must stay true: what ends up in a path or a parameter of the API is checked here; no file is read (PX-4, PX-5).

mod read;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use egress_protocol::Secret;

use super::{CredentialFile, ProviderBlock, Type};

pub(super) static TYPE: Type = Type {
    name: "proxmox",
    block_required: true,
    live: &["templates", "machineTypes", "vendorData", "installGuestAgent"],
    files,
    warnings,
    read: |node, sink| Some(ProviderBlock::Proxmox(read::block(node?, sink)?)),
};

/// What an entry of type `proxmox` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxmoxBlock {
    /// `url`: scheme, host and port of the API, without a slash at its end.
    pub url: String,
    /// `tokenFile`: absolute; read on each request.
    pub token_file: PathBuf,
    /// Who is trusted: `caFile` and `insecureSkipTLSVerify`.
    pub trust: Trust,
    /// `nodes` in the file's order; at least one, each once.
    pub nodes: Vec<String>,
    /// `isoStorage`: where seeds go.
    pub iso_storage: String,
    /// `storage`: where disks go. `None` is the template's own.
    pub storage: Option<String>,
    /// `bridge`. `None` leaves it as cloned.
    pub bridge: Option<String>,
    /// `vlanTag`, 1–4094. `None` leaves it as cloned.
    pub vlan_tag: Option<u16>,
    /// `vmidRange`.
    pub vmid_range: VmidRange,
    /// `templates`, by key; at least one.
    pub templates: BTreeMap<String, Template>,
    /// `machineTypes`, by key; at least one.
    pub machine_types: BTreeMap<String, MachineType>,
    /// `requestTimeoutSeconds`, 1–600 s.
    pub request_timeout: Duration,
    /// `vendorData`: a document that cloud-init recognises, or empty. May hold credentials.
    pub vendor_data: Secret,
    /// `installGuestAgent`.
    pub install_guest_agent: bool,
}

/// Whose certificate the API may show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// One of the system's authorities.
    System,
    /// One of the authorities in this file, which is read anew when it changes.
    File(PathBuf),
    /// Anyone.
    Anyone,
}

/// The VMIDs that clones get, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmidRange {
    /// At least 100.
    pub min: u32,
    /// At most 999999999, more than `min`.
    pub max: u32,
}

impl Default for VmidRange {
    fn default() -> Self {
        Self { min: 100_000, max: 199_999 }
    }
}

/// An item of `templates`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    /// One for all nodes.
    Shared(u32),
    /// One for each node, as its disks are local to it. Has an entry for every node of `nodes` and for no other.
    PerNode(BTreeMap<String, u32>),
}

/// An item of `machineTypes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineType {
    /// `cores`, 1–512.
    pub cores: u32,
    /// `memoryMiB`, 128–4194304.
    pub memory_mib: u64,
    /// `diskGiB`, at most 65536; 0 keeps the template's.
    pub disk_gib: u64,
}

fn of(block: &ProviderBlock) -> Option<&ProxmoxBlock> {
    match block {
        ProviderBlock::Proxmox(block) => Some(block),
        ProviderBlock::Local(_) | ProviderBlock::Kubernetes(_) | ProviderBlock::Gcp(_) | ProviderBlock::Kvm(_) | ProviderBlock::Kvm2(_) => {
            None
        }
    }
}

fn files(block: &ProviderBlock) -> Vec<CredentialFile> {
    let Some(block) = of(block) else { return Vec::new() };
    let file = |key: &str, path: &PathBuf| CredentialFile { key: format!("proxmox.{key}"), path: path.clone() };
    let trust = match &block.trust {
        Trust::File(path) => Some(file("caFile", path)),
        Trust::System | Trust::Anyone => None,
    };
    std::iter::once(file("tokenFile", &block.token_file)).chain(trust).collect()
}

/// PX-4.
fn warnings(block: &ProviderBlock) -> Vec<String> {
    let open = of(block).is_some_and(|block| block.trust == Trust::Anyone);
    open.then(|| "insecureSkipTLSVerify: its server is not verified: whoever is on the way to it gets the token".to_owned())
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests;
