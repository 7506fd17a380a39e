//! Which proxy, when none, and for how long (LS-2…6, LS-8, LS-12, LS-13, LS-22).

use std::time::Duration;

use egress_protocol::Uid;
use egress_protocol::lease::{
    Caller, GrantRequest, LeaseError, LeaseFilter, LeaseId, LeaseState, ProblemCode, ProxyAvailability, ProxyFilter, ProxyWalk, Selector,
};
use egress_protocol::resource::Phase;

use super::world::*;
use crate::book::{BookSettings, Entropy, LeaseWalk};

#[test]
fn ties_go_to_the_fewest_leases_relative_to_capacity_then_to_the_least_recently_granted_then_to_the_name_ls_3() {
    let mut world = World::of(&[proxy("b", 2), proxy("a", 4), proxy("c", 2)]);
    // All empty: by name. Then a has 1/4 and the others nothing, and so on.
    assert_eq!(world.names(&any(), 8), ["a", "b", "c", "a", "b", "c", "a", "a"]);
    assert_eq!(world.refused(&any()).at_capacity, 3);
}

#[test]
fn the_idle_proxy_is_chosen_over_the_busy_one_m16() {
    let mut world = World::of(&[proxy("a", 2), proxy("b", 2)]);
    let first = world.grant(&any());
    assert_eq!(World::name(&first), "a");
    assert_eq!(World::name(&world.grant(&any())), "b");
    world.release(first.record.id);
    assert_eq!(World::name(&world.grant(&any())), "a", "nothing runs on it");
    let mut world = World::of(&[proxy("a", 1), proxy("b", 1)]);
    let first = world.grant(&any());
    world.release(first.record.id);
    assert_eq!(World::name(&world.grant(&any())), "b", "least recently used");
}

#[test]
fn order_and_capacity_hold_with_an_index_as_without_ls_12() {
    let proxies: Vec<ProxyAvailability> = (0..100).map(|n| proxy(&format!("p{n:03}"), 1 + n % 3)).collect();
    let mut world = World::of(&proxies);
    let capacity: u32 = proxies.iter().map(|proxy| proxy.max_leases).sum();
    let granted = world.names(&any(), capacity as usize);
    assert_eq!(world.book.indexes(), 1);
    assert_eq!(granted[..3], ["p000", "p001", "p002"]);
    for proxy in &proxies {
        assert_eq!(granted.iter().filter(|name| **name == *proxy.key.name).count(), proxy.max_leases as usize);
    }
    assert_eq!(world.refused(&any()).at_capacity, 100);
}

#[test]
fn a_selector_must_hold_in_every_part_and_an_attribute_may_have_several_values_ls_2() {
    let mut world = World::of(&[
        with_attributes(proxy("a", 9), &[("geo", "de"), ("tier", "x")]),
        with_attributes(proxy("b", 9), &[("geo", "fr"), ("tier", "x")]),
        with_attributes(proxy("other/c", 9), &[("geo", "de"), ("tier", "y")]),
    ]);
    assert_eq!(world.names(&selecting(&[("geo", &["de"]), ("tier", &["x"])]), 2), ["a", "a"]);
    assert_eq!(world.names(&selecting(&[("geo", &["es", "fr"])]), 1), ["b"]);
    assert_eq!(world.refused(&selecting(&[("geo", &["es"])])).code, ProblemCode::NoMatch);
    let mut request = any();
    request.selector = Selector { namespace: Some("other".into()), ..Selector::default() };
    assert_eq!(world.names(&request, 1), ["c"]);
    request.selector = Selector { name: Some("b".into()), provider: Some("lab".into()), ..Selector::default() };
    assert_eq!(world.names(&request, 1), ["b"]);
    request.selector = Selector { exclude: vec![key("a"), key("b")], ..Selector::default() };
    assert_eq!(world.names(&request, 2), ["c", "c"]);
    request.selector.exclude.push(key("other/c"));
    assert_eq!(world.refused(&request).code, ProblemCode::NoMatch, "what is not wanted does not match");
}

#[test]
fn nothing_to_lease_is_a_clean_refusal_m3() {
    let refusal = World::new().refused(&any());
    assert_eq!((refusal.code, refusal.matched, refusal.retry_after_seconds), (ProblemCode::NoMatch, 0, None));
}

