//! With exactly the rights that the chart gives (IN-5), with fewer, and with tokens that end (O21): a real ServiceAccount at
//! the real API server.

use std::net::IpAddr;
use std::time::Duration;

use egress_cluster::source::{Pace, SourceArgs};
use egress_cluster::{installation, server_addresses};
use egress_kube::Request;
use egress_protocol::leadership::Fence;
use egress_protocol::object::CloudInit;
use egress_protocol::resource::{LABEL_CLOUD_INIT, Phase, ProxyStatus};
use egress_protocol::source::{EventReason, ProxyEvent, SourceMessage};
use egress_protocol::{InstallationId, ObjectKey, Timestamp, Uid};
use serde_json::{Value, json};

use crate::account::{Account, manager};
use crate::bed::{Bed, SOON, eventually, external};
use crate::tree::Tree;
use crate::trouble::quick;

fn args(bed: &Bed, account: &Account) -> SourceArgs {
    SourceArgs { pace: quick(), ..SourceArgs::new(account.client(), bed.scope(), Fence::open(), "pod-1") }
}

fn ready() -> ProxyStatus {
    ProxyStatus { phase: Some(Phase::Ready), ..ProxyStatus::default() }
}

fn event(key: &ObjectKey, uid: &Uid, reason: EventReason, note: &str) -> SourceMessage {
    let event =
        ProxyEvent { key: key.clone(), uid: uid.clone(), reason, note: note.to_owned(), at: Timestamp::from_millis(1_767_323_045_678) };
    SourceMessage::Publish { event }
}

fn without(resource: &str) -> Value {
    let rules = manager();
    json!(rules.as_array().unwrap().iter().filter(|rule| rule["resources"] != json!([resource])).collect::<Vec<_>>())
}

#[tokio::test]
async fn the_manager_s_rights_are_enough_for_everything_in_5() {
    let Some(bed) = Bed::get("the_manager_s_rights_are_enough_for_everything_in_5").await else { return };
    let account = Account::new(&bed, "manager", &manager()).await;
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed, &account)).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    tree.write(&px.key, &px.uid, ready()).await.unwrap();
    tree.add_finalizer(&px.key, &px.uid).await.unwrap();
    tree.remove_finalizer(&px.key, &px.uid).await.unwrap();
    tree.live().await.unwrap();
    for _ in 0..2 {
        tree.send(event(&px.key, &px.uid, EventReason::Running, "address 192.0.2.1"));
    }
    let events = format!("/apis/events.k8s.io/v1/namespaces/{}/events", bed.namespace);
    eventually("the Event is counted", SOON, || async {
        let list = bed.send(&Request::list("test", &events, &[])).await.unwrap();
        list["items"].as_array().unwrap().iter().any(|event| event["series"]["count"] == 2).then_some(())
    })
    .await;
    let uid = bed.send(&Request::get("test", "/api/v1/namespaces/kube-system")).await.unwrap()["metadata"]["uid"].clone();
    let id = installation(&account.client(), "egress-proxies-operator-system").await.unwrap();
    assert_eq!(id, InstallationId::derived(uid.as_str().unwrap(), "egress-proxies-operator-system"), "PC-51");
    assert_eq!(server_addresses(&account.client()).await.unwrap(), ["127.0.0.1".parse::<IpAddr>().unwrap()], "HE-10");
    assert_eq!(account.forbidden(&bed), Vec::<String>::new());
}

#[tokio::test]
async fn events_are_as_people_and_kubectl_look_for_them_op_9() {
    let Some(bed) = Bed::get("events_are_as_people_and_kubectl_look_for_them_op_9").await else { return };
    let account = Account::new(&bed, "manager", &manager()).await;
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed, &account)).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    for (reason, note) in [
        (EventReason::Created, "instance lab/1".to_owned()),
        (EventReason::Unhealthy, "ConnectFailed: refused".to_owned()),
        (EventReason::Unhealthy, "Timeout: in TLS".to_owned()),
        (EventReason::Failed, "é".repeat(700)),
    ] {
        tree.send(event(&px.key, &px.uid, reason, &note));
    }
    // What `kubectl describe` asks for.
    let path = format!("/api/v1/namespaces/{}/events", bed.namespace);
    let selector = format!(
        "involvedObject.name=px,involvedObject.namespace={},involvedObject.kind=Proxy,involvedObject.uid={}",
        bed.namespace, px.uid
    );
    let found = eventually("all are there", SOON, || async {
        let list = bed.send(&Request::list("test", &path, &[("fieldSelector", &selector)])).await.unwrap();
        list["items"].as_array().filter(|items| items.len() == 4).cloned()
    })
    .await;
    let mut told: Vec<String> =
        found.iter().map(|event| format!("{} {}", event["type"].as_str().unwrap(), event["reason"].as_str().unwrap())).collect();
    told.sort_unstable();
    assert_eq!(told, ["Normal Created", "Warning Failed", "Warning Unhealthy", "Warning Unhealthy"], "a changed cause is another Event");
    assert!(found.iter().all(|event| event["message"].as_str().unwrap().len() <= 1024 && event["reportingInstance"] == "pod-1"));

    // A namespace that is being deleted takes none; nobody is harmed.
    bed.delete(&format!("/api/v1/namespaces/{}", bed.namespace)).await;
    tree.send(event(&px.key, &px.uid, EventReason::Deleted, "nothing of it is left"));
    eventually("it was refused", SOON, || async {
        account.asked(&bed).iter().any(|entry| entry["responseStatus"]["code"] == 403).then_some(())
    })
    .await;
    assert!(tree.faults().await.is_empty(), "{:?}", tree.faults().await);
}

