use std::net::Ipv4Addr;

use egress_libvirt::procedures::{DomainInterface, InterfaceAddress};
use egress_libvirt::{Error, LibvirtError};

use super::{Answer, Found, both, choose, of_error};

const MAC: &str = "02:00:00:00:00:01";

fn card(mac: Option<&str>, addresses: &[(i32, &str)]) -> DomainInterface {
    let addresses =
        addresses.iter().map(|(kind, address)| InterfaceAddress { kind: *kind, address: (*address).into(), prefix: 24 }).collect();
    DomainInterface { name: "eth0".into(), hardware_address: mac.map(str::to_owned), addresses }
}

fn address(text: &str) -> Option<Ipv4Addr> {
    Some(text.parse().unwrap())
}

#[test]
fn only_the_machines_own_card_counts_lv_154() {
    let lo = card(Some("00:00:00:00:00:00"), &[(0, "127.0.0.1")]);
    let docker = card(Some("02:42:00:00:00:01"), &[(0, "172.17.0.1")]);
    let own = card(Some("02:00:00:00:00:01"), &[(1, "fe80::1"), (0, "192.0.2.7")]);
    assert_eq!(choose(&[lo.clone(), docker.clone(), own.clone()], MAC), address("192.0.2.7"));
    assert_eq!(choose(&[own], "02:00:00:00:00:01".to_uppercase().as_str()), address("192.0.2.7"));
    assert_eq!(choose(&[lo, docker, card(None, &[(0, "192.0.2.8")])], MAC), None);
    assert_eq!(choose(&[], MAC), None);
}

#[test]
fn an_address_must_be_one_that_others_can_reach_and_be_what_it_says_lv_154() {
    for unusable in ["127.0.0.1", "169.254.1.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "", "192.0.2", "host", "::ffff:192.0.2.7"] {
        assert_eq!(choose(&[card(Some(MAC), &[(0, unusable)])], MAC), None, "{unusable}");
        assert_eq!(choose(&[card(Some(MAC), &[(0, unusable), (0, "10.0.0.5")])], MAC), address("10.0.0.5"), "{unusable}");
    }
    assert_eq!(choose(&[card(Some(MAC), &[(1, "192.0.2.7")])], MAC), None, "tagged as IPv6");
    assert_eq!(choose(&[card(Some(MAC), &[(0, "2001:db8::1")])], MAC), None, "tagged as IPv4");
    assert_eq!(choose(&[card(Some(MAC), &[]), card(Some(MAC), &[(0, "10.0.0.6")])], MAC), address("10.0.0.6"));
}

fn failed(code: i32, message: &str) -> Error {
    Error::Libvirt { procedure: "DomainInterfaceAddresses", error: LibvirtError { code, domain: 10, level: 2, message: message.into() } }
}

#[test]
fn a_source_that_cannot_know_yet_is_no_fault_and_a_lost_link_ends_the_look_lv_155() {
    assert_eq!(of_error(failed(86, "not connected")).unwrap(), Answer::Nothing { agent: true });
    assert_eq!(of_error(failed(1, "internal error: wrong nlmsg len")).unwrap(), Answer::Nothing { agent: false });
    assert_eq!(of_error(failed(1, "something else")).unwrap(), Answer::Failed);
    assert_eq!(of_error(failed(74, "QEMU guest agent is not configured")).unwrap(), Answer::Failed);
    assert_eq!(of_error(failed(42, "gone")).unwrap_err().libvirt().unwrap().code, 42, "the domain is gone");
    assert!(of_error(Error::Deadline { procedure: "DomainInterfaceAddresses", sent: true }).is_err());
}

#[test]
fn two_sources_make_one_answer_lv_155_lv_156() {
    let (none, agent, kernel) = (Answer::Address(None), Answer::Nothing { agent: true }, Answer::Nothing { agent: false });
    let (a, b) = (address("10.0.0.1"), address("10.0.0.2"));
    for (first, second, expected) in [
        (Answer::Address(a), Answer::Address(b), Found::Address(a.unwrap())),
        (agent, Answer::Address(b), Found::Address(b.unwrap())),
        (Answer::Failed, Answer::Address(b), Found::Address(b.unwrap())),
        (agent, none, Found::NotYet("guest agent does not answer")),
        (agent, kernel, Found::NotYet("guest agent does not answer")),
        (agent, Answer::Failed, Found::NotYet("guest agent does not answer")),
        (none, none, Found::NotYet("no address yet from agent or ARP")),
        (none, Answer::Failed, Found::NotYet("no address yet from agent or ARP")),
        (Answer::Failed, none, Found::NotYet("no address yet from agent or ARP")),
        (Answer::Failed, kernel, Found::NotYet("no address yet from agent or ARP")),
        (Answer::Failed, Answer::Failed, Found::Failed),
    ] {
        assert_eq!(both(first, second), expected, "{first:?} {second:?}");
    }
}
