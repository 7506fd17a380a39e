//! What callers see (PC-9…45, LO-2, LO-3).

use std::fs;
use std::net::{IpAddr, SocketAddrV4, TcpListener};
use std::time::Duration;

use egress_protocol::provider::{DeleteOutcome, ErrorClass, InstanceState};
use egress_protocol::{InstallationId, InstanceId, Uid};
use egress_provider::Backend;

use super::support::{Bed, Calls, PORT, call, key, request};
use crate::{LocalEvent, TYPE};
use egress_config::providers::FaultKnobs as Faults;

#[tokio::test]
async fn an_instance_lives_from_create_to_gone() {
    let bed = Bed::new();
    let backend = bed.backend();
    assert_eq!(backend.type_name(), TYPE);
    assert_eq!(backend.read(&key("1")).await.unwrap_err().class, ErrorClass::NotFound);
    let id = backend.made(&request("1", PORT)).await.unwrap();
    assert_eq!(Some(&id), key("1").id.as_ref());
    assert_eq!(backend.made(&request("1", PORT)).await.unwrap(), id, "CT-01");
    assert_eq!(bed.listening(&[PORT]).len(), 1);
    let read = backend.read(&key("1")).await.unwrap();
    let first = bed.config.listen[0].hosts().next();
    assert_eq!((read.state, read.ip, read.id), (InstanceState::Running, first, id), "CT-06, CT-12");
    assert_eq!((read.uid.as_str(), read.installation.as_str()), ("1", "inst"));
    assert_eq!(read.created_at.unwrap().to_string(), "2026-01-02T03:04:05.000Z", "PC-52: whole seconds");
    let listed = backend.all().await;
    assert_eq!((listed.instances.len(), listed.left_out.len(), listed.leftovers.len()), (1, 0, 0));
    assert_eq!(backend.gone(&key("1")).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!(backend.read(&key("1")).await.unwrap_err().class, ErrorClass::NotFound, "CT-08");
    assert_eq!(backend.gone(&key("1")).await.unwrap(), DeleteOutcome::Gone, "CT-19");
    assert!(bed.listening(&[PORT]).is_empty() && bed.marked().is_empty(), "CT-21");
    assert!(matches!(
        &bed.events.lock().unwrap()[..],
        [
            LocalEvent::Creating { .. },
            LocalEvent::Created { .. },
            LocalEvent::Adopted { .. },
            LocalEvent::Deleting { .. },
            LocalEvent::Deleted { .. }
        ]
    ));
}

/// Without a state folder the contract is the same.
#[tokio::test]
async fn marks_in_memory_serve_as_well() {
    let mut bed = Bed::new();
    bed.config.state_dir = None;
    let backend = bed.backend();
    backend.made(&request("1", PORT)).await.unwrap();
    assert_eq!(backend.read(&key("1")).await.unwrap().state, InstanceState::Running);
    assert_eq!(backend.all().await.instances.len(), 1);
    drop(backend);
    let backend = bed.restarted().await;
    assert_eq!(backend.read(&key("1")).await.unwrap_err().class, ErrorClass::NotFound);
}

/// CT-28.
#[tokio::test]
async fn two_creates_of_one_name_at_once_make_one_instance() {
    let bed = Bed::new();
    let backend = bed.backend();
    let wanted = request("1", PORT);
    let (one, two) = tokio::join!(backend.made(&wanted), backend.made(&wanted));
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!((bed.marked().len(), bed.listening(&[PORT]).len()), (1, 1));
}

/// CT-04, CT-10, CT-17, CT-20: what the mark says on disk decides, on every call.
#[tokio::test]
async fn what_is_not_ours_is_neither_adopted_read_nor_deleted() {
    for (find, replace, listed) in [
        ("\"proxy-operator-uid\": \"1\"", "\"proxy-operator-uid\": \"2\"", 1),
        ("\"proxy-operator-uid\": \"1\"", "\"proxy-operator-uid\": \"\"", 1),
        ("\"proxy-operator-installation\": \"inst\"", "\"proxy-operator-installation\": \"other\"", 0),
        ("\"proxy-operator-managed\": \"true\"", "\"proxy-operator-managed\": \"\"", 0),
    ] {
        let bed = Bed::new();
        let backend = bed.backend();
        backend.made(&request("1", PORT)).await.unwrap();
        let path = bed.marks().join(format!("{}.json", key("1").name));
        let altered = fs::read_to_string(&path).unwrap().replace(find, replace);
        fs::write(&path, &altered).unwrap();
        let error = backend.made(&request("1", PORT)).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Permanent, "{replace}");
        assert!(error.message.contains("proxy-operator-"), "names the mark: {}", error.message);
        assert_eq!(backend.read(&key("1")).await.unwrap_err().class, ErrorClass::NotFound, "{replace}");
        assert_eq!(backend.gone(&key("1")).await.unwrap(), DeleteOutcome::Gone, "{replace}");
        assert_eq!(fs::read_to_string(&path).unwrap(), altered, "untouched");
        assert_eq!(backend.all().await.instances.len(), listed, "CT-24: {replace}");
    }
}

