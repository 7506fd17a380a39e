use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_767_323_045_000) + Duration::from_secs(seconds)
}

fn verdict(name: &str, ready: bool, reason: &'static str) -> TargetVerdict {
    TargetVerdict {
        name: name.to_owned(),
        address: format!("{name}.example:22"),
        ready,
        reason,
        message: if ready { String::new() } else { format!("{reason} in words") },
        latency: Duration::from_micros(12_900),
        details: Vec::new(),
    }
}

fn up(name: &str) -> TargetVerdict {
    verdict(name, true, REACHABLE)
}

fn checked(outcome: Outcome, seconds: u64) -> Checked {
    Checked { name: "lab".into(), type_: "kvm", outcome, finished: at(seconds), took: Duration::from_secs(2) }
}

/// What a series of rounds, ten seconds apart, comes to.
fn rounds(outcomes: impl IntoIterator<Item = Outcome>) -> Vec<Arc<ProviderHealthStatus>> {
    let mut seen: Vec<Arc<ProviderHealthStatus>> = Vec::new();
    for (n, outcome) in outcomes.into_iter().enumerate() {
        let seconds = u64::try_from(n).unwrap() * 10;
        let status = next(seen.last().map(|status| &**status), &checked(outcome, seconds)).status;
        seen.push(status);
    }
    seen
}

fn verdicts_of<const N: usize>(verdicts: [TargetVerdict; N]) -> Outcome {
    Outcome::Verdicts(verdicts.into())
}

fn ready(status: &ProviderHealthStatus) -> &Condition {
    assert_eq!(status.conditions.len(), 1, "one condition");
    &status.conditions[0]
}

fn since(status: &ProviderHealthStatus, target: &str) -> Timestamp {
    status.targets.iter().find(|of| of.name == target).unwrap().last_transition_time.0.into()
}

#[test]
fn the_condition_is_one_of_four_rows_ht_02_ph_19() {
    let rows = [
        (verdicts_of([up("a"), up("b")]), ("True", "AllTargetsReady", ""), "2/2"),
        (
            verdicts_of([up("a"), verdict("b", false, "Timeout"), verdict("c", false, "PoolNotFound")]),
            ("False", "TargetsNotReady", "b: Timeout, c: PoolNotFound"),
            "1/3",
        ),
        (Outcome::NotImplemented, ("Unknown", "ChecksNotImplemented", "providers of type kvm have no check"), "0/0"),
        (verdicts_of([]), ("Unknown", "NoTargets", "the check found nothing to look at"), "0/0"),
    ];
    for (outcome, expected, targets_ready) in rows {
        let status = next(None, &checked(outcome, 0)).status;
        let Condition { type_, status: holds, reason, message, observed_generation, .. } = ready(&status);
        assert_eq!((type_.as_str(), observed_generation), ("Ready", &None));
        assert_eq!((holds.as_str(), reason.as_str(), message.as_str()), expected);
        assert_eq!((status.targets_ready.as_deref(), status.type_.as_deref()), (Some(targets_ready), Some("kvm")));
        assert_eq!(Timestamp::from(status.last_check_time.as_ref().unwrap().0), at(0));
    }
}

#[test]
fn a_target_is_told_in_check_order_with_whole_milliseconds_ph_18() {
    let mut b = up("b");
    b.details = vec![("pool".into(), "default".into()), ("hostname".into(), String::new())];
    let result = next(None, &checked(verdicts_of([b, verdict("a", false, "Timeout")]), 0));
    let [b, a] = result.status.targets.as_slice() else { panic!("{:?}", result.status) };
    assert_eq!((b.name.as_str(), b.ready, b.reason.as_deref(), b.message.as_deref()), ("b", true, Some("Reachable"), None));
    assert_eq!(
        (b.latency_millis, b.address.as_deref(), result.latencies[0]),
        (Some(12), Some("b.example:22"), Duration::from_micros(12_900))
    );
    assert_eq!(b.details.iter().collect::<Vec<_>>(), [(&"pool".to_owned(), &"default".to_owned())], "PH-34");
    assert_eq!((a.name.as_str(), a.ready, a.message.as_deref()), ("a", false, Some("Timeout in words")));
}

