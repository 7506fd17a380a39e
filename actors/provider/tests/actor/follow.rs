//! The providers file changes while entries run (OP-26, PC-64, PC-83).

use std::path::Path;

use egress_protocol::provider::{Op, PROVIDERS_ID, ProvidersMessage};
use egress_protocol::proxies::ProxiesMessage;
use egress_supervision::{Address, AddressError, Node};

use crate::support::{Bed, Does, TestMessage, bed_following, free, secs};

async fn node(bed: &Bed, entry: &str) -> Option<Node> {
    bed.system.inspect(Some(&format!("provider/{entry}")), None).await
}

/// Status, since when, how often it crashed.
async fn life(bed: &Bed, entry: &str) -> String {
    let node = node(bed, entry).await.unwrap();
    format!("{:?} {} {}", node.status, node.since, node.restarts)
}

async fn faults(bed: &Bed) -> Vec<String> {
    let providers: Address<ProvidersMessage> = bed.system.address(PROVIDERS_ID);
    providers.call(secs(1), |reply_to| ProvidersMessage::Faults { reply_to }).await.unwrap()
}

/// What the directory was told of entries since the last look.
fn told(bed: &Bed) -> Vec<(String, bool)> {
    let heard = std::mem::take(&mut *bed.heard.lock().unwrap());
    heard
        .into_iter()
        .filter_map(|message| match message {
            ProxiesMessage::ProviderChanged { name, fingerprint } => Some((name.to_string(), fingerprint.is_some())),
            _ => None,
        })
        .collect()
}

fn write(path: &Path, entries: &str) {
    std::fs::write(path, format!("providers: [{entries}]")).unwrap();
}

fn entry(name: &str, rest: &str) -> String {
    format!("{{name: {name}, type: local{rest}}}")
}

