//! The source against the real API server.

use egress_cluster::source::SourceArgs;
use egress_protocol::leadership::Fence;
use egress_protocol::object::{CloudInit, CredentialsState};
use egress_protocol::resource::{FINALIZER, LABEL_CLOUD_INIT, LABEL_CREDENTIALS, Phase, ProxyStatus};
use egress_protocol::source::SourceError;
use egress_protocol::{ObjectKey, Uid};
use serde_json::json;

use crate::bed::{Bed, SOON, eventually, external};
use crate::tree::{Order, Tree};

fn args(bed: &Bed) -> SourceArgs {
    SourceArgs::new(bed.admin.clone(), bed.scope(), Fence::open(), "pod-1")
}

fn status(phase: Phase) -> ProxyStatus {
    ProxyStatus { phase: Some(phase), ip: Some("192.0.2.1".to_owned()), ..ProxyStatus::default() }
}

fn uid_of(object: &serde_json::Value) -> Uid {
    Uid::new(object["metadata"]["uid"].as_str().unwrap())
}

#[tokio::test]
async fn objects_are_told_as_they_come_change_and_go() {
    let Some(bed) = Bed::get("objects_are_told_as_they_come_change_and_go").await else { return };
    let made = bed.create_proxy("before", external()).await;
    let tree = Tree::start(args(&bed)).await;
    tree.synced().await;
    let before = tree.last("before").expect("it was there at the start");
    assert_eq!((before.uid.clone(), before.generation, before.spec.port), (uid_of(&made), 1, 3128));

    bed.create_proxy("px", external()).await;
    tree.until("px", "is told", |object| object.generation == 1).await;
    bed.patch(&bed.proxy("px"), json!({"spec": {"maxLeases": 3}, "metadata": {"annotations": {"crawl.example.com/retry": "1"}}})).await;
    let px = tree.until("px", "was edited", |object| object.spec.max_leases == 3).await;
    assert_eq!((px.generation, px.annotations.retry.as_deref()), (2, Some("1")));
    bed.delete(&bed.proxy("px")).await;
    eventually("px is told to be gone", SOON, || async { (tree.gone(&px.uid) == 1).then_some(()) }).await;
    assert_eq!(tree.list().await.unwrap().iter().map(|object| object.key.to_string()).collect::<Vec<_>>(), [before.key.to_string()]);
    assert_eq!(tree.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_status_is_written_whole_and_leaves_nothing_of_the_one_before_op_24() {
    let Some(bed) = Bed::get("a_status_is_written_whole_and_leaves_nothing_of_the_one_before_op_24").await else { return };
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed)).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    assert_eq!(tree.write(&px.key, &px.uid, status(Phase::Ready)).await, Ok(1));
    assert_eq!(bed.get_proxy("px").await["status"], json!({"phase": "Ready", "ip": "192.0.2.1"}));
    bed.patch(&bed.proxy("px"), json!({"spec": {"port": 8080}})).await;
    tree.until("px", "was edited", |object| object.generation == 2).await;
    let pending = ProxyStatus { phase: Some(Phase::Pending), ..ProxyStatus::default() };
    assert_eq!(tree.write(&px.key, &px.uid, pending).await, Ok(2), "the answer tells of an edit (OP-16)");
    assert_eq!(bed.get_proxy("px").await["status"], json!({"phase": "Pending"}));
    let patches = bed.audit().iter().filter(|entry| entry["verb"] == "patch" && entry["objectRef"]["subresource"] == "status").count();
    assert_eq!(patches, 2, "one patch a write");
}

