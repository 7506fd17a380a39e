//! The blocks `kvm:` and `kvm2:` (LV §3): virtual machines on one's own libvirt hosts. Both have the same shape.
//!
//! The two types are not among the registered ones ([`super::TYPES`]): no file can name them before there is a backend.
//!
//! What must stay true: what ends up in a name, a path or a document on a host is checked here, and no sum of sizes that
//! is within its bounds can wrap (LV-25).

mod between;
mod read;

use std::collections::BTreeMap;
use std::path::PathBuf;

use egress_protocol::Secret;

use super::{CredentialFile, ProviderBlock, Type};
pub(super) use between::between;
pub(super) use read::{empty_map, free_map, vendor_data};

/// Bytes of a GiB.
const GIB: u64 = 1 << 30;

pub(super) static KVM: Type = Type {
    name: "kvm",
    block_required: true,
    live: &LIVE,
    files,
    warnings,
    read: |node, sink| Some(ProviderBlock::Kvm(read::block("kvm", node?, sink)?)),
};

pub(super) static KVM2: Type = Type {
    name: "kvm2",
    block_required: true,
    live: &LIVE,
    files,
    warnings,
    read: |node, sink| Some(ProviderBlock::Kvm2(read::block("kvm2", node?, sink)?)),
};

/// Everything but the credentials, which all hosts share (LV-230). The backend compares `hosts` one by one.
const LIVE: [&str; 9] =
    ["diskSizeGb", "vendorData", "installGuestAgent", "allowURLImages", "urlImageHosts", "maxImageGiB", "images", "machineTypes", "hosts"];

/// What an entry of type `kvm` or `kvm2` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// `sshKeyFile`: read on each dial.
    pub ssh_key_file: PathBuf,
    /// `knownHostsFile`: read on each dial. `None` trusts any host key (`insecureIgnoreHostKey`).
    pub known_hosts_file: Option<PathBuf>,
    /// `diskSizeGb`: of each machine's disk, 1–16384.
    pub disk_gib: u64,
    /// `vendorData`: a document that cloud-init recognises, or empty. May hold credentials.
    pub vendor_data: Secret,
    /// `installGuestAgent`.
    pub install_guest_agent: bool,
    /// `maxImageGiB`: larger images are refused, 1–1024.
    pub max_image_gib: u64,
    /// `images`, by key.
    pub images: BTreeMap<String, Image>,
    /// `machineTypes`, by key; at least one.
    pub machine_types: BTreeMap<String, MachineType>,
    /// `hosts` in the file's order; at least one, their names unique.
    pub hosts: Vec<Host>,
}

/// An item of `images`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Image {
    /// `url`: http or https, without a user.
    pub url: String,
    /// `sha256`: in lower-case hexadecimal; always there for http.
    pub sha256: Option<String>,
    /// `format`.
    pub format: Format,
    /// `firmware`.
    pub firmware: Firmware,
    /// `seedBus`.
    pub seed_bus: SeedBus,
}

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// QEMU's.
    #[default]
    Qcow2,
    /// The bytes of a disk.
    Raw,
}

impl Format {
    /// As libvirt, the file and names of volumes have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}

/// How an image boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Firmware {
    /// Debian 13's boot loader stalls under BIOS without a display (LV-53).
    #[default]
    Uefi,
    /// For images that have nothing else.
    Bios,
}

/// How a machine sees its seed (LV-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SeedBus {
    /// A CD drive behind virtio-scsi.
    #[default]
    Scsi,
    /// A read-only disk.
    Virtio,
    /// A CD drive for images without virtio-scsi. Kernels built without AHCI do not see it.
    Sata,
}

/// An item of `machineTypes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MachineType {
    /// `vcpus`, 1–256.
    pub vcpus: u32,
    /// `memoryMiB`, 64–4194304.
    pub memory_mib: u64,
}

/// An item of `hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// `name`: unique in the entry; part of ids.
    pub name: String,
    /// The host of `address`: a name or an address, without brackets.
    pub host: String,
    /// The port of `address`.
    pub port: u16,
    /// `user`: who may open the socket.
    pub user: String,
    /// `socket`: libvirtd's, on the host.
    pub socket: String,
    /// `pool`: the storage pool that disks go into.
    pub pool: String,
    /// `bridge`: what machines are on.
    pub bridge: String,
    /// `virtType`.
    pub virt_type: VirtType,
    /// `poolReserveGiB` in bytes: what stays free of the pool. `None` is 5 % of its capacity, at least 1 GiB.
    pub reserve: Option<u64>,
}

/// How machines are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum VirtType {
    /// By the CPU.
    #[default]
    Kvm,
    /// Emulated: for hosts without KVM, and for test beds (LV-54).
    Qemu,
}

/// The block with the name of its type.
fn of(block: &ProviderBlock) -> Option<(&'static str, &Block)> {
    match block {
        ProviderBlock::Kvm(block) => Some((KVM.name, block)),
        ProviderBlock::Kvm2(block) => Some((KVM2.name, block)),
        ProviderBlock::Local(_) | ProviderBlock::Kubernetes(_) | ProviderBlock::Gcp(_) | ProviderBlock::Proxmox(_) => None,
    }
}

fn files(block: &ProviderBlock) -> Vec<CredentialFile> {
    let Some((type_, block)) = of(block) else { return Vec::new() };
    let file = |key: &str, path: &PathBuf| CredentialFile { key: format!("{type_}.{key}"), path: path.clone() };
    let known = block.known_hosts_file.iter().map(|path| file("knownHostsFile", path));
    std::iter::once(file("sshKeyFile", &block.ssh_key_file)).chain(known).collect()
}

/// LV-16.
fn warnings(block: &ProviderBlock) -> Vec<String> {
    let open = of(block).is_some_and(|(_, block)| block.known_hosts_file.is_none());
    open.then(|| "insecureIgnoreHostKey: its hosts are not verified: whoever is on the way to one can pose as it".to_owned())
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests;
