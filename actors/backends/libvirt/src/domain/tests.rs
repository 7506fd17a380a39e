use super::{DefinitionError, Machine, first_mac};
use crate::settings::{Firmware, MachineType, SeedBus, VirtType};
use crate::xml::Element;

fn machine() -> Machine<'static> {
    Machine {
        name: "proxy-ck4to7f6pzojj2fh",
        virt_type: VirtType::Kvm,
        size: MachineType { vcpus: 2, memory_mib: 2048 },
        firmware: Firmware::Uefi,
        seed_bus: SeedBus::Scsi,
        overlay: "/pool/o.qcow2",
        seed: "/pool/s.iso",
        bridge: "br0",
        mac: "02:00:00:00:00:01",
        mark: Element::of("instance", "m"),
    }
}

fn read(machine: &Machine<'_>) -> Element {
    Element::parse(&machine.to_xml().unwrap()).unwrap()
}

#[test]
fn a_definition_is_what_the_table_says_lv_52_lv_53() {
    assert_eq!(
        machine().to_xml().unwrap(),
        "<domain type=\"kvm\"><name>proxy-ck4to7f6pzojj2fh</name><metadata><instance>m</instance></metadata>\
         <memory unit=\"MiB\">2048</memory><vcpu>2</vcpu>\
         <os firmware=\"efi\"><type arch=\"x86_64\" machine=\"q35\">hvm</type>\
         <firmware><feature enabled=\"no\" name=\"secure-boot\"/></firmware><boot dev=\"hd\"/></os>\
         <features><acpi/><apic/></features><cpu mode=\"host-passthrough\"/><clock offset=\"utc\"/>\
         <on_poweroff>destroy</on_poweroff><on_reboot>restart</on_reboot><on_crash>destroy</on_crash>\
         <devices><disk type=\"file\" device=\"disk\"><driver name=\"qemu\" type=\"qcow2\"/><source file=\"/pool/o.qcow2\"/>\
         <target dev=\"vda\" bus=\"virtio\"/></disk>\
         <controller type=\"scsi\" model=\"virtio-scsi\"/>\
         <disk type=\"file\" device=\"cdrom\"><driver name=\"qemu\" type=\"raw\"/><source file=\"/pool/s.iso\"/>\
         <target dev=\"sda\" bus=\"scsi\"/><readonly/></disk>\
         <interface type=\"bridge\"><mac address=\"02:00:00:00:00:01\"/><source bridge=\"br0\"/><model type=\"virtio\"/></interface>\
         <serial type=\"pty\"/><console type=\"pty\"/>\
         <channel type=\"unix\"><target type=\"virtio\" name=\"org.qemu.guest_agent.0\"/></channel>\
         <rng model=\"virtio\"><backend model=\"random\">/dev/urandom</backend></rng></devices></domain>"
    );
}

#[test]
fn emulation_never_asks_for_the_hosts_cpu_lv_54() {
    let domain = read(&Machine { virt_type: VirtType::Qemu, ..machine() });
    assert_eq!((domain.attribute("type"), domain.first("cpu").unwrap().attribute("mode")), (Some("qemu"), Some("maximum")));
}

#[test]
fn bios_has_neither_of_the_firmware_elements_lv_53() {
    let domain = read(&Machine { firmware: Firmware::Bios, ..machine() });
    let os = domain.first("os").unwrap();
    assert_eq!((os.attribute("firmware"), os.first("firmware")), (None, None));
    assert_eq!(os.first("boot").unwrap().attribute("dev"), Some("hd"));
}

#[test]
fn a_seed_is_on_the_bus_that_the_image_needs_lv_48() {
    for (bus, device, name, on, controllers) in [
        (SeedBus::Scsi, "cdrom", "sda", "scsi", 1),
        (SeedBus::Sata, "cdrom", "sda", "sata", 0),
        (SeedBus::Virtio, "disk", "vdb", "virtio", 0),
    ] {
        let domain = read(&Machine { seed_bus: bus, ..machine() });
        let devices = domain.first("devices").unwrap();
        let seed = devices.all("disk").nth(1).unwrap();
        let target = seed.first("target").unwrap();
        assert_eq!((seed.attribute("device"), target.attribute("dev"), target.attribute("bus")), (Some(device), Some(name), Some(on)));
        assert!(seed.first("readonly").is_some());
        assert_eq!(devices.all("controller").count(), controllers);
    }
}

#[test]
fn values_are_values_lv_51() {
    let evil = "\"/><disk type='block'/><x a=\"&";
    let domain = read(&Machine { overlay: evil, bridge: evil, name: evil, ..machine() });
    let devices = domain.first("devices").unwrap();
    assert_eq!(devices.all("disk").count(), 2);
    assert_eq!(devices.first("disk").unwrap().first("source").unwrap().attribute("file"), Some(evil));
    assert_eq!(domain.first("name").unwrap().text, evil);
}

#[test]
fn a_machine_without_cpus_or_memory_is_refused_lv_51() {
    for (vcpus, memory_mib) in [(0, 1), (1, 0)] {
        let refused = Machine { size: MachineType { vcpus, memory_mib }, ..machine() }.to_xml().unwrap_err();
        assert_eq!(refused, DefinitionError::Size { vcpus, memory_mib });
    }
    assert!(matches!(Machine { name: "a\0", ..machine() }.to_xml(), Err(DefinitionError::Xml(_))));
}

#[test]
fn the_first_card_of_a_definition_is_found_lv_154() {
    let xml = machine().to_xml().unwrap();
    assert_eq!(first_mac(&xml).unwrap().as_deref(), Some("02:00:00:00:00:01"));
    assert_eq!(first_mac(&xml.replace("02:00:00:00:00:01", "52:54:00:AB:CD:EF")).unwrap().as_deref(), Some("52:54:00:ab:cd:ef"));
    assert_eq!(first_mac("<domain><devices/></domain>").unwrap(), None);
    assert!(first_mac("<domain>").is_err());
}
