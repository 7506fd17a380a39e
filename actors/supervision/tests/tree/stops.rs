//! An orderly stop: in reverse order, bounded, and never twice.

use std::time::Duration;

use egress_supervision::{AddressError, ChildSpec, Failure};
use tokio::time::Instant;

use crate::puppet::*;

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_children_in_reverse_order_and_takes_neighbours_of_a_kind_together() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary).slow_to_stop(0)).await;
    let top = system.address::<Tell>("root");
    child(&top, ChildSpec::<Puppet<0>>::retried("a", Play::new(&diary).slow_to_stop(100))).await;
    child(&top, ChildSpec::<Puppet<1>>::retried("b", Play::new(&diary).slow_to_stop(300))).await;
    child(&top, ChildSpec::<Puppet<1>>::retried("c", Play::new(&diary).slow_to_stop(200))).await;
    child(&top, ChildSpec::<Puppet<0>>::retried("d", Play::new(&diary).slow_to_stop(100))).await;
    let begun = Instant::now();
    root.stop().await;
    let notes = diary.read().split_off(5);
    assert_eq!(notes[..2], ["d stops", "d stopped"]);
    assert!(notes[2..4].contains(&"b stops".to_owned()) && notes[2..4].contains(&"c stops".to_owned()));
    assert_eq!(notes[4..], ["c stopped", "b stopped", "a stops", "a stopped", "root stops", "root stopped"]);
    assert!(begun.elapsed() < Duration::from_millis(520));
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_hangs_is_ended_in_time_and_its_parents_still_end_in_order() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary).slow_to_stop(4000)).await;
    let top = system.address::<Tell>("root");
    let a = child(&top, ChildSpec::<Puppet>::retried("a", Play::new(&diary).slow_to_stop(4000))).await;
    child(&a, ChildSpec::<Puppet>::retried("hanging", Play::new(&diary).stopping(|_| std::future::pending()))).await;
    let begun = Instant::now();
    have(&top, |_, ctx| ctx.stop_child("a")).await;
    pause(8990).await;
    assert_eq!(diary.count("a stopped"), 0);
    pause(20).await;
    assert_eq!(diary.count("a stopped"), 1, "5 s for what hangs, then its own 4");
    root.stop().await;
    assert_eq!(diary.count("root stopped"), 1);
    assert!(begun.elapsed() < Duration::from_secs(14));
}

