//! Every call is answered once, in time, with a class (PC-8, 23, 24, 28, 50, 56, 63, 64, 85).

use egress_protocol::metrics::ProviderRequest;
use egress_protocol::provider::{CallContext, ErrorClass, InstanceState, Op, ProviderMessage};
use tokio_util::sync::CancellationToken;

use crate::support::{Does, bed, cancelled_after, free, key, secs, timed, within};

#[tokio::test(start_paused = true)]
async fn a_hung_call_is_answered_at_its_deadline_waiting_included() {
    let bed = bed(|_, _| Does::Hang).await;
    let first = bed.delete("a", "1", "x", within(Op::Delete, secs(100)));
    let second = bed.create("a", "1", "x", within(Op::Create, secs(60)));
    let ((first, took_first), (second, took_second)) = tokio::join!(timed(first), timed(second));
    let (first, second) = (first.unwrap().unwrap_err(), second.unwrap().unwrap_err());
    assert_eq!((first.class, took_first), (ErrorClass::Transient, 100));
    assert_eq!((second.class, took_second), (ErrorClass::Transient, 60), "counted from receipt: {second}");
    assert!(second.message.contains("waiting for another call"), "{second}");
    assert_eq!(bed.log(), ["start delete 1"], "the second never reached the backend");
}

#[tokio::test(start_paused = true)]
async fn cancellation_is_answered_within_a_second_on_every_path() {
    let bed = bed(|_, _| Does::Hang).await;
    let running = [Op::Create, Op::Get, Op::Delete, Op::List];
    for op in running {
        let call = cancelled_after(op, secs(5));
        let (error, took) = match op {
            Op::Create => {
                let (r, t) = timed(bed.create("a", "1", "run", call)).await;
                (r.unwrap().unwrap_err(), t)
            }
            Op::Get => {
                let (r, t) = timed(bed.get("a", key("2", "run"), call)).await;
                (r.unwrap().unwrap_err(), t)
            }
            Op::Delete => {
                let (r, t) = timed(bed.delete("a", "3", "run", call)).await;
                (r.unwrap().unwrap_err(), t)
            }
            Op::List => {
                let address = bed.provider("a");
                let (r, t) = timed(address.call(secs(1000), |reply_to| ProviderMessage::List { call, reply_to })).await;
                (r.unwrap().unwrap_err(), t)
            }
        };
        assert_eq!((error.class, took, error.op), (ErrorClass::Transient, 5, op), "{error}");
    }
    // Waiting for a slot: four deletes hold them all.
    let holders = futures::future::join_all(["4", "5", "6", "7"].map(|uid| bed.delete("a", uid, "slots", free(Op::Delete))));
    let waits = async {
        tokio::time::sleep(secs(1)).await;
        timed(bed.delete("a", "8", "slots", cancelled_after(Op::Delete, secs(5)))).await
    };
    tokio::select! {
        _ = holders => panic!("answered early"),
        (answer, took) = waits => {
            let error = answer.unwrap().unwrap_err();
            assert_eq!((error.class, took), (ErrorClass::Transient, 5));
            assert!(error.message.contains("waiting for a free slot"), "{error}");
        }
    }
    // Cancelled before it began.
    let cancel = CancellationToken::new();
    cancel.cancel();
    let before = bed.log().len();
    let error = bed.create("a", "9", "x", CallContext::new(Op::Create, cancel)).await.unwrap().unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert_eq!(bed.log().len(), before, "no backend call");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_create_answers_first_and_keeps_its_name_while_it_clears_up() {
    let bed = bed(|op, _| if op == Op::Create { Does::ClearUp(secs(3)) } else { Does::Answer(secs(1)) }).await;
    let (error, took) = timed(bed.create("a", "1", "x", cancelled_after(Op::Create, secs(5)))).await;
    assert_eq!((error.unwrap().unwrap_err().class, took), (ErrorClass::Transient, 5));
    let (deleted, took) = timed(bed.delete("a", "1", "x", free(Op::Delete))).await;
    assert!(deleted.unwrap().is_ok());
    assert_eq!(took, 4, "three seconds of clearing up, then its own");
    assert_eq!(bed.log(), ["start create 1", "end create 1", "start delete 1", "end delete 1"]);
}

#[tokio::test(start_paused = true)]
async fn clearing_up_has_ten_seconds() {
    let bed = bed(|op, _| if op == Op::Create { Does::ClearUp(secs(1000)) } else { Does::Answer(secs(1)) }).await;
    assert!(bed.create("a", "1", "x", cancelled_after(Op::Create, secs(5))).await.unwrap().is_err());
    let (deleted, took) = timed(bed.delete("a", "1", "x", free(Op::Delete))).await;
    assert!(deleted.unwrap().is_ok());
    assert_eq!(took, 11);
    assert_eq!(bed.log(), ["start create 1", "start delete 1", "end delete 1"]);
}

/// CT-36.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_backend_call_is_transient_and_the_next_call_works() {
    let bed = bed(|_, uid| if uid == "bad" { Does::Panic } else { Does::Answer(secs(1)) }).await;
    let error = bed.create("a", "bad", "x", free(Op::Create)).await.unwrap().unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert!(error.message.contains("panicked"), "{error}");
    let error = bed.get("a", key("bad", "x"), free(Op::Get)).await.unwrap().unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert!(bed.create("a", "good", "x", free(Op::Create)).await.unwrap().is_ok());
    let node = bed.system.inspect(Some("provider/a"), None).await.unwrap();
    assert_eq!(node.restarts, 0, "the actor itself lives on");
}

