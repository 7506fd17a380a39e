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
