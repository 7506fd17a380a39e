//! The actor over a Lease in memory, on a paused clock; `tests/it` has it over the real one.

mod double;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use egress_protocol::leadership::{ACTOR_ID, BRANCH_ID, Standing};
use tokio::time::{Instant, sleep};

use super::LeadershipActor;
use super::keeper::KEEPER_ID;
use double::{Double, Manners, Mood, Replica, settings};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn follows(name: &str) -> Standing {
    Standing::Follower { leader: Some(format!("{name}_1").into()), address: Some(format!("{name}.example:8090").into()) }
}

const NOBODY: Standing = Standing::Follower { leader: None, address: None };

#[tokio::test(start_paused = true)]
async fn one_leads_with_its_branch_and_the_other_knows_where_it_is_served() {
    let store = Double::new();
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    let b = Replica::start(&store, "b").await;
    sleep(millis(60_000)).await;
    assert!(a.leads() && !b.fence.holds());
    assert_eq!((a.diary(), b.diary()), (vec!["started"], vec![]));
    assert_eq!(*b.standing.get(), follows("a"));
    assert!(a.state().await.settled && b.state().await.settled);
    assert_eq!((a.state().await.faults, b.state().await.faults), (Vec::<String>::new(), Vec::<String>::new()));
    let writes = store.writes();
    assert!((30..=32).contains(&writes.len()) && writes.iter().all(|write| write == "a_1 writes"), "one renewal each 2 s: {writes:?}");
}

/// O9, OP-5.
#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_ends_its_branch_first_then_gives_the_lease_up_and_another_takes_it_within_a_second() {
    let store = Double::new();
    // Not a whole number of seconds: the other one looks each second, and would be asked right when the Lease is given up.
    let slow = Manners { stops_in: millis(25_300), ..Manners::default() };
    let a = Replica::with(&store, settings("a"), slow, |args| args).await;
    a.until_it_leads().await;
    let b = Replica::start(&store, "b").await;
    let (fence, diary, standing) = (a.fence.clone(), a.diary.clone(), a.standing.clone());
    let mut stop = std::pin::pin!(a.root.stop());
    for _ in 0..24 {
        assert!(tokio::time::timeout(millis(1000), &mut stop).await.is_err(), "the branch takes 25 s");
        assert!(fence.holds() && *standing.get() == Standing::Leader, "renewed as long as the branch stops");
        assert!(!b.leads());
    }
    stop.await;
    assert!(!fence.holds());
    assert_eq!(*diary.lock().unwrap(), ["started", "stopped"]);
    assert_eq!((store.holder(), store.writes().last().map(String::as_str)), (None, Some("NAMELESS writes")));
    let begun = Instant::now();
    b.until_it_leads().await;
    assert!(begun.elapsed() <= millis(1010), "{:?}", begun.elapsed());
    let spec = store.lease().unwrap().spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("b_1"), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_not_given_up_is_taken_when_it_has_expired_and_not_before() {
    let store = Double::new();
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    let b = Replica::start(&store, "b").await;
    sleep(millis(7000)).await;
    let died = Instant::now();
    drop(a.root);
    b.until_it_leads().await;
    let took = died.elapsed();
    assert!(took > millis(15_000 - 2000) && took <= millis(16_010), "{took:?}");
}

/// O7: the API server answers 500 for 20 s.
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_is_fenced_keeps_its_branch_and_goes_on_when_it_renews() {
    let store = Double::new();
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    sleep(millis(1000)).await;
    store.mood(Mood::Fails(500));
    let remaining = a.fence.remaining().unwrap();
    assert!(remaining > millis(8000));
    sleep(remaining - millis(1)).await;
    assert!(a.fence.holds());
    sleep(millis(2)).await;
    assert!(!a.fence.holds(), "by itself");
    sleep(Duration::from_secs(20) - remaining).await;
    assert_eq!((*a.standing.get()).clone(), Standing::Leader);
    assert_eq!(a.diary(), ["started"]);
    let faults = a.state().await.faults.join("; ");
    assert!(faults.contains("could not be renewed in time") && faults.contains("as told"), "{faults}");
    store.mood(Mood::Well);
    sleep(millis(600)).await;
    assert!(a.leads() && a.diary() == ["started"], "it goes on where it was");
    assert_eq!(a.state().await.faults, Vec::<String>::new());
}

