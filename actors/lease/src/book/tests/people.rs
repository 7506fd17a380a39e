//! What people do and read: cordons, lists, explanations, numbers (LS-1, LS-16, LS-17, OB-1).

use std::time::Duration;

use egress_protocol::lease::{
    Caller, Cordon, CordonRequest, Cursor, ExcludedBy, LeaseError, ProblemCode, ProxyAvailability, ProxyFilter, ProxyWalk, ReportResult,
};
use egress_protocol::resource::Phase;

use super::world::*;
use crate::book::CordonTurn;

fn cordon(target: Option<&str>, until: Option<egress_protocol::Timestamp>) -> CordonRequest {
    CordonRequest { target: target.map(Into::into), until, reason: "by hand".into() }
}

#[test]
fn a_cordon_takes_a_proxy_out_until_its_time_or_until_it_is_lifted_ls_16() {
    let mut world = World::of(&[proxy("a", 9)]);
    let lease = world.grant(&any());
    let caller = world.caller.clone();
    let until = world.now + Duration::from_secs(60);
    let item = world.book.cordon(&key("a"), &cordon(None, Some(until)), &caller, world.now).unwrap();
    assert_eq!((item.cordons.as_ref().unwrap().len(), item.cordons.as_ref().unwrap()[0].until), (1, Some(until)));
    assert_eq!(world.refused(&any()).drained, 1);
    assert!(world.book.get(lease.record.id, &caller, world.now).is_ok_and(|view| view.ending.is_none()), "its leases stay");
    world.pass(60.0);
    world.grant(&any());
    world.book.cordon(&key("a"), &cordon(Some("t"), None), &caller, world.now).unwrap();
    assert_eq!(world.refused(&for_target("t")).drained, 1);
    world.grant(&any());
    world.crash();
    world.publish(proxy("a", 9));
    assert_eq!(world.refused(&for_target("t")).drained, 1, "LS-9: it survives");
    world.book.uncordon(&key("a"), Some(&"t".into()), &caller).unwrap();
    world.book.uncordon(&key("a"), Some(&"t".into()), &caller).unwrap();
    world.grant(&for_target("t"));
}

#[test]
fn a_replaced_cordon_ends_when_the_new_one_says() {
    let mut world = World::of(&[proxy("a", 9)]);
    let (caller, now) = (world.caller.clone(), world.now);
    world.book.cordon(&key("a"), &cordon(None, Some(now + Duration::from_secs(10))), &caller, now).unwrap();
    world.book.cordon(&key("a"), &cordon(None, Some(now + Duration::from_secs(20))), &caller, now).unwrap();
    world.pass(10.0);
    assert_eq!(world.refused(&any()).drained, 1);
    world.pass(10.0);
    world.grant(&any());
}

/// Issue 10, 26: a cordon ends at the time of day that was said; one without an end and leases are not touched.
#[test]
fn a_cordon_ends_at_its_time_of_day_when_the_clock_was_set() {
    let mut world = World::of(&[proxy("a", 9), proxy("b", 9)]);
    let (caller, now) = (world.caller.clone(), world.now);
    let lease = world.grant(&any());
    world.book.cordon(&key("a"), &cordon(None, Some(now + Duration::from_secs(3600))), &caller, now).unwrap();
    world.book.cordon(&key("a"), &cordon(Some("t"), Some(now + Duration::from_secs(60))), &caller, now).unwrap();
    world.book.cordon(&key("b"), &cordon(None, None), &caller, now).unwrap();
    // Half an hour forward: the hour ends in thirty minutes, the minute is over.
    world.book.clock_set(1_800_000, now);
    let cordons = world.book.proxy(&key("a"), &caller).unwrap().cordons.unwrap();
    assert_eq!(cordons.iter().map(|cordon| cordon.until).collect::<Vec<_>>(), [Some(now + Duration::from_secs(1800))]);
    assert_eq!(world.book.get(lease.record.id, &caller, now).unwrap().expires_at, lease.expires_at);
    world.pass(1799.0);
    assert_eq!(world.refused(&any()).drained, 2);
    // And back again: it ends so much later.
    let now = world.now;
    world.book.clock_set(-10_000, now);
    world.pass(10.0);
    assert_eq!(world.refused(&any()).drained, 2);
    world.pass(1.0);
    world.grant(&any());
}

#[test]
fn cordoning_needs_a_token_that_may_do_all_ls_22() {
    let mut world = World::of(&[proxy("a", 9)]);
    let now = world.now;
    let mut try_as = |caller: &Caller, name: &str| world.book.cordon(&key(name), &cordon(None, None), caller, now).map(|_| ());
    assert_eq!(try_as(&Caller::anonymous(), "a"), Err(LeaseError::Unauthorized));
    assert_eq!(try_as(&Caller::named("shop", None), "a"), Err(LeaseError::Forbidden));
    assert_eq!(try_as(&Caller::admin("admin"), "nobody"), Err(LeaseError::UnknownProxy));
    assert_eq!(try_as(&Caller::admin("admin"), "a"), Ok(()));
}

