//! One clock, one way to write a time, one way to read a duration.
//!
//! What must stay true: [`Timestamp`]s are points of one time line that runs evenly whatever becomes of the system clock, so
//! that leases, timers and deadlines keep their length. Where a time is written or read (RFC 3339, the Kubernetes types, Unix
//! time) it is moved by what the system clock was set off meanwhile.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const EPOCH: jiff::civil::DateTime = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);

/// How far the system clock was set off since this process read it first, in milliseconds. One per process, as that clock.
static STEPPED: AtomicI64 = AtomicI64::new(0);

fn stepped() -> i64 {
    STEPPED.load(Ordering::Relaxed)
}

/// A wall-clock instant in whole milliseconds since the Unix epoch. Written as RFC 3339, UTC, three decimals (LS-21).
///
/// Inside the process it is counted as if the system clock had never been set ([`Clock`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch, inside the process.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch, inside the process.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Milliseconds since the Unix epoch as the rest of the world counts them.
    pub fn unix_millis(self) -> i64 {
        self.0.saturating_add(stepped())
    }

    fn from_unix_millis(millis: i64) -> Self {
        Self(millis.saturating_sub(stepped()))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Reads RFC 3339, rounding down to milliseconds.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(Self::from).or_else(|| Self::parse_last_days(text))
    }

    /// The last two days of the year 9999, by which people mean for ever: an instant of the library ends before them.
    fn parse_last_days(text: &str) -> Option<Self> {
        let pieces = jiff::fmt::temporal::Pieces::parse(text).ok().filter(|pieces| pieces.time_zone_annotation().is_none())?;
        let local = pieces.date().to_datetime(pieces.time()?).duration_since(EPOCH);
        let at = local.checked_sub(jiff::SignedDuration::from_secs(pieces.to_numeric_offset()?.seconds().into()))?;
        i64::try_from(at.as_millis()).ok().map(Self)
    }

    /// The same instant for the Kubernetes types.
    pub fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.unix_millis()).unwrap_or(jiff::Timestamp::MAX)
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(at: jiff::Timestamp) -> Self {
        Self::from_unix_millis(at.as_millisecond())
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last_days =
            EPOCH.checked_add(jiff::SignedDuration::from_millis(self.0)).ok().filter(|_| self.to_jiff() == jiff::Timestamp::MAX);
        match last_days {
            Some(at) => write!(f, "{at:.3}Z"),
            None => write!(f, "{:.3}", self.to_jiff()),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text} is not an RFC 3339 time")))
    }
}

/// The one clock of a process: the wall clock read once at start, moved on by tokio's monotonic clock. It never
/// steps back, and a paused test clock drives it. (The kernel slews the monotonic clock as it slews the wall
/// clock, so the two part only when somebody sets the date, or the machine slept.)
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall: Timestamp,
    mono: tokio::time::Instant,
    /// The same moment by a clock that no test can pause; `None` for a clock that does not show the system's time.
    read: Option<std::time::Instant>,
}

/// The system clock is off by less than this all the time, without having been set: it was read a moment later.
const TOLERANCE_MILLIS: u64 = 500;

impl Clock {
    /// Reads the system clock; call once, in the composition root.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    pub fn system() -> Self {
        let read = Some(std::time::Instant::now());
        Self { read, ..Self::starting_at(Timestamp::from_unix_millis(system_millis())) }
    }

    /// A clock that shows `wall` now; for tests.
    pub fn starting_at(wall: Timestamp) -> Self {
        Self { wall, mono: tokio::time::Instant::now(), read: None }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        self.wall + self.mono.elapsed()
    }

    /// Looks whether the system clock was set since the last look; if so, by how many milliseconds. From then on every
    /// clock of the process writes and reads times by it, and none of them jumps.
    pub fn follow(&self) -> Option<i64> {
        let read = self.read?;
        let (before, shows) = (read.elapsed(), system_millis());
        // Kept waiting between the two readings: the next look will tell.
        if read.elapsed().saturating_sub(before) > Duration::from_millis(100) {
            return None;
        }
        let step = off(shows, (self.wall + before).unix_millis())?;
        STEPPED.fetch_add(step, Ordering::Relaxed);
        Some(step)
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
fn system_millis() -> i64 {
    let now = std::time::SystemTime::now();
    let millis = |d: Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
    // Before 1970: a machine whose clock was never set.
    now.duration_since(std::time::UNIX_EPOCH).map_or_else(|before| -millis(before.duration()), millis)
}

/// How far the system clock is off what it should show, if it was set.
fn off(shows: i64, should_show: i64) -> Option<i64> {
    let step = shows.saturating_sub(should_show);
    (step.unsigned_abs() >= TOLERANCE_MILLIS).then_some(step)
}

/// A text of more characters is no duration.
const LONGEST_TEXT: usize = 100;
/// A number of more digits, its decimals included, is no duration. With [`LONGEST_TEXT`] no sum comes near the largest
/// duration, where the parser below would panic.
const MOST_DIGITS: usize = 10;

/// Why a text is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurationFault {
    /// It does not read as one.
    Unreadable,
    /// A unit in capital letters: `M` would be months where `m` is minutes.
    Capital,
    /// More digits than anybody can wait for.
    TooLong,
}