#[tokio::test(start_paused = true)]
async fn a_changed_entry_drops_its_running_operations_resumably_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("providers.yaml");
    let (a, b) = (entry("a", ""), entry("b", ""));
    write(&path, &format!("{a}, {b}"));
    let bed = bed_following(&path, |_, uid| if uid == "hung" { Does::Hang } else { Does::Answer(secs(30)) }).await;
    bed.system.address::<TestMessage>("root").send(TestMessage::StartDirectory).unwrap();
    tokio::time::sleep(secs(5)).await;
    assert_eq!(told(&bed), [("a".to_owned(), true), ("b".to_owned(), true)]);
    let before = (life(&bed, "a").await, life(&bed, "b").await);

    let hung = bed.create("a", "hung", "x", free(Op::Create));
    let slow = bed.create("b", "1", "x", free(Op::Create));
    let change = async {
        tokio::time::sleep(secs(1)).await;
        write(&path, &format!("{}, {b}", entry("a", ", maxConcurrentCreates: 2")));
    };
    let (hung, slow, ()) = tokio::join!(hung, slow, change);
    assert_eq!(hung.unwrap_err(), AddressError::Dropped, "the caller asks again");
    assert!(slow.unwrap().is_ok(), "the other's operation is not disturbed");
    bed.up("a").await;
    assert!(bed.create("a", "1", "x", free(Op::Create)).await.unwrap().is_ok(), "and is served");
    assert_ne!(life(&bed, "a").await, before.0);
    assert_eq!(life(&bed, "b").await, before.1);
    assert_eq!(told(&bed), [("a".to_owned(), true)], "only the one");
    bed.root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn settings_that_need_no_restart_are_handed_over_and_survive_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("providers.yaml");
    write(&path, &entry("a", ""));
    let bed = bed_following(&path, |_, _| Does::Answer(secs(30))).await;
    let before = life(&bed, "a").await;
    let running = bed.create("a", "1", "x", free(Op::Create));
    let change = async { write(&path, &entry("a", ", local: {faults: [{proxies: '*', latency: 1s}]}")) };
    let (made, ()) = tokio::join!(running, change);
    assert!(made.unwrap().is_ok(), "nothing was cut");
    assert_eq!(life(&bed, "a").await, before);
    let taken = || bed.log().into_iter().filter(|line| line.starts_with("settings") || line.starts_with("built")).collect::<Vec<_>>();
    let [built, handed] = &taken()[..] else { panic!("{:?}", taken()) };
    assert!(built.starts_with("built ") && handed.starts_with("settings "), "{built} {handed}");
    let fingerprint = handed.split(' ').nth(1).unwrap();
    assert_ne!(built.split(' ').nth(1).unwrap(), fingerprint);
    assert!(bed.system.crash("provider/a"));
    tokio::time::sleep(secs(2)).await;
    bed.up("a").await;
    assert_eq!(taken()[2], format!("built {fingerprint}"), "the next incarnation is built from what is in force");
    bed.root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_faulty_file_changes_nothing_and_is_told_and_entries_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("providers.yaml");
    let (a, b) = (entry("a", ""), entry("b", ""));
    write(&path, &format!("{a}, {b}"));
    let bed = bed_following(&path, |_, _| Does::Answer(secs(1))).await;
    bed.system.address::<TestMessage>("root").send(TestMessage::StartDirectory).unwrap();
    tokio::time::sleep(secs(5)).await;
    let before = (life(&bed, "a").await, life(&bed, "b").await);
    drop(told(&bed));
    let valid = || bed.system.metrics().providers_config_valid.get();
    assert_eq!((valid(), faults(&bed).await.len()), (1, 0));

    write(&path, &format!("{}, {b}", entry("a", ", maxConcurrentCreates: 0")));
    tokio::time::sleep(secs(3)).await;
    assert_eq!(faults(&bed).await, ["providers[0] \"a\": maxConcurrentCreates must be 1-64, is 0"]);
    assert_eq!((valid(), before.clone()), (0, (life(&bed, "a").await, life(&bed, "b").await)));
    std::fs::remove_file(&path).unwrap();
    tokio::time::sleep(secs(3)).await;
    assert!(faults(&bed).await[0].starts_with("cannot be read"));
    assert_eq!((told(&bed), before.clone()), (vec![], (life(&bed, "a").await, life(&bed, "b").await)));

    write(&path, &format!("{b}, {}", entry("c", "")));
    tokio::time::sleep(secs(3)).await;
    assert_eq!((valid(), faults(&bed).await.len()), (1, 0));
    assert_eq!(told(&bed), [("a".to_owned(), false), ("c".to_owned(), true)]);
    assert!(node(&bed, "a").await.is_none() && life(&bed, "b").await == before.1);
    bed.up("c").await;
    // Whoever starts anew and asks hears of what is gone too.
    bed.system.address::<ProvidersMessage>(PROVIDERS_ID).send(ProvidersMessage::Announce).unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(told(&bed), [("a".to_owned(), false), ("b".to_owned(), true), ("c".to_owned(), true)]);

    // A crash of the parent takes what is in force up again, not what it was started with.
    assert!(bed.system.crash(PROVIDERS_ID));
    tokio::time::sleep(secs(3)).await;
    bed.up("c").await;
    assert!(node(&bed, "a").await.is_none());
    bed.root.stop().await;
}

/// A file that is being copied may read well and lack half of its entries.
#[tokio::test(start_paused = true)]
async fn a_file_that_does_not_stand_still_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("providers.yaml");
    let both = format!("{}, {}", entry("a", ""), entry("b", ""));
    write(&path, &both);
    let bed = bed_following(&path, |_, _| Does::Answer(secs(1))).await;
    tokio::time::sleep(secs(3)).await;
    for _ in 0..20 {
        write(&path, &entry("a", ""));
        tokio::time::sleep(secs(1) * 4 / 10).await;
        write(&path, &both);
        tokio::time::sleep(secs(1) * 4 / 10).await;
    }
    assert!(node(&bed, "b").await.is_some());
    bed.root.stop().await;
}
