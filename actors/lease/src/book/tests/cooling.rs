//! Reports, cooldowns, distrust, suspect targets (LS-7).

use std::time::Duration;

use egress_protocol::lease::{Caller, LeaseError, ProxyAvailability, ReportRequest, ReportResult};
use egress_protocol::resource::Mode;

use super::world::*;

fn at_target(result: ReportResult, target: &str) -> ReportRequest {
    ReportRequest { target: Some(target.into()), ..saying(result) }
}

#[test]
fn a_blocked_proxy_cools_for_that_target_only() {
    let mut world = World::of(&[proxy("a", 9)]);
    let lease = world.grant(&for_target("shop.example"));
    let answer = world.report(lease.record.id, &saying(ReportResult::Blocked)).answer;
    let until = world.now + Duration::from_secs(600);
    assert!(answer.counted);
    assert_eq!(answer.cooldown.map(|cooldown| (cooldown.target, cooldown.until)), Some((Some("shop.example".into()), until)));
    let refusal = world.refused(&for_target("shop.example"));
    assert_eq!((refusal.cooling_down, refusal.retry_after_seconds), (1, Some(600)));
    world.grant(&for_target("other.example"));
    world.grant(&any());
    world.pass(600.0);
    world.grant(&for_target("shop.example"));
}

#[test]
fn without_a_target_the_cooldown_is_general() {
    let mut world = World::of(&[proxy("a", 9)]);
    let lease = world.grant(&any());
    world.report(lease.record.id, &saying(ReportResult::Captcha));
    assert_eq!(world.refused(&for_target("shop.example")).cooling_down, 1);
    let item = world.book.proxy(&key("a"), &world.caller).unwrap();
    assert_eq!(
        (
            item.cooling_down.as_ref().unwrap().len(),
            item.cooling_down.as_ref().unwrap()[0].reason.as_str(),
            &item.cooling_down.as_ref().unwrap()[0].target
        ),
        (1, "captcha", &None)
    );
    world.pass(600.0);
    world.grant(&for_target("shop.example"));
}

#[test]
fn a_lease_granted_after_the_cooldown_doubles_it_and_a_success_resets_it() {
    let mut world = World::of(&[proxy("a", 99)]);
    let first = world.grant(&for_target("t"));
    let also = world.grant(&for_target("t"));
    world.report(first.record.id, &saying(ReportResult::Blocked));
    world.pass(1.0);
    world.report(also.record.id, &saying(ReportResult::Blocked));
    world.pass(600.0);
    let second = world.grant(&for_target("t"));
    let until = world.report(second.record.id, &saying(ReportResult::Blocked)).answer.cooldown.unwrap().until;
    assert_eq!(until, world.now + Duration::from_secs(1200));
    world.pass(1200.0);
    let third = world.grant(&for_target("t"));
    world.report(third.record.id, &saying(ReportResult::Success));
    let until = world.report(third.record.id, &saying(ReportResult::Blocked)).answer.cooldown.unwrap().until;
    assert_eq!(until, world.now + Duration::from_secs(600));
}

#[test]
fn a_late_report_still_counts_for_ten_minutes_and_an_unknown_lease_is_404() {
    let mut world = World::of(&[proxy("a", 1)]);
    let lease = world.grant(&for_target("t"));
    world.release(lease.record.id);
    world.pass(599.0);
    assert!(world.report(lease.record.id, &saying(ReportResult::Blocked)).answer.counted);
    world.pass(1.0);
    let caller = world.caller.clone();
    let error = world.book.report(lease.record.id, &saying(ReportResult::Blocked), &caller, world.now).unwrap_err();
    assert_eq!(error, LeaseError::UnknownLease);
}

#[test]
fn a_report_about_a_proxy_that_is_gone_counts_for_nothing() {
    let mut world = World::of(&[proxy("a", 1)]);
    let lease = world.grant(&for_target("t"));
    world.withdraw("a");
    let answer = world.report(lease.record.id, &saying(ReportResult::Blocked)).answer;
    assert_eq!((answer.counted, answer.reason.as_deref()), (false, Some("proxyGone")));
}

