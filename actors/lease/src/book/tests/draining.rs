//! Draining: holders are told, waited for, and revoked in the end (LS-16; issue 10, 27). Leases whose time ran out while
//! nobody could renew them go on for a moment (LS-10).

use std::time::Duration;

use egress_protocol::Uid;
use egress_protocol::lease::{LeaseState, ProblemCode, ProxyAvailability, ProxyFilter, ProxyWalk, ReportResult};
use egress_protocol::resource::{Mode, Phase};

use super::world::*;

const TIMEOUT: Duration = Duration::from_secs(300);

/// Being deleted, and waiting for its leases.
fn draining(world: &World, name: &str, places: u32) -> ProxyAvailability {
    let drain_by = Some(world.now + TIMEOUT);
    ProxyAvailability { phase: Phase::Deleting, healthy: false, draining: true, drain_by, ..proxy(name, places) }
}

#[test]
fn holders_of_a_draining_proxy_are_told_and_its_actor_hears_of_the_last() {
    let mut world = World::of(&[proxy("a", 2)]);
    let leases = [world.grant(&lasting(600)), world.grant(&lasting(600))].map(|lease| lease.record.id);
    let leaving = draining(&world, "a", 2);
    let by = leaving.drain_by;
    world.publish(leaving.clone());
    let caller = world.caller.clone();
    let renewed = world.book.renew(leases[0], None, &caller, world.now).unwrap().to_lease();
    let read = world.book.get(leases[1], &caller, world.now).unwrap().to_lease();
    for lease in [renewed, read] {
        assert_eq!((lease.state, lease.draining, lease.drain_by), (LeaseState::Active, true, by));
    }
    assert_eq!(world.book.proxy(&key("a"), &caller).unwrap().drain_by, by);
    assert_eq!(world.refused(&any()).code, ProblemCode::NoneHealthy);
    world.release(leases[0]);
    assert!(world.drained.is_empty(), "one runs");
    world.release(leases[1]);
    assert_eq!(world.drained, [("default/a".to_owned(), by.unwrap())]);
    world.publish(leaving);
    assert_eq!(world.drained.len(), 2, "an actor that asks again hears it again");
    let ended = world.book.get(leases[1], &caller, world.now).unwrap().to_lease();
    assert!(!ended.draining && ended.drain_by.is_none());
}

#[test]
fn what_still_runs_then_is_revoked_in_bites_with_the_reason() {
    for (phase, reason) in [(Phase::Deleting, "deleted"), (Phase::Ready, "replaced")] {
        let mut world = World::of(&[proxy("a", 100)]);
        let ids: Vec<_> = (0..100).map(|_| world.grant(&lasting(3600)).record.id).collect();
        let leaving = ProxyAvailability { phase, ..draining(&world, "a", 100) };
        world.publish(leaving.clone());
        world.pass(299.9);
        assert_eq!(world.book.active_leases(), 100);
        world.now = world.now + Duration::from_millis(100);
        let mut bites = 1;
        while world.book.advance(world.now) {
            bites += 1;
        }
        assert!(bites > 5, "{bites} bites for a hundred leases");
        world.pass(0.0);
        assert_eq!(world.drained, [("default/a".to_owned(), leaving.drain_by.unwrap())]);
        let caller = world.caller.clone();
        let ended = world.book.get(ids[7], &caller, world.now).unwrap().to_lease();
        assert_eq!((ended.state, ended.reason.as_deref()), (LeaseState::Revoked, Some(reason)));
    }
}

/// The actor and the book look at their clocks at different moments.
#[test]
fn a_proxy_that_goes_at_drain_by_leaves_no_lease_behind() {
    let mut world = World::of(&[proxy("a", 50)]);
    let ids: Vec<_> = (0..50).map(|_| world.grant(&lasting(3600)).record.id).collect();
    let leaving = ProxyAvailability { phase: Phase::Provisioning, ..draining(&world, "a", 50) };
    world.publish(leaving.clone());
    world.now = world.now + TIMEOUT;
    world.publish(ProxyAvailability { drain_by: None, ..leaving });
    world.pass(0.0);
    assert_eq!(world.book.active_leases(), 0);
    let caller = world.caller.clone();
    assert_eq!(world.book.get(ids[0], &caller, world.now).unwrap().to_lease().reason.as_deref(), Some("replaced"));
}

