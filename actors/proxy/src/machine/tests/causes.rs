//! What people are told of a proxy's health and of its removal (issue 10, 20, 21, 23, 28).

use std::sync::Arc;

use egress_protocol::judge::Suspicion;
use egress_protocol::prober::ProbeFailure;
use egress_protocol::provider::{ErrorClass, Op};
use egress_protocol::resource::conditions::{find, kind};
use egress_protocol::resource::{HealthCheck, Phase, ProxySpec};
use egress_protocol::source::EventReason;

use super::promises::{creating, has_event, op, provisioning, seconds};
use super::world::{World, fault, object, settings};
use crate::machine::Input;

/// What `Healthy` says in the stored object, and how many Events of a reason there were.
fn said(world: &World, reason: EventReason) -> (String, usize) {
    let condition = find(&world.object.status.conditions, kind::HEALTHY).expect("a condition");
    (condition.message.clone(), world.events.iter().filter(|event| event.0 == reason).count())
}

fn fails(world: &mut World, failure: ProbeFailure, message: &str) {
    world.pass(seconds(30));
    world.settle();
    world.probe_with(false, failure, message, failure != ProbeFailure::ConnectFailed);
    world.pass(seconds(2));
    world.settle();
}

#[test]
fn the_cause_of_being_unhealthy_is_the_latest_class_with_an_event_issue_10_item_20() {
    let mut world = World::ready();
    fails(&mut world, ProbeFailure::ConnectFailed, "connection refused");
    assert_eq!(said(&world, EventReason::Unhealthy), ("ConnectFailed: connection refused".to_owned(), 1));
    let since = find(&world.object.status.conditions, kind::HEALTHY).expect("a condition").last_transition_time.clone();
    fails(&mut world, ProbeFailure::UnexpectedStatus, "answered 503");
    assert_eq!(said(&world, EventReason::Unhealthy), ("UnexpectedStatus: answered 503".to_owned(), 2));
    assert_eq!(find(&world.object.status.conditions, kind::HEALTHY).expect("a condition").last_transition_time, since);
    let ready = find(&world.object.status.conditions, kind::READY).expect("a condition");
    assert_eq!(ready.message, "UnexpectedStatus: answered 503", "Ready says the same (OP-7)");
    world.crash(false, false);
    fails(&mut world, ProbeFailure::UnexpectedStatus, "answered 503");
    assert_eq!(said(&world, EventReason::Unhealthy).1, 2, "a restart knows what it said");
}

#[test]
fn causes_that_change_all_the_time_or_only_in_their_words_are_no_storm_of_writes_op_24_item_20() {
    let mut world = World::ready();
    fails(&mut world, ProbeFailure::UnexpectedStatus, "answered 503");
    let writes = world.writes;
    for code in ["502", "500", "429"] {
        fails(&mut world, ProbeFailure::UnexpectedStatus, &format!("answered {code} to it"));
        let item = world.availability.as_ref().and_then(|entry| entry.unready.clone()).expect("why");
        assert_eq!(&*item.message, format!("UnexpectedStatus: answered {code} to it"), "the API has the last words");
    }
    assert_eq!(world.writes, writes, "the same class");
    for _ in 0..50 {
        fails(&mut world, ProbeFailure::Timeout, "connecting");
        fails(&mut world, ProbeFailure::UnexpectedStatus, "answered 503");
    }
    let took = 50 * 64;
    assert!(world.writes - writes <= took / 60 + 1, "{} writes in {took} s", world.writes - writes);
    assert!(world.writes - writes >= 20, "but they go on");
}

#[test]
fn why_a_proxy_is_not_ready_is_in_what_the_api_lists_item_20() {
    let mut world = provisioning();
    let unready = world.availability.as_ref().and_then(|entry| entry.unready.clone()).expect("why");
    assert_eq!((&*unready.reason, &*unready.message), ("Provisioning", "Starting"), "what its provider says");
    world.settle();
    world.probe(false, false);
    let unready = world.availability.as_ref().and_then(|entry| entry.unready.clone()).expect("why");
    assert_eq!((&*unready.reason, &*unready.message), ("ProbeFailed", "ConnectFailed: connection refused"));
    world.probe(true, false);
    assert_eq!(world.availability.as_ref().and_then(|entry| entry.unready.clone()), None);
}