#[test]
fn each_proxy_counts_once_under_the_first_rule_that_applies_ls_4() {
    let broken = |name: &str| ProxyAvailability { healthy: false, phase: Phase::Unhealthy, ..proxy(name, 1) };
    let mut world = World::of(&[
        proxy("full", 1),
        proxy("none", 0),
        broken("sick"),
        ProxyAvailability { draining: true, ..broken("leaving") },
        ProxyAvailability { max_leases: 0, ..broken("both") },
        proxy("cold", 1),
    ]);
    let leases = [world.grant(&any()), world.grant(&any())];
    let cold = leases.iter().find(|lease| World::name(lease) == "cold").unwrap();
    world.report(cold.record.id, &saying(egress_protocol::lease::ReportResult::Blocked));
    let refusal = world.refused(&any());
    assert_eq!(refusal.code, ProblemCode::NoCapacity);
    assert_eq!((refusal.matched, refusal.drained, refusal.unhealthy, refusal.cooling_down, refusal.at_capacity), (6, 3, 1, 1, 1));
    assert_eq!(refusal.retry_after_seconds, Some(300), "the soonest is the end of the first lease");
}

#[test]
fn unhealthy_and_drained_proxies_alone_are_none_healthy_ls_4() {
    let mut world = World::of(&[proxy("a", 0), ProxyAvailability { healthy: false, ..proxy("b", 1) }]);
    let refusal = world.refused(&any());
    assert_eq!((refusal.code, refusal.retry_after_seconds), (ProblemCode::NoneHealthy, None));
}

#[test]
fn retry_after_is_spread_over_one_to_two_times_the_wait_ls_4() {
    let mut world = World::of(&[proxy("a", 1)]);
    world.grant(&lasting(100));
    let caller = world.caller.clone();
    for (spread, seconds) in [(0, 100), (u32::MAX / 2, 150), (u32::MAX, 200)] {
        let error = world.book.grant(&any(), &caller, Entropy { id: [9; 16], spread }, world.now).unwrap_err();
        assert_eq!(error.problem().retry_after_seconds, Some(seconds));
    }
}

#[test]
fn a_refusal_gives_the_same_numbers_for_a_tenth_of_a_second_but_never_hides_a_free_place_ls_12() {
    let mut world = World::of(&(0..40).map(|n| proxy(&format!("p{n:02}"), 1)).collect::<Vec<_>>());
    let leases: Vec<_> = (0..40).map(|_| world.grant(&any())).collect();
    assert_eq!(world.refused(&any()).at_capacity, 40);
    world.publish(ProxyAvailability { healthy: false, ..proxy("p00", 1) });
    world.pass(0.09);
    assert_eq!(world.refused(&any()).at_capacity, 40);
    world.pass(0.01);
    let refusal = world.refused(&any());
    assert_eq!((refusal.at_capacity, refusal.unhealthy), (39, 1));
    world.release(leases[5].record.id);
    assert_eq!(World::name(&world.grant(&any())), "p05");
}

#[test]
fn an_expired_lease_frees_its_place_within_a_second_ls_8() {
    let mut world = World::of(&[proxy("a", 1)]);
    let lease = world.grant(&lasting(10));
    world.pass(9.98);
    assert_eq!(world.refused(&any()).at_capacity, 1);
    world.pass(0.02);
    let caller = world.caller.clone();
    let ended = world.book.get(lease.record.id, &caller, world.now).unwrap();
    assert_eq!((ended.state(), ended.ending.map(|ending| ending.at)), (LeaseState::Expired, Some(lease.expires_at)));
    world.grant(&any());
}

#[test]
fn what_is_due_is_drained_before_a_refusal_ls_12() {
    let mut world = World::of(&[proxy("a", 500)]);
    for _ in 0..500 {
        world.grant(&lasting(1));
    }
    // Nobody ticks: the grant itself finds the place.
    world.now = world.now + Duration::from_secs(2);
    assert_eq!(World::name(&world.grant(&any())), "a");
}

#[test]
fn expiry_is_a_property_of_the_lease_m22() {
    let mut world = World::of(&[proxy("a", 1)]);
    world.grant(&lasting(10));
    // A new attribute, another provider, unhealthy: the lease ends all the same.
    world.publish(ProxyAvailability {
        provider: Some("new".into()),
        healthy: false,
        ..with_attributes(proxy("a", 1), &[("class", "new")])
    });
    world.pass(10.0);
    assert_eq!(world.book.active_leases(), 0);
}

