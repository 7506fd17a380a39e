//! When to probe (HE-1, HE-6): pure.
//!
//! Each proxy has slots, one per interval, at an offset that its UID gives, so that any fleet is spread evenly over the
//! interval, whenever it was started and by whichever process. A jitter of up to a tenth of the interval keeps proxies
//! of different intervals from marching in step. First probes do not wait for their slot; the [`Ramp`] bounds them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use egress_protocol::{Timestamp, Uid};

/// First probes per second in one process (HE-6).
pub const FIRST_PROBES_PER_SECOND: u32 = 500;

/// How often a failed urgent probe is repeated (LS-7).
pub const URGENT_EVERY: Duration = Duration::from_secs(1);

/// The slots of one proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    interval: i64,
    seed: u64,
}

impl Schedule {
    /// The slots that this UID has at this interval; always the same.
    pub fn new(uid: &Uid, interval: Duration) -> Self {
        let millis = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX / 4).clamp(1, i64::MAX / 4);
        Self { interval: millis, seed: hash(uid) }
    }

    /// The first slot at or after `at`.
    pub fn next(&self, at: Timestamp) -> Timestamp {
        let at = at.as_millis();
        // The slot before the one whose offset lies behind `at` can still lie ahead because of its jitter.
        let mut n = (at - self.offset()).div_euclid(self.interval) - 1;
        loop {
            let slot = self.slot(n);
            if slot >= at {
                return Timestamp::from_millis(slot);
            }
            n += 1;
        }
    }

    /// When to probe after a probe that began at `started`: the next slot, but not sooner than half an interval after
    /// it, so that a first probe is not repeated at once.
    pub fn after(&self, started: Timestamp, now: Timestamp) -> Timestamp {
        let half = Duration::from_millis(u64::try_from(self.interval / 2).unwrap_or(0));
        self.next(now.max(started + half))
    }

    fn offset(&self) -> i64 {
        scale(self.seed, self.interval)
    }

    fn slot(&self, n: i64) -> i64 {
        n * self.interval + self.offset() + scale(hash(&(self.seed, n)), self.interval / 10)
    }
}

/// Maps a hash evenly onto `0..range`.
fn scale(hash: u64, range: i64) -> i64 {
    let range = u64::try_from(range).unwrap_or(0);
    i64::try_from((u128::from(hash) * u128::from(range)) >> 64).unwrap_or(0)
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Spreads the first probes of all probers of a process: each reserves the next free place. No lock: one atomic.
#[derive(Debug)]
pub struct Ramp {
    /// Microseconds since the epoch at which the next place is free.
    free: AtomicI64,
    spacing: i64,
}

impl Ramp {
    /// So many first probes a second.
    pub fn new(per_second: u32) -> Self {
        Self { free: AtomicI64::new(i64::MIN), spacing: 1_000_000 / i64::from(per_second.max(1)) }
    }

    /// How long the caller must wait for its place, which is now taken.
    pub fn reserve(&self, now: Timestamp) -> Duration {
        let now = now.as_millis().saturating_mul(1000);
        let take = |free: i64| Some(free.max(now) + self.spacing);
        let mine = match self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(free) | Err(free) => free.max(now),
        };
        Duration::from_micros(u64::try_from(mine - now).unwrap_or(0))
    }
}

impl Default for Ramp {
    fn default() -> Self {
        Self::new(FIRST_PROBES_PER_SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uid(n: u32) -> Uid {
        Uid::new(format!("6ba7b810-9dad-11d1-80b4-{n:012}"))
    }

    const NOON: Timestamp = Timestamp::from_millis(1_767_355_200_000);

    /// HE-6: 10,000 proxies at 30 s make a steady ~333 probes/s, never a burst.
    #[test]
    fn ten_thousand_proxies_at_thirty_seconds_are_a_steady_stream() {
        let interval = Duration::from_secs(30);
        let mut per_second = [0_u32; 60];
        for n in 0..10_000 {
            let schedule = Schedule::new(&uid(n), interval);
            let mut at = NOON;
            loop {
                let slot = schedule.next(at);
                let second = slot.since(NOON).as_secs();
                let Some(count) = usize::try_from(second).ok().and_then(|s| per_second.get_mut(s)) else { break };
                *count += 1;
                at = slot + Duration::from_millis(1);
            }
        }
        let (least, most) = (per_second.iter().min().unwrap(), per_second.iter().max().unwrap());
        assert!(*least > 250 && *most < 420, "between {least} and {most} probes in a second");
    }

    /// HE-6: at most 500 first probes in any second, and nobody waits longer than that takes.
    #[test]
    fn the_ramp_gives_one_place_every_two_milliseconds() {
        let ramp = Ramp::default();
        let waits: Vec<_> = (0..10_000).map(|_| ramp.reserve(NOON)).collect();
        assert_eq!(waits.first(), Some(&Duration::ZERO));
        assert!(waits.windows(2).all(|pair| pair[1] - pair[0] == Duration::from_millis(2)));
        assert_eq!(waits.last(), Some(&Duration::from_millis(2 * 9_999)));
        assert_eq!(ramp.reserve(NOON + Duration::from_secs(60)), Duration::ZERO, "a quiet ramp is free at once");
    }

    #[test]
    fn the_ramp_gives_no_place_twice_to_threads_at_once() {
        let ramp = Ramp::new(1000);
        let mut places: Vec<Duration> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..500).map(|_| ramp.reserve(NOON)).collect::<Vec<_>>())).collect();
            handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
        });
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 2000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Invariant `no slot is missed, none is repeated`: after a probe in its slot the next one follows within 0.9 to 1.1
        /// intervals, for any UID, interval and time.
        #[test]
        fn slots_follow_each_other_by_about_one_interval(n: u32, seconds in 1_u64..3600, at in 0_i64..4_000_000_000_000) {
            let interval = Duration::from_secs(seconds);
            let schedule = Schedule::new(&uid(n), interval);
            let mut slot = schedule.next(Timestamp::from_millis(at));
            prop_assert!(slot.as_millis() >= at);
            prop_assert!(slot.since(Timestamp::from_millis(at)) <= interval.mul_f64(1.1));
            for _ in 0..20 {
                let next = schedule.after(slot, slot + Duration::from_millis(3));
                let gap = next.since(slot);
                prop_assert!(gap >= interval.mul_f64(0.89) && gap <= interval.mul_f64(1.11), "{gap:?} of {interval:?}");
                slot = next;
            }
        }

        /// Invariant `a first probe is not repeated at once`, and `a slow one is not followed by a heap of missed slots`.
        #[test]
        fn the_second_probe_comes_half_to_one_and_a_half_intervals_after_the_first(
            n: u32, seconds in 1_u64..3600, started in 0_i64..4_000_000_000_000, took in 0_u64..60_000,
        ) {
            let interval = Duration::from_secs(seconds);
            let took = Duration::from_millis(took).min(interval);
            let started = Timestamp::from_millis(started);
            let next = Schedule::new(&uid(n), interval).after(started, started + took);
            prop_assert!(next.since(started) >= (interval / 2).max(took));
            prop_assert!(next.since(started) <= (interval / 2).max(took) + interval.mul_f64(1.1) + Duration::from_millis(1));
        }
    }
}