#[tokio::test]
async fn a_corrupt_mark_is_permanent_and_an_unreadable_one_transient() {
    let bed = Bed::new();
    let backend = bed.backend();
    backend.made(&request("1", PORT)).await.unwrap();
    let path = bed.marks().join(format!("{}.json", key("1").name));
    fs::write(&path, "{").unwrap();
    assert_eq!(backend.read(&key("1")).await.unwrap_err().class, ErrorClass::Permanent);
    assert_eq!(backend.made(&request("1", PORT)).await.unwrap_err().class, ErrorClass::Permanent);
    assert_eq!(backend.gone(&key("1")).await.unwrap_err().class, ErrorClass::Permanent);
    assert_eq!(backend.all().await.instances.len(), 0, "PC-45: skipped");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(backend.read(&key("1")).await.unwrap_err().class, ErrorClass::Transient, "CT-09");
}

/// CT-18, PC-10.
#[tokio::test]
async fn a_malformed_id_is_permanent() {
    let bed = Bed::new();
    let backend = bed.backend();
    for id in [
        "",
        "local/",
        "local/px-1",
        "proxy-ck4to7f6pzojj2fh",
        "local/proxy-CK4TO7F6PZOJJ2FH",
        "local/proxy-ck4to7f6pzojj2fh/x",
        "local/../x",
    ] {
        let mut key = key("1");
        key.id = Some(InstanceId::new(id));
        assert_eq!(backend.read(&key).await.unwrap_err().class, ErrorClass::Permanent, "{id}");
        assert_eq!(backend.gone(&key).await.unwrap_err().class, ErrorClass::Permanent, "{id}");
    }
}

