//! One clock, one way to write a time, one way to read a duration.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A wall-clock instant in whole milliseconds since the Unix epoch. Written as RFC 3339, UTC, three decimals (LS-21).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Reads RFC 3339, rounding down to milliseconds.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|at| Self(at.as_millisecond()))
    }

    /// The same instant for the Kubernetes types.
    pub fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::MAX)
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(at: jiff::Timestamp) -> Self {
        Self(at.as_millisecond())
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
        write!(f, "{:.3}", self.to_jiff())
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
/// clock, so the two part only when somebody sets the date by hand.)
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall: Timestamp,
    mono: tokio::time::Instant,
}

impl Clock {
    /// Reads the system clock; call once, in the composition root.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system clock")]
    pub fn system() -> Self {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self::starting_at(Timestamp::from_millis(i64::try_from(wall.as_millis()).unwrap_or(0)))
    }

    /// A clock that shows `wall` now; for tests.
    pub fn starting_at(wall: Timestamp) -> Self {
        Self { wall, mono: tokio::time::Instant::now() }
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        self.wall + self.mono.elapsed()
    }
}

/// Reads a human duration such as `90s`, `5m` or `1h30m`. A number without a unit is refused.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.is_empty() || !text.ends_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(format!("{text} is not a duration such as 90s or 5m"));
    }
    humantime::parse_duration(text).map_err(|_| format!("{text} is not a duration such as 90s or 5m"))
}

/// Writes a duration as [`parse_duration`] reads it, without blanks: `1h30m`.
pub fn format_duration(d: Duration) -> String {
    humantime::format_duration(d).to_string().replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_decimals_and_end_in_z() {
        assert_eq!(Timestamp::from_millis(1_767_323_045_000).to_string(), "2026-01-02T03:04:05.000Z");
        assert_eq!(Timestamp::parse("2026-01-02T03:04:05.000Z"), Some(Timestamp::from_millis(1_767_323_045_000)));
    }

    #[test]
    fn a_duration_needs_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert!(parse_duration("90").is_err());
        assert!(parse_duration("").is_err());
        assert!(parse_duration("-5s").is_err());
    }
}
