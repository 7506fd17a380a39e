//! HE-9 and M10 on the pure judge.

use super::*;
use proptest::prelude::*;

const URL: &str = "https://check.example/204";

fn key(n: usize) -> ObjectKey {
    ObjectKey::new(format!("ns-{}", n % 2), format!("px-{n}"))
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

struct World {
    judge: Judge,
}

impl World {
    /// `n` proxies that share `URL` and passed around time zero.
    fn of(n: usize) -> Self {
        let mut world = Self { judge: Judge::default() };
        for i in 0..n {
            assert_eq!(world.see(i, Evidence::Passed, 0, (true, true)), []);
        }
        world
    }

    fn see(&mut self, proxy: usize, evidence: Evidence, millis: i64, (was_healthy, is_healthy): (bool, bool)) -> Vec<Effect> {
        self.see_url(URL, proxy, evidence, millis, (was_healthy, is_healthy))
    }

    fn see_url(&mut self, url: &str, proxy: usize, evidence: Evidence, millis: i64, verdict: (bool, bool)) -> Vec<Effect> {
        self.judge.observe(&Observation {
            key: key(proxy),
            uid: Uid::new(format!("uid-{proxy}")),
            url: url.into(),
            was_healthy: verdict.0,
            is_healthy: verdict.1,
            started_at: at(millis),
            ended_at: at(millis + 100),
            interval: Duration::from_secs(10),
            evidence,
        })
    }

    fn suspect(&self) -> bool {
        self.judge.suspects().next().is_some()
    }
}

fn told(effects: &[Effect]) -> Vec<(&ObjectKey, &Suspicion)> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Tell { key, suspicion } => Some((key, suspicion)),
            Effect::Suspected { .. } | Effect::Cleared { .. } | Effect::HoldEnded { .. } => None,
        })
        .collect()
}

/// HE-9: at least 3 and more than half; everyone who shares the URL is told, the first of each namespace speaks.
#[test]
fn a_url_that_fails_for_more_than_half_is_suspect() {
    let mut world = World::of(5);
    assert_eq!(world.see(4, Evidence::TargetSide, 5_000, (true, true)), []);
    assert_eq!(world.see(1, Evidence::TargetSide, 4_000, (true, true)), []);
    let effects = world.see(2, Evidence::TargetSide, 6_000, (true, true));
    assert_eq!(effects[0], Effect::Suspected { url: URL.into(), failing: 3, healthy: 5 });
    let suspect = |speaks| Suspicion::Suspect { url: URL.into(), since: at(4_000), until: at(6_100) + hold::LIMIT, speaks };
    assert_eq!(
        told(&effects),
        [
            (&key(0), &suspect(true)),
            (&key(2), &suspect(false)),
            (&key(4), &suspect(false)),
            (&key(1), &suspect(true)),
            (&key(3), &suspect(false))
        ]
    );
}

/// HE-9: half is not more than half, and two are not three.
#[test]
fn fewer_than_three_or_only_half_is_the_proxies_own_fault() {
    let mut two = World::of(2);
    for n in 0..2 {
        assert_eq!(two.see(n, Evidence::TargetSide, 1_000, (true, true)), []);
    }
    let mut six = World::of(6);
    for n in 0..3 {
        assert_eq!(six.see(n, Evidence::TargetSide, 1_000, (true, true)), []);
    }
    assert!(!six.see(3, Evidence::TargetSide, 1_000, (true, true)).is_empty());
}

/// HE-9: what the proxies do wrong says nothing about the URL.
#[test]
fn failures_on_the_proxys_side_never_put_a_url_under_suspicion() {
    let mut world = World::of(4);
    for n in 0..4 {
        assert_eq!(world.see(n, Evidence::ProxySide, 1_000, (true, false)), []);
    }
    assert!(!world.suspect());
}

/// HE-9: proxies that were unhealthy before count on neither side.
#[test]
fn only_the_so_far_healthy_count() {
    let mut world = World::of(3);
    for n in 3..20 {
        world.see(n, Evidence::ProxySide, 500, (false, false));
    }
    for n in 3..20 {
        assert_eq!(world.see(n, Evidence::TargetSide, 1_000, (false, false)), []);
    }
    for n in 0..2 {
        assert_eq!(world.see(n, Evidence::TargetSide, 2_000, (true, true)), []);
    }
    assert!(!world.see(2, Evidence::TargetSide, 2_000, (true, true)).is_empty());
}

/// HE-9: with a failure threshold of 1 proxies fall at once; they were healthy until the URL failed.
#[test]
fn those_it_flipped_were_healthy_so_far() {
    let mut world = World::of(5);
    for n in 0..2 {
        assert_eq!(world.see(n, Evidence::TargetSide, 1_000, (true, false)), []);
    }
    let effects = world.see(2, Evidence::TargetSide, 1_000, (true, false));
    assert_eq!(effects[0], Effect::Suspected { url: URL.into(), failing: 3, healthy: 5 });
}