/// CT-22, PC-40.
#[tokio::test]
async fn a_delete_without_an_id_goes_by_name_and_with_an_empty_uid_touches_nothing() {
    let bed = Bed::new();
    let backend = bed.backend();
    backend.made(&request("1", PORT)).await.unwrap();
    let mut nameless = key("1");
    nameless.id = None;
    nameless.uid = Uid::new("");
    assert_eq!(backend.gone(&nameless).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!(bed.marked().len(), 1);
    nameless.uid = Uid::new("1");
    assert_eq!(backend.gone(&nameless).await.unwrap(), DeleteOutcome::Gone);
    assert!(bed.marked().is_empty() && bed.listening(&[PORT]).is_empty());
}

/// LO-3.
#[tokio::test]
async fn a_port_is_served_on_the_first_free_address_until_none_is_left() {
    let bed = Bed::new();
    let backend = bed.backend();
    for n in 0..6 {
        backend.made(&request(&n.to_string(), PORT)).await.unwrap();
    }
    assert_eq!(bed.listening(&[PORT]).len(), 6);
    let error = backend.made(&request("6", PORT)).await.unwrap_err();
    assert_eq!((error.class, error.retry_after), (ErrorClass::QuotaExceeded, Some(Duration::from_secs(10))));
    for part in [&PORT.to_string(), "default/px-0", "127.1.0.0/16", "listenAddresses"] {
        assert!(error.message.contains(part), "{part} in {}", error.message);
    }
    backend.made(&request("7", PORT + 1)).await.expect("another port is free");
    backend.gone(&key("3")).await.unwrap();
    backend.made(&request("6", PORT)).await.expect("one was freed");
}

#[tokio::test]
async fn a_port_that_a_stranger_holds_is_quota_and_names_no_proxy() {
    let mut bed = Bed::new();
    let first = bed.config.listen[0].hosts().next().unwrap();
    bed.config.listen = vec![first.into()];
    let _stranger = TcpListener::bind(SocketAddrV4::new(first, PORT)).unwrap();
    let backend = bed.backend();
    let error = backend.made(&request("1", PORT)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::QuotaExceeded);
    assert!(error.message.contains(&PORT.to_string()) && !error.message.contains("held by"), "{}", error.message);
    assert!(bed.marked().is_empty());
}

#[tokio::test]
async fn an_address_that_this_machine_does_not_have_is_named() {
    let mut bed = Bed::new();
    bed.config.listen = vec!["192.0.2.1/32".parse().unwrap()];
    let error = bed.backend().made(&request("1", PORT)).await.unwrap_err();
    assert_eq!((error.class, error.environment), (ErrorClass::Permanent, true));
    assert!(error.message.contains("192.0.2.1"), "{}", error.message);
}

/// CT-07, PC-19; LO-3.
#[tokio::test]
async fn a_zone_names_a_source_address_else_the_least_used_is_taken() {
    let mut bed = Bed::new();
    bed.config.sources = ["127.0.0.5", "127.0.0.6"].map(|ip| ip.parse::<IpAddr>().unwrap()).to_vec();
    let backend = bed.backend();
    let mut wanted = request("1", PORT);
    wanted.placement.zone = Some("127.0.0.7".into());
    let error = backend.made(&wanted).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    assert!(error.message.contains("placement.zone") && error.message.contains("127.0.0.7"), "{}", error.message);
    assert!(bed.events.lock().unwrap().is_empty() && bed.marked().is_empty());
    wanted.placement.zone = Some("127.0.0.6".into());
    backend.made(&wanted).await.unwrap();
    for uid in ["2", "3", "4"] {
        backend.made(&request(uid, PORT)).await.unwrap();
    }
    let mut leaving = Vec::new();
    for uid in ["1", "2", "3", "4"] {
        leaving.push(
            backend.read(&key(uid)).await.unwrap().state_detail.unwrap().split_off(" leaving from 127.0.0.5".len()).chars().last().unwrap(),
        );
    }
    assert_eq!(leaving, ['6', '5', '5', '6']);
}

#[tokio::test]
async fn a_create_that_asks_for_something_else_rebuilds_what_is_there() {
    let bed = Bed::new();
    let backend = bed.backend();
    let id = backend.made(&request("1", PORT)).await.unwrap();
    assert_eq!(backend.made(&request("1", PORT + 1)).await.unwrap(), id, "PC-16");
    assert_eq!((bed.listening(&[PORT, PORT + 1]), bed.marked().len()), (bed.marked(), 1));
}

#[tokio::test]
async fn a_fault_knob_fails_the_creates_of_those_it_names() {
    let mut bed = Bed::new();
    let faults = |class| Faults { proxies: vec!["default/px-1".into()], create_error: Some(class), ..Faults::default() };
    for (class, answered) in [
        (ErrorClass::Permanent, ErrorClass::Permanent),
        (ErrorClass::QuotaExceeded, ErrorClass::QuotaExceeded),
        (ErrorClass::NotFound, ErrorClass::Transient),
    ] {
        bed.config.faults = vec![faults(class)];
        let backend = bed.backend();
        assert_eq!(backend.made(&request("1", PORT)).await.unwrap_err().class, answered);
        backend.made(&request("2", PORT)).await.unwrap();
        backend.gone(&key("2")).await.unwrap();
    }
}

/// PC-75: never cloud-init.
#[tokio::test]
async fn no_file_holds_cloud_init() {
    let bed = Bed::new();
    let backend = bed.backend();
    backend.made(&request("1", PORT)).await.unwrap();
    for file in fs::read_dir(bed.marks()).unwrap() {
        assert!(!fs::read_to_string(file.unwrap().path()).unwrap().contains("SENTINEL"));
    }
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_written_is_transient_and_leaves_nothing() {
    let bed = Bed::new();
    fs::write(bed.dir.path().join("marks"), "in the way").unwrap();
    let backend = bed.backend();
    assert_eq!(backend.made(&request("1", PORT)).await.unwrap_err().class, ErrorClass::Transient);
    assert!(bed.listening(&[PORT]).is_empty());
    fs::remove_file(bed.dir.path().join("marks")).unwrap();
    backend.made(&request("1", PORT)).await.unwrap();
}

/// PH-47.
#[tokio::test]
async fn the_check_has_one_verdict_per_source_address() {
    let mut bed = Bed::new();
    let verdicts = bed.backend().check(&call()).unwrap().await;
    assert_eq!((verdicts.len(), verdicts[0].name.as_str(), verdicts[0].ready), (1, "process", true));
    bed.config.sources = vec!["127.0.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap()];
    let verdicts = bed.backend().check(&call()).unwrap().await;
    let told: Vec<_> = verdicts.iter().map(|v| (v.name.as_str(), v.ready, v.reason, v.message.is_empty())).collect();
    assert_eq!(told, [("127.0.0.1", true, "Reachable", true), ("192.0.2.1", false, "AddressUnavailable", false)]);
}

#[tokio::test]
async fn another_installations_instances_are_not_listed_nor_restored() {
    let bed = Bed::new();
    let backend = bed.backend();
    let mut foreign = request("1", PORT);
    foreign.installation = InstallationId::new("other");
    backend.made(&foreign).await.unwrap();
    assert!(backend.all().await.instances.is_empty());
    drop(backend);
    let backend = bed.restarted().await;
    while !bed.listening(&[PORT]).is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(bed.marked().len(), 1, "left alone");
    drop(backend);
}