#[test]
fn of_two_times_the_earlier_counts_and_a_drain_that_is_taken_back_leaves_nothing() {
    let mut world = World::of(&[proxy("a", 2)]);
    let lease = world.grant(&lasting(3600)).record.id;
    let first = draining(&world, "a", 2);
    world.publish(first.clone());
    world.pass(100.0);
    // Its actor crashed, and waits anew.
    let second = draining(&world, "a", 2);
    world.publish(second.clone());
    assert_eq!(world.book.get(lease, &world.caller.clone(), world.now).unwrap().drain_by, first.drain_by);
    world.pass(200.0);
    assert_eq!(world.drained, [("default/a".to_owned(), second.drain_by.unwrap())], "what it asked for last");
    let mut world = World::of(&[proxy("a", 2)]);
    let lease = world.grant(&lasting(3600)).record.id;
    world.publish(draining(&world, "a", 2));
    world.publish(proxy("a", 2));
    world.pass(1000.0);
    assert!(world.book.get(lease, &world.caller.clone(), world.now).is_ok_and(|view| view.ending.is_none() && view.drain_by.is_none()));
    world.grant(&any());
}

#[test]
fn an_external_object_goes_at_once_and_its_leases_end_at_drain_by() {
    let external = |name: &str| ProxyAvailability { mode: Mode::External, provider: None, ..proxy(name, 9) };
    let mut world = World::of(&[external("a"), external("b")]);
    let leases = [world.grant(&lasting(3600)), world.grant(&lasting(3600)), world.grant(&lasting(3600))];
    let of_a: Vec<_> = leases.iter().filter(|lease| World::name(lease) == "a").map(|lease| lease.record.id).collect();
    assert_eq!(of_a.len(), 2);
    world.withdraw("a");
    let (by, caller) = (world.now + TIMEOUT, world.caller.clone());
    let view = world.book.get(of_a[0], &caller, world.now).unwrap();
    assert_eq!((view.state(), view.drain_by, view.proxy_unhealthy), (LeaseState::Active, Some(by), true));
    assert!(world.book.proxy(&key("a"), &caller).is_none());
    let mut walk = ProxyWalk::new(ProxyFilter::default(), None, 10, caller.clone());
    assert_eq!(world.book.walk_proxies(&mut walk).unwrap().items.len(), 1, "it is not listed");
    assert_eq!(world.names(&any(), 3), ["b", "b", "b"], "nor granted");
    // A last word of its actor, and the same name again.
    world.publish(external("a"));
    world.withdraw("a");
    world.publish(ProxyAvailability { uid: Uid::new("uid-a2"), ..external("a") });
    assert_eq!(world.names(&any(), 1), ["a"]);
    assert!(world.report(of_a[0], &saying(ReportResult::Blocked)).answer.counted);
    world.release(of_a[0]);
    world.pass(299.0);
    assert!(world.book.get(of_a[1], &caller, world.now).is_ok_and(|view| view.ending.is_none()));
    world.pass(1.0);
    let ended = world.book.get(of_a[1], &caller, world.now).unwrap().to_lease();
    assert_eq!((ended.state, ended.reason.as_deref()), (LeaseState::Revoked, Some("deleted")));
    assert_eq!(world.book.proxies(), 2, "the old one went with its last lease");
}

#[test]
fn a_lease_whose_time_ran_out_while_nobody_could_renew_it_goes_on_for_the_grace_ls_10() {
    let mut world = World::of(&[proxy("a", 9)]);
    let (short, long) = (world.grant(&lasting(10)).record.id, world.grant(&lasting(600)).record.id);
    let until = world.now + Duration::from_secs(600);
    // The broker is away meanwhile.
    world.now = world.now + Duration::from_secs(20);
    world.crash();
    world.publish(proxy("a", 9));
    world.pass(29.0);
    let caller = world.caller.clone();
    let view = world.book.get(short, &caller, world.now).unwrap();
    assert_eq!((view.state(), view.expires_in_seconds), (LeaseState::Active, 1));
    assert_eq!(world.book.get(long, &caller, world.now).unwrap().expires_at, until, "the others keep theirs");
    let entry = world.kept.snapshot().leases.into_iter().find(|lease| lease.record.id == short).unwrap();
    assert_eq!(entry.expires_at, view.expires_at, "the journal knows");
    world.pass(1.0);
    assert_eq!(world.book.get(short, &caller, world.now).unwrap().state(), LeaseState::Expired);
}
