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

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Effect, Machine};
use crate::status::Said;

/// What `Healthy` says while a verdict that a suspect check URL made is withdrawn.
const WITHDRAWN: &str = "the check URL is suspect, its verdict is withdrawn";

/// A check URL that is suspect.
#[derive(Debug, Clone)]
struct Suspect {
    url: Arc<str>,
    /// Failures of later probes count again.
    held_until: Timestamp,
}

/// What is known of a proxy's health.
#[derive(Debug, Clone)]
pub(super) struct Health {
    verdict: Option<bool>,
    /// What the condition says.
    message: String,
    /// What the last failure said while it is unhealthy.
    latest: String,
    /// When the condition was given another cause without a turn.
    cause_at: Option<Timestamp>,
    /// Since when the verdict stands.
    since: Option<Timestamp>,
    /// Start of the probe that turned it from healthy, until it turns back.
    turned_by: Option<Timestamp>,
    /// As it is written: what was written once is not written anew because the system clock was set.
    pub(super) turned_at: Option<Time>,
    pub(super) checked_at: Option<Timestamp>,
    pub(super) latency_millis: Option<i64>,
    pub(super) egress: Option<IpAddr>,
    suspect: Option<Suspect>,
    epoch: u64,
}

impl Health {
    /// Epochs of different incarnations differ, so that a late report of an earlier one is told.
    pub(super) fn starting(now: Timestamp) -> Self {
        Self {
            verdict: None,
            message: String::new(),
            latest: String::new(),
            cause_at: None,
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
        self.turned_at = status.last_health_check_time.clone();
        self.latency_millis = status.latency_millis;
        self.egress = status.egress_ip.as_deref().and_then(|ip| ip.parse().ok());
        let Some(condition) = conditions::find(&status.conditions, kind::HEALTHY) else { return };
        self.verdict = match (condition.status.as_str(), condition.reason.as_str()) {
            ("True", _) => Some(true),
            ("False", reason::PROBE_FAILED) => Some(false),
            _ => None,
        };
        if self.verdict.is_some() {
            // Whether a check URL still is suspect the judge will say.
            self.message = condition.message.clone();
            self.forget_withdrawal();
            self.latest.clone_from(&self.message);
            self.since = Some(Timestamp::from(condition.last_transition_time.0));
        }
    }

    pub(super) const fn verdict(&self) -> Option<bool> {
        self.verdict
    }

    pub(super) const fn suspect(&self) -> bool {
        self.suspect.is_some()
    }

    /// Why the last probe failed, while it is unhealthy.
    pub(super) fn latest(&self) -> Option<&str> {
        (self.verdict == Some(false)).then_some(&*self.latest)
    }

    pub(super) fn unhealthy_since(&self) -> Option<Timestamp> {
        self.since.filter(|_| self.verdict == Some(false))
    }

    /// The effective host is lost or another (HE-2).
    fn forget(&mut self) {
        *self = Self { epoch: self.epoch, suspect: self.suspect.take(), ..Self::starting(Timestamp::default()) };
    }

    fn turn(&mut self, now: Timestamp, verdict: bool, message: String) {
        self.latest.clone_from(&message);
        (self.verdict, self.message, self.since) = (Some(verdict), message, Some(now));
    }

    fn forget_withdrawal(&mut self) {
        if self.message == WITHDRAWN {
            self.message.clear();
        }
    }

    /// Whether a failure on the target's side of a probe that began then decides nothing.
    fn holds(&self, started_at: Timestamp) -> bool {
        self.suspect.as_ref().is_some_and(|suspect| started_at < suspect.held_until)
    }

    /// Whether a probe passed since it has this address. It survives a restart, since the latency is recorded.
    const fn was_healthy_once(&self) -> bool {
        self.latency_millis.is_some()
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
        let once = self.health.was_healthy_once();
        let passed = report.outcome.passed();
        let (message, target_side) = match &report.outcome {
            ProbeOutcome::Passed { latency, egress_ip } => {
                self.health.latency_millis = i64::try_from(latency.as_millis()).ok();
                self.health.egress = egress_ip.or(self.health.egress);
                // Any pass ends a suspicion (HE-9), also one whose end the judge could not tell.
                self.health.suspect = None;
                self.health.forget_withdrawal();
                // Traffic flows, so it runs, whatever its provider says (HE-2, HE-11).
                self.sight.confirmed = true;
                (String::new(), false)
            }
            ProbeOutcome::Failed { failure, message, target_side } => (format!("{}: {message}", failure.as_str()), *target_side),
        };
        let was = self.health.verdict;
        if was == Some(report.healthy) {
            if was == Some(false) && !passed {
                self.fails_still(now, message, out);
            }
            return;
        }
        if !report.healthy && target_side && self.health.holds(report.started_at) {
            return;
        }
        self.health.turned_at = Some(Time(report.ended_at.to_jiff()));
        if report.healthy {
            self.unhelped = 0;
            self.health.turned_by = None;
            self.health.turn(now, true, if passed { String::new() } else { WITHDRAWN.to_owned() });
            match was {
                Some(false) if !passed => self.announce(EventReason::Recovered, "the check URL is suspect, not the proxy".to_owned(), out),
                Some(false) if once => self.announce(EventReason::Recovered, "traffic flows again".to_owned(), out),
                // It was probed before its proxy listened: there was nothing to recover from.
                Some(false) => self.announce(EventReason::Running, "traffic flows for the first time".to_owned(), out),
                Some(true) | None => {}
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

    /// It is unhealthy and stays so. The condition follows the cause when that is of another class, and then rests for a
    /// while, so that a proxy which fails in turns is not written after every probe.
    fn fails_still(&mut self, now: Timestamp, message: String, out: &mut Vec<Effect>) {
        self.health.latest.clone_from(&message);
        let rests = self.health.cause_at.is_some_and(|at| now.since(at) < self.settings.cause_interval);
        if class(&self.health.message) == class(&message) || rests {
            return;
        }
        self.health.cause_at = Some(now);
        self.announce(EventReason::Unhealthy, message.clone(), out);
        self.health.message = message;
    }

    /// HE-9: while the check URL is suspect verdicts are held, and those that the suspect failures flipped are restored.
    pub(super) fn suspected(&mut self, now: Timestamp, suspicion: Suspicion, out: &mut Vec<Effect>) {
        match suspicion {
            Suspicion::Suspect { url, since, until, speaks } => {
                if *url != *self.object.spec.health_check.url {
                    return;
                }
                let news = self.health.suspect.is_none();
                if news && speaks {
                    let note = format!("most proxies fail at {} at once: it is suspect, their verdicts are held", host_of(&url));
                    self.announce(EventReason::CheckUrlSuspect, note, out);
                }
                self.health.suspect = Some(Suspect { url, held_until: until });
                if self.health.verdict == Some(false) && self.health.turned_by.is_some_and(|at| (since..until).contains(&at)) {
                    self.health.turned_by = None;
                    self.health.turn(now, true, WITHDRAWN.to_owned());
                    self.announce(EventReason::Recovered, "the check URL is suspect, not the proxy".to_owned(), out);
                }
            }
            Suspicion::Cleared { url } => {
                if self.health.suspect.as_ref().is_some_and(|suspect| suspect.url == url) {
                    self.health.suspect = None;
                    self.health.forget_withdrawal();
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
                        self.health.forget_withdrawal();
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
        if (object.deleting && !self.drains()) || self.parked() || self.gone {
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
            port: self.port,
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

/// The class of a failure, which its text begins with.
fn class(message: &str) -> &str {
    message.split_once(':').map_or(message, |(class, _)| class)
}

/// A URL's host, for texts (PC-75).
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}