#[tokio::test]
async fn a_status_is_for_the_object_as_it_is_and_for_no_other_of_its_name_op_24() {
    let Some(bed) = Bed::get("a_status_is_for_the_object_as_it_is_and_for_no_other_of_its_name_op_24").await else { return };
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed)).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    // An edit whose event is still on its way when the write is sent: whoever comes first, no write is lost on an old object.
    for port in 1000..1010 {
        bed.patch(&bed.proxy("px"), json!({"spec": {"port": port}})).await;
        let written = tree.write(&px.key, &px.uid, status(Phase::Running)).await;
        let told = tree.until("px", "is as edited", |object| object.spec.port == port).await;
        assert!(written == Ok(told.generation) || written == Err(SourceError::Conflict), "{written:?} at {}", told.generation);
    }
    bed.delete(&bed.proxy("px")).await;
    let other = uid_of(&bed.create_proxy("px", external()).await);
    assert_eq!(tree.write(&px.key, &px.uid, status(Phase::Ready)).await, Err(SourceError::Gone));
    assert_eq!(bed.get_proxy("px").await["status"], json!(null));
    tree.until("px", "is the new one", |object| object.uid == other).await;
    bed.delete(&bed.proxy("px")).await;
    eventually("it is gone", SOON, || async { (tree.gone(&other) == 1).then_some(()) }).await;
    assert_eq!(tree.write(&px.key, &other, status(Phase::Ready)).await, Err(SourceError::Gone));
}

/// The remedy of OP-34 is a status that somebody else writes.
#[tokio::test]
async fn a_status_is_told_unless_its_own_writer_has_just_written_it_op_34() {
    let Some(bed) = Bed::get("a_status_is_told_unless_its_own_writer_has_just_written_it_op_34").await else { return };
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed)).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    for phase in [Phase::Pending, Phase::Ready, Phase::Unhealthy, Phase::Ready] {
        tree.write(&px.key, &px.uid, status(phase)).await.unwrap();
    }
    bed.create_proxy("later", external()).await;
    tree.until("later", "is told, and with it all that came before", |_| true).await;
    assert_eq!(tree.applied("px"), 1);
    bed.patch(&format!("{}/status", bed.proxy("px")), json!({"status": {"installation": "other"}})).await;
    let told = tree.until("px", "has another owner", |object| object.status.installation.is_some()).await;
    assert_eq!((told.status.phase, tree.applied("px")), (Some(Phase::Ready), 2));
}

#[tokio::test]
async fn our_finalizer_comes_and_goes_and_those_of_others_stay_op_11() {
    let Some(bed) = Bed::get("our_finalizer_comes_and_goes_and_those_of_others_stay_op_11").await else { return };
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed)).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    let finalizers = || async { bed.get_proxy("px").await["metadata"]["finalizers"].clone() };
    assert_eq!(tree.add_finalizer(&px.key, &px.uid).await, Ok(()));
    assert_eq!(tree.add_finalizer(&px.key, &px.uid).await, Ok(()), "it may be asked for twice");
    assert_eq!(finalizers().await, json!([FINALIZER]));
    assert!(tree.until("px", "has the finalizer", |object| object.finalizer).await.finalizer);
    // Somebody else's, of which the source may not know yet.
    bed.patch(&bed.proxy("px"), json!({"metadata": {"finalizers": ["a.example.com/first", FINALIZER, "z.example.com/last"]}})).await;
    assert_eq!(tree.remove_finalizer(&px.key, &px.uid).await, Ok(()));
    assert_eq!(finalizers().await, json!(["a.example.com/first", "z.example.com/last"]));
    bed.patch(&bed.proxy("px"), json!({"metadata": {"finalizers": ["z.example.com/last"]}})).await;
    assert_eq!(tree.add_finalizer(&px.key, &px.uid).await, Ok(()));
    assert_eq!(finalizers().await, json!(["z.example.com/last", FINALIZER]));

    bed.delete(&bed.proxy("px")).await;
    tree.until("px", "is being deleted", |object| object.deleting).await;
    assert_eq!(tree.remove_finalizer(&px.key, &px.uid).await, Ok(()));
    assert_eq!(tree.add_finalizer(&px.key, &px.uid).await, Err(SourceError::Gone), "an object that is being deleted takes none");
    assert_eq!(finalizers().await, json!(["z.example.com/last"]));
    assert_eq!(tree.gone(&px.uid), 0);
    bed.patch(&bed.proxy("px"), json!({"metadata": {"finalizers": []}})).await;
    eventually("it is gone", SOON, || async { (tree.gone(&px.uid) == 1).then_some(()) }).await;
    assert_eq!(tree.remove_finalizer(&px.key, &px.uid).await, Ok(()), "gone is what a removal wants");
    assert_eq!(tree.add_finalizer(&px.key, &px.uid).await, Err(SourceError::Gone));
}

