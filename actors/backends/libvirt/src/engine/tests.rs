use std::time::Duration;

use egress_libvirt::Error as LibvirtCallError;
use egress_libvirt::procedures::{DomainInterface, InterfaceAddress};
use egress_protocol::provider::InstanceKey;
use egress_protocol::resource::Placement;
use egress_protocol::{InstallationId, InstanceName, Timestamp, Uid};
use tokio::time::Instant;

use super::On;
use super::fake::{Fake, FakeDomain, FakePool};
use crate::domain::Machine;
use crate::mark::NewMark;
use crate::names;
use crate::profile::{KVM2, Profile};
use crate::settings::{Firmware, Host, MachineType, SeedBus, VirtType};

mod delete;
mod get;
mod list;

const UID: &str = "3f1c2a9e-0000-4000-8000-000000000001";
const MAC: &str = "02:00:00:00:00:01";
const AGENT: u32 = 1;
const ARP: u32 = 2;

fn installation() -> InstallationId {
    InstallationId::new("inst-a")
}

fn name() -> InstanceName {
    InstanceName::of(&Uid::new(UID))
}

fn key() -> InstanceKey {
    InstanceKey {
        id: None,
        name: name(),
        uid: Uid::new(UID),
        installation: installation(),
        namespace: "default".into(),
        placement: Placement::default(),
    }
}

fn host() -> Host {
    Host {
        name: "host-a".into(),
        pool: "default".into(),
        bridge: "br0".into(),
        virt_type: VirtType::Kvm,
        reserve: None,
        neighbour_fallback: false,
    }
}

fn on<'a>(fake: &'a Fake, host: &'a Host) -> On<'a> {
    On { profile: KVM2, host, rpc: fake, until: Instant::now() + Duration::from_secs(60) }
}

/// How a domain was marked, if not as ours.
#[derive(Clone, Copy)]
struct Marked {
    profile: Profile,
    uid: &'static str,
    installation: &'static str,
    pool: &'static str,
    mac: &'static str,
}

const OURS: Marked = Marked { profile: KVM2, uid: UID, installation: "inst-a", pool: "default", mac: MAC };

fn definition(name: &str, marked: Marked) -> String {
    let (uid, installation) = (Uid::new(marked.uid), InstallationId::new(marked.installation));
    let created_at = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
    let mark = NewMark { uid: &uid, installation: &installation, created_at, entry: "lab", pool: marked.pool, mac: marked.mac };
    let machine = Machine {
        name,
        virt_type: VirtType::Kvm,
        size: MachineType { vcpus: 1, memory_mib: 512 },
        firmware: Firmware::Uefi,
        seed_bus: SeedBus::Scsi,
        overlay: "/pool/o",
        seed: "/pool/s",
        bridge: "br0",
        mac: MAC,
        mark: mark.element(marked.profile),
    };
    machine.to_xml().unwrap()
}

/// A libvirt with a running domain of our name, its volumes, and a base.
fn with(marked: Marked) -> Fake {
    let fake = Fake::default();
    {
        let mut state = fake.state.lock().unwrap();
        state.undefine_flags = 31;
        let xml = definition(name().as_str(), marked);
        state.domains.insert(name().to_string(), FakeDomain { xml, state: 1, reason: 1, ..FakeDomain::default() });
        for pool in ["default", "other"] {
            state.pools.insert(
                pool.into(),
                FakePool { state: 2, volumes: ["base-lab-debian.qcow2".to_owned(), "base-lab-debian.qcow2.sha256".to_owned()].into() },
            );
        }
        let volumes = &mut state.pools.get_mut(marked.pool).unwrap().volumes;
        volumes.insert(names::overlay(&name(), &installation()));
        volumes.insert(names::seed(&name(), &installation()));
    }
    fake
}

fn change(fake: &Fake, change: impl FnOnce(&mut FakeDomain)) {
    change(fake.state.lock().unwrap().domains.get_mut(name().as_str()).unwrap());
}

fn volumes(fake: &Fake, pool: &str) -> Vec<String> {
    fake.state.lock().unwrap().pools[pool].volumes.iter().filter(|volume| !volume.starts_with("base-")).cloned().collect()
}

fn card(mac: &str, address: &str) -> DomainInterface {
    let addresses = vec![InterfaceAddress { kind: 0, address: address.into(), prefix: 24 }];
    DomainInterface { name: "eth0".into(), hardware_address: Some(mac.into()), addresses }
}

fn lost() -> LibvirtCallError {
    LibvirtCallError::Deadline { procedure: "x", sent: true }
}
