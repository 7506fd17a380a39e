//! What is built here before a real libvirtd.

#[path = "../../../../../protocol/libvirt/tests/it/real/libvirtd.rs"]
mod libvirtd;

use std::time::Duration;

use egress_backend_libvirt::class::{During, class};
use egress_backend_libvirt::domain::{Machine, first_mac};
use egress_backend_libvirt::mark::{Mark, NewMark};
use egress_backend_libvirt::names;
use egress_backend_libvirt::profile::{KVM, KVM2};
use egress_backend_libvirt::settings::{Firmware, Format, MachineType, SeedBus, VirtType};
use egress_backend_libvirt::volume::{NewVolume, backing_path};
use egress_libvirt::procedures::*;
use egress_nocloud::Seed;
use egress_protocol::provider::ErrorClass;
use egress_protocol::{InstallationId, InstanceName, Timestamp, Uid};
use tokio::time::Instant;

use libvirtd::Libvirtd;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

#[tokio::test]
async fn libvirtd_takes_our_volumes_and_machines_and_gives_the_mark_back_lv_51_lv_57() {
    const TEST: &str = "libvirtd_takes_our_volumes_and_machines_and_gives_the_mark_back_lv_51_lv_57";
    let Some(libvirtd) = Libvirtd::start(TEST).await else { return };
    let libvirtd = libvirtd.with_pool();
    let client = libvirtd.link().await;
    let pool = client.call(StoragePoolLookupByName { name: "default".into() }, soon()).await.unwrap();
    let create = async |volume: NewVolume<'_>| {
        let call = StorageVolCreateXml { pool: pool.clone(), xml: volume.to_xml().unwrap(), flags: 0 };
        let made = client.call(call, soon()).await.unwrap();
        (client.call(StorageVolGetPath { volume: made.clone() }, soon()).await.unwrap(), made)
    };

    let (uid, installation) = (Uid::new("3f1c2a9e-0000-4000-8000-000000000001"), InstallationId::new("inst-a"));
    let name = InstanceName::of(&uid);
    let base = NewVolume { name: "base-debian.qcow2", capacity: 1 << 30, format: Format::Qcow2, over: None };
    let (base_path, _) = create(base).await;
    let (overlay, seed) = (names::overlay(&name, &installation), names::seed(&name, &installation));
    let over = Some((base_path.as_str(), Format::Qcow2));
    let (overlay_path, volume) = create(NewVolume { name: &overlay, capacity: 2 << 30, format: Format::Qcow2, over }).await;
    let image = Seed { name: name.as_str(), user_data: b"#cloud-config\n", vendor_data: b"" }.image().unwrap();
    let (seed_path, seed_volume) = create(NewVolume { name: &seed, capacity: image.len() as u64, format: Format::Raw, over: None }).await;
    client.upload_from(seed_volume, image.len() as u64, &image[..], Duration::from_secs(60)).await.unwrap();
    assert!(libvirtd.file(&seed) == image, "the seed arrives as it was built");
    let described = client.call(StorageVolGetXmlDesc { volume: volume.clone(), flags: 0 }, soon()).await.unwrap();
    assert_eq!(backing_path(&described).unwrap().as_deref(), Some(base_path.as_str()));
    assert_eq!(client.call(StorageVolGetInfo { volume }, soon()).await.unwrap().capacity, 2 << 30);

    let mac = names::mac(&installation, "default", "px-1");
    let created_at = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
    let mark = NewMark { uid: &uid, installation: &installation, created_at, entry: "lab", pool: "default", mac: &mac };
    let machine = |profile, firmware, seed_bus| Machine {
        name: name.as_str(),
        virt_type: VirtType::Qemu,
        size: MachineType { vcpus: 1, memory_mib: 256 },
        firmware,
        seed_bus,
        overlay: &overlay_path,
        seed: &seed_path,
        bridge: "br-none",
        mac: &mac,
        mark: mark.element(profile),
    };
    for (firmware, seed_bus) in [(Firmware::Bios, SeedBus::Scsi), (Firmware::Bios, SeedBus::Sata), (Firmware::Bios, SeedBus::Virtio)] {
        let xml = machine(KVM2, firmware, seed_bus).to_xml().unwrap();
        let domain = client.call(DomainDefineXml { xml }, soon()).await.unwrap();
        let read = |profile: egress_backend_libvirt::profile::Profile| {
            let (domain, uri) = (domain.clone(), Some(profile.namespace.to_owned()));
            client.call(DomainGetMetadata { domain, kind: METADATA_ELEMENT, uri, flags: 0 }, soon())
        };
        let given_back = Mark::parse(&read(KVM2).await.unwrap()).unwrap();
        assert_eq!(given_back.differs(&uid, &installation), None);
        assert_eq!((given_back.created_at, given_back.pool.as_str(), given_back.mac.as_str()), (Some(created_at), "default", mac.as_str()));
        assert_eq!(read(KVM).await.unwrap_err().libvirt().unwrap().code, 80, "LV-2: the other type does not see it");
        let definition = client.call(DomainGetXmlDesc { domain: domain.clone(), flags: 0 }, soon()).await.unwrap();
        assert_eq!(first_mac(&definition).unwrap().as_deref(), Some(mac.as_str()));
        // There is no such bridge: libvirt says so at the start only, and its words must reach the Proxy (LV-181).
        let refused = client.call(DomainCreate { domain: domain.clone() }, soon()).await.unwrap_err();
        assert!(refused.to_string().contains("br-none"), "{refused}");
        assert_eq!(class(&refused, During::Create), ErrorClass::Transient);
        client.call(DomainUndefineFlags { domain, flags: 23 }, soon()).await.unwrap();
    }
    libvirtd.signal("-KILL");
    let lost = client.call(ConnectGetLibVersion {}, soon()).await.unwrap_err();
    assert_eq!((lost.is_closed(), class(&lost, During::Other)), (true, ErrorClass::Transient), "{lost}");
}
