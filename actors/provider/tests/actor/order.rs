//! Order per name, admission per location (PC-66, PC-67).

use egress_protocol::provider::{ErrorClass, Op, ProviderMessage};
use futures::future::join_all;

use crate::support::{Does, bed, free, key, secs, timed};

#[tokio::test(start_paused = true)]
async fn creates_and_deletes_of_one_name_run_one_after_another_in_order_of_arrival() {
    let bed = bed(|_, _| Does::Answer(secs(10))).await;
    let (create, delete, again) = tokio::join!(
        bed.create("a", "1", "x", free(Op::Create)),
        bed.delete("a", "1", "x", free(Op::Delete)),
        bed.create("a", "1", "x", free(Op::Create)),
    );
    assert!(create.unwrap().is_ok() && delete.unwrap().is_ok() && again.unwrap().is_ok());
    assert_eq!(bed.log(), ["start create 1", "end create 1", "start delete 1", "end delete 1", "start create 1", "end create 1"]);
}

#[tokio::test(start_paused = true)]
async fn reads_lists_and_checks_do_not_wait_for_a_names_create() {
    let bed = bed(|op, _| if op == Op::Create { Does::Answer(secs(100)) } else { Does::Answer(secs(1)) }).await;
    let creating = bed.create("a", "1", "x", free(Op::Create));
    let others = async {
        tokio::time::sleep(secs(1)).await;
        assert!(bed.get("a", key("1", "x"), free(Op::Get)).await.unwrap().is_ok());
        assert!(bed.list("a").await.unwrap().is_ok());
    };
    let (created, ((), took)) = tokio::join!(creating, timed(others));
    assert!(created.unwrap().is_ok());
    assert_eq!(took, 3);
}

#[tokio::test(start_paused = true)]
async fn a_location_runs_4_creates_4_deletes_and_8_gets_at_a_time() {
    let bed = bed(|_, _| Does::Answer(secs(10))).await;
    let uids: Vec<String> = (0..16).map(|n| n.to_string()).collect();
    let ((), took) = timed(async {
        assert!(join_all(uids.iter().map(|uid| bed.create("a", uid, "x", free(Op::Create)))).await.into_iter().all(|r| r.unwrap().is_ok()));
    })
    .await;
    assert_eq!(took, 40, "16 creates, 4 at a time");
    let ((), took) = timed(async { drop(join_all(uids.iter().map(|uid| bed.delete("a", uid, "x", free(Op::Delete)))).await) }).await;
    assert_eq!(took, 40, "16 deletes, 4 at a time");
    let ((), took) = timed(async { drop(join_all(uids.iter().map(|uid| bed.get("a", key(uid, "x"), free(Op::Get)))).await) }).await;
    assert_eq!(took, 20, "16 gets, 8 at a time");
    let ((), took) = timed(async { drop(join_all((0..16).map(|_| bed.list("a"))).await) }).await;
    assert_eq!(took, 10, "lists are exempt");
}

/// What waits for its turn is asked again whether we lead when its turn has come.
#[tokio::test(start_paused = true)]
async fn a_call_that_waited_while_leadership_ended_does_not_start_sv_4() {
    let bed = bed(|_, _| Does::Answer(secs(10))).await;
    let create = bed.create("a", "1", "x", free(Op::Create));
    let waits = async {
        tokio::time::sleep(secs(1)).await;
        bed.delete("a", "1", "x", free(Op::Delete)).await
    };
    let ends = async {
        tokio::time::sleep(secs(5)).await;
        bed.fence.close();
    };
    let (created, waited, ()) = tokio::join!(create, waits, ends);
    assert!(created.unwrap().is_ok(), "what was sent is waited for");
    assert_eq!(waited.unwrap().unwrap_err().class, ErrorClass::Transient);
    assert_eq!(bed.log(), ["start create 1", "end create 1"]);
    let check = bed.provider("a").call(secs(10), |reply_to| ProviderMessage::Check { call: free(Op::List), reply_to }).await;
    assert!(check.is_err(), "nor does a check begin: {check:?}");
    bed.fence.extend(tokio::time::Instant::now() + secs(100));
    assert!(bed.delete("a", "1", "x", free(Op::Delete)).await.unwrap().is_ok(), "one that leads again goes on");
}

/// O22, OP-23: neither another location nor another provider notices.
#[tokio::test(start_paused = true)]
async fn a_provider_whose_calls_all_hang_delays_nobody_else() {
    let bed = bed(|_, uid| if uid.starts_with("hung") { Does::Hang } else { Does::Answer(secs(1)) }).await;
    let hung: Vec<String> = (0..100).map(|n| format!("hung-{n}")).collect();
    let stuck = join_all(hung.iter().map(|uid| bed.create("a", uid, "full", free(Op::Create))));
    let healthy = async {
        tokio::time::sleep(secs(1)).await;
        for (entry, at) in [("a", "idle"), ("b", "full")] {
            let uids: Vec<String> = (0..10).map(|n| format!("{entry}-{n}")).collect();
            let (created, took) = timed(join_all(uids.iter().map(|uid| bed.create(entry, uid, at, free(Op::Create))))).await;
            assert!(created.into_iter().all(|answer| answer.unwrap().is_ok()));
            assert_eq!(took, 3, "10 creates, 4 at a time, on {entry} {at}");
        }
    };
    tokio::select! {
        _ = stuck => panic!("a hung create was answered before its deadline"),
        () = healthy => {}
    }
}
