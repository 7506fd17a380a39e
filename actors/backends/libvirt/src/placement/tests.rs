use egress_protocol::provider::ErrorClass;
use egress_protocol::resource::Placement;

use super::{host, resolve};
use crate::profile::{KVM, KVM2};
use crate::settings::{Firmware, Format, Host, Image, MachineType, SeedBus, Settings, VirtType};

fn settings(hosts: &[&str]) -> Settings {
    let host = |name: &&str| Host {
        name: (*name).to_owned(),
        pool: "default".into(),
        bridge: "br0".into(),
        virt_type: VirtType::Kvm,
        reserve: None,
        neighbour_fallback: false,
    };
    let image =
        |format| Image { url: "https://example.com/x".into(), sha256: None, format, firmware: Firmware::Uefi, seed_bus: SeedBus::Scsi };
    Settings {
        entry: "lab".into(),
        hosts: hosts.iter().map(host).collect(),
        machine_types: vec![
            ("small".into(), MachineType { vcpus: 1, memory_mib: 512 }),
            ("large".into(), MachineType { vcpus: 8, memory_mib: 8192 }),
        ],
        images: vec![("debian-13".into(), image(Format::Qcow2)), ("plain".into(), image(Format::Raw))],
        disk_gib: 10,
        url_images: false,
    }
}

fn placement(zone: &str, machine_type: &str, image: &str) -> Placement {
    Placement { region: None, zone: Some(zone.into()), machine_type: Some(machine_type.into()), image: Some(image.into()) }
}

#[test]
fn a_placement_is_looked_up_in_the_catalogue_lv_43() {
    let two = settings(&["host-a", "host-b"]);
    let resolved = resolve(KVM2, &two, &placement("host-b", "large", "plain")).unwrap();
    assert_eq!((resolved.host.name.as_str(), resolved.size.vcpus, resolved.key), ("host-b", 8, "plain"));
    assert_eq!((resolved.base(KVM2, "lab"), resolved.base(KVM, "lab")), ("base-lab-plain.raw".to_owned(), "base-plain.raw".to_owned()));
    let one = settings(&["host-a"]);
    for zone in [None, Some(String::new()), Some("host-a".to_owned())] {
        let resolved =
            resolve(KVM2, &one, &Placement { zone, region: Some("anything".into()), ..placement("", "small", "debian-13") }).unwrap();
        assert_eq!((resolved.host.name.as_str(), resolved.base(KVM2, "lab")), ("host-a", "base-lab-debian-13.qcow2".to_owned()));
    }
}

#[test]
fn what_cannot_be_served_is_permanent_and_says_what_is_wrong_lv_43() {
    let two = settings(&["host-a", "host-b"]);
    for (placement, message) in [
        (placement("", "small", "plain"), "placement.zone is required when kvm2.hosts lists more than one host"),
        (placement("host-c", "small", "plain"), "placement.zone \"host-c\" is not in kvm2.hosts"),
        (placement("host-a", "", "plain"), "placement.machineType \"\" is not in kvm2.machineTypes"),
        (placement("host-a", "Small", "plain"), "placement.machineType \"Small\" is not in kvm2.machineTypes"),
        (placement("host-a", "small", "debian"), "placement.image \"debian\" is not a key in kvm2.images"),
        (Placement::default(), "placement.zone is required when kvm2.hosts lists more than one host"),
    ] {
        let refused = resolve(KVM2, &two, &placement).unwrap_err();
        assert_eq!((refused.class, refused.message.as_str(), refused.environment), (ErrorClass::Permanent, message, false));
    }
    assert!(host(KVM, &two, Some("x")).unwrap_err().message.contains("kvm.hosts"), "the block is the type's");
}

#[test]
fn a_url_is_named_by_its_host_alone_lv_45_lv_112() {
    let mut one = settings(&["host-a"]);
    for url in ["https://user:sentinel@images.example.com:8443/sentinel?token=sentinel#sha256=1", "HTTP://images.example.com:8443"] {
        let refused = resolve(KVM2, &one, &placement("", "small", url)).unwrap_err();
        assert_eq!(refused.message, "placement.image is a URL on host \"images.example.com:8443\", and kvm2.allowURLImages is off");
    }
    one.url_images = true;
    let refused = resolve(KVM2, &one, &placement("", "small", "https://images.example.com/x")).unwrap_err();
    assert_eq!(
        refused.message,
        "placement.image is a URL on host \"images.example.com\", and images by URL are not supported by this version"
    );
}
