//! The faults of settings, gathered: a person mends them all in one go.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use egress_protocol::time::{DurationFault, format_duration, parse_duration};

use super::environment::variable_of;

/// Where the faults go.
#[derive(Debug)]
pub(super) struct Faults<'a> {
    variables: &'a BTreeSet<String>,
    told: Vec<String>,
}

impl<'a> Faults<'a> {
    pub(super) const fn new(variables: &'a BTreeSet<String>) -> Self {
        Self { variables, told: Vec::new() }
    }

    /// What a person has to change: the flag, or the variable that stood in for it.
    pub(super) fn name(&self, flag: &str) -> String {
        if self.variables.contains(flag) { variable_of(flag) } else { format!("--{flag}") }
    }

    /// A flag, its value, and what is wrong with it.
    pub(super) fn value(&mut self, flag: &str, value: impl Display, reason: impl Display) {
        self.told.push(format!("{} {value}: {reason}", self.name(flag)));
    }

    /// A fault of several settings.
    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.told.push(text.into());
    }

    /// What was read; one line for each fault when there is one. Whatever has no value has said why.
    pub(super) fn finish<T>(self, read: Option<T>) -> Result<T, String> {
        match read {
            Some(read) if self.told.is_empty() => Ok(read),
            _ if self.told.is_empty() => Err("error: a setting has no value\n".to_owned()),
            _ => Err(self.told.iter().map(|told| format!("error: {told}\n")).collect()),
        }
    }

    /// A human duration. On a fault the least of the range stands in.
    pub(super) fn duration(&mut self, flag: &str, text: &str, range: RangeInclusive<Duration>) -> Duration {
        let (least, most) = (format_duration(*range.start()), format_duration(*range.end()));
        match parse_duration(text) {
            Ok(found) if range.contains(&found) => return found,
            Ok(_) => self.value(flag, text, format!("must be {least} to {most}")),
            Err(fault) => {
                self.value(flag, text, format!("{}: write one such as 90s or 5m, {least} to {most}", not_a_duration(fault)));
            }
        }
        *range.start()
    }

    /// As [`Faults::duration`], or `0`.
    pub(super) fn duration_or_zero(&mut self, flag: &str, text: &str, range: RangeInclusive<Duration>) -> Duration {
        match parse_duration(text) {
            _ if text == "0" => Duration::ZERO,
            Ok(Duration::ZERO) => Duration::ZERO,
            Ok(found) if range.contains(&found) => found,
            found => {
                let (least, most) = (format_duration(*range.start()), format_duration(*range.end()));
                let rule = match found {
                    Ok(_) => "must be 0".to_owned(),
                    Err(fault) => format!("{}: write 0", not_a_duration(fault)),
                };
                self.value(flag, text, format!("{rule}, or {least} to {most}"));
                Duration::ZERO
            }
        }
    }

    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        !self.told.is_empty()
    }

    /// A whole number. On a fault the least of the range stands in.
    pub(super) fn number(&mut self, flag: &str, text: &str, range: RangeInclusive<u32>) -> u32 {
        match text.parse() {
            Ok(found) if range.contains(&found) => return found,
            _ => self.value(flag, text, format!("must be a whole number, {} to {}", range.start(), range.end())),
        }
        *range.start()
    }

    /// True or false. On a fault there is none.
    pub(super) fn switch(&mut self, flag: &str, text: &str) -> Option<bool> {
        match text {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => {
                self.value(flag, text, "must be true or false");
                None
            }
        }
    }

    /// One of some words. On a fault the first stands in.
    pub(super) fn word<T: Copy, const N: usize>(&mut self, flag: &str, text: &str, words: [(&str, T); N]) -> Option<T> {
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.value(flag, text, format!("must be {}", known.join(" or ")));
        }
        found
    }
}

/// Why a text is none, before what to write instead.
pub(super) fn not_a_duration(fault: DurationFault) -> String {
    fault.hint().map_or_else(|| "is not a duration".to_owned(), |hint| format!("is not a duration ({hint})"))
}
