//! What a crash does (SV-2).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use egress_supervision::{ActorStatus, AddressError, ChildSpec, Failure, OnExhausted};
use serde_json::json;

use crate::puppet::*;

#[tokio::test(start_paused = true)]
async fn a_crashed_child_is_restarted_alone_and_its_address_stays_valid() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let a = child(&top, ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    let b = child(&top, ChildSpec::<Puppet>::retried("b", Play::new(&diary))).await;
    assert_eq!(count(&a).await, Ok(1));
    assert_eq!(count(&b).await, Ok(1));
    assert!(system.crash("a"));
    pause(50).await;
    assert_eq!(count(&a).await, Err(AddressError::Down), "backing off");
    pause(60).await;
    assert_eq!(count(&a).await, Ok(1), "state comes from the source, not from the crash");
    assert_eq!(count(&b).await, Ok(2), "its sibling did not notice");
    root.stop().await;
    assert_eq!(count(&b).await, Err(AddressError::Down));
}

#[tokio::test(start_paused = true)]
async fn grandchildren_go_down_and_come_back_with_their_parent() {
    let diary = Diary::default();
    let grandchild = ChildSpec::<Puppet>::retried("grandchild", Play::new(&diary));
    let play = Play::new(&diary).start(move |ctx| {
        let grandchild = grandchild.clone();
        async move { ctx.start_child_and_wait(grandchild).await.map(drop) }
    });
    let (system, root) = root(Play::new(&diary)).await;
    child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::essential("parent", play)).await;
    let grandchild = system.address::<Tell>("grandchild");
    assert_eq!(count(&grandchild).await, Ok(1));
    assert!(system.kill("parent"), "a killed actor counts as crashed");
    pause(50).await;
    assert_eq!(count(&grandchild).await, Err(AddressError::Down));
    pause(60).await;
    assert_eq!(count(&grandchild).await, Ok(1), "a new life at the old address");
    let node = system.inspect(None, None).await.expect("there is a root");
    let parent = &node.children[0];
    assert_eq!((parent.id.as_str(), parent.restarts), ("parent", 1));
    assert_eq!(parent.last_error.as_ref().map(|error| error.message.as_str()), Some("killed"));
    let grandchild = &parent.children[0];
    assert_eq!((grandchild.id.as_str(), grandchild.restarts), ("grandchild", 0), "it did not crash itself");
    assert_eq!((grandchild.status, &grandchild.state), (ActorStatus::Running, &Some(json!({ "asked": 1 }))));
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_exhausted_child_is_given_up_and_its_parent_is_told_and_told_once_when_it_is_back() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let a = child(&top, ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    let b = child(&top, ChildSpec::<Puppet>::retried("b", Play::new(&diary))).await;
    crash_times(&system, "a", 5).await;
    pause(2000).await;
    assert_eq!(count(&a).await, Ok(1), "five restarts are within the budget");
    crash_times(&system, "a", 1).await;
    pause(60_000).await;
    assert_eq!(count(&a).await, Err(AddressError::Down));
    assert_eq!(count(&b).await, Ok(1));
    let node = system.inspect(Some("a"), None).await.expect("it is still in the tree");
    assert_eq!((node.status, node.restarts), (ActorStatus::GaveUp, 5));
    assert_eq!(diary.count("a given up: made to panic by a test"), 1);
    assert_eq!(diary.count("a is back"), 0);
    pause(250_000).await;
    assert_eq!(count(&a).await, Ok(1), "retried after five minutes");
    assert_eq!(diary.count("a is back"), 1);
    crash_times(&system, "a", 2).await;
    pause(1000).await;
    assert_eq!(count(&a).await, Ok(1), "with a fresh budget");
    assert_eq!(diary.count("a is back"), 1, "an ordinary restart is no news");
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_tried_again_has_a_fresh_budget_however_soon_that_is() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let mut spec = ChildSpec::<Puppet>::retried("a", Play::new(&diary));
    spec.policy.on_exhausted = OnExhausted::RetryEvery(Duration::from_secs(10));
    let a = child(&system.address::<Tell>("root"), spec).await;
    crash_times(&system, "a", 6).await;
    pause(10_000).await;
    crash_times(&system, "a", 1).await;
    pause(110).await;
    assert_eq!(count(&a).await, Ok(1), "an ordinary restart after 100 ms");
    assert_eq!(diary.count("a given up: made to panic by a test"), 1);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_singleton_whose_budget_is_spent_ends_the_tree() {
    let diary = Diary::default();
    let (system, mut root) = root(Play::new(&diary)).await;
    child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::essential("broker", Play::new(&diary))).await;
    crash_times(&system, "broker", 6).await;
    let failure = tokio::time::timeout(Duration::from_secs(1), root.failed()).await.expect("the root fails");
    assert_eq!(failure, Failure("broker: made to panic by a test".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_rebuilt_ends_the_tree_with_its_first_crash() {
    let diary = Diary::default();
    let (system, mut root) = root(Play::new(&diary)).await;
    child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::irreplaceable("journal", Play::new(&diary))).await;
    assert!(system.kill("journal"));
    assert_eq!(root.failed().await, Failure("journal: killed".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_killed_root_ends_the_tree() {
    let diary = Diary::default();
    let (system, mut root) = root(Play::new(&diary)).await;
    let a = child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    assert!(system.kill("root"));
    assert_eq!(root.failed().await, Failure("killed".to_owned()));
    pause(1).await;
    assert_eq!(count(&a).await, Err(AddressError::Down));
}

#[tokio::test(start_paused = true)]
async fn the_next_life_waits_for_the_last_task_of_the_former_one() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let a = child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    // Stands for a task that is in the middle of something: it holds what every task holds.
    let lingering = have(&a, |_, ctx| ctx.clone()).await;
    assert!(system.crash("a"));
    pause(10_000).await;
    assert_eq!(count(&a).await, Err(AddressError::Down));
    let node = system.inspect(Some("a"), None).await.expect("it is in the tree");
    assert_eq!(node.status, ActorStatus::Starting);
    drop(lingering);
    pause(1).await;
    assert_eq!(count(&a).await, Ok(1));
    root.stop().await;
}

/// How many are inside, and the most there ever were.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    most: AtomicUsize,
}

struct Inside(Arc<Room>);

impl Inside {
    fn enter(room: &Arc<Room>) -> Self {
        room.most.fetch_max(room.inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Self(Arc::clone(room))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lives_never_overlap_even_when_a_task_blocks_its_thread_and_the_parent_crashes() {
    let (diary, room, lives) = (Diary::default(), Arc::<Room>::default(), Arc::<AtomicUsize>::default());
    let (room_of_all, lives_so_far) = (Arc::clone(&room), Arc::clone(&lives));
    let play = Play::new(&diary).start(move |ctx: egress_supervision::Context<Puppet>| {
        let inside = Inside::enter(&room_of_all);
        lives_so_far.fetch_add(1, Ordering::SeqCst);
        async move {
            ctx.spawn(async move {
                let _inside = inside;
                loop {
                    // A task that does not come to an await for longer than the backoff.
                    tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(130)));
                    tokio::task::yield_now().await;
                }
            })
            .keep();
            Ok(())
        }
    });
    let spec = ChildSpec::<Puppet>::retried("a", play);
    let parent = Play::new(&diary).start(move |ctx| {
        ctx.start_child(spec.clone());
        async { Ok(()) }
    });
    let (system, root) = root(Play::new(&diary)).await;
    child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("parent", parent)).await;
    for victim in ["a", "parent", "a", "parent"] {
        up(&system.address::<Tell>("a")).await;
        let before = lives.load(Ordering::SeqCst);
        assert!(system.kill(victim));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while lives.load(Ordering::SeqCst) == before {
            assert!(tokio::time::Instant::now() < deadline, "it comes back");
            pause(5).await;
        }
    }
    assert_eq!(room.most.load(Ordering::SeqCst), 1);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_crashes_while_its_child_backs_off_brings_back_one_child() {
    let diary = Diary::default();
    let grandchild = ChildSpec::<Puppet>::retried("a", Play::new(&diary));
    let play = Play::new(&diary).start(move |ctx| {
        ctx.start_child(grandchild.clone());
        async { Ok(()) }
    });
    let (system, root) = root(Play::new(&diary)).await;
    child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("parent", play)).await;
    let a = system.address::<Tell>("a");
    up(&a).await;
    crash_times(&system, "a", 3).await;
    assert_eq!(system.inspect(Some("a"), None).await.expect("it is there").status, ActorStatus::BackingOff);
    assert!(system.crash("parent"));
    pause(150).await;
    assert_eq!(count(&a).await, Ok(1));
    let starts = diary.count("a starts");
    pause(10_000).await;
    assert_eq!(diary.count("a starts"), starts, "the runner of the former parent is gone");
    assert_eq!(system.inspect(Some("a"), None).await.expect("it is there").restarts, 0);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_start_fails_fails_the_ordered_start_of_its_parent() {
    let diary = Diary::default();
    let bad = ChildSpec::<Puppet>::retried("bad", Play::new(&diary).start(|_| async { Err(Failure::new("no such folder")) }));
    let good = ChildSpec::<Puppet>::retried("good", Play::new(&diary));
    let play = Play::new(&diary).start(move |ctx| {
        let (good, bad) = (good.clone(), bad.clone());
        async move {
            ctx.start_child_and_wait(good).await?;
            ctx.start_child_and_wait(bad).await.map(drop)
        }
    });
    let system = system();
    let failure = system.start_root::<Puppet>(ChildSpec::essential("root", play)).await.expect_err("it does not start");
    assert_eq!(failure, Failure("bad: no such folder".to_owned()));
    pause(1000).await;
    assert_eq!(count(&system.address::<Tell>("good")).await, Err(AddressError::Down), "what had started ends too");
    assert_eq!(diary.count("bad starts"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_start_is_told_to_whoever_waits_for_it() {
    let diary = Diary::default();
    let play = Play::new(&diary).start(|_| -> std::future::Ready<Result<(), Failure>> { panic!("cannot even begin") });
    let failure = system().start_root::<Puppet>(ChildSpec::essential("root", play)).await.expect_err("it does not start");
    assert_eq!(failure, Failure("cannot even begin".to_owned()));
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("even its end goes wrong");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_the_state_is_dropped_is_a_crash_like_any_other() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let a = child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    have(&a, |puppet, _| puppet.kept.push(Box::new(PanicsWhenDropped))).await;
    assert!(system.kill("a"));
    pause(150).await;
    assert_eq!(count(&a).await, Ok(1), "it is restarted");
    let node = system.inspect(Some("a"), None).await.expect("it is there");
    assert_eq!(node.last_error.map(|error| error.message), Some("even its end goes wrong".to_owned()));
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_crashes_while_its_parent_still_starts_is_restarted_meanwhile() {
    let diary = Diary::default();
    let a = ChildSpec::<Puppet>::retried("a", Play::new(&diary));
    let play = Play::new(&diary).start(move |ctx| {
        let a = a.clone();
        async move {
            let a = ctx.start_child_and_wait(a).await?;
            assert!(ctx.system().crash("a"));
            pause(150).await;
            a.call(Duration::from_secs(1), Tell::Count).await.map(drop).map_err(Failure::new)
        }
    });
    let (_, root) = root(play).await;
    assert_eq!(diary.count("a starts"), 2);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_rebuilt_ends_the_start_of_its_parent_with_its_crash() {
    let diary = Diary::default();
    let journal = ChildSpec::<Puppet>::irreplaceable("journal", Play::new(&diary));
    let ended = diary.clone();
    let play = Play::new(&diary).start(move |ctx| {
        let (journal, ended) = (journal.clone(), ended.note_when_dropped("the start ended"));
        async move {
            let _ended = ended;
            ctx.start_child_and_wait(journal).await?;
            assert!(ctx.system().kill("journal"));
            std::future::pending().await
        }
    });
    let failure = system().start_root::<Puppet>(ChildSpec::essential("root", play)).await.expect_err("it does not start");
    pause(1).await;
    assert_eq!(failure, Failure("journal: killed".to_owned()));
    assert_eq!(diary.count("the start ended"), 1);
}
