//! Each rule on its own; `model` has them together.

use super::*;

const ME: &str = "pod-a_1";

fn terms() -> Terms {
    let seconds = Duration::from_secs;
    Terms { me: ME.into(), lease: seconds(15), renew_deadline: seconds(10), retry: seconds(2) }
}

fn at(millis: u64) -> Now {
    Now { mono: Duration::from_millis(millis), wall: i64::try_from(millis).unwrap() * 1000 }
}

fn record(version: &str, holder: &str, renewed: i64) -> Record {
    Record {
        version: version.into(),
        holder: (!holder.is_empty()).then(|| holder.into()),
        lasts: Some(Duration::from_secs(15)),
        renewed: Some(renewed),
        transitions: 1,
        address: (!holder.is_empty()).then(|| format!("{holder}:8090").into()),
    }
}

fn other(version: &str, renewed: i64) -> Record {
    record(version, "pod-b_1", renewed)
}

fn looked(record: Record) -> Input {
    Input::Looked(Ok(Some(record)))
}

fn wrote(sent: u64, outcome: Outcome) -> Input {
    Input::Wrote { sent: Duration::from_millis(sent), outcome }
}

/// The one write among the effects.
fn write(effects: &[Effect]) -> Write {
    effects
        .iter()
        .find_map(|effect| if let Effect::Write(write) = effect { Some(write.clone()) } else { None })
        .unwrap_or_else(|| panic!("no write in {effects:?}"))
}

fn until(millis: u64) -> Effect {
    Effect::Extend(Duration::from_millis(millis))
}

fn follows_other() -> Effect {
    Effect::Follow { leader: Some("pod-b_1".into()), address: Some("pod-b_1:8090".into()) }
}

/// One that leads since 0, renewed by a request of then; the Lease has version 1.
fn leader() -> Elector {
    let mut elector = Elector::new(terms(), false, at(0));
    assert_eq!(elector.step(at(0), Input::Tick), [Effect::Look]);
    let effects = elector.step(at(0), Input::Looked(Ok(None)));
    let write = write(&effects);
    assert_eq!((write.base, write.takes), (None, true));
    let effects = elector.step(at(0), wrote(0, Outcome::Done(record("1", ME, write.stamp))));
    assert_eq!(effects, [until(10_000), Effect::Lead]);
    elector
}

/// The leader's next renewal, begun.
fn renewal(elector: &mut Elector, now: u64) -> Write {
    assert_eq!(elector.wake(), Some(Duration::from_millis(now)));
    write(&elector.step(at(now), Input::Tick))
}

/// One that saw the Lease of another at 0.
fn follower() -> Elector {
    let mut elector = Elector::new(terms(), false, at(0));
    elector.step(at(0), Input::Tick);
    assert_eq!(elector.step(at(0), looked(other("1", 1))), [follows_other()]);
    elector
}

/// Looks until then, each time seeing the same; the effects of the last look.
fn looks(elector: &mut Elector, to: u64, seen: &Record) -> Vec<Effect> {
    loop {
        let wake = u64::try_from(elector.wake().expect("it looks").as_millis()).unwrap();
        assert!(wake <= to, "it looks at {wake}, not at {to}");
        assert_eq!(elector.step(at(wake), Input::Tick), [Effect::Look], "at {wake}");
        let effects = elector.step(at(wake), looked(seen.clone()));
        if wake == to {
            return effects;
        }
        assert_eq!(effects, [], "at {wake}");
    }
}

#[test]
fn the_fence_counts_from_when_the_renewal_was_sent_and_the_next_follows_after_the_retry_period() {
    let mut elector = leader();
    let renewed = renewal(&mut elector, 2000);
    assert_eq!((renewed.base.as_deref(), renewed.takes), (Some("1"), false));
    let effects = elector.step(at(4500), wrote(2000, Outcome::Done(record("2", ME, renewed.stamp))));
    assert_eq!(effects[0], until(12_000), "2.5 s of it are over already");
    assert_eq!(write(&effects).base.as_deref(), Some("2"), "the next was due meanwhile");
}