#[test]
fn an_explanation_names_the_rule_or_the_rank_of_each_ls_17() {
    let mut world = World::of(&[
        proxy("a-full", 1),
        proxy("b-best", 2),
        proxy("c-next", 2),
        proxy("d-none", 0),
        ProxyAvailability { healthy: false, phase: Phase::Unhealthy, ..proxy("e-sick", 1) },
        ProxyAvailability { draining: true, ..proxy("f-leaving", 1) },
        ProxyAvailability { credentials: credentials(), ..proxy("g-secret", 1) },
        proxy("h-cordoned", 1),
        proxy("i-cold", 1),
        proxy("j-unwanted", 1),
    ]);
    let caller = world.caller.clone();
    let mut named = |name: &str| {
        let mut request = for_target("t");
        request.selector.name = Some(name.into());
        world.grant(&request).record.id
    };
    let (_, _, cold) = (named("a-full"), named("c-next"), named("i-cold"));
    world.release(cold);
    world.report(cold, &saying(ReportResult::Blocked));
    world.book.cordon(&key("h-cordoned"), &cordon(None, None), &caller, world.now).unwrap();
    let mut request = for_target("t");
    request.selector.exclude = vec![key("j-unwanted")];
    let explained = world.book.explain(&request, &Caller::anonymous());
    let rows: Vec<_> = explained.candidates.iter().map(|c| (&*c.name, c.rank, c.excluded_by)).collect();
    assert_eq!(
        rows,
        [
            ("b-best", Some(1), None),
            ("c-next", Some(2), None),
            ("a-full", None, Some(ExcludedBy::AtCapacity)),
            ("d-none", None, Some(ExcludedBy::Drained)),
            ("e-sick", None, Some(ExcludedBy::Unhealthy)),
            ("f-leaving", None, Some(ExcludedBy::Draining)),
            ("g-secret", None, Some(ExcludedBy::CredentialsWithheld)),
            ("h-cordoned", None, Some(ExcludedBy::Cordoned)),
            ("i-cold", None, Some(ExcludedBy::CoolingDown)),
            ("j-unwanted", None, Some(ExcludedBy::Excluded)),
        ]
    );
    assert_eq!(explained.candidates[8].detail.as_deref(), Some("blocked for t"));
    assert_eq!(explained.candidates[8].until, Some(world.now + Duration::from_secs(600)));
    assert_eq!((explained.matched, explained.would_grant, explained.truncated), (9, true, false));
    assert_eq!(world.names(&for_target("t"), 1), ["b-best"], "and that is what a grant does");
}

#[test]
fn an_explanation_lists_a_hundred_at_most_ls_17() {
    let world = World::of(&(0..130).map(|n| proxy(&format!("p{n:03}"), 1)).collect::<Vec<_>>());
    let explained = world.book.explain(&any(), &world.caller);
    assert_eq!((explained.matched, explained.candidates.len(), explained.truncated), (130, 100, true));
    assert_eq!((&*explained.candidates[99].name, explained.candidates[99].rank), ("p099", Some(100)));
}

