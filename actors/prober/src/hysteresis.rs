//! What results mean (HE-2, HE-9): pure.
//!
//! The first result decides only while nothing is known; after that a verdict falls to so many results in a row that
//! contradict it. While the check URL is suspect, failures that may be the target's count for nothing, and what they
//! decided is taken back; a proxy that fails by itself still falls. A hold has an end in time: after it failures count again.

use egress_protocol::Timestamp;
use egress_protocol::resource::HealthCheck;

use crate::judge::Evidence;

/// Results in a row that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// To fall.
    pub failure: u32,
    /// To rise.
    pub success: u32,
}

impl From<&HealthCheck> for Thresholds {
    fn from(check: &HealthCheck) -> Self {
        Self { failure: check.failure_threshold.max(1), success: check.success_threshold.max(1) }
    }
}

/// What stands after a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub healthy: bool,
    /// It changed with this result.
    pub flipped: bool,
    /// Results in a row that contradict it.
    pub contradicting: u32,
}

/// A proxy's verdict and what speaks against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hysteresis {
    verdict: Option<bool>,
    contradicting: u32,
    held_until: Option<Timestamp>,
    fell: Option<Fall>,
}

/// The failure on the target's side that made the verdict False, and what stood before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fall {
    started_at: Timestamp,
    before: Option<bool>,
}

impl Hysteresis {
    /// With the verdict that was written last; it stands, and counts start from zero.
    pub fn new(prior: Option<bool>) -> Self {
        Self { verdict: prior, ..Self::default() }
    }

    /// The verdict; `None` while nothing is known.
    pub fn verdict(&self) -> Option<bool> {
        self.verdict
    }

    /// Results in a row that contradict the verdict.
    pub fn contradicting(&self) -> u32 {
        self.contradicting
    }

    /// Until when failures on the target's side decide nothing.
    pub fn held_until(&self) -> Option<Timestamp> {
        self.held_until
    }

    /// Whether those of a probe that begins now would decide nothing.
    pub fn held(&self, now: Timestamp) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    /// Takes a result of a probe that began at `started_at`.
    pub fn observe(&mut self, evidence: Evidence, started_at: Timestamp, thresholds: Thresholds) -> Judgement {
        match evidence {
            Evidence::Passed => self.release(),
            Evidence::TargetSide if self.held(started_at) => return self.judgement(false),
            Evidence::TargetSide | Evidence::ProxySide => {}
        }
        let passed = evidence == Evidence::Passed;
        let flipped = match self.verdict {
            None => true,
            Some(verdict) if verdict == passed => {
                self.contradicting = 0;
                false
            }
            Some(_) => {
                self.contradicting += 1;
                self.contradicting >= if passed { thresholds.success } else { thresholds.failure }
            }
        };
        if flipped {
            self.fell = (evidence == Evidence::TargetSide).then_some(Fall { started_at, before: self.verdict });
            self.verdict = Some(passed);
            self.contradicting = 0;
        }
        self.judgement(flipped)
    }

    /// The check URL is suspect since then: until the hold ends verdicts are kept, and one that fell to it is restored.
    pub fn hold(&mut self, since: Timestamp, until: Timestamp) {
        self.held_until = Some(until);
        self.contradicting = 0;
        if let Some(fall) = self.fell
            && self.verdict == Some(false)
            && (since..until).contains(&fall.started_at)
        {
            self.verdict = fall.before;
            self.fell = None;
        }
    }

    /// The suspicion is over: counts start from zero.
    pub fn release(&mut self) {
        if self.held_until.take().is_some() {
            self.contradicting = 0;
        }
    }