#[test]
fn an_answer_that_comes_after_the_deadline_is_worth_nothing() {
    let mut elector = Elector::new(terms(), false, at(0));
    elector.step(at(0), Input::Tick);
    let taken = write(&elector.step(at(0), Input::Looked(Ok(None))));
    // The process was frozen with the answer on its way.
    let effects = elector.step(at(10_000), wrote(0, Outcome::Done(record("1", ME, taken.stamp))));
    let again = write(&effects);
    assert_eq!((effects.len(), again.base.as_deref(), again.takes), (1, Some("1"), false), "written again, nothing is led by it");
    let effects = elector.step(at(10_100), wrote(10_000, Outcome::Done(record("2", ME, again.stamp))));
    assert_eq!(effects, [until(20_000), Effect::Lead]);
}

#[test]
fn a_released_lease_is_taken_at_the_next_look_which_is_half_a_retry_period_away() {
    let mut elector = follower();
    assert_eq!(elector.wake(), Some(Duration::from_secs(1)));
    elector.step(at(1000), Input::Tick);
    let released = Record { lasts: Some(RELEASED), ..record("2", "", 2) };
    let effects = elector.step(at(1010), looked(released));
    assert_eq!(effects[0], Effect::Follow { leader: None, address: None });
    let write = write(&effects);
    assert_eq!((write.base.as_deref(), write.takes), (Some("2"), true));
}

#[test]
fn the_lease_of_another_is_taken_when_it_stood_still_for_as_long_as_it_says() {
    let mut elector = follower();
    looks(&mut elector, 14_000, &other("1", 1));
    elector.step(at(15_000), Input::Tick);
    let effects = elector.step(at(15_000), looked(other("2", 2)));
    assert_eq!(effects, [], "renewed at the last moment");
    let effects = looks(&mut elector, 30_000, &other("2", 2));
    assert_eq!(write(&effects).base.as_deref(), Some("2"));
}

#[test]
fn who_touches_a_label_of_the_lease_does_not_prolong_it() {
    let mut elector = follower();
    looks(&mut elector, 14_000, &other("1", 1));
    let effects = looks(&mut elector, 15_000, &other("7", 1));
    assert_eq!(write(&effects).base.as_deref(), Some("7"), "over the version seen last");
}

#[test]
fn the_holders_own_duration_counts() {
    let mut elector = Elector::new(terms(), false, at(0));
    elector.step(at(0), Input::Tick);
    let long = Record { lasts: Some(Duration::from_secs(60)), ..other("1", 1) };
    elector.step(at(0), looked(long.clone()));
    let effects = looks(&mut elector, 60_000, &long);
    write(&effects);
}

#[test]
fn a_restarted_container_renews_its_own_lease_at_once() {
    let mut elector = Elector::new(terms(), false, at(0));
    elector.step(at(0), Input::Tick);
    let effects = elector.step(at(5), looked(record("9", ME, 3)));
    let write = write(&effects);
    assert_eq!((write.base.as_deref(), write.takes), (Some("9"), false));
}

#[test]
fn who_loses_the_race_looks_who_won_and_follows() {
    let mut elector = follower();
    let taken = write(&looks(&mut elector, 15_000, &other("1", 1)));
    assert_eq!(taken.base.as_deref(), Some("1"));
    assert_eq!(elector.step(at(15_010), wrote(15_000, Outcome::Conflict)), [Effect::Look]);
    let won = record("2", "pod-c_1", 2);
    let effects = elector.step(at(15_020), looked(won));
    assert_eq!(effects, [Effect::Follow { leader: Some("pod-c_1".into()), address: Some("pod-c_1:8090".into()) }]);
    assert!(!elector.may_hold());
}

#[test]
fn conflicts_without_end_make_no_tight_loop() {
    let mut elector = leader();
    let mut now = 2000;
    renewal(&mut elector, now);
    let mut calls = 0;
    while now < 10_000 {
        let effects = elector.step(at(now), wrote(now, Outcome::Conflict));
        if !effects.contains(&Effect::Look) {
            now = u64::try_from(elector.wake().unwrap().as_millis()).unwrap();
            assert!(elector.step(at(now), Input::Tick).contains(&Effect::Look));
        }
        let mut effects = elector.step(at(now), looked(record("1", ME, 1)));
        if effects.is_empty() {
            now = u64::try_from(elector.wake().unwrap().as_millis()).unwrap();
            effects = elector.step(at(now), Input::Tick);
        }
        if effects.contains(&Effect::Fenced) {
            break;
        }
        write(&effects);
        calls += 1;
        assert!(calls < 40, "at {now}");
    }
}