#[test]
fn cooldowns_belong_to_the_address_and_a_changed_one_ends_the_object_s_own() {
    let at = |ip: &str| ProxyAvailability { egress_ip: Some(ip.into()), ..proxy("a", 9) };
    let mut world = World::of(&[at("198.51.100.1")]);
    let lease = world.grant(&for_target("t"));
    world.report(lease.record.id, &saying(ReportResult::Blocked));
    world.publish(ProxyAvailability { egress_ip: None, ..proxy("a", 9) });
    assert_eq!(world.refused(&for_target("t")).cooling_down, 1, "an unknown address is not another one");
    world.publish(at("198.51.100.2"));
    world.grant(&for_target("t"));
    // Whoever holds the old address within a day inherits what it did.
    world.publish(ProxyAvailability { egress_ip: Some("198.51.100.1".into()), ..proxy("b", 9) });
    let names = world.names(&for_target("t"), 3);
    assert_eq!(names, ["a", "a", "a"]);
    world.publish(at("198.51.100.1"));
    assert_eq!(world.refused(&for_target("t")).cooling_down, 2);
}

#[test]
fn one_address_of_two_proxies_cools_both() {
    let mut world = World::of(&[
        ProxyAvailability { egress_ip: Some("198.51.100.1".into()), ..proxy("a", 9) },
        ProxyAvailability { egress_ip: Some("198.51.100.1".into()), ..proxy("b", 9) },
    ]);
    let lease = world.grant(&for_target("t"));
    world.report(lease.record.id, &saying(ReportResult::Blocked));
    assert_eq!(world.refused(&for_target("t")).cooling_down, 2);
}

#[test]
fn a_changed_public_ip_ends_cooldowns_where_no_egress_is_known_and_a_private_one_does_not() {
    let at = |ip: &str| ProxyAvailability { ip: Some(ip.into()), ..proxy("a", 9) };
    for (before, after, cools) in [("8.8.8.8", "9.9.9.9", 0), ("10.0.0.1", "10.0.0.2", 1), ("192.168.0.1", "8.8.8.8", 1)] {
        let mut world = World::of(&[at(before)]);
        let lease = world.grant(&for_target("t"));
        world.report(lease.record.id, &saying(ReportResult::Blocked));
        world.publish(at(after));
        let found = world.book.proxy(&key("a"), &world.caller).unwrap().cooling_down.unwrap().len();
        assert_eq!(found, cools, "{before} to {after}");
    }
}

#[test]
fn an_address_that_nobody_held_for_a_day_is_forgotten() {
    let at = |name: &str| ProxyAvailability { egress_ip: Some("198.51.100.1".into()), ..proxy(name, 9) };
    let mut world = World::of(&[at("a")]);
    let lease = world.grant(&for_target("t"));
    world.report(lease.record.id, &ReportRequest { cooldown: Some(Duration::from_secs(24 * 3600)), ..saying(ReportResult::Blocked) });
    world.withdraw("a");
    world.pass(3600.0);
    world.publish(at("b"));
    assert_eq!(world.refused(&for_target("t")).cooling_down, 1);
    world.withdraw("b");
    world.pass(24.0 * 3600.0);
    world.pass(61.0);
    assert_eq!(world.kept.cooldowns(), 0, "the journal forgets it too");
    world.publish(at("c"));
    world.grant(&for_target("t"));
}

