//! The definition of a machine (§5.2), and what is read of one. Pure.

use crate::settings::{Firmware, MachineType, SeedBus, VirtType};
use crate::xml::{Element, XmlError};

/// A machine to be defined. Paths are those that libvirt gives for the volumes: disks of type `volume` get no AppArmor rule,
/// so that QEMU cannot open them on Debian or Ubuntu (LV-52).
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    /// Its name.
    pub name: &'a str,
    /// How it is run.
    pub virt_type: VirtType,
    /// Its size.
    pub size: MachineType,
    /// How it boots.
    pub firmware: Firmware,
    /// How it sees its seed.
    pub seed_bus: SeedBus,
    /// Path of its disk.
    pub overlay: &'a str,
    /// Path of its seed.
    pub seed: &'a str,
    /// The bridge it is on.
    pub bridge: &'a str,
    /// Its card.
    pub mac: &'a str,
    /// Whose it is.
    pub mark: Element,
}

/// Why there is no definition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// A machine needs at least one of each.
    #[error("a machine cannot have {vcpus} CPUs and {memory_mib} MiB of memory")]
    Size {
        /// CPUs.
        vcpus: u32,
        /// Memory.
        memory_mib: u64,
    },
    /// A value that XML cannot have.
    #[error(transparent)]
    Xml(#[from] XmlError),
}

impl Machine<'_> {
    /// The definition.
    pub fn to_xml(&self) -> Result<String, DefinitionError> {
        let MachineType { vcpus, memory_mib } = self.size;
        if vcpus == 0 || memory_mib == 0 {
            return Err(DefinitionError::Size { vcpus, memory_mib });
        }
        let (virt_type, cpu) = match self.virt_type {
            VirtType::Kvm => ("kvm", "host-passthrough"),
            // host-passthrough would be defined without a word, and refused at the start (F9).
            VirtType::Qemu => ("qemu", "maximum"),
        };
        let domain = Element::new("domain").with("type", virt_type).children([
            Element::of("name", self.name),
            Element::new("metadata").child(self.mark.clone()),
            Element::of("memory", memory_mib.to_string()).with("unit", "MiB"),
            Element::of("vcpu", vcpus.to_string()),
            self.os(),
            Element::new("features").child(Element::new("acpi")).child(Element::new("apic")),
            Element::new("cpu").with("mode", cpu),
            Element::new("clock").with("offset", "utc"),
            Element::of("on_poweroff", "destroy"),
            Element::of("on_reboot", "restart"),
            Element::of("on_crash", "destroy"),
            self.devices(),
        ]);
        Ok(domain.to_xml()?)
    }

    fn os(&self) -> Element {
        let kind = Element::of("type", "hvm").with("arch", "x86_64").with("machine", "q35");
        let boot = Element::new("boot").with("dev", "hd");
        match self.firmware {
            Firmware::Bios => Element::new("os").children([kind, boot]),
            Firmware::Uefi => {
                let no_secure_boot = Element::new("feature").with("enabled", "no").with("name", "secure-boot");
                Element::new("os").with("firmware", "efi").children([kind, Element::new("firmware").child(no_secure_boot), boot])
            }
        }
    }

    fn devices(&self) -> Element {
        let disk = file_disk("disk", "qcow2", self.overlay).child(target("vda", "virtio"));
        let card = Element::new("interface").with("type", "bridge").children([
            Element::new("mac").with("address", self.mac),
            Element::new("source").with("bridge", self.bridge),
            Element::new("model").with("type", "virtio"),
        ]);
        let agent = Element::new("target").with("type", "virtio").with("name", "org.qemu.guest_agent.0");
        Element::new("devices").child(disk).children(self.seed()).children([
            card,
            Element::new("serial").with("type", "pty"),
            Element::new("console").with("type", "pty"),
            Element::new("channel").with("type", "unix").child(agent),
            Element::new("rng").with("model", "virtio").child(Element::of("backend", "/dev/urandom").with("model", "random")),
        ])
    }

    fn seed(&self) -> Vec<Element> {
        let read_only = Element::new("readonly");
        match self.seed_bus {
            SeedBus::Scsi => vec![
                Element::new("controller").with("type", "scsi").with("model", "virtio-scsi"),
                file_disk("cdrom", "raw", self.seed).child(target("sda", "scsi")).child(read_only),
            ],
            SeedBus::Sata => vec![file_disk("cdrom", "raw", self.seed).child(target("sda", "sata")).child(read_only)],
            SeedBus::Virtio => vec![file_disk("disk", "raw", self.seed).child(target("vdb", "virtio")).child(read_only)],
        }
    }
}

fn file_disk(device: &str, format: &str, path: &str) -> Element {
    Element::new("disk")
        .with("type", "file")
        .with("device", device)
        .child(Element::new("driver").with("name", "qemu").with("type", format))
        .child(Element::new("source").with("file", path))
}

fn target(device: &str, bus: &str) -> Element {
    Element::new("target").with("dev", device).with("bus", bus)
}

/// The hardware address of a domain's first card: for domains whose mark has none (LV-154).
pub fn first_mac(definition: &str) -> Result<Option<String>, XmlError> {
    let domain = Element::parse(definition)?;
    let cards = domain.first("devices").into_iter().flat_map(|devices| devices.all("interface"));
    Ok(cards.filter_map(|card| card.first("mac")?.attribute("address")).next().map(str::to_lowercase))
}

#[cfg(test)]
mod tests;
