//! Reports: what crawlers saw (LS-7).

use std::sync::Arc;

use egress_protocol::Timestamp;
use egress_protocol::lease::{Caller, LeaseError, LeaseId, ReportAnswer, ReportCooldown, ReportRequest, ReportResult};

use super::{Book, Testimony, cooldown};

/// So many leases in a row must have failed before a proxy is distrusted.
const STRIKES: usize = 3;

/// What a report did, with what the metric needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reported {
    /// For the client.
    pub answer: ReportAnswer,
    /// The provider of the proxy; empty for External ones and for those that are gone.
    pub provider: Arc<str>,
    /// What the report was about.
    pub target: Option<Arc<str>>,
}

impl Book {
    /// Counts a report of a lease that runs or is remembered.
    pub fn report(&mut self, id: LeaseId, request: &ReportRequest, caller: &Caller, now: Timestamp) -> Result<Reported, LeaseError> {
        let place = self.visible(id, caller, now)?;
        let record = Arc::clone(&self.leases.get(place).record);
        let target = request.target.clone().or_else(|| record.target.clone());
        let Some(proxy) = self.fleet.by_uid(&record.uid) else {
            let answer = ReportAnswer { counted: false, reason: Some("proxyGone".to_owned()), cooldown: None };
            return Ok(Reported { answer, provider: "".into(), target });
        };
        let provider = self.fleet.cold(proxy).published.as_ref().and_then(|proxy| proxy.provider.clone());
        let cools = request.result.cools() || request.cooldown.is_some();
        let has_room = !cools || self.may_cool(proxy, &target, &caller.token_name, now);
        // Targets that nobody else names are not remembered for reports beyond a share.
        if let Some(target) = target.as_ref().filter(|target| has_room || self.targets.knows(target)) {
            self.targets.reported(target, proxy, request.result.fails(), now);
        }
        let cold = self.fleet.cold(proxy);
        if cold.is_doubtful() {
            let testimony = Testimony { key: cold.key.clone(), uid: cold.uid.clone(), failed: request.result.fails() };
            self.effects.testimony.push(testimony);
        }
        let suspect = target.as_ref().is_some_and(|target| self.targets.suspect(target));
        if request.result.fails() {
            if !suspect {
                self.strike(proxy, id);
            }
        } else {
            // Traffic came through, whatever the target thought of it: the row of failures is broken.
            self.fleet.cold_mut(proxy).strikes.clear();
        }
        if request.result == ReportResult::Success {
            self.trust(proxy);
            self.forgive(proxy, &target, &caller.token_name);
        }
        let mut answer = ReportAnswer { counted: true, reason: None, cooldown: None };
        if cools {
            let not_counted = if suspect {
                Some("targetSuspect")
            } else if !has_room {
                Some("tooManyCooldowns")
            } else {
                None
            };
            if let Some(reason) = not_counted {
                answer = ReportAnswer { counted: false, reason: Some(reason.to_owned()), cooldown: None };
            } else {
                let before = self.cooldown(proxy, &target);
                let cooldown = cooldown::next(before, request.result, request.cooldown, record.granted_at, now);
                let shared = target.as_ref().map(|target| self.targets.share(target));
                self.cool(proxy, &shared, cooldown, &caller.token_name, now);
                if cooldown.until > now {
                    answer.cooldown = Some(ReportCooldown { target: target.clone(), until: cooldown.until });
                }
            }
        }
        Ok(Reported { answer, provider: provider.unwrap_or_else(|| "".into()), target })
    }

    /// A failing report: three in a row from distinct leases put the proxy last and ask for a probe.
    fn strike(&mut self, proxy: u32, lease: LeaseId) {
        let cold = self.fleet.cold_mut(proxy);
        if !cold.strikes.contains(&lease) {
            cold.strikes.push(lease);
        }
        if cold.strikes.len() < STRIKES {
            return;
        }
        cold.strikes.clear();
        let key = cold.key.clone();
        self.effects.probes.push(key);
        if !self.fleet.hot(proxy).distrusted {
            self.fleet.hot_mut(proxy).distrusted = true;
            self.selectors.changed(proxy, &self.fleet);
        }
    }
}