#[tokio::test(start_paused = true)]
async fn every_error_carries_class_operation_configured_name_and_id() {
    for class in [ErrorClass::NotFound, ErrorClass::QuotaExceeded, ErrorClass::Transient, ErrorClass::Permanent] {
        let bed = bed(move |_, _| Does::Fail(class)).await;
        let error = bed.get("b", key("1", "x"), free(Op::Get)).await.unwrap().unwrap_err();
        assert_eq!((error.class, error.op, &*error.provider), (class, Op::Get, "b"));
        assert_eq!(error.id.unwrap().as_str(), "id-1");
        let error = bed.create("b", "1", "x", free(Op::Create)).await.unwrap().unwrap_err();
        let expected = if class == ErrorClass::NotFound { ErrorClass::Transient } else { class };
        assert_eq!(error.class, expected, "PC-24: a create never answers NotFound");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_uid_is_refused_before_any_call() {
    let bed = bed(|_, _| Does::Answer(secs(1))).await;
    let error = bed.create("a", "", "x", free(Op::Create)).await.unwrap().unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    assert!(bed.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn running_without_an_address_reads_provisioning() {
    let bed = bed(|_, _| Does::Answer(secs(1))).await;
    let mut bare = key("1", "x");
    assert_eq!(bed.get("a", bare.clone(), free(Op::Get)).await.unwrap().unwrap().state, InstanceState::Running);
    bare.placement.machine_type = Some("bare".into());
    assert_eq!(bed.get("a", bare, free(Op::Get)).await.unwrap().unwrap().state, InstanceState::Provisioning, "PC-28");
}

/// PC-85, PC-48.
#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_result_and_checks_are_not() {
    let bed = bed(|op, _| if op == Op::Delete { Does::Fail(ErrorClass::QuotaExceeded) } else { Does::Answer(secs(1)) }).await;
    bed.create("a", "1", "x", free(Op::Create)).await.unwrap().unwrap();
    bed.create("a", "2", "x", free(Op::Create)).await.unwrap().unwrap();
    bed.delete("a", "1", "x", free(Op::Delete)).await.unwrap().unwrap_err();
    bed.create("a", "3", "x", cancelled_after(Op::Create, secs(0))).await.unwrap().unwrap_err();
    let verdicts = bed.provider("a").call(secs(5), |reply_to| ProviderMessage::Check { call: free(Op::List), reply_to }).await;
    assert_eq!(verdicts.unwrap(), Some(Vec::new()));
    let count =
        |op, result| bed.system.metrics().provider_requests.get_or_create(&ProviderRequest { provider: "a".into(), op, result }).get();
    assert_eq!(count("create", "ok"), 2);
    assert_eq!(count("delete", "quota_exceeded"), 1);
    assert_eq!(count("create", "transient"), 1);
    assert_eq!(count("list", "ok"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_summary_tells_calls_in_flight_and_the_last_error() {
    let bed = bed(|op, _| if op == Op::Get { Does::Fail(ErrorClass::Permanent) } else { Does::Hang }).await;
    let hung = futures::future::join_all(["1", "2", "3"].map(|uid| bed.create("a", uid, "x", free(Op::Create))));
    let look = async {
        bed.get("a", key("9", "x"), free(Op::Get)).await.unwrap().unwrap_err();
        bed.provider("a").call(secs(1), |reply_to| ProviderMessage::Describe { reply_to }).await.unwrap()
    };
    tokio::select! {
        _ = hung => panic!("answered early"),
        summary = look => {
            assert_eq!((&*summary.name, summary.type_, summary.calls_in_flight), ("a", "scripted", 3));
            assert_eq!(summary.last_error.unwrap().message, "get: scripted");
        }
    }
}
