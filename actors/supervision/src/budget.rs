//! When to restart, how long to wait, when to give up: pure (SV-2).

use std::collections::VecDeque;
use std::time::Duration;

use egress_protocol::Timestamp;

/// What to do about a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Start it again after this long.
    RestartAfter(Duration),
    /// More restarts than the budget allows.
    Exhausted,
}

/// At most `max_restarts` in `window`; waits double from `min_backoff` to `max_backoff` and start anew after a quiet window.
#[derive(Debug, Clone)]
pub struct RestartBudget {
    /// 5.
    pub max_restarts: usize,
    /// 60 s.
    pub window: Duration,
    /// 100 ms.
    pub min_backoff: Duration,
    /// 30 s.
    pub max_backoff: Duration,
    recent: VecDeque<Timestamp>,
}

impl Default for RestartBudget {
    fn default() -> Self {
        Self {
            max_restarts: 5,
            window: Duration::from_secs(60),
            min_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(30),
            recent: VecDeque::new(),
        }
    }
}

impl RestartBudget {
    /// Not a single restart.
    pub fn none() -> Self {
        Self { max_restarts: 0, ..Self::default() }
    }

    /// Records a crash and decides.
    pub fn crashed(&mut self, now: Timestamp) -> Decision {
        while self.recent.front().is_some_and(|at| now.since(*at) > self.window) {
            self.recent.pop_front();
        }
        if self.recent.len() >= self.max_restarts {
            return Decision::Exhausted;
        }
        let doublings = u32::try_from(self.recent.len()).unwrap_or(u32::MAX).min(20);
        self.recent.push_back(now);
        Decision::RestartAfter(self.min_backoff.saturating_mul(1 << doublings).min(self.max_backoff))
    }

    /// Forgets what was: a given-up child is tried with a fresh budget.
    pub fn reset(&mut self) {
        self.recent.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn waits_double_from_100_ms_and_the_sixth_crash_in_a_minute_exhausts_it() {
        let mut budget = RestartBudget::default();
        for millis in [100, 200, 400, 800, 1600] {
            assert_eq!(budget.crashed(at(0)), Decision::RestartAfter(Duration::from_millis(millis)));
        }
        assert_eq!(budget.crashed(at(60_000)), Decision::Exhausted, "SV-2: more than 5 restarts in 60 s");
        assert_eq!(budget.crashed(at(60_001)), Decision::RestartAfter(Duration::from_millis(100)), "a quiet window starts anew");
    }

    #[test]
    fn waits_do_not_grow_beyond_30_s() {
        let mut budget = RestartBudget { max_restarts: 1000, ..RestartBudget::default() };
        let waits: Vec<_> = (0..1000).map(|_| budget.crashed(at(0))).collect();
        assert_eq!(waits[8], Decision::RestartAfter(Duration::from_millis(25_600)));
        assert!(waits[9..].iter().all(|wait| *wait == Decision::RestartAfter(Duration::from_secs(30))));
    }

    #[test]
    fn without_a_restart_the_first_crash_exhausts_it() {
        assert_eq!(RestartBudget::none().crashed(at(0)), Decision::Exhausted);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Whatever the crashes: never more restarts in any window than allowed, never a refusal without as many, and
        /// every wait is within its bounds and not shorter than the one before within a window.
        #[test]
        fn a_budget_allows_exactly_its_restarts_per_window(
            max_restarts in 0_usize..8,
            window in 1_u64..100_000,
            gaps in proptest::collection::vec(0_i64..30_000, 0..200),
        ) {
            let window = Duration::from_millis(window);
            let mut budget = RestartBudget { max_restarts, window, ..RestartBudget::default() };
            let (mut now, mut restarts) = (0, Vec::<Timestamp>::new());
            for gap in gaps {
                now += gap;
                let recent = restarts.iter().filter(|then| at(now).since(**then) <= window).count();
                match budget.crashed(at(now)) {
                    Decision::Exhausted => prop_assert_eq!(recent, max_restarts),
                    Decision::RestartAfter(wait) => {
                        prop_assert!(recent < max_restarts);
                        prop_assert!(wait >= budget.min_backoff && wait <= budget.max_backoff);
                        prop_assert_eq!(wait, (budget.min_backoff * 2_u32.pow(u32::try_from(recent).unwrap())).min(budget.max_backoff));
                        restarts.push(at(now));
                    }
                }
            }
        }

        /// A reset budget is as good as new.
        #[test]
        fn a_reset_budget_is_a_fresh_one(crashes in 0_usize..10, now in 0_i64..100_000) {
            let mut budget = RestartBudget::default();
            for _ in 0..crashes {
                budget.crashed(at(now));
            }
            budget.reset();
            prop_assert_eq!(budget.crashed(at(now)), RestartBudget::default().crashed(at(now)));
        }
    }
}