#[tokio::test(start_paused = true)]
async fn the_stop_of_the_tree_is_bounded_by_the_roots_limit() {
    let diary = Diary::default();
    let system = system();
    let mut spec = ChildSpec::<Puppet>::essential("root", Play::new(&diary));
    spec.policy.stop_timeout = Duration::from_secs(7);
    let root = system.start_root(spec).await.expect("it starts");
    let top = system.address::<Tell>("root");
    // Three that hang one after another take longer than that.
    let hanging = || std::future::pending();
    child(&top, ChildSpec::<Puppet<0>>::retried("a", Play::new(&diary).stopping(move |_| hanging()))).await;
    child(&top, ChildSpec::<Puppet<1>>::retried("b", Play::new(&diary).stopping(move |_| hanging()))).await;
    child(&top, ChildSpec::<Puppet<2>>::retried("c", Play::new(&diary).stopping(move |_| hanging()))).await;
    let begun = Instant::now();
    root.stop().await;
    assert_eq!(begun.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_start_stops_the_children_that_had_started() {
    let diary = Diary::default();
    let (early, late) = (
        ChildSpec::<Puppet>::retried("early", Play::new(&diary).slow_to_stop(100)),
        ChildSpec::<Puppet>::retried("late", Play::new(&diary).start(|_| std::future::pending())),
    );
    let play = Play::new(&diary).slow_to_stop(0).start(move |ctx| {
        let (early, late) = (early.clone(), late.clone());
        async move {
            ctx.start_child_and_wait(early).await?;
            ctx.start_child_and_wait(late).await.map(drop)
        }
    });
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    have(&top, |_, ctx| {
        ctx.start_child(ChildSpec::<Puppet>::retried("slow", play));
    })
    .await;
    pause(1000).await;
    assert_eq!(diary.read(), ["root starts", "slow starts", "early starts", "late starts"]);
    let begun = Instant::now();
    root.stop().await;
    assert_eq!(diary.read()[4..], ["early stops", "early stopped"], "in order; `stopping` is for an actor that was up");
    assert!(begun.elapsed() < Duration::from_millis(110));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_child_that_is_started_again_starts_when_it_has_ended() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let spec = ChildSpec::<Puppet>::retried("a", Play::new(&diary).slow_to_stop(500));
    let a = child(&top, spec.clone()).await;
    have(&top, move |_, ctx| {
        ctx.stop_child("a");
        ctx.start_child(spec);
    })
    .await;
    pause(100).await;
    assert_eq!(count(&a).await, Err(AddressError::Down));
    pause(500).await;
    assert_eq!(diary.read()[2..], ["a stops", "a stopped", "a starts"]);
    assert_eq!(count(&a).await, Ok(1));
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_backs_off_or_waits_for_its_retry_stops_at_once() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    child(&top, ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    child(&top, ChildSpec::<Puppet>::retried("b", Play::new(&diary))).await;
    crash_times(&system, "a", 6).await;
    crash_times(&system, "b", 1).await;
    let begun = Instant::now();
    root.stop().await;
    assert!(begun.elapsed() < Duration::from_millis(10));
    pause(600_000).await;
    assert_eq!(diary.count("a starts"), 6);
    assert_eq!(diary.count("b starts"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_stops_starts_no_children_and_is_told_so() {
    let diary = Diary::default();
    let (noted, spec) = (diary.clone(), ChildSpec::<Puppet>::retried("late", Play::new(&diary)));
    let play = Play::new(&diary).stopping(move |ctx| {
        let (noted, spec) = (noted.clone(), spec.clone());
        async move {
            let failure = ctx.start_child_and_wait(spec).await.expect_err("no child any more");
            noted.note(failure.0);
        }
    });
    let (_, root) = root(play).await;
    root.stop().await;
    assert_eq!(diary.read(), ["root starts", "late: it or its parent ended before it ran"]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_stopping_ends_the_stop_and_nothing_else() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary).slow_to_stop(0)).await;
    let top = system.address::<Tell>("root");
    let play = Play::new(&diary).stopping(|_| async { panic!("at the very end") });
    child(&top, ChildSpec::<Puppet>::retried("a", play)).await;
    root.stop().await;
    assert_eq!(diary.read(), ["root starts", "a starts", "root stops", "root stopped"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_loses_interest_in_a_root_kills_its_tree() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let a = child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    drop(root);
    pause(1).await;
    assert_eq!(count(&a).await, Err(AddressError::Down));

    let guard = std::sync::Arc::new(std::sync::Mutex::new(Some(diary.note_when_dropped("the start ended"))));
    let play = Play::new(&diary).start(move |_| {
        let guard = guard.lock().unwrap().take();
        async move {
            let _guard = guard;
            std::future::pending::<Result<(), Failure>>().await
        }
    });
    let starting = system.start_root::<Puppet>(ChildSpec::essential("root", play));
    assert!(tokio::time::timeout(Duration::from_secs(1), starting).await.is_err());
    pause(1).await;
    assert_eq!(diary.count("the start ended"), 1, "also while it starts");
}

/// Sends itself the next one, for ever.
fn again(me: egress_supervision::Address<Tell>) -> Deed<0> {
    Box::new(move |_, _| {
        let next = again(me.clone());
        let _ = me.send(Tell::Do(next));
        Ok(())
    })
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_never_runs_out_of_messages_starves_nobody_and_still_starts_children_and_stops() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let busy = child(&top, ChildSpec::<Puppet>::retried("busy", Play::new(&diary))).await;
    busy.send(Tell::Do(again(busy.clone()))).expect("it is up");
    assert_eq!(count(&top).await, Ok(1), "others have their turn, also on one thread");
    let below = ChildSpec::<Puppet>::retried("below", Play::new(&diary).slow_to_stop(0));
    let below = have(&busy, move |_, ctx| ctx.start_child(below)).await;
    while !below.is_up() {
        tokio::task::yield_now().await;
    }
    have(&top, |_, ctx| ctx.stop_child("busy")).await;
    while busy.is_up() || diary.count("below stopped") == 0 {
        tokio::task::yield_now().await;
    }
    root.stop().await;
}

#[test]
fn a_tree_stops_on_a_runtime_of_one_thread_and_on_one_with_one_worker() {
    // O19
    let single = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let one_worker = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for runtime in [single, one_worker] {
        let diary = Diary::default();
        let stopped = runtime.block_on(async {
            let (system, root) = root(Play::new(&diary)).await;
            let top = system.address::<Tell>("root");
            for index in 0..20 {
                let a = child(&top, ChildSpec::<Puppet>::retried(format!("{index}"), Play::new(&diary).slow_to_stop(1))).await;
                have(&a, |_, ctx| {
                    let cancelled = ctx.cancelled();
                    ctx.spawn(async move {
                        cancelled.cancelled().await;
                        Heard("nothing")
                    })
                    .keep();
                })
                .await;
            }
            tokio::time::timeout(Duration::from_secs(20), root.stop()).await
        });
        assert!(stopped.is_ok());
        assert_eq!(diary.read().iter().filter(|note| note.ends_with(" stopped")).count(), 20);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_children_start_are_looked_at_and_stop() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let play = Play::new(&diary);
    let addresses = have(&top, move |_, ctx| {
        let spec = |index| ChildSpec::<Puppet>::retried(format!("proxy/{index}"), play.clone());
        (0..10_000).map(|index| ctx.start_child(spec(index))).collect::<Vec<_>>()
    })
    .await;
    for address in &addresses {
        up(address).await;
    }
    let node = system.inspect(None, Some(1)).await.expect("there is a root");
    assert_eq!(node.children.len(), 10_000);
    assert!(node.children.iter().enumerate().all(|(index, child)| child.id == format!("proxy/{index}")), "in start order");
    assert_eq!(system.counts()[0].1, 10_001);
    let stopped = tokio::time::timeout(Duration::from_secs(20), root.stop()).await;
    assert!(stopped.is_ok());
    assert!(addresses.iter().all(|address| !address.is_up()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_a_branch_is_known_until_its_last_task_has_ended_even_one_that_blocks_its_thread() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let branch = child(&top, ChildSpec::<Puppet>::retried("branch", Play::new(&diary))).await;
    let mut spec = ChildSpec::<Puppet<1>>::retried("leaf", Play::new(&diary));
    spec.policy.stop_timeout = Duration::from_millis(10);
    let leaf = child(&branch, spec).await;
    child(&top, ChildSpec::<Puppet>::retried("neighbour", Play::new(&diary))).await;
    let (release, held) = std::sync::mpsc::channel::<()>();
    have(&leaf, move |_, ctx| {
        ctx.spawn(async move {
            tokio::task::block_in_place(|| held.recv().ok());
            Heard("the blocking task")
        })
        .keep();
    })
    .await;
    let mut all = system.left_of("branch");
    all.sort();
    assert_eq!(all, ["branch".into(), "leaf".into()]);
    have(&top, |_, ctx| ctx.stop_child("branch")).await;
    let left = async || {
        while system.left_of("branch").len() > 1 {
            pause(1).await;
        }
        system.left_of("branch")
    };
    let left = tokio::time::timeout(Duration::from_secs(10), left()).await.expect("the runners end");
    assert_eq!(left, ["leaf".into()], "its parent has ended and is known to be above it all the same");
    assert_eq!(system.left_of("root").len(), 3, "the root, the neighbour, and what is left of the branch");
    release.send(()).expect("it waits");
    let gone = async {
        while !system.left_of("branch").is_empty() {
            pause(1).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.expect("nothing is left");
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_askers_of_an_actor_that_stops_are_told_before_its_children_have_stopped() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let a = child(&top, ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    child(&a, ChildSpec::<Puppet>::retried("slow", Play::new(&diary).slow_to_stop(1000))).await;
    let begun = Instant::now();
    let stopped = have(&top, |_, ctx| ctx.stop_child("a"));
    let (_, answers) = tokio::join!(stopped, futures::future::join_all((0..10).map(|_| count(&a))));
    assert!(answers.iter().all(|answer| *answer == Err(AddressError::Dropped)), "{answers:?}");
    assert_eq!(count(&a).await, Err(AddressError::Down), "and nobody can ask any more");
    assert_eq!(begun.elapsed(), Duration::ZERO);
    root.stop().await;
    assert_eq!(diary.count("slow stopped"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_on_its_way_out_ends_at_once_when_its_parent_crashes() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let parent = child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("parent", Play::new(&diary))).await;
    let a = child(&parent, ChildSpec::<Puppet>::retried("a", Play::new(&diary).slow_to_stop(4000))).await;
    child(&a, ChildSpec::<Puppet>::retried("below", Play::new(&diary).slow_to_stop(4000))).await;
    have(&parent, |_, ctx| ctx.stop_child("a")).await;
    pause(1000).await;
    assert_eq!(diary.count("below stops"), 1);
    assert!(system.crash("parent"));
    pause(1).await;
    assert!(system.left_of("a").is_empty() && system.left_of("below").is_empty());
    pause(10_000).await;
    assert_eq!((diary.count("below stopped"), diary.count("a stops")), (0, 0));
    root.stop().await;
}
