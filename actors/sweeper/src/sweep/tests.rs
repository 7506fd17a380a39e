use std::sync::Arc;

use egress_protocol::provider::{Instance, InstanceState, Leftover};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const NOW: Timestamp = Timestamp::from_millis(1_767_323_045_000);

pub(super) fn rules() -> Rules {
    Rules { installation: InstallationId::new("ours"), min_age: 10 * MINUTE, max_deletes: 10 }
}

/// An instance of ours, an hour old.
pub(super) fn instance(uid: &str) -> Instance {
    let uid = Uid::new(uid);
    let name = InstanceName::of(&uid);
    Instance {
        id: InstanceId::new(format!("lab/{name}")),
        name,
        state: InstanceState::Running,
        state_detail: None,
        deleting: false,
        ip: None,
        uid,
        installation: InstallationId::new("ours"),
        created_at: Some(NOW - 60 * MINUTE),
    }
}

fn leftover(uid: &str, created_at: Option<Timestamp>) -> Leftover {
    Leftover { name: InstanceName::of(&Uid::new(uid)), created_at }
}

pub(super) fn survey(now: Timestamp, live: &[&str], list: ListResult) -> Survey {
    let uids = live.iter().map(|uid| Uid::new(*uid)).collect();
    Survey { list, listed_at: now, live: LiveSet { uids: Arc::new(uids), complete: true, as_of: now } }
}

fn of(instances: Vec<Instance>) -> ListResult {
    ListResult { instances, ..ListResult::default() }
}

/// The names of what rounds ten minutes apart choose.
fn rounds(rules: &Rules, surveys: impl IntoIterator<Item = Survey>) -> Vec<Result<Vec<InstanceName>, Refusal>> {
    let mut evidence = Evidence::default();
    let mut chosen = Vec::new();
    for survey in surveys {
        let round = sweep(rules, &std::mem::take(&mut evidence), &survey);
        chosen.push(round.map(|(plan, found)| {
            evidence = found;
            plan.chosen.into_iter().map(|chosen| chosen.orphan.name).collect()
        }));
    }
    chosen
}

/// How many go in each of four rounds over the same list.
fn four(rules: &Rules, live: &[&str], list: &ListResult) -> Vec<usize> {
    let surveys = (0..4).map(|n| survey(NOW + 10 * MINUTE * n, live, list.clone()));
    rounds(rules, surveys).into_iter().map(|round| round.unwrap().len()).collect()
}

#[test]
fn an_orphan_goes_in_the_second_round_that_sees_it_og_6() {
    assert_eq!(four(&rules(), &["b"], &of(vec![instance("a"), instance("b")])), [0, 1, 1, 1]);
    assert_eq!(four(&rules(), &["a", "b"], &of(vec![instance("a"), instance("b")])), [0; 4], "both are live");
}

#[test]
fn what_may_not_go_stays_for_ever_og_2_pc_46_pc_54() {
    let changed = |change: fn(&mut Instance)| {
        let mut instance = instance("a");
        change(&mut instance);
        of(vec![instance])
    };
    for (what, list) in [
        ("an empty UID", changed(|i| i.uid = Uid::new(""))),
        ("a blank UID", changed(|i| i.uid = Uid::new(" "))),
        ("a UID that does not make this name: a corrupted mark", changed(|i| i.uid = Uid::new("z"))),
        ("another installation", changed(|i| i.installation = InstallationId::new("theirs"))),
        ("no installation", changed(|i| i.installation = InstallationId::new(""))),
        ("on its way already", changed(|i| i.deleting = true)),
        ("a live name", changed(|i| (i.name, i.uid) = (InstanceName::of(&Uid::new("live")), Uid::new("z")))),
    ] {
        assert_eq!(four(&rules(), &["live"], &list), [0; 4], "{what}");
    }
}

#[test]
fn young_instances_wait_until_they_are_old_enough_og_2() {
    let born = |at: Option<Timestamp>| of(vec![Instance { created_at: at, ..instance("a") }]);
    assert_eq!(four(&rules(), &[], &born(None)), [0, 1, 1, 1], "an unknown time counts as old");
    assert_eq!(four(&rules(), &[], &born(Some(NOW + 60 * MINUTE))), [0, 1, 1, 1], "so does one far in the future");
    assert_eq!(four(&rules(), &[], &born(Some(NOW + 4 * MINUTE))), [0, 0, 0, 1], "a clock that is a little off does not");
    assert_eq!(four(&rules(), &[], &born(Some(NOW))), [0, 0, 1, 1]);
    let eager = Rules { min_age: Duration::ZERO, ..rules() };
    assert_eq!(four(&eager, &[], &born(Some(NOW))), [0, 1, 1, 1]);
}