/// HE-9: a pass since the first of the failures began voids them, also one that overtook a slow failure.
#[test]
fn a_pass_in_between_clears_the_url() {
    let mut world = World::of(4);
    world.see(0, Evidence::TargetSide, 1_000, (true, true));
    world.see(1, Evidence::TargetSide, 1_000, (true, true));
    world.see(3, Evidence::Passed, 2_000, (true, true));
    assert_eq!(world.see(2, Evidence::TargetSide, 2_050, (true, true)), [], "began before the pass ended");
    for n in 0..2 {
        assert_eq!(world.see(n, Evidence::TargetSide, 3_000, (true, true)), []);
    }
    assert!(!world.see(2, Evidence::TargetSide, 3_000, (true, true)).is_empty());
}

/// HE-9: the failures lie within two of their longest intervals.
#[test]
fn failures_far_apart_are_not_one_outage() {
    let mut world = World::of(3);
    world.see(0, Evidence::TargetSide, 1_000, (true, true));
    world.see(1, Evidence::TargetSide, 3_000, (true, true));
    assert_eq!(world.see(2, Evidence::TargetSide, 22_050, (true, true)), []);
    assert!(!world.see(0, Evidence::TargetSide, 22_060, (true, true)).is_empty());
}

/// HE-9: any pass ends it, for everyone.
#[test]
fn any_pass_ends_the_suspicion() {
    let mut world = World::of(3);
    for n in 0..3 {
        world.see(n, Evidence::TargetSide, 1_000, (true, true));
    }
    assert!(world.suspect());
    let effects = world.see(1, Evidence::Passed, 9_000, (true, true));
    assert_eq!(effects[0], Effect::Cleared { url: URL.into() });
    assert_eq!(told(&effects).len(), 3);
    assert!(!world.suspect());
}

/// HE-9: one that joins, or was restarted and fell, while the URL is suspect learns of it.
#[test]
fn late_comers_are_told() {
    let mut world = World::of(3);
    for n in 0..3 {
        world.see(n, Evidence::TargetSide, 1_000, (true, true));
    }
    let suspicion = Suspicion::Suspect { url: URL.into(), since: at(1_000), until: at(1_100) + hold::LIMIT, speaks: false };
    assert_eq!(told(&world.see(7, Evidence::TargetSide, 2_000, (false, false))), [(&key(7), &suspicion)]);
    assert_eq!(told(&world.see(7, Evidence::TargetSide, 3_000, (false, false))), []);
    assert_eq!(told(&world.see(1, Evidence::TargetSide, 3_000, (true, false))), [(&key(1), &suspicion)]);
}

fn suspect_four() -> World {
    let mut world = World::of(4);
    for n in 0..4 {
        world.see(n, Evidence::TargetSide, 1_000, (true, true));
    }
    assert!(world.suspect());
    world
}

/// Issue 10, 21: a hold has an end; the suspicion lasts until a pass.
#[test]
fn a_hold_ends_after_its_limit_which_is_told_once() {
    let mut world = suspect_four();
    let limit = i64::try_from(hold::LIMIT.as_millis()).unwrap();
    assert_eq!(world.see(0, Evidence::TargetSide, limit, (true, true)), [], "a probe that ends before the limit");
    let ended = Effect::HoldEnded { url: URL.into(), why: Ended::Time };
    assert_eq!(world.see(1, Evidence::TargetSide, limit + 1_500, (true, true)), [ended]);
    let effects = world.see(2, Evidence::TargetSide, limit + 1_600, (true, false));
    let suspicion = Suspicion::Suspect { url: URL.into(), since: at(1_000), until: at(1_100) + hold::LIMIT, speaks: false };
    assert_eq!(effects, [Effect::Tell { key: key(2), suspicion }], "with an end that has come, so that it restores nothing");
    assert!(world.suspect(), "until a pass");
    assert_eq!(world.see(0, Evidence::Passed, limit + 2_000, (false, true))[0], Effect::Cleared { url: URL.into() });
}

/// Issue 10, 21: lease holders who fail through three proxies, more than half of those they reported on, end the hold.
#[test]
fn failing_reports_of_lease_holders_end_a_hold() {
    let mut world = suspect_four();
    let mut report = |n, failed, millis| world.judge.report(&key(n), &Uid::new(format!("uid-{n}")), failed, at(millis));
    for n in [0, 1, 0, 1] {
        assert_eq!(report(n, true, 2_000), [], "two proxies are too few");
    }
    for n in [2, 3] {
        assert_eq!(report(n, false, 2_000), []);
    }
    assert_eq!(report(2, true, 2_500).len(), 5, "three of four: the end, told to all");
    assert_eq!(report(3, true, 2_600), [], "once");
    let told = world.see(0, Evidence::TargetSide, 3_000, (true, false));
    let suspicion = Suspicion::Suspect { url: URL.into(), since: at(1_000), until: at(2_500), speaks: false };
    assert_eq!(told, [Effect::Tell { key: key(0), suspicion }]);
}

