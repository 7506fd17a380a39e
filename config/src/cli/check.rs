//! `check`, and the rounds of provider checks: their flags → their settings.

use std::collections::BTreeSet;
use std::time::Duration;

use egress_protocol::time::{DurationFault, format_duration, parse_duration};

use super::common::providers_of;
use super::faults::{Faults, not_a_duration};
use super::raw;
use super::settings::CheckRounds;
use crate::providers::ProvidersConfig;

/// What a round may take unless it is said (PH-9).
const TIMEOUT: Duration = Duration::from_secs(15);
const LEAST: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(86_400);
/// The most that one round on demand may take.
const LONGEST: Duration = Duration::from_secs(600);

const INTERVAL_FLAG: &str = "provider-check-interval";
const TIMEOUT_FLAG: &str = "provider-check-timeout";

/// What `check` checks.
#[derive(Debug, Clone)]
pub struct CheckSettings {
    /// The entries of `--providers-config`, or the built-in one.
    pub providers: ProvidersConfig,
    /// `--provider-check-timeout`, or what stands for 0.
    pub timeout: Duration,
}

/// The error is a text of one line for each fault.
pub(super) fn read(raw: &raw::Check, variables: &BTreeSet<String>) -> Result<CheckSettings, String> {
    let mut faults = Faults::new(variables);
    let timeout = match zero_or_duration(&raw.provider_check_timeout) {
        Ok(Duration::ZERO) => TIMEOUT,
        Ok(timeout) if timeout <= LONGEST => timeout,
        other => {
            let rule = rule(&other, &format!("at most {}", format_duration(LONGEST)));
            faults.value(TIMEOUT_FLAG, &raw.provider_check_timeout, rule);
            TIMEOUT
        }
    };
    let providers = if faults.any() { None } else { providers_of(raw.providers_config.as_deref(), &mut faults) };
    let providers = faults.finish(providers)?;
    Ok(CheckSettings { providers, timeout })
}

/// PH-8, PH-9. On a fault something stands in.
pub(super) fn rounds(interval: &str, timeout: &str, faults: &mut Faults<'_>) -> CheckRounds {
    let interval_told = faults.duration_or_zero(INTERVAL_FLAG, interval, LEAST..=DAY);
    let limit = if interval_told.is_zero() { Duration::MAX } else { interval_told };
    let timeout = match zero_or_duration(timeout) {
        Ok(Duration::ZERO) => TIMEOUT.min(limit),
        Ok(found) if found <= limit => found,
        other => {
            let rule = rule(&other, &format!("at most {} {interval}", faults.name(INTERVAL_FLAG)));
            faults.value(TIMEOUT_FLAG, timeout, rule);
            TIMEOUT
        }
    };
    CheckRounds { interval: interval_told, timeout }
}

fn zero_or_duration(text: &str) -> Result<Duration, DurationFault> {
    if text == "0" { Ok(Duration::ZERO) } else { parse_duration(text) }
}

fn rule(found: &Result<Duration, DurationFault>, limit: &str) -> String {
    match found {
        Ok(_) => format!("must be 0, or {limit}"),
        Err(fault) => format!("{}: write 0, or one such as 5s, {limit}", not_a_duration(*fault)),
    }
}