/// O6: the Lease is given to another while the leader works.
#[tokio::test(start_paused = true)]
async fn a_stolen_lease_closes_the_fence_stops_the_branch_and_is_no_ones_until_it_has_ended() {
    let store = Double::new();
    let slow = Manners { stops_in: millis(8000), ..Manners::default() };
    let a = Replica::with(&store, settings("a"), slow, |args| args).await;
    a.until_it_leads().await;
    store.edit(|lease| lease.as_mut().unwrap().spec.as_mut().unwrap().holder_identity = Some("thief".into()));
    sleep(millis(2020)).await;
    assert!(!a.fence.holds());
    assert_eq!(*a.standing.get(), Standing::Follower { leader: Some("thief".into()), address: Some("a.example:8090".into()) });
    sleep(millis(7000)).await;
    assert_eq!(a.diary(), ["started"], "it still ends");
    assert!(a.state().await.faults.iter().any(|fault| fault.contains("still ends")));
    sleep(millis(1200)).await;
    assert_eq!(a.diary(), ["started", "stopped"]);
    assert_eq!(store.holder().as_deref(), Some("thief"), "who holds it for its whole time");
    a.until_it_leads().await;
    assert_eq!(a.diary(), ["started", "stopped", "started"], "then the thief, who never renewed, has lost it");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_written_again_by_its_holder_whom_nobody_overtakes() {
    let store = Double::new();
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    let b = Replica::start(&store, "b").await;
    sleep(millis(3000)).await;
    store.edit(|lease| *lease = None);
    for _ in 0..400 {
        sleep(millis(100)).await;
        assert!(a.leads() && !b.leads() && a.diary() == ["started"]);
    }
    assert_eq!(store.holder().as_deref(), Some("a_1"));
}

#[tokio::test(start_paused = true)]
async fn a_crash_closes_the_fence_ends_the_branch_and_the_next_life_renews_its_own_lease_at_once() {
    let store = Double::new();
    // Below a root of its own it would be restarted; as the root its crash ends the tree, and the next process is its next life.
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    let begun = Instant::now();
    assert!(a.system.crash(ACTOR_ID));
    let mut root = a.root;
    root.failed().await;
    while !a.system.left_of(ACTOR_ID).is_empty() {
        sleep(millis(1)).await;
    }
    assert!(!a.fence.holds());
    assert_eq!(*a.standing.get(), NOBODY);
    assert!(a.system.left_of(BRANCH_ID).is_empty());
    let again = Replica::start(&store, "a").await;
    again.until_it_leads().await;
    assert!(begun.elapsed() < millis(100), "{:?}", begun.elapsed());
    assert_eq!(store.lease().unwrap().spec.unwrap().lease_transitions, Some(0), "the holder did not change");
}

/// Issue 9: the keeper is a child like any other, and what it kept is not kept without it.
#[tokio::test(start_paused = true)]
async fn a_killed_keeper_is_a_crash_of_leadership_that_gives_nothing_up() {
    let store = Double::new();
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    assert!(a.system.kill(KEEPER_ID));
    let mut root = a.root;
    assert_eq!(root.failed().await.0, format!("{KEEPER_ID}: killed"));
    while !a.system.left_of(ACTOR_ID).is_empty() {
        sleep(millis(1)).await;
    }
    assert!(!a.fence.holds() && *a.standing.get() == NOBODY);
    assert_eq!((store.holder().as_deref(), store.writes().last().map(String::as_str)), (Some("a_1"), Some("a_1 writes")));
}

#[tokio::test(start_paused = true)]
async fn the_keeper_is_shown_with_the_lease_before_the_branch() {
    let store = Double::new();
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    let node = a.system.inspect(None, None).await.expect("there is a root");
    let children: Vec<_> = node.children.iter().map(|child| child.id.as_str()).collect();
    assert_eq!(children, [KEEPER_ID, BRANCH_ID]);
    assert_eq!(node.children[0].state.as_ref().map(|state| &state["holder"]), Some(&"a_1".into()));
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_is_found_and_given_up_too() {
    let store = Double::new();
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    store.mood(Mood::Mute);
    sleep(millis(2500)).await;
    // The version it knows is not the one there is.
    store.mood(Mood::Well);
    a.root.stop().await;
    assert_eq!((store.holder(), a.diary.lock().unwrap().clone()), (None, vec!["started", "stopped"]));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_two_seconds_for_an_api_server_that_does_not_answer() {
    let store = Double::new();
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    store.mood(Mood::Mute);
    let begun = Instant::now();
    a.root.stop().await;
    assert!((millis(2000)..millis(2200)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_follower_gives_up_nothing() {
    let store = Double::new();
    let a = Replica::start(&store, "a").await;
    a.until_it_leads().await;
    let b = Replica::start(&store, "b").await;
    sleep(millis(100)).await;
    b.root.stop().await;
    assert_eq!(store.holder().as_deref(), Some("a_1"));
    assert!(a.leads());
}

#[tokio::test(start_paused = true)]
async fn before_the_first_look_it_is_not_settled_and_says_why() {
    let store = Double::new();
    store.mood(Mood::Fails(403));
    let a = Replica::start(&store, "a").await;
    sleep(millis(5000)).await;
    let state = a.state().await;
    assert!(!state.settled && state.faults.join("").contains("cannot be read or written: as told (403)"), "{state:?}");
    store.mood(Mood::Well);
    a.until_it_leads().await;
    assert!(a.state().await.settled);
}

/// SV-4, O7: a task ignores that it is to end.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_branch_that_does_not_end_within_the_lease_duration_is_given_up_on() {
    let store = Double::new();
    let (told, heard) = std::sync::mpsc::channel();
    let quick =
        super::LeaderSettings { lease_duration: millis(1500), renew_deadline: millis(900), retry_period: millis(200), ..settings("a") };
    let let_go: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let hangs = Manners { hangs: Some(let_go), ..Manners::default() };
    let a = Replica::with(&store, quick, hangs, |args| args.giving_up_by(move || told.send(()).unwrap())).await;
    a.until_it_leads().await;
    store.edit(|lease| lease.as_mut().unwrap().spec.as_mut().unwrap().holder_identity = Some("thief".into()));
    let begun = Instant::now();
    tokio::task::block_in_place(|| heard.recv_timeout(Duration::from_secs(20))).expect("it gives up");
    let took = begun.elapsed();
    assert!((millis(1500)..millis(4000)).contains(&took), "{took:?}");
    assert!(!a.leads());
    assert_eq!(a.system.left_of(BRANCH_ID), [BRANCH_ID.into()], "the task is all that is left");
    let_go.store(true, Ordering::Relaxed);
    a.until_it_leads().await;
    assert_eq!(a.diary(), ["started", "stopped", "started"]);
}
