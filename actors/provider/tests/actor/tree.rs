//! Crashes, announcements and freed capacity (SV-2, OP-18, PC-59).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use egress_protocol::provider::{ErrorClass, Op, PROVIDERS_ID, ProvidersMessage};
use egress_protocol::proxies::ProxiesMessage;
use egress_supervision::{Address, AddressError};

use crate::support::{Bed, Does, TestMessage, bed, free, secs};

/// O18: the caller hears of it and asks again; the other provider does not notice.
#[tokio::test(start_paused = true)]
async fn a_crashed_provider_drops_its_callers_and_serves_again() {
    let bed = bed(|_, uid| if uid == "hung" { Does::Hang } else { Does::Answer(secs(1)) }).await;
    let waiting = bed.create("a", "hung", "x", free(Op::Create));
    let other = bed.create("b", "1", "x", free(Op::Create));
    let crash = async {
        tokio::time::sleep(secs(1)).await;
        assert!(bed.system.crash("provider/a"));
    };
    let (answer, other, ()) = tokio::join!(waiting, other, crash);
    assert_eq!(answer.unwrap_err(), AddressError::Dropped);
    assert!(other.unwrap().is_ok());
    tokio::time::sleep(secs(1)).await;
    bed.up("a").await;
    assert!(bed.create("a", "1", "x", free(Op::Create)).await.unwrap().is_ok());
    let node = bed.system.inspect(Some("provider/a"), None).await.unwrap();
    assert_eq!(node.restarts, 1);
    bed.root.stop().await;
}

fn fingerprints(bed: &Bed) -> Vec<(String, String)> {
    let heard = bed.heard.lock().unwrap();
    heard
        .iter()
        .filter_map(|message| match message {
            ProxiesMessage::ProviderChanged { name, fingerprint } => Some((name.to_string(), fingerprint.clone()?)),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_directory_hears_of_every_entry_even_if_it_starts_later_or_again() {
    let bed = bed(|_, _| Does::Answer(secs(1))).await;
    let expected = [("a".to_owned(), "f-a".to_owned()), ("b".to_owned(), "f-b".to_owned())];
    tokio::time::sleep(secs(5)).await;
    let root: Address<TestMessage> = bed.system.address("root");
    root.send(TestMessage::StartDirectory).unwrap();
    tokio::time::sleep(secs(2)).await;
    assert_eq!(fingerprints(&bed), expected);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(fingerprints(&bed), expected, "said once");
    let providers: Address<ProvidersMessage> = bed.system.address(PROVIDERS_ID);
    providers.send(ProvidersMessage::Announce).unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(fingerprints(&bed).len(), 4);
    let listed = providers.call(secs(1), |reply_to| ProvidersMessage::List { reply_to }).await.unwrap();
    assert_eq!(listed, [("a".into(), "scripted"), ("b".into(), "scripted")]);
}

/// OP-18.
#[tokio::test(start_paused = true)]
async fn a_delete_frees_capacity_for_those_who_were_refused() {
    let full = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&full);
    let bed = bed(move |op, _| match op {
        Op::Create if seen.load(Ordering::Relaxed) => Does::Fail(ErrorClass::QuotaExceeded),
        _ => Does::Answer(secs(1)),
    })
    .await;
    let root: Address<TestMessage> = bed.system.address("root");
    root.send(TestMessage::StartDirectory).unwrap();
    let freed = || bed.heard.lock().unwrap().iter().filter(|message| matches!(message, ProxiesMessage::CapacityFreed { .. })).count();
    bed.delete("a", "1", "x", free(Op::Delete)).await.unwrap().unwrap();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(freed(), 0, "nobody waits");
    for uid in ["2", "3"] {
        bed.create("a", uid, "x", free(Op::Create)).await.unwrap().unwrap_err();
    }
    for uid in ["4", "5"] {
        bed.delete("a", uid, "x", free(Op::Delete)).await.unwrap().unwrap();
    }
    tokio::time::sleep(secs(1)).await;
    assert_eq!(freed(), 1, "said once until somebody is refused again");
    full.store(false, Ordering::Relaxed);
}
