//! What an entry of the providers file says, checked. Reading and checking it is configuration's part; this is what the
//! engine is handed.

use std::sync::Arc;

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The entry's name.
    pub entry: Arc<str>,
    /// In order, at least one.
    pub hosts: Vec<Host>,
    /// By key, at least one.
    pub machine_types: Vec<(String, MachineType)>,
    /// By key.
    pub images: Vec<(String, Image)>,
    /// Size of a machine's disk.
    pub disk_gib: u64,
    /// Whether an http(s) URL may stand where an image's key does.
    pub url_images: bool,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Unique in the entry.
    pub name: String,
    /// The storage pool that disks go into.
    pub pool: String,
    /// The bridge that machines are on.
    pub bridge: String,
    /// How machines are run.
    pub virt_type: VirtType,
    /// Bytes of the pool that stay free; without it 5 % of its capacity, at least 1 GiB.
    pub reserve: Option<u64>,
    /// Whether the host's own neighbour table may be asked, by a command.
    pub neighbour_fallback: bool,
}

/// How machines are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VirtType {
    /// By the CPU.
    Kvm,
    /// Emulated: for hosts without KVM, and for test beds (LV-54).
    Qemu,
}

/// A size of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MachineType {
    /// CPUs, at least one.
    pub vcpus: u32,
    /// Memory, at least one.
    pub memory_mib: u64,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Image {
    /// Where it comes from.
    pub url: String,
    /// Lower-case hexadecimal.
    pub sha256: Option<String>,
    /// What it is.
    pub format: Format,
    /// How it boots.
    pub firmware: Firmware,
    /// How it is given its seed (LV-48).
    pub seed_bus: SeedBus,
}

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// QEMU's.
    Qcow2,
    /// The bytes of a disk.
    Raw,
}

impl Format {
    /// As libvirt and names of volumes have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
        }
    }
}

/// How an image boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Firmware {
    /// The default: Debian 13's boot loader stalls under BIOS without a display (LV-53).
    Uefi,
    /// For images that have nothing else.
    Bios,
}

/// How a machine sees its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SeedBus {
    /// A CD drive that every kernel knows.
    Scsi,
    /// A read-only disk.
    Virtio,
    /// A CD drive for images without virtio-scsi. Kernels built without AHCI do not see it.
    Sata,
}
