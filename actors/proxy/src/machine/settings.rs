//! Every interval the machine goes by (OP-10), and its dice.

use std::time::Duration;

use egress_protocol::proxies::Share;

/// The intervals and limits of reconciling. Flags of OP-27 set those before `backoff_min`.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Between reads of an instance that is not usable yet.
    pub poll_provisioning: Duration,
    /// Between reads of an instance that is being removed.
    pub poll_deletion: Duration,
    /// Between reads of one that runs.
    pub poll_drift: Duration,
    /// After a quota answer, and between tries of what the environment keeps from working (PC-59).
    pub quota_retry: Duration,
    /// The longest wait after a transient failure.
    pub backoff_max: Duration,
    /// How many may be replaced at a time (OP-16, OP-33).
    pub max_unavailable: Share,
    /// How long leases may keep an instance from being removed (LS-16).
    pub drain_timeout: Duration,
    /// The first wait after a transient failure.
    pub backoff_min: Duration,
    /// The second read after a create or delete; the first follows at once.
    pub poll_first: Duration,
    /// A delete is repeated no sooner than this (PC-41).
    pub repeat_delete: Duration,
    /// An instance that ended by itself sooner is a failed try (OP-14).
    pub failed_try: Duration,
    /// For how many reads an address is kept that a running instance stops reporting (OP-13).
    pub address_grace: u32,
    /// A turn to Unhealthy asks for one read out of turn, no more often than this (OP-13).
    pub extra_poll: Duration,
    /// Between status writes of one object (OP-24).
    pub write_interval: Duration,
    /// Between rewrites of a text that differs only in numbers (OP-7).
    pub text_interval: Duration,
    /// The same while a create tells its progress (LV-103).
    pub progress_interval: Duration,
    /// Between changes of the cause that `Healthy` names while the proxy stays unhealthy; the first is written at once.
    pub cause_interval: Duration,
    /// A rollout that moved nobody for this long stands still and says so (OP-16).
    pub rollout_stall: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            poll_provisioning: seconds(10),
            poll_deletion: seconds(10),
            poll_drift: seconds(120),
            quota_retry: seconds(300),
            backoff_max: seconds(300),
            max_unavailable: Share::Percent(25),
            drain_timeout: seconds(300),
            backoff_min: seconds(1),
            poll_first: seconds(1),
            repeat_delete: seconds(60),
            failed_try: seconds(600),
            address_grace: 3,
            extra_poll: seconds(60),
            write_interval: seconds(1),
            text_interval: seconds(300),
            progress_interval: seconds(30),
            cause_interval: seconds(60),
            rollout_stall: seconds(300),
        }
    }
}

impl Settings {
    /// The longest wait after that many failures in a row (0: the first).
    fn ceiling(&self, failures: u32) -> Duration {
        self.backoff_min.saturating_mul(1 << failures.min(20)).min(self.backoff_max)
    }
}

/// The machine's randomness: a seed handed in and a fixed generator (splitmix64), so that a run can be repeated.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Exponential backoff with full jitter (OP-10): anything up to the ceiling, never zero unless the ceiling is.
    pub(crate) fn backoff(&mut self, settings: &Settings, failures: u32) -> Duration {
        let ceiling = u64::try_from(settings.ceiling(failures).as_millis()).unwrap_or(u64::MAX);
        if ceiling == 0 {
            return Duration::ZERO;
        }
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Duration::from_millis(1 + (z ^ (z >> 31)) % ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_from_one_second_to_five_minutes_with_full_jitter_op_10() {
        let settings = Settings::default();
        let mut dice = Dice::new(7);
        for (failures, ceiling) in [(0, 1), (1, 2), (5, 32), (9, 300), (40, 300)] {
            let waits: Vec<_> = (0..200).map(|_| dice.backoff(&settings, failures)).collect();
            assert!(waits.iter().all(|wait| !wait.is_zero() && *wait <= Duration::from_secs(ceiling)));
            assert!(waits.iter().any(|wait| *wait < Duration::from_secs(ceiling) / 4), "full jitter reaches low");
            assert!(waits.iter().any(|wait| *wait > Duration::from_secs(ceiling) * 3 / 4), "and high");
        }
    }
}