#[test]
fn a_renewal_ends_ttl_from_now_and_takes_the_granted_one_by_default_ls_5() {
    let mut world = World::of(&[proxy("a", 1)]);
    let lease = world.grant(&lasting(60));
    world.pass(50.0);
    let caller = world.caller.clone();
    let renewed = world.book.renew(lease.record.id, None, &caller, world.now).unwrap();
    assert_eq!(
        (renewed.expires_at, renewed.expires_in_seconds, renewed.renew_after_seconds),
        (world.now + Duration::from_secs(60), 60, 20)
    );
    let renewed = world.book.renew(lease.record.id, Some(Duration::from_secs(600)), &caller, world.now).unwrap();
    assert_eq!((renewed.expires_in_seconds, renewed.renew_after_seconds), (600, 100), "at most a third of the drain timeout (LS-2)");
    world.pass(599.0);
    assert_eq!(world.book.active_leases(), 1);
    world.pass(1.0);
    assert_eq!(world.book.active_leases(), 0);
}

#[test]
fn a_lease_longer_than_the_limit_is_refused_with_its_field_ls_2() {
    let mut world = World::with(BookSettings { max_ttl: Duration::from_secs(3600), ..BookSettings::default() });
    world.publish(proxy("a", 1));
    let problem = world.try_grant(&lasting(3601)).unwrap_err().problem();
    assert_eq!(problem.detail, "ttl: must be at most 1h");
    let lease = world.grant(&lasting(3600));
    let caller = world.caller.clone();
    let error = world.book.renew(lease.record.id, Some(Duration::from_secs(3601)), &caller, world.now).unwrap_err();
    assert_eq!(error.code(), ProblemCode::InvalidRequest);
}

#[test]
fn using_an_ended_lease_is_410_with_the_times_and_it_is_forgotten_after_ten_minutes_ls_13() {
    let mut world = World::of(&[proxy("a", 1)]);
    let lease = world.grant(&any());
    let (id, caller) = (lease.record.id, world.caller.clone());
    world.pass(7.0);
    world.release(id);
    let error = world.book.renew(id, None, &caller, world.now).unwrap_err();
    let expected =
        LeaseError::Ended { reason: "released", granted_at: lease.record.granted_at, expires_at: lease.expires_at, ended_at: world.now };
    assert_eq!(error, expected);
    world.release(id);
    world.pass(599.0);
    assert_eq!(world.book.get(id, &caller, world.now).unwrap().state(), LeaseState::Released);
    world.pass(1.0);
    assert_eq!(world.book.get(id, &caller, world.now).unwrap_err(), LeaseError::UnknownLease);
    world.release(id);
}

/// Issue 10, 5: by bytes, for a long owner costs what three short ones do.
#[test]
fn ended_leases_are_remembered_in_a_bounded_number_of_bytes() {
    let owner: std::sync::Arc<str> = "\u{1f600}".repeat(253).into();
    for (owner, at_most) in [(None, 17), (Some(owner), 6)] {
        let mut world = World::with(BookSettings { remember_bytes: 10_000, ..BookSettings::default() });
        world.publish(proxy("a", 1));
        let request = GrantRequest { owner, ..any() };
        let ids: Vec<LeaseId> = (0..30)
            .map(|_| {
                let id = world.grant(&request).record.id;
                world.release(id);
                id
            })
            .collect();
        let caller = world.caller.clone();
        let known = ids.iter().filter(|id| world.book.get(**id, &caller, world.now).is_ok()).count();
        assert_eq!((known, world.kept.leases()), (at_most, at_most));
    }
}

#[test]
fn fences_grow_from_the_clock_s_microseconds_and_across_restarts_ls_2() {
    let mut world = World::of(&[proxy("a", 9)]);
    let first = world.grant(&any()).record.fence;
    assert_eq!(first, START as u64 * 1000 + 1);
    let second = world.grant(&any()).record.fence;
    world.crash();
    world.publish(proxy("a", 9));
    assert!(first < second && second < world.grant(&any()).record.fence);
}

#[test]
fn an_unhealthy_proxy_keeps_its_leases_marked_and_grants_no_new_ones_ls_8() {
    let mut world = World::of(&[proxy("a", 2)]);
    let lease = world.grant(&any());
    assert!(!lease.proxy_unhealthy);
    let caller = world.caller.clone();
    for off in [ProxyAvailability { healthy: false, ..proxy("a", 2) }, ProxyAvailability { draining: true, ..proxy("a", 2) }] {
        world.publish(off);
        assert_eq!(world.refused(&any()).code, ProblemCode::NoneHealthy);
        assert!(world.book.renew(lease.record.id, None, &caller, world.now).unwrap().proxy_unhealthy, "renewable all the same");
    }
    world.publish(proxy("a", 2));
    assert!(!world.book.get(lease.record.id, &caller, world.now).unwrap().proxy_unhealthy);
    world.grant(&any());
}

