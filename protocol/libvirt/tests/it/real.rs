//! The client against Debian's libvirtd, over its unix socket.

mod libvirtd;

use std::time::Duration;

use bytes::Bytes;
use egress_libvirt::procedures::*;
use egress_libvirt::{Client, Error, MAX_RANGE};
use tokio::time::Instant;

use libvirtd::Libvirtd;

/// QEMU is slow to be asked for what it can do, and the machine may be busy.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(120)
}

fn code(result: Result<impl std::fmt::Debug, Error>) -> i32 {
    let error = result.unwrap_err();
    error.libvirt().unwrap_or_else(|| panic!("not of libvirt: {error}")).code
}

const NAMESPACE: &str = "https://example.com/test";

const DOMAIN: &str = "<domain type='qemu'><name>px-1</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>\
    <metadata><t:mark xmlns:t='https://example.com/test'><t:uid>u-1</t:uid></t:mark></metadata>\
    <os><type arch='x86_64' machine='q35'>hvm</type></os><devices/></domain>";

#[tokio::test]
async fn a_domain_lives_from_its_definition_to_its_end() {
    let Some(libvirtd) = Libvirtd::start("a_domain_lives_from_its_definition_to_its_end").await else { return };
    let client = libvirtd.link().await;

    let version = client.call(ConnectGetLibVersion {}, soon()).await.unwrap();
    let printed = format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000);
    assert!(libvirtd.virsh(&["version"]).contains(&format!("libvirt {printed}")), "{printed}");
    let hostname = client.call(ConnectGetHostname {}, soon()).await.unwrap();
    assert_eq!(hostname, libvirtd.virsh(&["hostname"]).trim());
    assert_eq!(client.call(ConnectGetUri {}, soon()).await.unwrap(), "qemu:///system");
    assert!(client.call(ConnectGetVersion {}, soon()).await.unwrap() > 2_000_000, "QEMU's");
    let node = client.call(NodeGetInfo {}, soon()).await.unwrap();
    assert!(node.cpus > 0 && node.memory > 1 << 18 && !node.model.text().is_empty(), "{node:?}");
    assert!(client.call(ConnectGetCapabilities {}, soon()).await.unwrap().contains("<arch>x86_64</arch>"));
    let asked = ConnectGetDomainCapabilities {
        emulator: None,
        arch: Some("x86_64".into()),
        machine: Some("q35".into()),
        virt_type: Some("qemu".into()),
        flags: 0,
    };
    assert!(client.call(asked, soon()).await.unwrap().contains("<domainCapabilities>"));

    assert_eq!(code(client.call(DomainLookupByName { name: "px-1".into() }, soon()).await), 42);
    let domain = client.call(DomainDefineXml { xml: DOMAIN.into() }, soon()).await.unwrap();
    assert_eq!((domain.name.as_str(), domain.id), ("px-1", -1));
    assert_eq!(client.call(DomainLookupByUuid { uuid: domain.uuid }, soon()).await.unwrap(), domain);
    let mark = |uri: &str| DomainGetMetadata { domain: domain.clone(), kind: METADATA_ELEMENT, uri: Some(uri.into()), flags: 0 };
    let read = client.call(mark(NAMESPACE), soon()).await.unwrap();
    assert!(read.contains("<uid>u-1</uid>") && !read.contains("xmlns"), "without its namespace (F8): {read}");
    assert_eq!(code(client.call(mark("https://example.com/other"), soon()).await), 80);

    let state = || async { client.call(DomainGetState { domain: domain.clone(), flags: 0 }, soon()).await.unwrap() };
    assert_eq!(state().await, DomainState { state: 5, reason: 0 });
    client.call(DomainCreate { domain: domain.clone() }, soon()).await.unwrap();
    assert_eq!(code(client.call(DomainCreate { domain: domain.clone() }, soon()).await), 55);
    assert_eq!(state().await, DomainState { state: 1, reason: 1 });
    client.call(DomainSuspend { domain: domain.clone() }, soon()).await.unwrap();
    assert_eq!(state().await, DomainState { state: 3, reason: 1 });
    client.call(DomainResume { domain: domain.clone() }, soon()).await.unwrap();
    let addresses = |source| DomainInterfaceAddresses { domain: domain.clone(), source, flags: 0 };
    assert_eq!(code(client.call(addresses(address_source::AGENT), soon()).await), 74, "there is no agent's channel");
    let listed = client.call(ConnectListAllDomains { need_results: 1, flags: list_domains::ACTIVE }, soon()).await.unwrap();
    assert_eq!((listed.count, listed.domains[0].name.as_str()), (1, "px-1"));
    client.call(DomainDestroy { domain: domain.clone() }, soon()).await.unwrap();
    assert_eq!(state().await, DomainState { state: 5, reason: 2 });
    assert!(client.call(DomainGetXmlDesc { domain: domain.clone(), flags: 0 }, soon()).await.unwrap().contains("<name>px-1</name>"));
    let flags = undefine::MANAGED_SAVE | undefine::SNAPSHOTS_METADATA | undefine::NVRAM | undefine::CHECKPOINTS_METADATA;
    client.call(DomainUndefineFlags { domain, flags }, soon()).await.unwrap();
    let listed = client.call(ConnectListAllDomains { need_results: 1, flags: 3 }, soon()).await.unwrap();
    assert_eq!(listed, Domains { domains: Vec::new(), count: 0 });

    assert_eq!(code(client.call(NetworkLookupByName { name: "none".into() }, soon()).await), 43);
    let interface = client.call(InterfaceLookupByName { name: "lo".into() }, soon()).await.unwrap();
    assert_eq!(interface.name, "lo");
    assert_eq!(code(client.call(InterfaceLookupByName { name: "none".into() }, soon()).await), 57);
    assert_eq!((client.abandoned(), client.unexpected()), (0, 0));
    client.close(soon()).await;
}

