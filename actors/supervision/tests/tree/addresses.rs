//! What peers may rely on: addresses that stay, answers or reasons, counts that are right.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use egress_protocol::message::Never;
use egress_supervision::{AddressError, ChildSpec, Failure, Latest};
use futures::future::join_all;

use crate::puppet::*;

#[tokio::test(start_paused = true)]
async fn the_messages_that_wait_for_a_crashed_actor_are_lost_and_their_askers_told() {
    // O17, O18
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let a = child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    assert!(system.crash("a"));
    let answers = join_all((0..100).map(|_| count(&a))).await;
    assert!(answers.iter().all(|answer| *answer == Err(AddressError::Dropped)), "{answers:?}");
    assert_eq!(a.depth(), 0, "nothing waits for an actor that is down");
    pause(150).await;
    assert_eq!(count(&a).await, Ok(1), "and nothing is kept for its next life");
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_messages_that_wait_for_an_actor_that_stops_are_dropped_and_their_askers_told() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let a = child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    let (_, answers) = tokio::join!(root.stop(), join_all((0..10).map(|_| count(&a))));
    assert!(answers.iter().all(|answer| matches!(answer, Ok(_) | Err(AddressError::Dropped))), "{answers:?}");
    assert_eq!(count(&a).await, Err(AddressError::Down));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_come_in_time_is_a_timeout_and_a_reply_thrown_away_is_told_at_once() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let kept = top.call::<()>(Duration::from_secs(3), |reply_to| {
        Tell::Do(Box::new(|puppet, _| {
            puppet.kept.push(Box::new(reply_to));
            Ok(())
        }))
    });
    assert_eq!(kept.await, Err(AddressError::Timeout));
    let dropped = top.call::<()>(Duration::from_secs(3), |reply_to| {
        Tell::Do(Box::new(|_, _| {
            drop(reply_to);
            Ok(())
        }))
    });
    assert_eq!(dropped.await, Err(AddressError::Dropped));
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_mailbox_counts_what_waits_and_comes_back_to_zero() {
    // SV-3
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let calls = join_all((0..100).map(|_| count(&top)));
    let looks = async {
        assert_eq!(top.depth(), 100);
        assert_eq!(top.call_shedding(100, Duration::from_secs(1), Tell::Count).await, Err(AddressError::Overloaded));
        assert_eq!(system.counts(), [("k0", 1, 100)]);
    };
    let (answers, ()) = tokio::join!(calls, looks);
    assert_eq!(answers, (1..=100).map(Ok).collect::<Vec<_>>(), "in the order they were sent");
    assert_eq!(top.depth(), 0);
    assert_eq!(top.call_shedding(100, Duration::from_secs(1), Tell::Count).await, Ok(101));
    root.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_of_many_threads_arrives() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let seen = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (top, seen) = (system.address::<Tell>("root"), Arc::clone(&seen));
            scope.spawn(move || {
                for _ in 0..20_000 {
                    let seen = Arc::clone(&seen);
                    let deed = move |_: &mut Puppet, _: &_| -> Result<(), Failure> {
                        seen.fetch_add(1, Ordering::Relaxed);
                        Ok(())
                    };
                    top.send(Tell::Do(Box::new(deed))).expect("it is up");
                }
            });
        }
    });
    let top = system.address::<Tell>("root");
    assert_eq!(top.call(Duration::from_secs(60), Tell::Count).await, Ok(1), "the last one waits behind all others");
    assert_eq!(seen.load(Ordering::Relaxed), 80_000);
    assert_eq!(top.depth(), 0);
    // One at a time, so that the actor goes to sleep in between: a lost wake-up would be a timeout.
    for expected in 2..20_000 {
        assert_eq!(top.call(Duration::from_secs(60), Tell::Count).await, Ok(expected));
    }
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_updates_is_one_message_and_the_last_of_them() {
    // SV-3
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let latest = Arc::new(Latest::<u32>::default());
    for value in 0..10_000 {
        let (taken, diary) = (Arc::clone(&latest), diary.clone());
        latest.put(Arc::new(value));
        let ring = || {
            top.send(Tell::Do(Box::new(move |_, _| {
                diary.note(format!("took {}", taken.read()));
                Ok(())
            })))
        };
        latest.ring(ring).expect("it is up");
    }
    assert_eq!(top.depth(), 1);
    count(&top).await.expect("it answers");
    assert_eq!(diary.read(), ["root starts", "took 9999"]);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_works_again_when_its_actor_is_started_again_also_if_a_task_outlived_it() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let spec = ChildSpec::<Puppet>::retried("a", Play::new(&diary));
    let a = child(&top, spec.clone()).await;
    let lingering = have(&a, |_, ctx| ctx.clone()).await;
    have(&top, |_, ctx| ctx.stop_child("a")).await;
    pause(5000).await;
    assert_eq!(count(&a).await, Err(AddressError::Down));
    drop(lingering);
    let again = child(&top, spec).await;
    assert_eq!(count(&again).await, Ok(1));
    assert_eq!(count(&a).await, Ok(2), "the old address is the same");
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ids_that_nobody_serves_and_nobody_knows_are_forgotten() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    for round in 0..3 {
        for index in 0..100 {
            let spec = ChildSpec::<Puppet>::retried(format!("{round}/{index}"), Play::new(&diary));
            have(&top, move |_, ctx| {
                ctx.start_child(spec);
            })
            .await;
        }
        pause(10).await;
        for index in 0..100 {
            have(&top, move |_, ctx| ctx.stop_child(&format!("{round}/{index}"))).await;
        }
        pause(10).await;
        assert_eq!(format!("{system:?}"), "System(1 actors)");
    }
    for index in 0..20_000 {
        assert!(!system.address::<Tell>(&format!("made-up/{index}")).is_up());
    }
    let held: usize = format!("{system:?}").trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number");
    assert!(held < 5000, "asking for ids that do not exist leaves {held}");
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_of_the_wrong_message_type_is_never_up_and_harms_nobody() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let wrong = system.address::<Never>("root");
    assert!(!wrong.is_up());
    assert_eq!(wrong.depth(), 0);
    assert_eq!(count(&system.address::<Tell>("root")).await, Ok(1));
    root.stop().await;
}