#[test]
fn leases_of_a_proxy_that_is_gone_are_revoked_as_deleted_m26() {
    let mut world = World::of(&[proxy("a", 3)]);
    let ids: Vec<LeaseId> = (0..3).map(|_| world.grant(&any()).record.id).collect();
    world.publish(ProxyAvailability { draining: true, ..proxy("a", 3) });
    assert_eq!(world.book.active_leases(), 3);
    world.withdraw("a");
    let caller = world.caller.clone();
    for id in ids {
        let view = world.book.get(id, &caller, world.now).unwrap();
        assert_eq!((view.state(), view.ending.unwrap().reason), (LeaseState::Revoked, "deleted"));
        assert!(view.proxy_unhealthy);
    }
    assert_eq!(world.refused(&any()).code, ProblemCode::NoMatch);
}

#[test]
fn another_object_of_the_same_name_inherits_no_lease() {
    let mut world = World::of(&[proxy("a", 1)]);
    let old = world.grant(&any());
    world.publish(ProxyAvailability { uid: Uid::new("another"), ..proxy("a", 1) });
    let caller = world.caller.clone();
    assert_eq!(world.book.get(old.record.id, &caller, world.now).unwrap().state(), LeaseState::Revoked);
    assert_eq!(world.grant(&any()).record.uid, Uid::new("another"));
    // The old object's withdrawal comes late: it is not the new one's.
    world.withdraw("a");
    assert_eq!(world.book.active_leases(), 1);
}

#[test]
fn a_smaller_capacity_revokes_nothing_and_grants_nothing_until_it_fits() {
    let mut world = World::of(&[proxy("a", 3)]);
    let ids: Vec<LeaseId> = (0..3).map(|_| world.grant(&any()).record.id).collect();
    world.publish(proxy("a", 1));
    assert_eq!(world.book.active_leases(), 3);
    for id in ids {
        assert_eq!(world.refused(&any()).at_capacity, 1);
        world.release(id);
    }
    world.grant(&any());
}