async fn created(client: &Client, pool: &StoragePool, name: &str, capacity: usize) -> StorageVolume {
    let xml =
        format!("<volume><name>{name}</name><capacity unit='bytes'>{capacity}</capacity><target><format type='raw'/></target></volume>");
    client.call(StorageVolCreateXml { pool: pool.clone(), xml, flags: 0 }, soon()).await.unwrap()
}

#[tokio::test]
async fn volumes_go_in_and_come_out_as_they_were() {
    let Some(libvirtd) = Libvirtd::start("volumes_go_in_and_come_out_as_they_were").await else { return };
    let libvirtd = libvirtd.with_pool();
    let client = libvirtd.link().await;
    assert_eq!(code(client.call(StoragePoolLookupByName { name: "none".into() }, soon()).await), 49);
    let pool = client.call(StoragePoolLookupByName { name: "default".into() }, soon()).await.unwrap();
    client.call(StoragePoolRefresh { pool: pool.clone(), flags: 0 }, soon()).await.unwrap();
    let info = client.call(StoragePoolGetInfo { pool: pool.clone() }, soon()).await.unwrap();
    assert!(info.state == 2 && info.capacity >= info.available && info.available > 0, "{info:?}");

    let contents: Vec<u8> = (0..2 * MAX_RANGE + 70_001).map(|n| (n % 241) as u8).collect();
    let volume = created(&client, &pool, "a.raw", contents.len()).await;
    client.upload_from(volume.clone(), contents.len() as u64, &contents[..], Duration::from_secs(60)).await.unwrap();
    assert!(libvirtd.file("a.raw") == contents);
    // Again and again: libvirtd's threads race with each other.
    for _ in 0..20 {
        let mut download = client.download(volume.clone(), 0);
        let mut got = Vec::new();
        while let Some(bytes) = download.next(soon()).await.unwrap() {
            got.extend_from_slice(&bytes);
        }
        assert!(got == contents);
    }
    assert_eq!(client.read_range(volume.clone(), 5, 70, soon()).await.unwrap(), contents[5..75]);

    let path = client.call(StorageVolGetPath { volume: volume.clone() }, soon()).await.unwrap();
    assert!(path.ends_with("/pool/a.raw"), "{path}");
    let info = client.call(StorageVolGetInfo { volume: volume.clone() }, soon()).await.unwrap();
    assert_eq!((info.kind, info.capacity), (0, contents.len() as u64));
    assert!(client.call(StorageVolGetXmlDesc { volume: volume.clone(), flags: 0 }, soon()).await.unwrap().contains("a.raw"));
    let xml = "<volume><name>b.raw</name><capacity unit='bytes'>1</capacity><target><format type='raw'/></target></volume>";
    let copy = StorageVolCreateXmlFrom { pool: pool.clone(), xml: xml.into(), from: volume.clone(), flags: 0 };
    client.call(copy, soon()).await.unwrap();
    assert!(libvirtd.file("b.raw") == contents, "raw to raw is a copy (F11)");
    let listed = client.call(StoragePoolListAllVolumes { pool: pool.clone(), need_results: 1, flags: 0 }, soon()).await.unwrap();
    let mut names: Vec<_> = listed.volumes.iter().map(|volume| volume.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a.raw", "b.raw"]);
    client.call(StorageVolDelete { volume, flags: 0 }, soon()).await.unwrap();
    assert_eq!(code(client.call(StorageVolLookupByName { pool, name: "a.raw".into() }, soon()).await), 50);
    assert_eq!((client.abandoned(), client.unexpected()), (0, 0));
}

#[tokio::test]
async fn an_upload_that_is_given_up_or_refused_leaves_link_and_volume_usable_lv_73() {
    let Some(libvirtd) = Libvirtd::start("an_upload_that_is_given_up_or_refused_leaves_link_and_volume_usable_lv_73").await else { return };
    let libvirtd = libvirtd.with_pool();
    let client = libvirtd.link().await;
    let pool = client.call(StoragePoolLookupByName { name: "default".into() }, soon()).await.unwrap();
    let volume = created(&client, &pool, "a.raw", 1 << 20).await;

    // Dropped in the middle (F4).
    let mut upload = client.upload(volume.clone(), 0, 1 << 20, soon()).await.unwrap();
    upload.write(Bytes::from(vec![1; 300_000]), soon()).await.unwrap();
    drop(upload);
    // A source that ends early.
    let short = client.upload_from(volume.clone(), 1 << 20, &[2; 1000][..], Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(short, Error::Short { sent: 1000, .. }), "{short}");
    // A volume whose file is gone.
    let gone = StorageVolume { name: "gone.raw".into(), key: "/gone.raw".into(), ..volume.clone() };
    assert_eq!(code(client.upload(gone, 0, 9, soon()).await), 50);
    // A download that is dropped right after it began.
    let dropped = tokio::time::timeout(Duration::ZERO, client.read_range(volume.clone(), 0, MAX_RANGE, soon())).await;
    assert!(dropped.is_err());

    let contents = vec![3; 1 << 20];
    client.upload_from(volume.clone(), 1 << 20, &contents[..], Duration::from_secs(60)).await.unwrap();
    assert!(libvirtd.file("a.raw") == contents);
    client.call(StorageVolDelete { volume, flags: 0 }, soon()).await.unwrap();
    // Everything that was given up has been answered by now, or will be.
    let deadline = soon();
    while client.abandoned() > 0 {
        assert!(Instant::now() < deadline, "{client:?}");
        client.call(ConnectGetLibVersion {}, soon()).await.unwrap();
    }
    assert_eq!(client.unexpected(), 0);
}

/// A procedure that no libvirt has.
struct Unknown;

impl egress_libvirt::xdr::Encode for Unknown {
    fn encode(&self, _: &mut Vec<u8>) {}
}

impl Procedure for Unknown {
    const NUMBER: i32 = 9999;
    const NAME: &'static str = "Unknown";
    type Reply = ();
}

#[tokio::test]
async fn a_libvirtd_that_hangs_costs_deadlines_and_then_the_link_serves_on_lv_77() {
    let Some(libvirtd) = Libvirtd::start("a_libvirtd_that_hangs_costs_deadlines_and_then_the_link_serves_on_lv_77").await else { return };
    let client = libvirtd.link().await;
    assert!(matches!(client.call(Unknown, soon()).await.unwrap_err(), Error::Unsupported { procedure: "Unknown" }), "LV-75");
    libvirtd.signal("-STOP");
    let late = client.call(ConnectGetHostname {}, Instant::now() + Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(late, Error::Deadline { sent: true, .. }), "{late}");
    tokio::task::yield_now().await;
    assert_eq!(client.abandoned(), 1);
    libvirtd.signal("-CONT");
    assert!(client.call(ConnectGetLibVersion {}, soon()).await.unwrap() > 1_000_000);
    let deadline = soon();
    while client.abandoned() > 0 {
        assert!(Instant::now() < deadline, "{client:?}");
        client.call(ConnectGetLibVersion {}, soon()).await.unwrap();
    }
    libvirtd.signal("-KILL");
    let gone = client.until_closed().await;
    assert!(["the other side closed it", "the stream failed"].iter().any(|reason| gone.reason().starts_with(reason)), "{gone}");
}

#[tokio::test]
async fn libvirtd_answers_keepalives_lv_81() {
    let Some(libvirtd) = Libvirtd::start("libvirtd_answers_keepalives_lv_81").await else { return };
    let io = tokio::net::UnixStream::connect(libvirtd.socket()).await.unwrap();
    let (client, connection) = egress_libvirt::connect(io, &egress_libvirt::Options { keepalive: Some(Duration::from_millis(300)) });
    tokio::spawn(connection);
    client.open("qemu:///system", soon()).await.unwrap();
    // Several intervals of nothing but questions and answers.
    let silent = tokio::time::timeout(Duration::from_secs(2), client.until_closed()).await;
    assert!(silent.is_err(), "{silent:?}");
    libvirtd.signal("-STOP");
    assert_eq!(client.until_closed().await.reason(), "no answer to a keepalive for 300ms");
    libvirtd.signal("-CONT");
}