impl DurationFault {
    /// What helps, beside an example of a duration.
    pub const fn hint(self) -> Option<&'static str> {
        match self {
            Self::Unreadable => None,
            Self::Capital => Some("units are in lower case, m is minutes"),
            Self::TooLong => Some("it is too long"),
        }
    }
}

/// Goes on from the text: `is not a duration such as …`.
impl fmt::Display for DurationFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is not a duration such as 90s or 5m")?;
        self.hint().map_or(Ok(()), |hint| write!(f, ": {hint}"))
    }
}

/// Reads a human duration such as `90s`, `5m` or `1h30m`. A number without a unit is refused. Every duration that a
/// person writes anywhere is read here; it answers whatever the text.
pub fn parse_duration(text: &str) -> Result<Duration, DurationFault> {
    if !text.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(DurationFault::Unreadable);
    }
    let digits = |number: &str| number.chars().filter(char::is_ascii_digit).count();
    if text.len() > LONGEST_TEXT || text.split(char::is_alphabetic).any(|number| digits(number) > MOST_DIGITS) {
        return Err(DurationFault::TooLong);
    }
    if text.chars().any(char::is_uppercase) {
        return Err(DurationFault::Capital);
    }
    humantime::parse_duration(text).map_err(|_| DurationFault::Unreadable)
}

/// Writes a duration as [`parse_duration`] reads it, without blanks: `1h30m`.
pub fn format_duration(d: Duration) -> String {
    humantime::format_duration(d).to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_have_three_decimals_and_end_in_z() {
        assert_eq!(Timestamp::from_millis(1_767_323_045_000).to_string(), "2026-01-02T03:04:05.000Z");
        assert_eq!(Timestamp::parse("2026-01-02T03:04:05.000Z"), Some(Timestamp::from_millis(1_767_323_045_000)));
    }

    /// Issue 10, 28: `9999-12-31T23:59:59Z` was no time.
    #[test]
    fn the_last_days_of_the_year_9999_are_times() {
        for text in ["9999-12-30T22:00:00.000Z", "9999-12-30T22:00:01.000Z", "9999-12-31T23:59:59.999Z"] {
            assert_eq!(Timestamp::parse(text).map(|at| at.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Timestamp::parse("9999-12-31T23:59:59+01:00"), Timestamp::parse("9999-12-31T22:59:59Z"));
        assert_eq!(Timestamp::parse("9999-12-31T23:59:59"), None, "no offset");
        assert_eq!(Timestamp::parse("9999-12-32T00:00:00Z"), None);
    }

    #[test]
    fn a_duration_needs_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert!(parse_duration("90").is_err());
        assert!(parse_duration("").is_err());
        assert!(parse_duration("-5s").is_err());
    }

    /// Issue 10, 3: one second more than the largest duration made the parser panic.
    #[test]
    fn a_duration_beyond_all_bounds_is_refused() {
        let beyond = ["18446744073709551615s1000000000ns", "18446744073709551615s 1000ms", "99999999999y", "0.33333333333s"];
        for text in beyond.into_iter().chain([&*"1s".repeat(51)]) {
            assert_eq!(parse_duration(text), Err(DurationFault::TooLong), "{text}");
        }
        assert_eq!(parse_duration("1000000000ns"), Ok(Duration::from_secs(1)));
        assert!(parse_duration(&"9999999999y".repeat(9)).is_ok(), "the largest that is read");
    }

    /// Issue 10, 28: `5M` was read as five months.
    #[test]
    fn units_in_capital_letters_are_refused_and_the_text_says_what_is_meant() {
        for text in ["5M", "1H", "2D", "1h30M"] {
            let fault = parse_duration(text).unwrap_err();
            assert_eq!(fault.to_string(), "is not a duration such as 90s or 5m: units are in lower case, m is minutes", "{text}");
        }
    }

    proptest! {
        /// Issue 10, 3: whatever a person writes, they get a duration or a fault.
        #[test]
        fn any_text_is_answered(
            parts in proptest::collection::vec(("[0-9]{0,21}(\\.[0-9]{0,12})?", " ?(ns|us|µs|ms|s|m|h|d|w|M|months|y|years|)"), 0..12),
            noise in "\\PC{0,3}",
        ) {
            let text: String = parts.into_iter().map(|(number, unit)| number + &unit).collect::<String>() + &noise;
            let _answered = parse_duration(&text);
            let _also_without = parse_duration(text.trim_end_matches(&noise));
        }
    }

    #[test]
    fn a_clock_that_was_set_is_told_from_one_that_is_read_late_issue_10_item_26() {
        assert_eq!([off(1_000, 1_000), off(1_499, 1_000), off(501, 1_000)], [None; 3]);
        assert_eq!([off(3_601_000, 1_000), off(-3_599_000, 1_000)], [Some(3_600_000), Some(-3_600_000)]);
        assert_eq!([Clock::system().follow(), Clock::starting_at(Timestamp::from_millis(0)).follow()], [None; 2]);
    }
}