#[test]
fn without_a_token_credentials_are_withheld_and_their_proxies_never_granted_ls_22() {
    let mut world = World::of(&[ProxyAvailability { credentials: credentials(), ..proxy("a", 9) }]);
    let refusal = match world.try_grant_to(&any(), &Caller::anonymous()) {
        Err(LeaseError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    assert_eq!((refusal.code, refusal.drained), (ProblemCode::NoneHealthy, 1));
    let lease = world.grant(&any());
    assert!(lease.credentials.is_some());
    let caller = world.caller.clone();
    assert_eq!(world.book.get(lease.record.id, &caller, world.now).unwrap().credentials, None, "in the grant only");
    assert_eq!(world.book.renew(lease.record.id, None, &caller, world.now).unwrap().credentials, None);
}

#[test]
fn a_token_sees_only_its_own_leases_and_its_namespaces_proxies() {
    let mut world = World::of(&[proxy("a", 9), proxy("shop/b", 9)]);
    let shop = Caller::named("shop", Some(vec!["shop".into()].into()));
    let other = Caller::named("other", None);
    let lease = world.try_grant_to(&any(), &shop).unwrap();
    assert_eq!(World::name(&lease), "b");
    let id = lease.record.id;
    assert_eq!(world.book.get(id, &other, world.now).unwrap_err(), LeaseError::UnknownLease);
    assert_eq!(world.book.renew(id, None, &other, world.now).unwrap_err(), LeaseError::UnknownLease);
    assert!(!world.book.release(id, &other, world.now));
    assert!(world.book.get(id, &shop, world.now).is_ok_and(|view| view.ending.is_none()));
    assert!(world.book.get(id, &Caller::admin("admin"), world.now).is_ok());
    assert_eq!(world.book.proxy(&key("a"), &shop), None);
    assert!(world.book.proxy(&key("a"), &other).is_some());
}

#[test]
fn a_restarted_client_finds_its_leases_by_owner_m21() {
    let mut world = World::of(&[proxy("a", 50)]);
    for n in 0..30 {
        let mut request = any();
        request.owner = Some(if n % 3 == 0 { "crawler-7".into() } else { "crawler-8".into() });
        world.grant(&request);
    }
    let filter = LeaseFilter { owner: Some("crawler-7".into()), proxy: Some(key("a")) };
    let mut after = None;
    let mut seen = Vec::new();
    loop {
        let mut walk = LeaseWalk::new(filter.clone(), after, 4, world.caller.clone());
        let (page, next) = std::iter::repeat_with(|| world.book.walk_leases(&mut walk, world.now)).flatten().next().unwrap();
        seen.extend(page.iter().map(|view| view.record.id));
        after = page.last().map(|view| view.record.id);
        assert_eq!(next.is_some(), seen.len() < 10);
        if next.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 10);
    assert!(seen.is_sorted());
}

/// M1: probing stands still for ten minutes. The last that was known is listed and granted, with the age of the knowledge.
#[test]
fn when_probing_stalls_the_last_known_good_is_listed_and_its_age_shows_m1() {
    let mut world = World::new();
    let began = world.now;
    for n in 0..14 {
        let checked_at = Some(began + Duration::from_secs(n));
        world.publish(ProxyAvailability { checked_at, ..proxy(&format!("p{n:02}"), 1) });
    }
    world.pass(600.0);
    let filter = ProxyFilter { healthy: Some(true), ..ProxyFilter::default() };
    let mut walk = ProxyWalk::new(filter, None, 100, world.caller.clone());
    let page = std::iter::repeat_with(|| world.book.walk_proxies(&mut walk)).flatten().next().unwrap();
    let checked: Vec<_> = page.items.iter().map(|item| item.checked_at.unwrap()).collect();
    assert_eq!(checked, (0..14).map(|n| began + Duration::from_secs(n)).collect::<Vec<_>>(), "all of them, and since when");
    assert_eq!(world.now.since(world.book.stats().oldest_probe.unwrap()), Duration::from_secs(600), "the metric tells");
    assert_eq!(world.names(&any(), 14).len(), 14, "and every one is granted");
}

#[test]
fn a_crash_of_the_broker_loses_no_lease_and_no_place_ls_9() {
    let mut world = World::of(&[proxy("a", 2), proxy("b", 1)]);
    let held: Vec<_> = (0..3).map(|_| world.grant(&any())).collect();
    world.release(held[0].record.id);
    world.crash();
    let caller = world.caller.clone();
    let view = world.book.get(held[1].record.id, &caller, world.now).unwrap();
    assert!(view.ending.is_none() && view.proxy_unhealthy, "not published yet");
    assert_eq!(world.book.get(held[0].record.id, &caller, world.now).unwrap().state(), LeaseState::Released);
    assert_eq!(world.refused(&any()).matched, 0, "what nobody published is not leased");
    world.publish(proxy("a", 2));
    world.publish(proxy("b", 1));
    world.grant(&any());
    assert_eq!(world.refused(&any()).at_capacity, 2);
}

#[test]
fn leases_of_a_proxy_that_nobody_publishes_any_more_end_after_ten_minutes() {
    let mut world = World::of(&[proxy("a", 1)]);
    world.grant(&lasting(3600));
    world.crash();
    world.pass(599.0);
    assert_eq!(world.book.active_leases(), 1);
    world.pass(1.0);
    assert_eq!((world.book.active_leases(), world.book.proxies()), (0, 0));
}

#[test]
fn selectors_in_use_keep_their_index_for_ten_minutes_and_their_number_is_bounded_ls_12() {
    let proxies: Vec<ProxyAvailability> = (0..40).map(|n| with_attributes(proxy(&format!("p{n:02}"), 1000), &[("geo", "de")])).collect();
    let mut world = World::of(&proxies);
    world.grant(&any());
    world.grant(&selecting(&[("geo", &["de"])]));
    assert_eq!(world.book.indexes(), 2);
    world.pass(400.0);
    world.grant(&any());
    world.pass(201.0);
    assert_eq!(world.book.indexes(), 1);
    for n in 0..600 {
        let value = format!("v{n}");
        let request = selecting(&[("geo", &["de", &value])]);
        let caller = world.caller.clone();
        world.ids += 1;
        world.book.grant(&request, &caller, Entropy { id: world.ids.to_be_bytes(), spread: 0 }, world.now).unwrap();
    }
    assert!(world.book.indexes() <= 512);
    world.book.check().unwrap();
    world.grant(&any());
}

#[test]
fn a_name_that_is_not_there_is_no_reason_to_build_anything() {
    let mut world = World::of(&(0..40).map(|n| proxy(&format!("p{n:02}"), 1)).collect::<Vec<_>>());
    let mut request = any();
    request.selector.name = Some("nobody".into());
    assert_eq!(world.refused(&request).matched, 0);
    assert_eq!(world.book.indexes(), 0);
}
