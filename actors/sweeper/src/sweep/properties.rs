//! Named invariants over random worlds: whatever is listed, live, partial or refused, round after round.

use std::collections::BTreeSet;

use egress_protocol::provider::{Instance, Leftover};
use proptest::collection::vec;
use proptest::prelude::*;

use super::tests::{instance, rules, survey};
use super::*;

const START: Timestamp = Timestamp::from_millis(1_767_323_045_000);

#[derive(Debug, Clone)]
struct Listed {
    uid: u8,
    /// What its mark says.
    marked: Option<u8>,
    foreign: bool,
    deleting: bool,
    /// Minutes before the round.
    age: Option<i64>,
    leftover: bool,
}

#[derive(Debug, Clone)]
struct Turn {
    listed: Vec<Listed>,
    live: BTreeSet<u8>,
    complete: bool,
    stale: bool,
}

fn listed() -> impl Strategy<Value = Listed> {
    let marked = prop_oneof![8 => Just(None), 1 => (0..6_u8).prop_map(Some)];
    let age = prop_oneof![1 => Just(None), 5 => (-10..120_i64).prop_map(Some)];
    (0..6_u8, marked, prop::bool::weighted(0.15), prop::bool::weighted(0.1), age, prop::bool::weighted(0.25))
        .prop_map(|(uid, marked, foreign, deleting, age, leftover)| Listed { uid, marked, foreign, deleting, age, leftover })
}

fn turn() -> impl Strategy<Value = Turn> {
    let live = prop::collection::btree_set(0..6_u8, 0..3);
    (vec(listed(), 0..8), live, prop::bool::weighted(0.85), prop::bool::weighted(0.1)).prop_map(|(listed, live, complete, stale)| Turn {
        listed,
        live,
        complete,
        stale,
    })
}

fn uid(n: u8) -> String {
    format!("uid-{n}")
}

fn made(turn: &Turn, now: Timestamp) -> Survey {
    let mut list = ListResult::default();
    for listed in &turn.listed {
        let created_at = listed.age.map(|minutes| Timestamp::from_millis(now.as_millis() - minutes * 60_000));
        let whole = instance(&uid(listed.uid));
        if listed.leftover {
            list.leftovers.push(Leftover { name: whole.name, created_at });
        } else {
            let marked = listed.marked.map_or(whole.uid.clone(), |n| Uid::new(uid(n)));
            let installation = InstallationId::new(if listed.foreign { "theirs" } else { "ours" });
            list.instances.push(Instance { uid: marked, installation, deleting: listed.deleting, created_at, ..whole });
        }
    }
    let live: Vec<String> = turn.live.iter().map(|n| uid(*n)).collect();
    let mut survey = survey(now, &live.iter().map(String::as_str).collect::<Vec<_>>(), list);
    survey.live.complete = turn.complete;
    if turn.stale {
        survey.live.as_of = survey.live.as_of - Duration::from_millis(1);
    }
    survey
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn nothing_goes_that_is_live_corrupted_young_foreign_or_seen_once(turns in vec(turn(), 1..8), max_deletes in 1..4_usize) {
        let rules = Rules { max_deletes, ..rules() };
        let mut evidence = Evidence::default();
        let mut before: Option<Survey> = None;
        for (n, turn) in turns.iter().enumerate() {
            let now = START + Duration::from_secs(600) * u32::try_from(n).unwrap();
            let survey = made(turn, now);
            let Ok((plan, found)) = sweep(&rules, &std::mem::take(&mut evidence), &survey) else {
                prop_assert!(!turn.complete || turn.stale, "a good survey is not refused");
                before = None;
                continue;
            };
            prop_assert!(turn.complete && !turn.stale, "nothing by a live set that proves nothing");
            prop_assert!(plan.chosen.len() <= max_deletes, "the limit");
            prop_assert!(plan.chosen.len() + plan.waiting <= survey.list.instances.len() + survey.list.leftovers.len());
            let names: HashSet<_> = survey.live.uids.iter().map(InstanceName::of).collect();
            let young = |created: Option<Timestamp>| created.is_some_and(|at| at <= now + FUTURE && now.since(at) < rules.min_age);
            for Chosen { orphan, .. } in &plan.chosen {
                prop_assert!(!survey.live.uids.contains(&orphan.uid) && !names.contains(&orphan.name), "live");
                let in_list = |survey: &Survey| {
                    survey.list.instances.iter().any(|i| Some(&i.id) == orphan.id.as_ref() && i.uid == orphan.uid)
                        || survey.list.leftovers.iter().any(|l| orphan.id.is_none() && l.name == orphan.name)
                };
                prop_assert!(in_list(&survey) && before.as_ref().is_some_and(in_list), "seen in this round and the one before");
                if let Some(id) = &orphan.id {
                    prop_assert_eq!(&orphan.name, &InstanceName::of(&orphan.uid), "a corrupted mark");
                    let fits = |i: &&Instance| i.id == *id && i.uid == orphan.uid && i.installation == rules.installation && !young(i.created_at);
                    prop_assert!(survey.list.instances.iter().any(|i| fits(&i)), "foreign or young");
                } else {
                    let fits = |l: &&Leftover| l.name == orphan.name && !young(l.created_at);
                    prop_assert!(survey.list.leftovers.iter().any(|l| fits(&l)), "young");
                    prop_assert!(survey.list.instances.iter().all(|i| i.name != orphan.name), "it has an instance");
                }
            }
            (before, evidence) = (Some(survey), found);
        }
    }

    #[test]
    fn every_orphan_goes_in_the_end(orphans in prop::collection::btree_set(6..40_u8, 1..30), live in prop::collection::btree_set(0..6_u8, 0..6)) {
        let rules = Rules { max_deletes: 4, ..rules() };
        let mut there: BTreeSet<u8> = orphans.union(&live).copied().collect();
        let mut evidence = Evidence::default();
        for n in 0..=orphans.len().div_ceil(4) {
            let listed = |uid: &u8| Listed { uid: *uid, marked: None, foreign: false, deleting: false, age: Some(60), leftover: false };
            let turn = Turn { listed: there.iter().map(listed).collect(), live: live.clone(), complete: true, stale: false };
            let now = START + Duration::from_secs(600) * u32::try_from(n).unwrap();
            let (plan, found) = sweep(&rules, &evidence, &made(&turn, now)).unwrap();
            evidence = found;
            for chosen in plan.chosen {
                there.retain(|n| uid(*n) != chosen.orphan.uid.as_str());
            }
        }
        prop_assert_eq!(there, live, "exactly the orphans");
    }
}