#[test]
fn a_leader_that_cannot_renew_is_fenced_tries_on_and_goes_on_when_it_renews_after_all() {
    let mut elector = leader();
    renewal(&mut elector, 2000);
    let effects = elector.step(at(5300), wrote(2000, Outcome::Failed("500".into())));
    assert_eq!(effects, [Effect::Trouble("500".into())]);
    let mut now = 5300;
    let mut fenced = false;
    while now < 30_000 {
        now = u64::try_from(elector.wake().unwrap().as_millis()).unwrap();
        let effects = elector.step(at(now), Input::Tick);
        fenced |= effects.contains(&Effect::Fenced);
        assert_eq!(fenced, now >= 10_000, "at {now}");
        if effects.iter().any(|effect| matches!(effect, Effect::Write(_))) {
            let effects = elector.step(at(now), wrote(now, Outcome::Failed("500".into())));
            assert_eq!(effects, [], "told once");
        }
    }
    assert!(elector.leads(), "its actors stay");
    now = u64::try_from(elector.wake().unwrap().as_millis()).unwrap();
    let renewed = write(&elector.step(at(now), Input::Tick));
    let effects = elector.step(at(now), wrote(now, Outcome::Done(record("2", ME, renewed.stamp))));
    assert_eq!(effects, [Effect::Well, until(now + 10_000), Effect::Renewed]);
}

#[test]
fn the_fence_is_told_on_time_while_a_renewal_hangs() {
    let mut elector = leader();
    renewal(&mut elector, 2000);
    assert_eq!(elector.wake(), Some(Duration::from_secs(10)));
    assert_eq!(elector.step(at(10_000), Input::Tick), [Effect::Fenced]);
    assert_eq!(elector.wake(), None, "only the answer is awaited");
}

#[test]
fn a_renewal_of_unknown_outcome_that_was_carried_out_is_known_again() {
    let mut elector = leader();
    let lost = renewal(&mut elector, 2000);
    elector.step(at(5300), wrote(2000, Outcome::Failed("no answer".into())));
    let again = renewal(&mut elector, 5800);
    assert_eq!(again.base.as_deref(), Some("1"));
    assert_eq!(elector.step(at(5810), wrote(5800, Outcome::Conflict)), [Effect::Well, Effect::Look]);
    let effects = elector.step(at(5820), looked(record("2", ME, lost.stamp)));
    assert_eq!(write(&effects).base.as_deref(), Some("2"));
}

#[test]
fn a_leader_writes_its_lease_again_when_somebody_deletes_or_clears_it() {
    let mut elector = leader();
    renewal(&mut elector, 2000);
    let effects = elector.step(at(2010), wrote(2000, Outcome::Gone));
    assert_eq!((effects[0].clone(), write(&effects).base), (Effect::Disowned, None));
    let stamp = write(&effects).stamp;
    elector.step(at(2020), wrote(2010, Outcome::Done(record("8", ME, stamp))));
    renewal(&mut elector, 4010);
    assert_eq!(elector.step(at(4020), wrote(4010, Outcome::Conflict)), [Effect::Look]);
    let effects = elector.step(at(4030), looked(record("9", "", stamp)));
    assert_eq!((effects[0].clone(), write(&effects).base.as_deref()), (Effect::Disowned, Some("9")));
}

#[test]
fn a_follower_waits_when_the_lease_of_a_living_holder_is_deleted_cleared_or_given_to_it_by_hand() {
    for seen in [None, Some(record("2", "", 1)), Some(record("2", ME, 1))] {
        let mut elector = follower();
        elector.step(at(1000), Input::Tick);
        let effects = elector.step(at(1000), Input::Looked(Ok(seen.clone())));
        assert_eq!(effects, [Effect::Follow { leader: None, address: None }], "{seen:?}");
        loop {
            let wake = u64::try_from(elector.wake().unwrap().as_millis()).unwrap();
            elector.step(at(wake), Input::Tick);
            let effects = elector.step(at(wake), Input::Looked(Ok(seen.clone())));
            if wake >= 16_000 {
                write(&effects);
                break;
            }
            assert_eq!(effects, [], "{seen:?} at {wake}");
        }
    }
}

