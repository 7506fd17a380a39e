//! From a check to a status (PH-17…19), and which of its changes are told (PH-43). Plain functions of the earlier status,
//! the result and the time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::monitor::ProviderChecked;
use egress_protocol::provider::TargetVerdict;
use egress_protocol::resource::ProviderHealthStatus;
use egress_protocol::resource::conditions::{self, Status, cut, kind};
use egress_protocol::resource::provider_health::TargetStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

#[cfg(test)]
mod tests;

/// Characters of a target's message (PH-5).
const MESSAGE: usize = 1024;
/// Details of a target, and characters of each (PH-5).
const DETAILS: (usize, usize) = (32, 256);

/// The one reason of a target that is ready (PH-31).
pub const REACHABLE: &str = "Reachable";
/// The deadline ended the check.
pub const TIMEOUT: &str = "Timeout";
/// The check failed in a way that has no reason of its own.
pub const API_ERROR: &str = "APIError";

/// One provider's check.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// The configured name.
    pub name: Arc<str>,
    /// The type in the providers file.
    pub type_: &'static str,
    /// What came of it.
    pub outcome: Outcome,
    /// When it finished (PH-18).
    pub finished: Timestamp,
    /// How long it took; that of targets without a verdict of their own.
    pub took: Duration,
}

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// One verdict per target.
    Verdicts(Vec<TargetVerdict>),
    /// The type has no check.
    NotImplemented,
    /// It did not end when it was told to (PH-15).
    Abandoned,
    /// It panicked, or its provider could not be asked; in words.
    Broken(String),
}

/// The status that a check comes to, and how long each of its targets took.
pub fn next(earlier: Option<&ProviderHealthStatus>, checked: &Checked) -> ProviderChecked {
    let verdicts = verdicts(earlier, checked);
    let now = checked.finished;
    let targets: Vec<TargetStatus> = verdicts.iter().map(|verdict| target(verdict, now)).collect();
    let ready = targets.iter().filter(|target| target.ready).count();
    let mut status = ProviderHealthStatus {
        type_: Some(checked.type_.to_owned()),
        conditions: conditions(checked, &targets, now),
        targets_ready: Some(format!("{ready}/{}", targets.len())),
        targets,
        last_check_time: Some(Time(now.to_jiff())),
    };
    if let Some(earlier) = earlier {
        status.keep_times(earlier);
    }
    let latencies = verdicts.iter().map(|verdict| verdict.latency).collect();
    ProviderChecked { name: Arc::clone(&checked.name), status: Arc::new(status), finished: now, latencies }
}

/// One verdict per target, each under a name of its own. A check that gave none says the same of every known target; of a
/// provider whose targets are not known yet, under the provider's name, so that it is seen at all.
fn verdicts(earlier: Option<&ProviderHealthStatus>, checked: &Checked) -> Vec<TargetVerdict> {
    let (reason, message) = match &checked.outcome {
        Outcome::NotImplemented => return Vec::new(),
        Outcome::Verdicts(verdicts) => {
            let mut names = HashSet::new();
            return verdicts.iter().filter(|verdict| !verdict.name.is_empty() && names.insert(&verdict.name)).cloned().collect();
        }
        Outcome::Abandoned => (TIMEOUT, "the check did not stop when its time was over".to_owned()),
        Outcome::Broken(message) => (API_ERROR, message.clone()),
    };
    let down = |name: &str, address: &str| TargetVerdict {
        name: name.to_owned(),
        address: address.to_owned(),
        ready: false,
        reason,
        message: message.clone(),
        latency: checked.took,
        details: Vec::new(),
    };
    match earlier.map(|earlier| earlier.targets.as_slice()) {
        None | Some([]) => vec![down(&checked.name, "")],
        Some(known) => known.iter().map(|target| down(&target.name, target.address.as_deref().unwrap_or_default())).collect(),
    }
}

fn target(verdict: &TargetVerdict, now: Timestamp) -> TargetStatus {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let details = verdict.details.iter().filter(|(_, value)| !value.is_empty()).take(DETAILS.0);
    TargetStatus {
        name: verdict.name.clone(),
        ready: verdict.ready,
        last_transition_time: Time(now.to_jiff()),
        address: text(&verdict.address),
        reason: text(verdict.reason),
        message: text(&verdict.message).map(|message| cut(message, MESSAGE)),
        latency_millis: Some(i64::try_from(verdict.latency.as_millis()).unwrap_or(i64::MAX)),
        details: details.map(|(key, value)| (key.clone(), cut(value.clone(), DETAILS.1))).collect(),
    }
}

/// PH-19: the one condition `Ready`. The objects have no spec, so there is no generation to tell.
fn conditions(checked: &Checked, targets: &[TargetStatus], now: Timestamp) -> Vec<Condition> {
    let failing: Vec<String> = targets
        .iter()
        .filter(|target| !target.ready)
        .map(|target| format!("{}: {}", target.name, target.reason.as_deref().unwrap_or(API_ERROR)))
        .collect();
    let (status, reason, message) = if checked.outcome == Outcome::NotImplemented {
        (Status::Unknown, "ChecksNotImplemented", format!("providers of type {} have no check", checked.type_))
    } else if targets.is_empty() {
        (Status::Unknown, "NoTargets", "the check found nothing to look at".to_owned())
    } else if failing.is_empty() {
        (Status::True, "AllTargetsReady", String::new())
    } else {
        (Status::False, "TargetsNotReady", failing.join(", "))
    };
    let mut conditions = Vec::new();
    conditions::set(&mut conditions, kind::READY, status, reason, message, now, 0);
    conditions.iter_mut().for_each(|condition| condition.observed_generation = None);
    conditions
}

/// A change of a target that is told, once (PH-43).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// It went down, was first seen down, or is down for another reason.
    Down,
    /// It came back.
    Back,
    /// It was first seen, and is ready.
    Found,
}

/// What is told of each target, by its place in `now`.
pub fn transitions<'a>(
    earlier: Option<&'a ProviderHealthStatus>,
    now: &'a ProviderHealthStatus,
) -> impl Iterator<Item = (&'a TargetStatus, Transition)> {
    now.targets.iter().filter_map(move |target| {
        let before = earlier.and_then(|earlier| earlier.targets.iter().find(|before| before.name == target.name));
        let transition = match (before, target.ready) {
            (None, true) => Transition::Found,
            (Some(before), true) if !before.ready => Transition::Back,
            (None, false) => Transition::Down,
            (Some(before), false) if before.ready || before.reason != target.reason => Transition::Down,
            (Some(_), true | false) => return None,
        };
        Some((target, transition))
    })
}