#[tokio::test]
async fn an_object_whose_last_finalizer_was_ours_is_gone_with_the_answer_and_told_once_op_11() {
    let Some(bed) = Bed::get("an_object_whose_last_finalizer_was_ours_is_gone_with_the_answer_and_told_once_op_11").await else { return };
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed)).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    tree.add_finalizer(&px.key, &px.uid).await.unwrap();
    bed.delete(&bed.proxy("px")).await;
    tree.until("px", "is being deleted", |object| object.deleting).await;
    tree.remove_finalizer(&px.key, &px.uid).await.unwrap();
    assert_eq!(tree.gone(&px.uid), 1, "with the answer");
    assert_eq!(bed.find_proxy("px").await, None);
    let other = uid_of(&bed.create_proxy("px", external()).await);
    tree.until("px", "is another one", |object| object.uid == other).await;
    assert_eq!(tree.gone(&px.uid), 1, "and not once more by the watch");
}

#[tokio::test]
async fn secrets_count_by_label_and_a_change_of_one_is_told_of_every_object_that_names_it_op_21_he_12() {
    let Some(bed) = Bed::get("secrets_count_by_label_and_a_change_of_one_is_told_of_every_object_that_names_it_op_21_he_12").await else {
        return;
    };
    let tree = Tree::start(args(&bed)).await;
    let managed = json!({"mode": "Managed", "provider": "lab", "cloudInit": {"secretRef": {"name": "boot"}}});
    bed.create_proxy("a", managed.clone()).await;
    bed.create_proxy("b", managed).await;
    bed.create_proxy("inline", json!({"mode": "Managed", "provider": "lab", "cloudInit": {"inline": "#cloud-config"}})).await;
    let login = json!({"mode": "External", "endpoint": {"host": "192.0.2.1", "credentialsSecretRef": {"name": "login"}}});
    bed.create_proxy("login", login).await;
    let missing = |label: &str, name: &str| format!("Secret {}/{name} is missing, or lacks the label {label}: \"true\"", bed.namespace);
    let unresolved = CloudInit::Unresolved { message: missing(LABEL_CLOUD_INIT, "boot") };
    tree.until("a", "is unresolved", |object| object.cloud_init == unresolved).await;
    let no_login = CredentialsState::Unresolved { message: missing(LABEL_CREDENTIALS, "login") };
    tree.until("login", "is unresolved", |object| object.credentials == no_login).await;
    let inline = tree.until("inline", "is told", |_| true).await;
    assert!(matches!(&inline.cloud_init, CloudInit::Resolved { bytes, secret: None } if bytes.expose() == b"#cloud-config"));

    let holds = |text: &'static str| move |cloud_init: &CloudInit| matches!(cloud_init, CloudInit::Resolved { bytes, secret: Some(_) } if bytes.expose() == text.as_bytes());
    bed.create_secret("boot", Some(LABEL_CREDENTIALS), &[("user-data", "one")]).await;
    bed.create_secret("login", Some(LABEL_CREDENTIALS), &[("username", "u"), ("password", "hunter2")]).await;
    tree.until("login", "is resolved", |object| matches!(&object.credentials, CredentialsState::Resolved(_))).await;
    assert_eq!(tree.last("a").unwrap().cloud_init, unresolved, "the other label does not count");
    bed.patch(&bed.secret("boot"), json!({"metadata": {"labels": {LABEL_CLOUD_INIT: "true"}}})).await;
    for name in ["a", "b"] {
        tree.until(name, "is resolved", |object| holds("one")(&object.cloud_init)).await;
    }
    bed.patch(&bed.secret("boot"), json!({"stringData": {"user-data": "two"}})).await;
    for name in ["a", "b"] {
        tree.until(name, "has the new text", |object| holds("two")(&object.cloud_init)).await;
    }
    bed.patch(&bed.secret("boot"), json!({"metadata": {"labels": {LABEL_CLOUD_INIT: null}}})).await;
    tree.until("b", "is unresolved again", |object| object.cloud_init == unresolved).await;
    assert_eq!(tree.applied("inline"), 1, "those who do not name it hear nothing");
    let asked = bed.audit();
    let of_secrets = asked
        .iter()
        .filter(|entry| entry["objectRef"]["resource"] == "secrets" && ["list", "watch", "get"].contains(&entry["verb"].as_str().unwrap()));
    for entry in of_secrets {
        let uri = entry["requestURI"].as_str().unwrap();
        assert!(uri.contains("labelSelector=crawl.example.com%2F"), "asked of Secrets without a label: {uri}");
    }
}