#[test]
fn a_withdrawn_verdict_is_not_told_of_after_the_suspicion_ended_item_20() {
    let withdrawn = |end: fn(&mut World, Arc<str>)| {
        let mut world = World::ready();
        let url: Arc<str> = world.object.spec.health_check.url.as_str().into();
        let since = world.now;
        fails(&mut world, ProbeFailure::UnexpectedStatus, "answered 503");
        world.input(Input::CheckUrl(Suspicion::Suspect { url: Arc::clone(&url), since, until: since + seconds(1800), speaks: false }));
        world.pass(seconds(2));
        world.settle();
        assert_eq!(said(&world, EventReason::Recovered), ("the check URL is suspect, its verdict is withdrawn".to_owned(), 1));
        assert!(world.availability.as_ref().is_some_and(|entry| entry.check_url_suspect), "the item shows the suspicion (item 21)");
        end(&mut world, url);
        world.pass(seconds(2));
        world.settle();
        assert_eq!(said(&world, EventReason::Recovered), (String::new(), 1));
        assert!(world.availability.as_ref().is_some_and(|entry| !entry.check_url_suspect));
        assert_eq!(world.phase(), Phase::Ready);
    };
    withdrawn(|world, url| world.input(Input::CheckUrl(Suspicion::Cleared { url })));
    // Its own pass ends it, should the judge have crashed meanwhile.
    withdrawn(|world, _| world.probe(true, false));
    // A new leader knows of no suspicion.
    withdrawn(|world, _| world.crash(false, false));
}

#[test]
fn a_pool_whose_check_url_is_suspect_for_too_long_is_unhealthy_but_not_replaced_item_21_he_9() {
    let mut first = object();
    first.spec =
        Arc::new(ProxySpec { health_check: HealthCheck { replace_after_seconds: 300, ..HealthCheck::default() }, ..(*first.spec).clone() });
    let mut world = World::new(first, settings());
    world.settle();
    world.probe(true, false);
    world.pass(seconds(2));
    world.settle();
    let url: Arc<str> = world.object.spec.health_check.url.as_str().into();
    let (since, until) = (world.now, world.now + seconds(1800));
    let suspect = |until| Input::CheckUrl(Suspicion::Suspect { url: Arc::clone(&url), since, until, speaks: false });
    world.input(suspect(until));
    fails(&mut world, ProbeFailure::Timeout, "after CONNECT");
    assert_eq!(world.phase(), Phase::Ready, "held");
    world.live(until.since(world.now));
    fails(&mut world, ProbeFailure::Timeout, "after CONNECT");
    assert_eq!(world.phase(), Phase::Unhealthy, "the hold is over");
    world.input(suspect(until));
    assert_eq!(world.phase(), Phase::Unhealthy, "told once more, nothing is restored");
    world.live(seconds(600));
    assert_eq!(world.member.wants, None, "a suspect URL replaces nobody");
    // Lease holders who fail end it sooner.
    world.probe(true, false);
    world.input(suspect(world.now + seconds(1800)));
    world.input(suspect(world.now));
    world.probe_with(false, ProbeFailure::Timeout, "after CONNECT", true);
    assert_eq!(world.phase(), Phase::Unhealthy);
}

#[test]
fn the_first_success_of_a_slow_instance_is_no_recovery_issue_10_item_28() {
    let mut world = World::new(object(), settings());
    world.settle();
    fails(&mut world, ProbeFailure::ConnectFailed, "connection refused");
    world.probe(true, false);
    assert!(!has_event(&world, EventReason::Recovered));
    assert!(world.events.contains(&(EventReason::Running, "traffic flows for the first time".to_owned())));
    fails(&mut world, ProbeFailure::ConnectFailed, "connection refused");
    world.crash(false, false);
    world.settle();
    world.probe(true, false);
    assert!(has_event(&world, EventReason::Recovered), "a second time it is one, also for a new leader");
}

#[test]
fn a_delete_without_an_id_looks_again_as_soon_as_any_other_item_23_op_10_pc_37() {
    let mut world = creating();
    world.object.deleting = true;
    world.deliver();
    world.fail(fault(ErrorClass::Transient), true);
    let (begin, mut asked) = (world.now, Vec::new());
    for _ in 0..5 {
        assert_eq!(op(&world), Some(Op::Delete), "without an id, by name (PC-40)");
        asked.push(world.now.since(begin).as_secs());
        world.answer();
        while op(&world).is_none() {
            match world.timer {
                _ if world.write.is_some() => world.written(),
                Some(at) => world.pass(at.since(world.now)),
                None => panic!("it waits for nothing"),
            }
        }
    }
    assert_eq!(asked, [0, 1, 11, 21, 31]);
    world.vm = None;
    world.answer();
    assert_eq!(world.finalizer, Some(false));
}