#[test]
fn times_move_with_flips_only_ht_02_ph_17_ph_19() {
    let down = |reason| verdict("b", false, reason);
    let seen = rounds([
        verdicts_of([up("a"), up("b")]),
        verdicts_of([up("a"), up("b")]),
        verdicts_of([up("a"), down("Timeout")]),
        verdicts_of([up("a"), down("Unreachable")]),
        verdicts_of([up("a"), up("new"), down("Unreachable")]),
        verdicts_of([up("new"), down("Unreachable")]),
        verdicts_of([up("a"), up("new"), up("b")]),
    ]);
    let times = |target: &str| -> Vec<Timestamp> {
        let there = seen.iter().filter(|status| status.targets.iter().any(|of| of.name == target));
        there.map(|status| since(status, target)).collect()
    };
    assert_eq!(times("b"), [at(0), at(0), at(20), at(20), at(20), at(20), at(60)], "a reason alone moves nothing");
    assert_eq!(times("a"), [at(0), at(0), at(0), at(0), at(0), at(60)], "one that returns gets now");
    assert_eq!(times("new"), [at(40), at(40), at(40)]);
    let conditions: Vec<Timestamp> = seen.iter().map(|status| ready(status).last_transition_time.0.into()).collect();
    assert_eq!(conditions, [at(0), at(0), at(20), at(20), at(20), at(20), at(60)]);
    assert!(
        seen.iter()
            .enumerate()
            .all(|(n, status)| { Timestamp::from(status.last_check_time.as_ref().unwrap().0) == at(u64::try_from(n).unwrap() * 10) })
    );
}

#[test]
fn long_texts_are_cut_on_a_character_and_never_fail_a_write_ht_02_ph_7() {
    let mut long = verdict("a", false, "APIError");
    long.message = "ä".repeat(2000);
    long.details = (0..40).map(|n| (format!("k{n:02}"), "ö".repeat(300))).collect();
    let mut verdicts = vec![long];
    verdicts.extend((0..200).map(|n| verdict(&format!("host-{n}"), false, "Unreachable")));
    let status = next(None, &checked(Outcome::Verdicts(verdicts), 0)).status;
    let target = &status.targets[0];
    assert_eq!(target.message.as_deref(), Some("ä".repeat(1024).as_str()));
    assert_eq!((target.details.len(), target.details["k31"].as_str()), (32, "ö".repeat(256).as_str()));
    assert_eq!(ready(&status).message.chars().count(), 1024);
    assert_eq!(status.targets_ready.as_deref(), Some("0/201"));
}

#[test]
fn a_check_without_an_answer_says_the_same_of_every_known_target_ph_15() {
    let seen = rounds([verdicts_of([up("a"), up("b")]), Outcome::Abandoned, Outcome::Abandoned, Outcome::Broken("it broke".into())]);
    let told = |status: &ProviderHealthStatus| -> Vec<(String, Option<String>, Option<String>)> {
        status.targets.iter().map(|of| (of.name.clone(), of.reason.clone(), of.address.clone())).collect()
    };
    let of = |name: &str, reason: &str| (name.to_owned(), Some(reason.to_owned()), Some(format!("{name}.example:22")));
    assert_eq!(told(&seen[1]), [of("a", TIMEOUT), of("b", TIMEOUT)]);
    assert!(seen[1].targets[0].message.as_deref().unwrap().contains("did not stop"));
    assert_eq!((since(&seen[2], "a"), ready(&seen[2]).status.as_str()), (at(10), "False"));
    assert_eq!(told(&seen[3]), [of("a", API_ERROR), of("b", API_ERROR)]);
    assert_eq!(since(&seen[3], "a"), at(10));
    let first = rounds([Outcome::Broken("it broke".into())]);
    assert_eq!((first[0].targets[0].name.as_str(), first[0].targets[0].reason.as_deref()), ("lab", Some(API_ERROR)), "seen at all");
}

#[test]
fn names_are_unique_whatever_a_check_says_ph_27() {
    let status = next(None, &checked(verdicts_of([up("a"), verdict("a", false, "Timeout"), up("")]), 0)).status;
    assert_eq!((status.targets.len(), status.targets_ready.as_deref()), (1, Some("1/1")));
}

#[test]
fn each_transition_is_told_once_ht_05_ph_43() {
    let down = |reason| verdicts_of([verdict("a", false, reason)]);
    let up = || verdicts_of([up("a")]);
    let told = |outcomes: Vec<Outcome>| {
        let seen = rounds(outcomes);
        let earlier = std::iter::once(None).chain(seen.iter().map(|status| Some(&**status)));
        earlier.zip(&seen).map(|(earlier, now)| transitions(earlier, now).next().map(|(_, transition)| transition)).collect::<Vec<_>>()
    };
    use Transition::{Back, Down, Found};
    assert_eq!(
        told(vec![up(), up(), down("Timeout"), down("Timeout"), down("Unreachable"), up()]),
        [Some(Found), None, Some(Down), None, Some(Down), Some(Back)]
    );
    assert_eq!(told(vec![down("Timeout"), down("Timeout"), up()]), [Some(Down), None, Some(Back)], "first seen down");
    let other_words = Outcome::Verdicts(vec![TargetVerdict { message: "other words".into(), ..verdict("a", false, "Timeout") }]);
    assert_eq!(told(vec![down("Timeout"), other_words]), [Some(Down), None], "a changed message is no transition");
    assert_eq!(told(vec![up(), verdicts_of([]), up()]), [Some(Found), None, Some(Found)], "gone and first seen again");
}
