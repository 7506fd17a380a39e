//! The verdict of the probes (HE-2, HE-9, HE-11, HE-12) as the machine holds it.

use std::net::IpAddr;
use std::sync::Arc;

use egress_protocol::Timestamp;
use egress_protocol::judge::Suspicion;
use egress_protocol::object::CredentialsState;
use egress_protocol::prober::{ProbeOutcome, ProbeReport, ProbeTarget};
use egress_protocol::resource::ProxyStatus;
use egress_protocol::resource::conditions::{self, Status, kind, reason};
use egress_protocol::source::EventReason;

use super::{Effect, Machine};
use crate::status::Said;

/// What is known of a proxy's health.
#[derive(Debug, Clone)]
pub(super) struct Health {
    verdict: Option<bool>,
    message: String,
    /// Since when the verdict stands.
    since: Option<Timestamp>,
    /// Start of the probe that turned it from healthy, until it turns back.
    turned_by: Option<Timestamp>,
    pub(super) turned_at: Option<Timestamp>,
    pub(super) checked_at: Option<Timestamp>,
    pub(super) latency_millis: Option<i64>,
    pub(super) egress: Option<IpAddr>,
    /// The check URL that is suspect.
    suspect: Option<Arc<str>>,
    epoch: u64,
}

impl Health {
    /// Epochs of different incarnations differ, so that a late report of an earlier one is told.
    pub(super) fn starting(now: Timestamp) -> Self {
        Self {
            verdict: None,
            message: String::new(),
            since: None,
            turned_by: None,
            turned_at: None,
            checked_at: None,
            latency_millis: None,
            egress: None,
            suspect: None,
            epoch: u64::try_from(now.as_millis()).unwrap_or(0),
        }
    }

    /// The last written verdict stands (HE-2).
    pub(super) fn load(&mut self, status: &ProxyStatus) {
        self.turned_at = status.last_health_check_time.as_ref().map(|time| Timestamp::from(time.0));
        self.latency_millis = status.latency_millis;
        self.egress = status.egress_ip.as_deref().and_then(|ip| ip.parse().ok());
        let Some(condition) = conditions::find(&status.conditions, kind::HEALTHY) else { return };
        self.verdict = match (condition.status.as_str(), condition.reason.as_str()) {
            ("True", _) => Some(true),
            ("False", reason::PROBE_FAILED) => Some(false),
            _ => None,
        };
        if self.verdict.is_some() {
            self.message.clone_from(&condition.message);
            self.since = Some(Timestamp::from(condition.last_transition_time.0));
        }
    }

    pub(super) const fn verdict(&self) -> Option<bool> {
        self.verdict
    }

    pub(super) const fn suspect(&self) -> bool {
        self.suspect.is_some()
    }

    pub(super) fn unhealthy_since(&self) -> Option<Timestamp> {
        self.since.filter(|_| self.verdict == Some(false))
    }

    /// The effective host is lost or another (HE-2).
    fn forget(&mut self) {
        *self = Self { epoch: self.epoch, suspect: self.suspect.take(), ..Self::starting(Timestamp::default()) };
    }

    fn turn(&mut self, now: Timestamp, verdict: bool, message: String) {
        (self.verdict, self.message, self.since) = (Some(verdict), message, Some(now));
    }
}

impl Machine {
    pub(super) fn probed(&mut self, now: Timestamp, report: &ProbeReport, out: &mut Vec<Effect>) {
        let Some(target) = self.told.target() else { return };
        if target.epoch != report.epoch {
            // A result of before; should the prober have lost the change in a crash, it learns of it here (HE-2).
            out.push(Effect::Probe(Arc::clone(target)));
            return;
        }
        self.health.checked_at = Some(report.ended_at);
        self.told.forget_availability();
        let (message, target_side) = match &report.outcome {
            ProbeOutcome::Passed { latency, egress_ip } => {
                self.health.latency_millis = i64::try_from(latency.as_millis()).ok();
                self.health.egress = egress_ip.or(self.health.egress);
                // Traffic flows, so it runs, whatever its provider says (HE-2, HE-11).
                self.sight.confirmed = true;
                (String::new(), false)
            }
            ProbeOutcome::Failed { failure, message, target_side } => (format!("{}: {message}", failure.as_str()), *target_side),
        };
        let was = self.health.verdict;
        if was == Some(report.healthy) || (self.health.suspect() && !report.healthy && target_side) {
            return;
        }
        self.health.turned_at = Some(report.ended_at);
        if report.healthy {
            self.unhelped = 0;
            self.health.turned_by = None;
            let message =
                if report.outcome.passed() { String::new() } else { "the check URL is suspect, its verdict is withdrawn".to_owned() };
            self.health.turn(now, true, message);
            if was == Some(false) {
                self.announce(EventReason::Recovered, "traffic flows again".to_owned(), out);
            }
            return;
        }
        self.health.turned_by = (was == Some(true)).then_some(report.started_at);
        self.announce(EventReason::Unhealthy, message.clone(), out);
        self.health.turn(now, false, message);
        self.drop_lost_address();
        // One read out of turn (OP-13).
        let due = self.extra_poll_at.is_none_or(|at| now.since(at) >= self.settings.extra_poll);
        if due && self.id.is_some() && self.trouble.is_none() {
            self.extra_poll_at = Some(now);
            self.poll_at = self.poll_at.min(now);
        }
    }

