//! After a start nobody is refused for good before every proxy was heard of.

use egress_protocol::Uid;
use egress_protocol::lease::{LeaseError, ProblemCode, ProxyAvailability};

use super::world::{World, any, proxy, selecting};

fn uid(name: &str) -> Uid {
    Uid::new(format!("uid-{name}"))
}

fn opened() -> World {
    let mut world = World::new();
    world.book.open(world.now);
    world
}

fn awaited(name: &str) -> ProxyAvailability {
    ProxyAvailability { healthy: false, awaited: true, ..proxy(name, 1) }
}

#[test]
fn nobody_is_refused_for_good_before_each_proxy_has_spoken() {
    let mut world = opened();
    assert_eq!(world.try_grant(&any()).unwrap_err(), LeaseError::Opening, "which there are is not known");
    world.book.expect(vec![uid("a"), uid("b"), uid("c")]);
    assert_eq!(world.try_grant(&any()).unwrap_err(), LeaseError::Opening);
    world.publish(proxy("a", 1));
    assert_eq!(World::name(&world.grant(&any())), "a", "what is there is granted");
    assert_eq!(world.try_grant(&any()).unwrap_err(), LeaseError::Opening, "two may come");
    world.publish(ProxyAvailability { healthy: false, ..proxy("b", 1) });
    assert_eq!(world.try_grant(&any()).unwrap_err(), LeaseError::Opening, "one may come");
    world.book.withdraw(&proxy("c", 1).key, &uid("c"), world.now);
    assert_eq!(world.refused(&any()).code, ProblemCode::NoCapacity);
}

#[test]
fn one_that_was_healthy_is_waited_for_by_those_it_matches_he_2() {
    let mut world = opened();
    world.publish(awaited("a"));
    world.book.expect(vec![uid("a")]);
    let refused = world.try_grant(&any()).unwrap_err();
    assert_eq!(refused, LeaseError::Opening);
    let problem = refused.problem();
    assert_eq!((problem.status, problem.code, problem.retry_after_seconds), (503, ProblemCode::Overloaded, Some(1)));
    assert_eq!(world.refused(&selecting(&[("region", &["eu"])])).code, ProblemCode::NoMatch, "it will never match");
    world.publish(ProxyAvailability { healthy: false, ..proxy("a", 1) });
    world.pass(0.2);
    assert_eq!(world.refused(&any()).code, ProblemCode::NoneHealthy, "it was looked at");
}

#[test]
fn an_empty_cluster_refuses_at_once_and_a_provider_that_hangs_holds_nobody_for_long_m3() {
    let mut world = opened();
    world.book.expect(Vec::new());
    assert_eq!(world.refused(&any()).code, ProblemCode::NoMatch);

    let mut world = opened();
    world.publish(awaited("a"));
    world.book.expect(vec![uid("a"), uid("silent")]);
    world.pass(9.9);
    assert_eq!(world.try_grant(&any()).unwrap_err(), LeaseError::Opening);
    world.pass(0.2);
    assert_eq!(world.refused(&any()).code, ProblemCode::NoneHealthy);
    world.book.expect(vec![uid("silent")]);
    assert_eq!(world.refused(&any()).code, ProblemCode::NoneHealthy, "said again, it opens nothing");
}

#[test]
fn the_numbers_of_a_moment_ago_refuse_nobody_for_good() {
    // More than 32, so that the selector's order and its numbers are kept.
    let full: Vec<ProxyAvailability> = (0..40).map(|n| ProxyAvailability { healthy: false, ..proxy(&format!("px-{n}"), 1) }).collect();
    let mut world = opened();
    for proxy in &full {
        world.publish(proxy.clone());
    }
    world.book.expect(vec![uid("a")]);
    assert_eq!(world.try_grant(&any()).unwrap_err(), LeaseError::Opening);
    world.publish(awaited("a"));
    assert_eq!(world.try_grant(&any()).unwrap_err(), LeaseError::Opening, "nobody else is silent, and one may come");
    world.publish(ProxyAvailability { healthy: false, ..proxy("a", 1) });
    assert_eq!(world.refused(&any()).unhealthy, 41);
    world.publish(awaited("a"));
    assert_eq!(world.try_grant(&any()).unwrap_err(), LeaseError::Opening, "whatever was counted a moment ago");
}

#[test]
fn one_that_is_out_by_hand_or_excluded_is_not_waited_for() {
    let mut world = opened();
    world.publish(ProxyAvailability { draining: true, ..awaited("a") });
    world.book.expect(vec![uid("a")]);
    assert_eq!(world.refused(&any()).drained, 1);
    world.publish(awaited("a"));
    let mut others = any();
    others.selector.exclude.push(proxy("a", 1).key);
    assert_eq!(world.refused(&others).code, ProblemCode::NoMatch);
}

#[test]
fn an_old_object_of_a_name_is_not_the_one_that_is_expected() {
    let mut world = opened();
    world.book.expect(vec![uid("a")]);
    world.publish(ProxyAvailability { uid: uid("a-of-before"), healthy: false, ..proxy("a", 1) });
    assert_eq!(world.try_grant(&any()).unwrap_err(), LeaseError::Opening);
}