#[test]
fn three_failing_reports_of_distinct_leases_put_a_proxy_last_and_probe_it_m4() {
    let mut world = World::of(&[proxy("a", 9), proxy("b", 9)]);
    let leases: Vec<_> = std::iter::repeat_with(|| world.grant(&for_target("b.example"))).take(8).collect();
    let of_a: Vec<_> = leases.iter().filter(|lease| World::name(lease) == "a").collect();
    for _ in 0..3 {
        world.report(of_a[0].record.id, &saying(ReportResult::Error));
    }
    assert!(world.probes.is_empty(), "one lease is one voice");
    world.report(of_a[1].record.id, &saying(ReportResult::Timeout));
    world.report(of_a[2].record.id, &saying(ReportResult::Error));
    assert_eq!(world.probes, ["default/a"]);
    for lease in leases {
        world.release(lease.record.id);
    }
    assert_eq!(world.names(&for_target("a.example"), 3), ["b", "b", "b"], "last, for every target");
    assert!(world.book.proxy(&key("a"), &world.caller).unwrap().cooling_down.unwrap().is_empty(), "nothing cools");
    assert_eq!(world.names(&any(), 7)[6], "a", "last is not never: still leasable");
    world.book.probe_passed(&key("a"), &proxy("a", 9).uid);
    assert_eq!(world.names(&any(), 1), ["a"], "the pass lifts it");
}

#[test]
fn anything_that_came_through_breaks_the_row_of_failures() {
    let mut world = World::of(&[proxy("a", 9)]);
    let leases: Vec<_> = (0..4).map(|_| world.grant(&any())).collect();
    for (lease, result) in leases.iter().zip([ReportResult::Error, ReportResult::Error, ReportResult::Success, ReportResult::Error]) {
        world.report(lease.record.id, &saying(result));
    }
    assert!(world.probes.is_empty());
}

#[test]
fn a_proxy_that_turns_healthy_is_trusted_again() {
    let mut world = World::of(&[proxy("a", 9), proxy("b", 9)]);
    let leases: Vec<_> = (0..6).map(|_| world.grant(&any())).collect();
    for lease in leases.iter().filter(|lease| World::name(lease) == "a") {
        world.report(lease.record.id, &saying(ReportResult::Error));
    }
    for lease in &leases {
        world.release(lease.record.id);
    }
    assert_eq!(world.names(&any(), 1), ["b"]);
    world.publish(ProxyAvailability { healthy: false, ..proxy("a", 9) });
    world.publish(proxy("a", 9));
    assert_eq!(world.names(&any(), 1), ["a"]);
}

#[test]
fn for_a_suspect_target_nothing_cools_and_nothing_is_probed() {
    let mut world = World::of(&(0..6).map(|n| proxy(&format!("p{n}"), 9)).collect::<Vec<_>>());
    let leases: Vec<_> = (0..18).map(|_| world.grant(&for_target("t"))).collect();
    assert!(!leases[17].target_suspect);
    for lease in &leases[..6] {
        world.report(lease.record.id, &saying(ReportResult::Timeout));
    }
    assert_eq!(world.book.suspect_targets(), 1);
    for lease in &leases[6..] {
        world.report(lease.record.id, &saying(ReportResult::Error));
    }
    assert!(world.probes.is_empty());
    assert!(world.grant(&for_target("t")).target_suspect);
    let answer = world.report(leases[0].record.id, &saying(ReportResult::Blocked)).answer;
    assert_eq!((answer.counted, answer.reason.as_deref(), answer.cooldown), (false, Some("targetSuspect"), None));
    assert!(world.report(leases[0].record.id, &at_target(ReportResult::Blocked, "other")).answer.cooldown.is_some());
    world.pass(121.0);
    assert_eq!(world.book.suspect_targets(), 0);
}

#[test]
fn cooling_proxies_are_skipped_by_index_ls_12() {
    let mut world = World::of(&(0..200).map(|n| proxy(&format!("p{n:03}"), 9)).collect::<Vec<_>>());
    let leases: Vec<_> = (0..180).map(|_| world.grant(&for_target("t"))).collect();
    for lease in &leases {
        world.report(lease.record.id, &saying(ReportResult::Blocked));
        world.release(lease.record.id);
    }
    let names = world.names(&for_target("t"), 21);
    assert_eq!((names[0].as_str(), names[19].as_str(), names[20].as_str()), ("p180", "p199", "p180"));
    assert_eq!(world.book.indexes(), 2, "one without what is blocked for the target");
    assert_eq!(world.names(&any(), 1), ["p000"]);
    world.pass(600.0);
    assert_eq!(world.names(&for_target("t"), 1), ["p001"], "what cooled is back in the index");
}