#[test]
fn a_leader_that_sees_another_holder_loses_and_writes_nothing_before_its_branch_has_ended() {
    let mut elector = leader();
    renewal(&mut elector, 2000);
    elector.step(at(2010), wrote(2000, Outcome::Conflict));
    assert_eq!(elector.step(at(2020), looked(other("2", 5))), [Effect::Lose, follows_other()]);
    assert!(!elector.leads());
    // The other dies at once; the branch takes half a minute.
    let mut now = 2020;
    while now < 32_000 {
        now = u64::try_from(elector.wake().unwrap().as_millis()).unwrap();
        assert_eq!(elector.step(at(now), Input::Tick), [Effect::Look]);
        assert_eq!(elector.step(at(now), looked(other("2", 5))), []);
    }
    assert_eq!(elector.step(at(now + 10), Input::Cleared), [Effect::Look]);
    write(&elector.step(at(now + 20), looked(other("2", 5))));
}

#[test]
fn a_leader_that_was_frozen_past_its_fence_keeps_nothing_that_is_not_by_its_own_write() {
    // While it was frozen another led; then the Lease was given back, deleted or released.
    for seen in [Some(record("5", ME, 77)), None, Some(Record { lasts: Some(RELEASED), ..record("5", "", 77) })] {
        let mut elector = leader();
        let effects = elector.step(at(60_000), Input::Tick);
        assert_eq!(effects[0], Effect::Fenced);
        write(&effects);
        let effects = match &seen {
            Some(seen) => {
                assert_eq!(elector.step(at(60_010), wrote(60_000, Outcome::Conflict)), [Effect::Look]);
                elector.step(at(60_020), looked(seen.clone()))
            }
            None => elector.step(at(60_020), wrote(60_000, Outcome::Gone)),
        };
        assert_eq!(effects[0], Effect::Lose, "{seen:?}");
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Write(_))), "{seen:?}: {effects:?}");
    }
}

#[test]
fn a_frozen_leader_whose_lease_nobody_touched_goes_on() {
    let mut elector = leader();
    let effects = elector.step(at(60_000), Input::Tick);
    let renewed = write(&effects);
    let effects = elector.step(at(60_010), wrote(60_000, Outcome::Done(record("2", ME, renewed.stamp))));
    assert_eq!(effects, [until(70_000), Effect::Renewed]);
}

#[test]
fn nothing_is_written_while_something_is_left_of_a_former_life() {
    let mut elector = Elector::new(terms(), true, at(0));
    elector.step(at(0), Input::Tick);
    assert_eq!(elector.step(at(0), Input::Looked(Ok(None))), [Effect::Follow { leader: None, address: None }]);
    assert!(elector.settled());
    assert_eq!(elector.step(at(300), Input::Cleared), [Effect::Look]);
    write(&elector.step(at(310), Input::Looked(Ok(None))));
}

#[test]
fn a_follower_that_cannot_look_keeps_whom_it_knows_and_says_once_that_it_cannot() {
    let mut elector = follower();
    elector.step(at(1000), Input::Tick);
    assert_eq!(elector.step(at(4300), Input::Looked(Err("refused".into()))), [Effect::Trouble("refused".into())]);
    assert_eq!(elector.wake(), Some(Duration::from_millis(5300)));
    elector.step(at(5300), Input::Tick);
    assert_eq!(elector.step(at(5300), Input::Looked(Err("refused".into()))), []);
    elector.step(at(40_000), Input::Tick);
    let effects = elector.step(at(40_000), looked(other("1", 1)));
    assert_eq!(effects[0], Effect::Well);
    assert_eq!(write(&effects).base.as_deref(), Some("1"), "it stood still since the first look, however few there were");
}