#[tokio::test]
async fn without_the_right_to_read_secrets_the_others_are_told_after_a_while_and_it_heals_alone() {
    let Some(bed) = Bed::get("without_the_right_to_read_secrets_the_others_are_told_after_a_while_and_it_heals_alone").await else {
        return;
    };
    let account = Account::new(&bed, "manager", &without("secrets")).await;
    bed.create_secret("boot", Some(LABEL_CLOUD_INIT), &[("user-data", "one")]).await;
    bed.create_proxy("px", json!({"mode": "Managed", "provider": "lab", "cloudInit": {"secretRef": {"name": "boot"}}})).await;
    bed.create_proxy("plain", external()).await;
    let tree = Tree::start(args(&bed, &account)).await;
    tree.synced().await;
    let CloudInit::Unresolved { message } = tree.last("px").unwrap().cloud_init.clone() else { panic!() };
    assert!(message.contains("could not be listed"), "{message}");
    assert!(tree.last("plain").is_some());
    let faults = tree.faults().await.join("\n");
    assert!(faults.contains("Secrets for cloud-init could not be listed") && faults.contains("secrets is forbidden"), "{faults}");
    account.allow(&bed, &manager()).await;
    tree.until("px", "is resolved", |object| matches!(object.cloud_init, CloudInit::Resolved { .. })).await;
    eventually("nothing is wrong", SOON, || async { tree.faults().await.is_empty().then_some(()) }).await;
}

#[tokio::test]
async fn without_the_right_to_read_proxies_nothing_is_told_and_no_live_set_is_vouched_for_og_6() {
    let Some(bed) = Bed::get("without_the_right_to_read_proxies_nothing_is_told_and_no_live_set_is_vouched_for_og_6").await else { return };
    let account = Account::new(&bed, "manager", &without("proxies")).await;
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed, &account)).await;
    eventually("it is said", SOON, || async {
        tree.faults().await.iter().any(|fault| fault.contains("proxies.crawl.example.com is forbidden")).then_some(())
    })
    .await;
    assert_eq!((tree.syncs(), tree.list().await), (0, None));
    assert!(tree.live().await.is_err());
    account.allow(&bed, &manager()).await;
    tree.synced().await;
    assert_eq!(tree.live().await.unwrap().uids.len(), 1);
    // Taken away again later: what is known stays.
    account.allow(&bed, &without("proxies")).await;
    eventually("the live set is refused", SOON, || async { tree.live().await.err() }).await;
    assert_eq!(tree.list().await.unwrap().len(), 1);
    assert!(!tree.heard().iter().any(|message| matches!(message, egress_protocol::proxies::ProxiesMessage::Gone { .. })));
}

#[tokio::test]
async fn without_the_right_to_write_it_is_one_fault_for_all_and_not_one_each() {
    let Some(bed) = Bed::get("without_the_right_to_write_it_is_one_fault_for_all_and_not_one_each").await else { return };
    let account = Account::new(&bed, "manager", &without("proxies/status")).await;
    for name in ["a", "b"] {
        bed.create_proxy(name, external()).await;
    }
    let tree = Tree::start(args(&bed, &account)).await;
    tree.synced().await;
    for name in ["a", "b"] {
        let px = tree.last(name).unwrap();
        assert!(tree.write(&px.key, &px.uid, ready()).await.is_err());
    }
    let faults = tree.faults().await;
    assert!(faults.len() == 1 && faults[0].contains("does not take writes") && faults[0].contains("cannot patch"), "{faults:?}");
}

/// The token in the file is refused from one moment to the next, then there is another one.
#[tokio::test]
async fn a_token_that_ends_is_read_again_o21() {
    let Some(bed) = Bed::get("a_token_that_ends_is_read_again_o21").await else { return };
    let account = Account::new(&bed, "first", &manager()).await;
    let second = Account::new(&bed, "second", &manager()).await;
    bed.create_proxy("px", external()).await;
    let pace = Pace { idle: Duration::from_secs(3), ..quick() };
    let tree = Tree::start(SourceArgs { pace, ..args(&bed, &account) }).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    account.delete(&bed).await;
    eventually("the token is refused", SOON, || async {
        tree.write(&px.key, &px.uid, ready()).await.err().filter(|error| error.to_string().contains("Unauthorized"))
    })
    .await;
    account.write_token(&bed, "second").await;
    eventually("the new one is used", SOON, || async { tree.write(&px.key, &px.uid, ready()).await.ok() }).await;
    bed.patch(&bed.proxy("px"), json!({"spec": {"port": 8080}})).await;
    tree.until("px", "is as edited", |object| object.spec.port == 8080).await;
    eventually("nothing is wrong", SOON, || async { tree.faults().await.is_empty().then_some(()) }).await;
    assert!(second.asked(&bed).iter().any(|entry| entry["verb"] == "patch"));
}