#[test]
fn cooldowns_and_cordons_survive_a_crash_of_the_broker_ls_9() {
    let mut world = World::of(&[ProxyAvailability { egress_ip: Some("198.51.100.1".into()), ..proxy("a", 9) }]);
    let lease = world.grant(&for_target("t"));
    world.report(lease.record.id, &saying(ReportResult::Blocked));
    let before = world.book.proxy(&key("a"), &world.caller);
    world.crash();
    world.publish(ProxyAvailability { egress_ip: Some("198.51.100.1".into()), ..proxy("a", 9) });
    assert_eq!(world.book.proxy(&key("a"), &world.caller), before);
    assert_eq!(world.refused(&for_target("t")).cooling_down, 1);
    world.pass(600.0);
    world.grant(&for_target("t"));
}

/// Issue 10, 22: the front address of an External endpoint is not its egress.
#[test]
fn three_accounts_on_one_gateway_cool_alone_until_their_ways_out_are_known() {
    let account = |name: &str| ProxyAvailability { mode: Mode::External, ip: Some("8.8.8.8".into()), ..proxy(name, 9) };
    let mut world = World::of(&[account("a"), account("b"), account("c")]);
    let lease = world.grant(&for_target("t"));
    world.report(lease.record.id, &saying(ReportResult::Blocked));
    assert_eq!(World::name(&lease), "a");
    assert_eq!(world.names(&for_target("t"), 2), ["b", "c"]);
    for name in ["a", "b"] {
        world.publish(ProxyAvailability { egress_ip: Some("198.51.100.1".into()), ..account(name) });
    }
    assert_eq!(world.names(&for_target("t"), 2), ["c", "c"], "a measured address groups them");
}

/// Issue 10, 4: 513,000 reports took the process from 22 to 288 MiB.
#[test]
fn one_holder_fills_its_share_with_cooldowns_and_no_more() {
    let mut world = World::of(&[proxy("a", 9), ProxyAvailability { egress_ip: Some("198.51.100.1".into()), ..proxy("b", 9) }]);
    let leases = [world.grant(&lasting(24 * 3600)), world.grant(&lasting(24 * 3600))].map(|lease| lease.record.id);
    let caller = world.caller.clone();
    let mut most = (0, 0, 0, 0);
    for n in 0..500_000 {
        let id = leases[n % 2];
        let answer = world.book.report(id, &at_target(ReportResult::Blocked, &format!("t{n}")), &caller, world.now).unwrap().answer;
        assert_eq!((answer.counted, answer.reason.as_deref()), if n < 2000 { (true, None) } else { (false, Some("tooManyCooldowns")) });
        // Of a target that cools already it goes on counting: one deadline all the same.
        if n % 10 < 2 {
            let known = at_target(ReportResult::Captcha, &format!("t{}", n % 2));
            assert!(world.book.report(id, &known, &caller, world.now).unwrap().answer.counted);
        }
        world.now = world.now + Duration::from_millis(1);
        for entry in world.book.take_effects().entries {
            world.kept.fold(entry);
        }
        let counts = world.book.counts();
        most = (most.0.max(counts.cooldowns), most.1.max(counts.deadlines), most.2.max(counts.targets), most.3.max(world.kept.cooldowns()));
    }
    assert_eq!(most, (3000, 2000, 2000, 3000), "cooldowns, deadlines, targets, and what the journal keeps");
    world.book.check().unwrap();
    let other = Caller::named("other", None);
    let granted = world.try_grant_to(&lasting(60), &other).unwrap();
    let answer = world.book.report(granted.record.id, &at_target(ReportResult::Blocked, "new"), &other, world.now).unwrap().answer;
    assert!(answer.counted, "another token has a share of its own");
    world.pass(600.0);
    let answer = world.report(leases[0], &at_target(ReportResult::Blocked, "later")).answer;
    assert!(answer.counted, "what is over makes room");
}