#[test]
fn a_live_set_that_proves_nothing_deletes_nothing_and_leaves_no_evidence_o4_og_3() {
    let list = || of((0..20).map(|n| instance(&format!("live-{n}"))).collect());
    let at = |n: u32| NOW + 10 * MINUTE * n;
    let good = |n| survey(at(n), &[], list());
    let with = |n, change: fn(&mut LiveSet)| {
        let mut survey = survey(at(n), &[], list());
        change(&mut survey.live);
        survey
    };
    let incomplete = |live: &mut LiveSet| live.complete = false;
    let stale = |live: &mut LiveSet| live.as_of = live.as_of - Duration::from_millis(1);
    let seen = rounds(&rules(), [with(0, incomplete), with(1, incomplete)]);
    assert_eq!(seen, [Err(Refusal::Incomplete), Err(Refusal::Incomplete)], "an empty one that is not vouched for");
    let seen = rounds(&rules(), [good(0), with(1, stale), good(2), good(3)]);
    assert_eq!(seen[1], Err(Refusal::Stale));
    assert_eq!(seen[2].as_ref().map(Vec::len), Ok(0), "the rounds before and after are not consecutive");
    assert_eq!(seen[3].as_ref().map(Vec::len), Ok(10));
}

/// OG-6, P11.
#[test]
fn what_a_list_leaves_out_is_neither_an_orphan_nor_gone_p11() {
    let partial = |instances| ListResult { left_out: vec![("node-b".into(), "595".into())], ..of(instances) };
    let at = |n: u32, list| survey(NOW + 10 * MINUTE * n, &[], list);
    let both = || of(vec![instance("a"), instance("b")]);
    let seen = rounds(&rules(), [at(0, both()), at(1, partial(vec![instance("a")])), at(2, both()), at(3, both())]);
    let names = |round: usize| seen[round].as_ref().unwrap().clone();
    assert_eq!(names(1), [InstanceName::of(&Uid::new("a"))], "the part that answered is proven");
    assert_eq!(names(2), [InstanceName::of(&Uid::new("a"))], "b was not seen in two rounds in a row");
    assert_eq!(names(3).len(), 2);
}

#[test]
fn at_most_so_many_go_at_once_the_oldest_first_and_failures_let_others_pass_og_4() {
    let rules = Rules { max_deletes: 2, ..rules() };
    let list = || {
        let aged = |n: u32| Instance { created_at: Some(NOW - 60 * MINUTE * n), ..instance(&n.to_string()) };
        of((1..=5).map(aged).collect())
    };
    let name = |n: u32| InstanceName::of(&Uid::new(n.to_string()));
    let seen = rounds(&rules, (0..5).map(|n| survey(NOW + 10 * MINUTE * n, &[], list())));
    let seen: Vec<_> = seen.into_iter().map(Result::unwrap).collect();
    assert_eq!(seen, [vec![], vec![name(5), name(4)], vec![name(3), name(2)], vec![name(1), name(5)], vec![name(4), name(3)]]);
}

#[test]
fn leftovers_go_by_the_same_rules_og_5_pc_46() {
    let list = |created| ListResult { leftovers: vec![leftover("a", created)], ..ListResult::default() };
    assert_eq!(four(&rules(), &[], &list(Some(NOW - 60 * MINUTE))), [0, 1, 1, 1]);
    assert_eq!(four(&rules(), &["a"], &list(Some(NOW - 60 * MINUTE))), [0; 4], "its instance's object is live");
    assert_eq!(four(&rules(), &[], &list(Some(NOW))), [0, 0, 1, 1]);
    assert_eq!(four(&rules(), &[], &list(None)), [0, 1, 1, 1], "seen twice, ten minutes apart");
    let patient = Rules { min_age: 20 * MINUTE, ..rules() };
    assert_eq!(four(&patient, &[], &list(None)), [0, 0, 1, 1], "without a time: seen twice, min age apart");
    let with_instance = ListResult { instances: vec![Instance { uid: Uid::new("?"), ..instance("a") }], ..list(None) };
    assert_eq!(four(&rules(), &[], &with_instance), [0; 4], "what belongs to a listed instance stays with it");
    let many = ListResult {
        leftovers: (0..8).map(|n| leftover(&n.to_string(), None)).collect(),
        ..of((0..8).map(|n| instance(&format!("i{n}"))).collect())
    };
    assert_eq!(four(&rules(), &[], &many)[1], 10, "one limit for both");
}

#[test]
fn a_plan_tells_age_and_what_waits() {
    let list = of(vec![instance("a"), Instance { created_at: None, ..instance("b") }]);
    let one = Rules { max_deletes: 1, ..rules() };
    let (plan, evidence) = sweep(&one, &Evidence::default(), &survey(NOW, &[], list.clone())).unwrap();
    assert_eq!((plan, evidence.len(), evidence.is_empty()), (Plan { chosen: vec![], waiting: 2 }, 2, false));
    let (plan, _) = sweep(&one, &evidence, &survey(NOW + MINUTE, &[], list)).unwrap();
    assert_eq!((plan.chosen[0].orphan.uid.as_str(), plan.chosen[0].age, plan.waiting), ("b", None, 1));
}
