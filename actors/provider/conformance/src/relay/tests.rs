use std::sync::atomic::AtomicBool;

use tokio::time::{sleep, timeout};

use super::*;

const A_DAY: Duration = Duration::from_secs(24 * 3600);

async fn carried(relay: &Relay, call: &str) -> Result<&'static str, Fault> {
    relay
        .carry(call, Err, || {
            std::thread::sleep(Duration::from_millis(50));
            Ok("real")
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn the_paused_clock_stands_still_while_a_call_is_on_its_way_and_no_longer_pc_107() {
    let relay = Relay::new();
    assert_eq!(timeout(Duration::from_millis(1), carried(&relay, "first")).await, Ok(Ok("real")), "a millisecond of paused time");
    relay.intervene(1, Intervention::BlockBefore);
    assert!(timeout(A_DAY, carried(&relay, "second")).await.is_err(), "a day passes for one that is never answered");
    assert_eq!(relay.calls(), ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn each_call_meets_what_was_planned_for_its_number() {
    let relay = Relay::new();
    let done = Arc::new(AtomicBool::new(false));
    let aside = Arc::clone(&done);
    relay.before(1, move || aside.store(true, Ordering::SeqCst));
    relay.intervene(2, Intervention::Fail(Fault::Erring));
    assert_eq!(carried(&relay, "1").await, Ok("real"));
    assert!(done.load(Ordering::SeqCst));
    assert_eq!(carried(&relay, "2").await, Err(Fault::Erring));
    assert_eq!(carried(&relay, "3").await, Ok("real"), "of the second only");
    relay.fail_all(Fault::Quota);
    relay.intervene(1, Intervention::Fail(Fault::LinkDown));
    assert_eq!(carried(&relay, "4").await, Err(Fault::LinkDown), "what is planned for one goes before what befalls all");
    assert_eq!(carried(&relay, "5").await, Err(Fault::Quota));
    relay.calm();
    assert_eq!(carried(&relay, "6").await, Ok("real"));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_caller_left_arrives_all_the_same() {
    let relay = Relay::new();
    let arrived = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&arrived);
    relay.intervene(1, Intervention::BlockAfter);
    {
        let call = relay.carry("left", Err, move || {
            std::thread::sleep(Duration::from_millis(50));
            seen.store(true, Ordering::SeqCst);
            Ok::<_, Fault>(())
        });
        assert!(futures::poll!(std::pin::pin!(call)).is_pending());
    }
    relay.wait();
    assert!(arrived.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn a_panic_on_the_way_is_the_callers_and_leaves_the_next_call_alone() {
    let relay = Relay::new();
    let panics = || async { relay.carry("broken", Err, || std::panic::panic_any("on the way")).await };
    let met: Result<Result<(), Fault>, _> = futures::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(panics())).await;
    assert!(met.is_err());
    relay.wait();
    assert_eq!(carried(&relay, "next").await, Ok("real"));
    sleep(A_DAY).await;
}