#[tokio::test]
async fn the_live_set_is_read_from_the_api_and_knows_what_no_watch_has_told_og_3() {
    let Some(bed) = Bed::get("the_live_set_is_read_from_the_api_and_knows_what_no_watch_has_told_og_3").await else { return };
    let tree = Tree::start(args(&bed)).await;
    tree.synced().await;
    let mut uids = std::collections::HashSet::new();
    let live = tree.live().await.unwrap();
    assert_eq!((&*live.uids, live.complete), (&uids, true), "none is a set as well");
    for n in 0..3 {
        uids.insert(uid_of(&bed.create_proxy(&format!("px-{n}"), external()).await));
        let live = tree.live().await.unwrap();
        assert_eq!((&*live.uids, live.complete), (&uids, true), "the very object that was just made is in it");
    }
}

#[tokio::test]
async fn a_directory_that_starts_later_or_again_is_told_everything_and_a_follower_knows_it_all_ls_10() {
    let Some(bed) = Bed::get("a_directory_that_starts_later_or_again_is_told_everything_and_a_follower_knows_it_all_ls_10").await else {
        return;
    };
    bed.create_proxy("px", external()).await;
    let tree = Tree::follower(args(&bed)).await;
    eventually("the follower knows it", SOON, || async { tree.list().await.filter(|all| all.len() == 1) }).await;
    assert!(tree.heard().is_empty());
    for _ in 0..2 {
        tree.order(Order::StartDirectory);
        tree.synced().await;
        assert_eq!(tree.applied("px"), 1);
        tree.order(Order::StopDirectory);
        eventually("the directory is gone", SOON, || async {
            (!tree.system.address::<egress_protocol::proxies::ProxiesMessage>("proxies").is_up()).then_some(())
        })
        .await;
        tree.forget();
    }
    tree.order(Order::StartDirectory);
    tree.synced().await;
    tree.forget();
    tree.order(Order::RestartSource);
    tree.synced().await;
    assert_eq!(tree.applied("px"), 1, "so is one that stays while the source starts anew");
}

#[tokio::test]
async fn behind_a_closed_fence_nothing_is_written_sv_4() {
    let Some(bed) = Bed::get("behind_a_closed_fence_nothing_is_written_sv_4").await else { return };
    bed.create_proxy("px", external()).await;
    let fence = Fence::closed();
    let tree = Tree::start(SourceArgs { fence: fence.clone(), ..args(&bed) }).await;
    tree.synced().await;
    let px = tree.last("px").unwrap();
    let refused = |result: Result<(), SourceError>| matches!(result, Err(SourceError::Unavailable(why)) if why.contains("SV-4"));
    assert!(refused(tree.write(&px.key, &px.uid, status(Phase::Ready)).await.map(|_| ())));
    assert!(refused(tree.add_finalizer(&px.key, &px.uid).await));
    assert!(!bed.audit().iter().any(|entry| entry["verb"] == "patch"), "nothing left the process");
    assert_eq!(tree.faults().await, Vec::<String>::new(), "and that is no fault");
    fence.extend(tokio::time::Instant::now() + SOON);
    assert_eq!(tree.add_finalizer(&px.key, &px.uid).await, Ok(()));
}

#[tokio::test]
async fn one_namespace_in_scope_is_all_that_is_asked_of_op_25() {
    let Some(bed) = Bed::get("one_namespace_in_scope_is_all_that_is_asked_of_op_25").await else { return };
    let other = Bed::get("another namespace").await.unwrap();
    other.create_proxy("elsewhere", external()).await;
    bed.create_proxy("px", external()).await;
    let tree = Tree::start(args(&bed)).await;
    tree.synced().await;
    let all = tree.list().await.unwrap();
    assert_eq!(all.iter().map(|object| object.key.clone()).collect::<Vec<_>>(), [ObjectKey::new(bed.namespace.as_str(), "px")]);
    assert_eq!(tree.live().await.unwrap().uids.len(), 1);
}
