use egress_protocol::provider::ErrorClass;

use super::*;
use crate::engine::list;
use crate::profile::KVM;

const OTHER_UID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";

fn add(fake: &Fake, name: &str, marked: Marked) {
    let xml = definition(name, marked);
    fake.state.lock().unwrap().domains.insert(name.into(), FakeDomain { xml, state: 5, ..FakeDomain::default() });
}

#[tokio::test]
async fn a_list_has_all_of_ours_by_their_marks_alone_lv_170() {
    let fake = with(OURS);
    let other = InstanceName::of(&Uid::new(OTHER_UID));
    add(&fake, other.as_str(), Marked { uid: OTHER_UID, ..OURS });
    let listing = list(on(&fake, &host()), &installation()).await.unwrap();
    let mut uids: Vec<&str> = listing.instances.iter().map(|instance| instance.uid.as_str()).collect();
    uids.sort_unstable();
    assert_eq!(uids, [UID, OTHER_UID], "those that do not run, too");
    assert!(listing.instances.iter().all(|instance| instance.created_at.is_some()));
    assert_eq!((listing.left_out, listing.leftovers), (vec![], vec![]));
    let calls = fake.calls();
    assert!(calls.iter().all(|call| !call.starts_with("DomainGetState") && !call.starts_with("DomainInterfaceAddresses")), "{calls:?}");
}

#[tokio::test]
async fn what_is_foreign_is_not_listed_lv_2_lv_171_lv_173() {
    let fake = with(Marked { profile: KVM, ..OURS });
    add(&fake, "proxy-aaaaaaaaaaaaaaaa", Marked { installation: "inst-b", ..OURS });
    add(&fake, "proxy-bbbbbbbbbbbbbbbb", Marked { installation: "", ..OURS });
    add(&fake, "database", OURS);
    let listing = list(on(&fake, &host()), &installation()).await.unwrap();
    assert_eq!(listing, super::super::HostListing::default());
}

#[tokio::test]
async fn a_mark_that_libvirt_does_not_give_leaves_its_domain_out_by_name_lv_171() {
    for (code, left_out) in [(1, true), (88, true), (42, false), (80, false)] {
        let fake = with(OURS);
        fake.refuse("DomainGetMetadata", code);
        let listing = list(on(&fake, &host()), &installation()).await.unwrap();
        let names: Vec<String> = listing.left_out.into_iter().map(|(name, _)| name).collect();
        let expected = if left_out { vec![name().to_string()] } else { Vec::new() };
        assert_eq!((names, listing.instances.len()), (expected, 0), "{code}");
        assert_eq!(listing.leftovers, [], "its volumes are not leftovers");
    }
}

#[tokio::test]
async fn a_malformed_mark_is_skipped_lv_171() {
    let fake = with(OURS);
    change(&fake, |domain| domain.xml = domain.xml.replace("<instance xmlns", "<else xmlns").replace("</instance>", "</else>"));
    assert_eq!(list(on(&fake, &host()), &installation()).await.unwrap(), super::super::HostListing::default());
}

#[tokio::test]
async fn half_a_list_is_no_list_lv_171() {
    for rpc in ["ConnectListAllDomains", "DomainGetMetadata", "StoragePoolLookupByName", "StoragePoolGetInfo", "StoragePoolListAllVolumes"]
    {
        let fake = with(OURS);
        fake.fail(rpc, lost());
        assert_eq!(list(on(&fake, &host()), &installation()).await.unwrap_err().class, ErrorClass::Transient, "{rpc}");
    }
}

#[tokio::test]
async fn volumes_of_ours_without_a_domain_are_leftovers_and_others_are_not_lv_173() {
    let fake = with(OURS);
    let gone = InstanceName::of(&Uid::new(OTHER_UID));
    {
        let mut state = fake.state.lock().unwrap();
        let volumes = &mut state.pools.get_mut("default").unwrap().volumes;
        volumes.insert(names::overlay(&gone, &installation()));
        volumes.insert(names::seed(&gone, &installation()));
        volumes.insert(names::overlay(&gone, &InstallationId::new("inst-b")));
        volumes.insert("database.qcow2".into());
    }
    let leftovers: Vec<InstanceName> =
        list(on(&fake, &host()), &installation()).await.unwrap().leftovers.into_iter().map(|left| left.name).collect();
    assert_eq!(leftovers, [gone], "once, though it has two");
    fake.state.lock().unwrap().pools.get_mut("default").unwrap().state = 0;
    assert_eq!(list(on(&fake, &host()), &installation()).await.unwrap().leftovers, [], "a pool that does not run has none to tell");
    fake.state.lock().unwrap().pools.clear();
    assert_eq!(list(on(&fake, &host()), &installation()).await.unwrap().leftovers, []);
}