#[test]
fn an_item_lists_a_hundred_cooldowns_and_says_how_many_there_are() {
    let mut world = World::of(&[proxy("a", 9)]);
    let lease = world.grant(&any()).record.id;
    for n in 0..100 {
        world.report(lease, &at_target(ReportResult::Blocked, &format!("t{n:03}")));
    }
    let item = world.book.proxy(&key("a"), &world.caller).unwrap();
    assert_eq!((item.cooling_down.unwrap().len(), item.cooling_down_count), (100, None), "all of them");
    world.report(lease, &at_target(ReportResult::Blocked, "u"));
    world.report(lease, &saying(ReportResult::Blocked));
    let item = world.book.proxy(&key("a"), &world.caller).unwrap();
    let shown = item.cooling_down.unwrap();
    assert_eq!((shown.len(), &shown[0].target, shown[1].target.as_deref(), item.cooling_down_count), (100, &None, Some("t000"), Some(102)));
}

#[test]
fn a_cooldown_is_lifted_by_hand_for_all_who_share_the_address() {
    let at = |name: &str| ProxyAvailability { egress_ip: Some("198.51.100.1".into()), ..proxy(name, 9) };
    let mut world = World::of(&[at("a"), at("b")]);
    let lease = world.grant(&for_target("t"));
    world.report(lease.record.id, &saying(ReportResult::Blocked));
    assert_eq!(world.refused(&for_target("t")).cooling_down, 2);
    let now = world.now;
    let t = "t".into();
    let mut lift = |caller: &Caller, name: &str| world.book.lift_cooldown(&key(name), Some(&t), caller, now);
    assert_eq!(lift(&Caller::anonymous(), "b"), Err(LeaseError::Unauthorized));
    assert_eq!(lift(&Caller::named("shop", None), "b"), Err(LeaseError::Forbidden));
    assert_eq!(lift(&Caller::admin("admin"), "nobody"), Err(LeaseError::UnknownProxy));
    assert_eq!(lift(&Caller::admin("admin"), "b"), Ok(true));
    assert_eq!(lift(&Caller::admin("admin"), "b"), Ok(false), "lifted too");
    // What the reporting proxy itself is remembered for stays with it.
    assert_eq!(world.names(&for_target("t"), 2), ["b", "b"]);
    assert_eq!(world.book.lift_cooldown(&key("a"), Some(&t), &Caller::admin("admin"), now), Ok(true));
    world.grant(&for_target("t"));
    world.crash();
    world.publish(at("a"));
    assert!(world.book.proxy(&key("a"), &world.caller).unwrap().cooling_down.unwrap().is_empty(), "LS-9: it stays lifted");
}

/// Issue 10, 21: the holder of a lease is told that the proxy's health is in doubt, and what it reports is evidence.
#[test]
fn a_suspect_check_url_shows_in_item_and_lease_and_reports_on_it_are_testimony_he_9() {
    let mut world = World::of(&[proxy("a", 9)]);
    let lease = world.grant(&any());
    assert!(!lease.check_url_suspect && !world.book.proxy(&key("a"), &world.caller).unwrap().check_url_suspect);
    world.report(lease.record.id, &saying(ReportResult::Error));
    assert!(world.testimony.is_empty(), "nothing is suspect");
    world.publish(ProxyAvailability { check_url_suspect: true, ..proxy("a", 9) });
    assert!(world.grant(&any()).check_url_suspect && world.book.proxy(&key("a"), &world.caller).unwrap().check_url_suspect);
    for result in [ReportResult::Error, ReportResult::Timeout, ReportResult::Blocked, ReportResult::Success] {
        world.report(lease.record.id, &saying(result));
    }
    assert_eq!(world.testimony, [true, true, false, false], "a block came through the proxy");
}
