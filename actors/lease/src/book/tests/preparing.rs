//! New selectors are looked at in bites (issue 10, 12; LS-12).

use egress_protocol::lease::{Caller, GrantRequest, ProxyAvailability};

use super::world::*;
use crate::book::preparing::BITE_OF_A_MATCH;
use crate::book::{Entropy, Prepared};

const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn rich(name: &str) -> ProxyAvailability {
    with_attributes(proxy(name, 9), &KEYS.map(|key| (key, "x")))
}

/// Names every rich proxy, at the highest price.
fn heavy(n: usize) -> GrantRequest {
    let others: Vec<String> = (0..99).map(|value| format!("{value:02}-{n}")).chain(["x".to_owned()]).collect();
    let values: Vec<&str> = others.iter().map(String::as_str).collect();
    selecting(&KEYS.map(|key| (key, values.as_slice())))
}

#[test]
fn a_heavy_selector_takes_many_turns_of_bounded_work_and_then_its_order_is_kept() {
    let mut world = World::of(&(0..600).map(|n| rich(&format!("p{n:03}"))).collect::<Vec<_>>());
    let (caller, now) = (world.caller.clone(), world.now);
    let Prepared::Waits(work) = world.book.prepare(&heavy(0), &caller, now) else { panic!("5,400 comparisons are not done at once") };
    assert_eq!(world.book.prepare(&heavy(0), &caller, now), Prepared::Waits(work), "who wants the same waits for the same");
    let (mut turns, mut compared) = (1, 0);
    loop {
        let worked = world.book.work(now);
        assert!(worked.compared <= BITE_OF_A_MATCH);
        compared += worked.compared;
        if worked.finished.is_some() {
            assert_eq!(worked.finished, Some(work));
            break;
        }
        turns += 1;
    }
    assert_eq!((turns, compared), (3, 600 * 9));
    assert_eq!((world.book.prepare(&heavy(0), &caller, now), world.book.indexes(), world.book.next_work()), (Prepared::Ready, 1, None));
    world.book.check().unwrap();
    assert_eq!(world.names(&heavy(0), 2), ["p000", "p001"]);
    assert_eq!(world.book.explain_prepared(&heavy(0), &caller, now), world.book.explain(&heavy(0), &caller));
}

#[test]
fn what_comes_goes_or_changes_between_two_bites_is_seen() {
    let mut world = World::of(&(0..600).map(|n| rich(&format!("p{n:03}"))).collect::<Vec<_>>());
    let (caller, now) = (world.caller.clone(), world.now);
    assert!(matches!(world.book.prepare(&heavy(0), &caller, now), Prepared::Waits(_)));
    world.book.work(now);
    for name in ["p000", "p300", "p599"] {
        world.withdraw(name);
    }
    for name in ["p001", "p301", "p598"] {
        world.publish(proxy(name, 9));
    }
    world.publish(rich("new"));
    world.publish(rich("p300"));
    while world.book.work(now).finished.is_none() {}
    world.book.check().unwrap();
    assert_eq!(world.book.explain_prepared(&heavy(0), &caller, now).matched, 600 - 3 - 3 + 2);
}

#[test]
fn each_new_selector_gets_its_turn_and_there_are_so_many_at_most() {
    let mut world = World::of(&(0..300).map(|n| rich(&format!("p{n:03}"))).collect::<Vec<_>>());
    let (caller, now) = (world.caller.clone(), world.now);
    for n in 0..256 {
        assert!(matches!(world.book.prepare(&heavy(n), &caller, now), Prepared::Waits(_)));
    }
    assert_eq!(world.book.prepare(&heavy(256), &caller, now), Prepared::Busy);
    let first = world.book.next_work();
    world.book.work(now);
    assert_ne!(world.book.next_work(), first, "one bite each");
    world.book.abandon_work();
    assert!(matches!(world.book.prepare(&heavy(256), &caller, now), Prepared::Waits(_)));
}

#[test]
fn ever_new_selectors_do_not_drive_out_the_order_of_one_that_is_used_again() {
    let mut world = World::of(&(0..50).map(|n| rich(&format!("p{n:03}"))).collect::<Vec<_>>());
    let ask = |world: &mut World, request: &GrantRequest| {
        world.ids += 1;
        let caller = Caller::admin("t");
        // It may be full: its order is kept all the same.
        let _answer = world.book.grant(request, &caller, Entropy { id: world.ids.to_be_bytes(), spread: 0 }, world.now);
        world.book.take_effects();
    };
    let usual = selecting(&[("a", &["x"])]);
    ask(&mut world, &usual);
    world.now = world.now + std::time::Duration::from_secs(1);
    ask(&mut world, &usual);
    for n in 0..600 {
        ask(&mut world, &heavy(n));
    }
    assert_eq!(world.book.indexes(), 512);
    let (caller, now) = (world.caller.clone(), world.now);
    assert!(world.book.kept_order(&usual, &caller, now).is_some());
}