#[test]
fn reports_that_most_proxies_serve_keep_a_hold_and_others_reports_say_nothing() {
    let mut world = World::of(8);
    let report =
        |world: &mut World, n: usize, uid: usize, failed| world.judge.report(&key(n), &Uid::new(format!("uid-{uid}")), failed, at(2_000));
    for n in 0..8 {
        assert_eq!(report(&mut world, n, n, true), [], "nothing is suspect");
    }
    for n in 0..8 {
        world.see(n, Evidence::TargetSide, 1_000, (true, true));
    }
    for n in 0..4 {
        assert_eq!(report(&mut world, n, n, false), []);
    }
    for n in 4..8 {
        assert_eq!(report(&mut world, n, n, true), [], "half is not more than half");
        assert_eq!(report(&mut world, n, n + 1, true), [], "of another object");
    }
    world.judge.forget(&key(0), &Uid::new("uid-0"));
    assert_eq!(report(&mut world, 7, 7, true)[0], Effect::HoldEnded { url: URL.into(), why: Ended::Reports });
}

/// M10: two check URLs in one fleet; the one that answers 503 to everyone is suspect, the other is not.
#[test]
fn one_judge_site_down_condemns_nobody_else() {
    let mut world = World::of(4);
    let other = "https://other.example/";
    for n in 4..8 {
        world.see_url(other, n, Evidence::Passed, 0, (true, true));
    }
    for n in 0..4 {
        world.see(n, Evidence::TargetSide, 1_000, (true, true));
        assert_eq!(world.see_url(other, n + 4, Evidence::Passed, 1_000, (true, true)), []);
    }
    assert_eq!(world.judge.suspects().collect::<Vec<_>>(), [&Arc::from(URL)]);
}

/// A proxy that changes its URL leaves the old one; the last one to leave takes the suspicion along.
#[test]
fn a_url_nobody_uses_is_forgotten() {
    let mut world = World::of(3);
    for n in 0..3 {
        world.see(n, Evidence::TargetSide, 1_000, (true, true));
    }
    let effects = world.see_url("https://other.example/", 0, Evidence::Passed, 2_000, (true, true));
    assert_eq!(effects, [Effect::Tell { key: key(0), suspicion: Suspicion::Cleared { url: URL.into() } }]);
    assert_eq!(world.judge.forget(&key(1), &Uid::new("another")), [], "of another object");
    assert_eq!(world.judge.forget(&key(1), &Uid::new("uid-1")), []);
    assert_eq!(world.judge.forget(&key(2), &Uid::new("uid-2")), [Effect::Cleared { url: URL.into() }]);
    assert_eq!(world.judge.urls(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Invariants: `the counts are what counting would give`, `a suspicion is one that counting confirms`, `no URL is
    /// suspect after a pass`.
    #[test]
    fn the_counts_are_what_counting_would_give(
        steps in proptest::collection::vec((0_usize..7, 0_u8..8, 0_i64..4_000, any::<bool>(), any::<bool>()), 0..120),
    ) {
        let mut world = World { judge: Judge::default() };
        let mut now = 0;
        for (proxy, what, passes, was, is) in steps {
            now += passes;
            let was_suspect = world.suspect();
            match what {
                0 => { world.judge.forget(&key(proxy), &Uid::new(format!("uid-{proxy}"))); }
                1 => {
                    world.see(proxy, Evidence::Passed, now, (was, true));
                    prop_assert!(!world.suspect());
                }
                2 => { world.see(proxy, Evidence::ProxySide, now, (was, was && is)); }
                _ => { world.see(proxy, Evidence::TargetSide, now, (was, was && is)); }
            }
            let Some(shared) = world.judge.urls.get(URL) else { continue };
            let mut counted = Counts::default();
            for member in shared.members.values() {
                counted.add(member, shared.round);
            }
            prop_assert_eq!(shared.counts, counted);
            if world.suspect() && !was_suspect {
                prop_assert!(counted.failing >= 3 && counted.failing * 2 > counted.healthy + counted.fallen);
                let horizon = at(now + 100) - Duration::from_secs(20);
                let marks: Vec<_> = shared.members.values().filter_map(|m| m.mark).filter(|m| m.round == shared.round).collect();
                prop_assert!(marks.iter().all(|m| m.last_ended >= horizon));
                prop_assert!(shared.last_pass.is_none_or(|pass| marks.iter().all(|m| m.first_began >= pass)));
            }
        }
    }
}