fn all_pages(world: &World, filter: &ProxyFilter, limit: usize, caller: &Caller) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let mut walk = ProxyWalk::new(filter.clone(), after, limit, caller.clone());
        let page = std::iter::repeat_with(|| world.book.walk_proxies(&mut walk)).flatten().next().unwrap();
        assert!(page.items.len() <= limit);
        names.extend(page.items.iter().map(|item| format!("{}/{}", item.namespace, item.name)));
        match page.next_cursor.as_deref().map(Cursor::decode) {
            Some(Some(Cursor::Proxy(key))) => after = Some(key),
            None => return names,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn proxies_are_listed_in_pages_by_namespace_and_name_ls_1() {
    let mut world = World::new();
    for n in 0..25 {
        let namespace = if n % 2 == 0 { "even" } else { "odd" };
        let mut one = with_attributes(proxy(&format!("{namespace}/p{n:02}"), 1), &[("n", if n < 5 { "low" } else { "high" })]);
        one.healthy = n % 5 != 0;
        world.publish(one);
    }
    let caller = world.caller.clone();
    let all = all_pages(&world, &ProxyFilter::default(), 4, &caller);
    assert_eq!(all.len(), 25);
    assert!(all.is_sorted());
    let low = ProxyFilter { attributes: vec![("n".into(), "low".into())], ..ProxyFilter::default() };
    assert_eq!(all_pages(&world, &low, 2, &caller), ["even/p00", "even/p02", "even/p04", "odd/p01", "odd/p03"]);
    let sick = ProxyFilter { healthy: Some(false), namespace: Some("odd".into()), ..ProxyFilter::default() };
    assert_eq!(all_pages(&world, &sick, 1, &caller), ["odd/p05", "odd/p15"]);
    let odd = Caller::named("odd", Some(vec!["odd".into()].into()));
    assert_eq!(all_pages(&world, &ProxyFilter::default(), 100, &odd).len(), 12);
}

#[test]
fn slots_are_counted_by_provider_and_state_ob_1() {
    let mut world = World::of(&[
        proxy("a", 3),
        ProxyAvailability { healthy: false, phase: Phase::Unhealthy, ..proxy("b", 2) },
        ProxyAvailability { provider: None, ..proxy("c", 5) },
    ]);
    let mut request = any();
    request.selector.name = Some("a".into());
    world.grant(&request);
    let stats = world.book.stats();
    assert_eq!(stats.active_leases, 1);
    assert_eq!(stats.phases.get(&Phase::Ready), Some(&2));
    let rows: Vec<_> = stats.slots.iter().map(|s| (&*s.provider, s.slots.free, s.slots.leased, s.slots.unhealthy)).collect();
    assert_eq!(rows, [("", 5, 0, 0), ("lab", 2, 1, 2)]);
}

/// Issue 10, 28: who waits for a timed cordon is told how long.
#[test]
fn a_refusal_because_of_timed_cordons_says_when_the_first_ends() {
    let mut world = World::of(&[proxy("a", 9), proxy("b", 9)]);
    let (caller, now) = (world.caller.clone(), world.now);
    let after = |seconds| Some(now + Duration::from_secs(seconds));
    world.book.cordon(&key("a"), &cordon(None, after(60)), &caller, now).unwrap();
    world.book.cordon(&key("a"), &cordon(Some("t"), after(90)), &caller, now).unwrap();
    world.book.cordon(&key("b"), &cordon(Some("t"), None), &caller, now).unwrap();
    let refusal = world.refused(&for_target("t"));
    assert_eq!((refusal.code, refusal.drained, refusal.retry_after_seconds), (ProblemCode::NoneHealthy, 2, Some(90)));
    world.book.cordon(&key("b"), &cordon(None, after(70)), &caller, now).unwrap();
    assert_eq!(world.refused(&for_target("u")).retry_after_seconds, Some(60), "the first of the two");
    world.book.uncordon(&key("b"), None, &caller).unwrap();
    world.book.cordon(&key("a"), &cordon(Some("t"), None), &caller, now).unwrap();
    world.pass(0.1);
    assert_eq!(world.refused(&for_target("t")).retry_after_seconds, None, "one without an end");
}

#[test]
fn nobody_is_told_to_come_back_in_the_year_9999() {
    let mut world = World::of(&[proxy("a", 9)]);
    let (caller, now) = (world.caller.clone(), world.now);
    let until = egress_protocol::Timestamp::parse("9999-12-31T23:59:59Z");
    let item = world.book.cordon(&key("a"), &cordon(None, until), &caller, now).unwrap();
    assert!(serde_json::to_string(&item).unwrap().contains(r#""until":"9999-12-31T23:59:59.000Z""#));
    assert_eq!(world.refused(&any()).retry_after_seconds, Some(24 * 3600));
}

#[test]
fn a_cordon_says_who_placed_it_and_who_lifted_it() {
    let mut world = World::of(&[proxy("a", 9)]);
    let (caller, now) = (Caller::admin("ops"), world.now);
    world.book.take_effects();
    let item = world.book.cordon(&key("a"), &cordon(None, Some(now + Duration::from_secs(5))), &caller, now).unwrap();
    assert_eq!(item.cordons.unwrap()[0].by.as_deref(), Some("ops"));
    world.book.cordon(&key("a"), &cordon(Some("t"), None), &caller, now).unwrap();
    world.book.uncordon(&key("a"), Some(&"t".into()), &Caller::admin("boss")).unwrap();
    world.book.uncordon(&key("a"), Some(&"t".into()), &Caller::admin("boss")).unwrap();
    world.book.advance(now + Duration::from_secs(5));
    let told: Vec<_> = world.book.take_effects().cordons.into_iter().map(|change| (change.target, change.what)).collect();
    let placed = |until| CordonTurn::Placed(Cordon { until, reason: "by hand".into(), by: "ops".into() });
    assert_eq!(
        told,
        [
            (None, placed(Some(now + Duration::from_secs(5)))),
            (Some("t".into()), placed(None)),
            (Some("t".into()), CordonTurn::Lifted("boss".into())),
            (None, CordonTurn::Over),
        ]
    );
}

#[test]
fn a_proxy_is_cordoned_for_a_hundred_targets_at_most() {
    let mut world = World::of(&[proxy("a", 9)]);
    let (caller, now) = (world.caller.clone(), world.now);
    for n in 0..100 {
        world.book.cordon(&key("a"), &cordon(Some(&format!("t{n}")), None), &caller, now).unwrap();
    }
    let LeaseError::Invalid(faults) = world.book.cordon(&key("a"), &cordon(Some("u"), None), &caller, now).unwrap_err() else { panic!() };
    assert_eq!(faults[0].field, "target");
    assert!(world.book.cordon(&key("a"), &cordon(Some("t7"), None), &caller, now).is_ok(), "again");
}