    /// HE-9: while the check URL is suspect verdicts are held, and those that the suspect failures flipped are restored.
    pub(super) fn suspected(&mut self, now: Timestamp, suspicion: Suspicion, out: &mut Vec<Effect>) {
        match suspicion {
            Suspicion::Suspect { url, since, speaks } => {
                if *url != *self.object.spec.health_check.url {
                    return;
                }
                let news = self.health.suspect.is_none();
                if news && speaks {
                    let note = format!("most proxies fail at {} at once: it is suspect, their verdicts are held", host_of(&url));
                    self.announce(EventReason::CheckUrlSuspect, note, out);
                }
                self.health.suspect = Some(url);
                if self.health.verdict == Some(false) && self.health.turned_by.is_some_and(|at| at >= since) {
                    self.health.turned_by = None;
                    self.health.turn(now, true, "the check URL is suspect, its verdict is withdrawn".to_owned());
                    self.announce(EventReason::Recovered, "the check URL is suspect, not the proxy".to_owned(), out);
                }
            }
            Suspicion::Cleared { url } => {
                if self.health.suspect.as_ref() == Some(&url) {
                    self.health.suspect = None;
                }
            }
        }
    }

    /// The condition `Healthy`.
    pub(super) fn healthy(&self) -> Said {
        if let CredentialsState::Unresolved { message } = &self.object.credentials {
            return Said::new(false, reason::CREDENTIALS_UNRESOLVED, message.clone());
        }
        match self.health.verdict {
            Some(true) => Said::new(true, reason::PROBE_SUCCEEDED, self.health.message.clone()),
            Some(false) => Said::new(false, reason::PROBE_FAILED, self.health.message.clone()),
            None if self.told.target().is_some() => Said::new(Status::Unknown, reason::NOT_PROBED, "the first probe is on its way"),
            None => Said::new(Status::Unknown, reason::NOT_PROBED, "there is no address to probe"),
        }
    }

    /// Starts, changes or ends the prober.
    pub(super) fn mind_prober(&mut self, out: &mut Vec<Effect>) {
        let want = self.target();
        let have = self.told.target().cloned();
        match (have, want) {
            (None, None) => {
                // Whatever was known of an address that is no more.
                if self.health.verdict.is_some() && self.address_is_lost() {
                    self.health.forget();
                }
            }
            (Some(_), None) => {
                self.told.set_target(None);
                out.push(Effect::StopProber);
                if self.address_is_lost() {
                    self.health.forget();
                }
            }
            (have, Some(mut want)) => {
                if let Some(have) = &have {
                    if same(have, &want) {
                        return;
                    }
                    if have.health_check.url != want.health_check.url {
                        self.health.suspect = None;
                    }
                    if (&have.host, have.port, &have.uid) != (&want.host, want.port, &want.uid) {
                        out.push(Effect::StopProber);
                        self.health.forget();
                    }
                }
                self.health.epoch += 1;
                want.epoch = self.health.epoch;
                want.prior = self.health.verdict;
                let target = Arc::new(want);
                self.told.set_target(Some(Arc::clone(&target)));
                out.push(Effect::Probe(target));
            }
        }
    }

    /// Not merely unprobed for the moment: suspended objects keep what they were.
    fn address_is_lost(&self) -> bool {
        !self.parked()
    }

    fn target(&self) -> Option<ProbeTarget> {
        let object = &self.object;
        if object.deleting || self.parked() || self.gone {
            return None;
        }
        let (host, credentials) = match (&object.spec.endpoint, &object.credentials) {
            (_, CredentialsState::Unresolved { .. }) => return None,
            (Some(endpoint), CredentialsState::Resolved(credentials)) => (endpoint.host.as_str().into(), Some(Arc::clone(credentials))),
            (Some(endpoint), CredentialsState::NotNeeded) => (endpoint.host.as_str().into(), None),
            (None, _) => (self.sight.address?.to_string().into(), None),
        };
        Some(ProbeTarget {
            key: object.key.clone(),
            uid: object.uid.clone(),
            epoch: 0,
            host,
            port: object.spec.port,
            credentials,
            external: !object.is_managed(),
            provider: object.spec.provider.as_deref().map(Arc::from),
            health_check: object.spec.health_check.clone(),
            prior: None,
        })
    }
}

/// Whether the prober may go on as it is.
fn same(have: &ProbeTarget, want: &ProbeTarget) -> bool {
    ProbeTarget { epoch: have.epoch, prior: have.prior, ..want.clone() } == *have
}

/// A URL's host, for texts (PC-75).
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}