    fn judgement(&self, flipped: bool) -> Judgement {
        Judgement { healthy: self.verdict == Some(true), flipped, contradicting: self.contradicting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T: Thresholds = Thresholds { failure: 3, success: 2 };

    fn at(n: usize) -> Timestamp {
        Timestamp::from_millis(i64::try_from(n).unwrap() * 1000)
    }

    fn result(passed: bool) -> Evidence {
        if passed { Evidence::Passed } else { Evidence::TargetSide }
    }

    fn run(mut state: Hysteresis, results: &[bool]) -> Vec<(bool, bool)> {
        results
            .iter()
            .enumerate()
            .map(|(n, passed)| {
                let judgement = state.observe(result(*passed), at(n), T);
                (judgement.healthy, judgement.flipped)
            })
            .collect()
    }

    /// HE-2, M14: one timeout from creation is enough for a verdict.
    #[test]
    fn the_very_first_result_decides_from_unknown() {
        assert_eq!(run(Hysteresis::new(None), &[false]), [(false, true)]);
        assert_eq!(run(Hysteresis::new(None), &[true]), [(true, true)]);
    }

    /// HE-2: after a restart the last written verdict stands and thresholds count from zero.
    #[test]
    fn a_prior_verdict_falls_only_to_the_threshold() {
        let healthy = Hysteresis::new(Some(true));
        assert_eq!(run(healthy, &[false, false, false]), [(true, false), (true, false), (false, true)]);
        assert_eq!(run(healthy, &[false, false, true, false, false]).last(), Some(&(true, false)));
        let unhealthy = Hysteresis::new(Some(false));
        assert_eq!(run(unhealthy, &[true, true]), [(false, false), (true, true)]);
        assert_eq!(run(unhealthy, &[true, false, true]).last(), Some(&(false, false)));
    }

    /// HE-9: what the suspect URL flipped is restored, what fell before it is not.
    #[test]
    fn a_hold_restores_what_fell_since_then() {
        let mut state = Hysteresis::new(Some(true));
        for n in 1..=3 {
            state.observe(Evidence::TargetSide, at(n), T);
        }
        assert_eq!(state.verdict(), Some(false));
        let mut early = state;
        state.hold(at(1), at(99));
        assert_eq!(state.verdict(), Some(true));
        for n in 4..20 {
            assert_eq!(state.observe(Evidence::TargetSide, at(n), T), Judgement { healthy: true, flipped: false, contradicting: 0 });
        }
        state.release();
        assert_eq!(state.observe(Evidence::TargetSide, at(20), T), Judgement { healthy: true, flipped: false, contradicting: 1 });
        early.hold(at(4), at(99));
        assert_eq!(early.verdict(), Some(false));

        let mut new = Hysteresis::new(None);
        new.observe(Evidence::TargetSide, at(5), T);
        new.hold(at(4), at(99));
        assert_eq!(new.verdict(), None, "the URL said nothing about it");
        assert_eq!(new.observe(Evidence::Passed, at(9), T), Judgement { healthy: true, flipped: true, contradicting: 0 });
        assert!(!new.held(at(9)), "a pass ends the hold");
    }

    /// Issue 10, 21: a pool that fails at its check URL for good does not stay healthy for good.
    #[test]
    fn after_the_end_of_a_hold_failures_count_again_and_what_falls_then_stays_down() {
        let mut state = Hysteresis::new(Some(true));
        state.hold(at(1), at(5));
        state.observe(Evidence::TargetSide, at(4), T);
        assert_eq!(state.contradicting(), 0, "held");
        for n in 5..=6 {
            assert!(!state.observe(Evidence::TargetSide, at(n), T).flipped, "counts start from zero");
        }
        assert_eq!(state.observe(Evidence::TargetSide, at(7), T), Judgement { healthy: false, flipped: true, contradicting: 0 });
        state.hold(at(1), at(5));
        assert_eq!(state.verdict(), Some(false), "told of the suspicion once more");
    }

    /// HE-9, M8: a proxy that fails by itself falls although the URL is suspect, and stays down.
    #[test]
    fn a_hold_does_not_cover_what_the_proxy_does_wrong() {
        let mut state = Hysteresis::new(Some(true));
        state.hold(at(0), at(99));
        state.observe(Evidence::ProxySide, at(1), T);
        state.observe(Evidence::TargetSide, at(2), T);
        state.observe(Evidence::ProxySide, at(3), T);
        assert_eq!(state.observe(Evidence::ProxySide, at(4), T), Judgement { healthy: false, flipped: true, contradicting: 0 });
        state.hold(at(0), at(99));
        assert_eq!(state.verdict(), Some(false));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Invariants, checked after every step against the plain reading of HE-2: `a verdict falls exactly when the last
        /// threshold results contradict it and none since its last change agreed`, `a flip is reported exactly when the
        /// verdict changed`.
        #[test]
        fn a_verdict_changes_exactly_at_its_threshold(
            prior in proptest::option::of(any::<bool>()), results in proptest::collection::vec(any::<bool>(), 0..60),
            failure in 1_u32..=10, success in 1_u32..=10,
        ) {
            let thresholds = Thresholds { failure, success };
            let mut state = Hysteresis::new(prior);
            let (mut verdict, mut since_change): (Option<bool>, Vec<bool>) = (prior, Vec::new());
            for (n, passed) in results.into_iter().enumerate() {
                let judgement = state.observe(result(passed), at(n), thresholds);
                since_change.push(passed);
                let streak = since_change.iter().rev().take_while(|r| **r == passed).count();
                let needed = usize::try_from(if passed { success } else { failure }).unwrap();
                let expected = match verdict {
                    None => Some(passed),
                    Some(standing) if standing != passed && streak >= needed => Some(passed),
                    standing => standing,
                };
                prop_assert_eq!(state.verdict(), expected);
                prop_assert_eq!(Some(judgement.healthy), expected);
                prop_assert_eq!(judgement.flipped, expected != verdict);
                if expected != verdict {
                    since_change.clear();
                }
                verdict = expected;
            }
        }
    }
}
