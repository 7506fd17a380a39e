use egress_protocol::provider::{ErrorClass, InstanceState};

use super::*;
use crate::engine::get;
use crate::profile::KVM;

async fn read(fake: &Fake) -> Result<egress_protocol::provider::Instance, egress_provider::BackendError> {
    get(on(fake, &host()), &key()).await
}

#[tokio::test]
async fn a_running_machine_with_an_address_is_running_lv_150() {
    let fake = with(OURS);
    change(&fake, |domain| drop(domain.addresses.insert(AGENT, Ok(vec![card("02:42:00:00:00:01", "172.17.0.1"), card(MAC, "192.0.2.7")]))));
    let instance = read(&fake).await.unwrap();
    assert_eq!((instance.state, instance.ip), (InstanceState::Running, Some("192.0.2.7".parse().unwrap())));
    assert_eq!(instance.id.as_str(), format!("hosts/host-a/domains/{}", name()));
    assert_eq!((instance.created_at, instance.uid.as_str()), (Timestamp::parse("2026-01-02T03:04:05Z"), UID));
    let calls = ["DomainLookupByName", "DomainGetMetadata", "DomainGetState", "DomainInterfaceAddresses"];
    let made: Vec<String> = fake.calls().iter().map(|call| call.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(made, calls, "ARP is asked only when the agent gave nothing");
}

#[tokio::test]
async fn without_an_agent_the_neighbour_table_is_asked_and_an_old_mark_costs_one_look_at_the_definition_lv_154() {
    let fake = with(Marked { mac: "", ..OURS });
    change(&fake, |domain| {
        domain.addresses.insert(AGENT, Err((86, "Guest agent is not responding")));
        domain.addresses.insert(ARP, Ok(vec![card(MAC, "192.0.2.8")]));
    });
    assert_eq!(read(&fake).await.unwrap().ip, Some("192.0.2.8".parse().unwrap()));
    assert_eq!(fake.calls().iter().filter(|call| call.starts_with("DomainGetXmlDesc")).count(), 1);
}

#[tokio::test]
async fn a_guest_that_boots_is_provisioning_and_says_why_lv_155_lv_156() {
    let fake = with(OURS);
    for (agent, arp, detail) in [
        (Err((86, "not connected")), Err((1, "internal error: wrong nlmsg len")), "guest agent does not answer"),
        (Err((86, "not connected")), Ok(vec![]), "guest agent does not answer"),
        (Ok(vec![card(MAC, "169.254.0.1")]), Ok(vec![]), "no address yet from agent or ARP"),
        (Err((74, "QEMU guest agent is not configured")), Ok(vec![]), "no address yet from agent or ARP"),
    ] {
        change(&fake, |domain| domain.addresses = [(AGENT, agent), (ARP, arp)].into());
        let instance = read(&fake).await.unwrap();
        assert_eq!((instance.state, instance.ip, instance.state_detail.as_deref()), (InstanceState::Provisioning, None, Some(detail)));
    }
}

#[tokio::test]
async fn sources_that_all_fail_are_transient_whatever_their_codes_lv_155() {
    let fake = with(OURS);
    change(&fake, |domain| domain.addresses = [(AGENT, Err((8, "x"))), (ARP, Err((3, "x")))].into());
    assert_eq!(read(&fake).await.unwrap_err().class, ErrorClass::Transient);
    let fake = with(OURS);
    fake.fail("DomainInterfaceAddresses", lost());
    assert_eq!(read(&fake).await.unwrap_err().class, ErrorClass::Transient);
    assert_eq!(fake.calls().iter().filter(|call| call.starts_with("DomainInterfaceAddresses")).count(), 1, "at once");
}

#[tokio::test]
async fn only_libvirts_word_that_there_is_no_domain_is_not_found_at_whichever_step_lv_150() {
    assert_eq!(read(&Fake::default()).await.unwrap_err().class, ErrorClass::NotFound);
    for rpc in ["DomainGetMetadata", "DomainGetState", "DomainInterfaceAddresses"] {
        let fake = with(OURS);
        fake.refuse(rpc, 42);
        let error = read(&fake).await.unwrap_err();
        assert_eq!((error.class, error.id.is_some()), (ErrorClass::NotFound, true), "{rpc}");
    }
    let fake = with(Marked { mac: "", ..OURS });
    fake.refuse("DomainGetXmlDesc", 42);
    assert_eq!(read(&fake).await.unwrap_err().class, ErrorClass::NotFound);
    for (rpc, code, class) in [
        ("DomainLookupByName", 38, ErrorClass::Transient),
        ("DomainLookupByName", 88, ErrorClass::Permanent),
        ("DomainGetMetadata", 1, ErrorClass::Transient),
        ("DomainGetMetadata", 88, ErrorClass::Transient),
        ("DomainGetState", 38, ErrorClass::Transient),
    ] {
        let fake = with(OURS);
        fake.refuse(rpc, code);
        assert_eq!(read(&fake).await.unwrap_err().class, class, "{rpc} {code}");
    }
    for rpc in ["DomainLookupByName", "DomainGetMetadata", "DomainGetState"] {
        let fake = with(OURS);
        fake.fail(rpc, lost());
        assert_eq!(read(&fake).await.unwrap_err().class, ErrorClass::Transient, "{rpc}");
    }
}

#[tokio::test]
async fn what_is_not_ours_is_not_found_and_is_left_as_it_is_lv_152() {
    for marked in [
        Marked { uid: "other", ..OURS },
        Marked { installation: "inst-b", ..OURS },
        Marked { installation: "", ..OURS },
        Marked { profile: KVM, ..OURS },
    ] {
        let fake = with(marked);
        let refused = read(&fake).await.unwrap_err();
        assert_eq!(refused.class, ErrorClass::NotFound);
        assert!(refused.message.contains("is not ours"), "{}", refused.message);
        assert_eq!(fake.calls().len(), 2, "nothing but look-up and mark");
    }
}

#[tokio::test]
async fn a_mark_that_is_none_is_permanent_lv_152() {
    let fake = with(OURS);
    change(&fake, |domain| domain.xml = domain.xml.replace("<instance xmlns", "<else xmlns").replace("</instance>", "</else>"));
    let refused = read(&fake).await.unwrap_err();
    assert_eq!(refused.class, ErrorClass::Permanent);
    assert!(refused.message.contains("has a mark that cannot be read"), "{}", refused.message);
}

#[tokio::test]
async fn a_machine_that_is_down_or_frozen_says_so_without_being_asked_for_an_address_lv_153() {
    for (state, reason, expected, detail) in [
        (0, 0, InstanceState::Provisioning, None),
        (3, 5, InstanceState::Paused, Some("paused: I/O error")),
        (3, 10, InstanceState::Stopped, None),
        (5, 2, InstanceState::Stopped, None),
        (7, 0, InstanceState::Paused, Some("suspended by its guest")),
    ] {
        let fake = with(OURS);
        change(&fake, |domain| (domain.state, domain.reason) = (state, reason));
        let instance = read(&fake).await.unwrap();
        assert_eq!((instance.state, instance.state_detail.as_deref()), (expected, detail));
        assert!(fake.calls().iter().all(|call| !call.starts_with("DomainInterfaceAddresses")));
    }
}
