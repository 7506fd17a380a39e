//! What the world is told: the status of an object (OP-6, OP-7) and its entry in the lease book. Pure.
//!
//! What must stay true: the phase is the first row of OP-6 that applies; a status is worth a write only when something
//! other than the latency changed (HE-4, OP-24); no text here holds a secret.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use egress_protocol::lease::{ProxyAvailability, Unready};
use egress_protocol::object::{CredentialsState, ProxyObject};
use egress_protocol::resource::conditions::{self, Status, kind, reason};
use egress_protocol::resource::{Phase, ProxyStatus};
use egress_protocol::{InstallationId, InstanceId, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A condition in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: Status,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Said {
    pub(crate) fn new(status: impl Into<Status>, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: status.into(), reason, message: message.into() }
    }
}

/// What the machine holds to be so.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) object: &'a ProxyObject,
    /// The object's, shared with the book.
    pub(crate) attributes: &'a Arc<BTreeMap<String, String>>,
    pub(crate) installation: &'a InstallationId,
    pub(crate) hash: Option<&'a str>,
    pub(crate) id: Option<&'a InstanceId>,
    /// The instance's address, or the endpoint's host if it is one.
    pub(crate) address: Option<IpAddr>,
    /// At which it is reached.
    pub(crate) port: u16,
    /// Absent for External.
    pub(crate) provisioned: Option<Said>,
    pub(crate) healthy: Said,
    /// Why the last probe failed, while it is unhealthy.
    pub(crate) latest: Option<&'a str>,
    pub(crate) check_url_suspect: bool,
    pub(crate) failed: bool,
    pub(crate) paused: bool,
    /// New grants are stopped: being deleted or replaced, suspended.
    pub(crate) draining: bool,
    /// Until when its leases are waited for.
    pub(crate) drain_by: Option<Timestamp>,
    /// The instance is known to run since this actor started (HE-2).
    pub(crate) confirmed: bool,
    pub(crate) egress: Option<IpAddr>,
    pub(crate) latency_millis: Option<i64>,
    pub(crate) checked_at: Option<Timestamp>,
    /// End of the probe that caused the last transition.
    pub(crate) turned_at: Option<&'a Time>,
}

impl Facts<'_> {
    /// OP-6.
    pub(crate) fn phase(&self) -> Phase {
        let managed = self.object.is_managed();
        if self.object.deleting {
            Phase::Deleting
        } else if self.failed {
            Phase::Failed
        } else if managed && self.hash.is_none() && self.id.is_none() {
            Phase::Pending
        } else if managed && self.address.is_none() {
            Phase::Provisioning
        } else if self.paused {
            Phase::Unhealthy
        } else {
            match self.healthy.status {
                Status::Unknown if managed => Phase::Running,
                Status::Unknown => Phase::Pending,
                Status::True => Phase::Ready,
                Status::False => Phase::Unhealthy,
            }
        }
    }

    /// The condition `Ready`: the reason of what holds it back; while unhealthy it repeats what the provider says.
    fn ready(&self, unhealthy: &str) -> Said {
        let provisioned = self.provisioned.as_ref();
        if let Some(said) = provisioned
            && said.status != Status::True
        {
            return Said::new(false, said.reason, said.message.clone());
        }
        if self.healthy.status == Status::True {
            return Said::new(true, reason::READY, "");
        }
        let message = match provisioned.map(|said| said.message.as_str()) {
            Some(detail) if !detail.is_empty() => format!("{unhealthy} ({detail})"),
            _ => unhealthy.to_owned(),
        };
        Said::new(false, self.healthy.reason, message)
    }

    /// The status as it should be written, on top of the one written last.
    pub(crate) fn status(&self, last: &ProxyStatus, now: Timestamp) -> ProxyStatus {
        let generation = self.object.generation;
        let mut conditions = last.conditions.clone();
        let mut set = |kind: &str, said: &Said| {
            conditions::set(&mut conditions, kind, said.status, said.reason, said.message.clone(), now, generation);
        };
        if let Some(said) = &self.provisioned {
            set(kind::PROVISIONED, said);
        }
        set(kind::HEALTHY, &self.healthy);
        set(kind::READY, &self.ready(&self.healthy.message));
        ProxyStatus {
            installation: Some(self.installation.to_string()),
            phase: Some(self.phase()),
            provider_id: self.id.map(ToString::to_string),
            ip: self.address.map(|address| address.to_string()),
            egress_ip: self.egress.map(|address| address.to_string()),
            spec_hash: self.hash.map(str::to_owned),
            observed_generation: Some(generation),
            latency_millis: self.latency_millis,
            last_health_check_time: self.turned_at.cloned(),
            conditions,
        }
    }

    /// The entry in the lease book.
    pub(crate) fn availability(&self) -> ProxyAvailability {
        let object = self.object;
        let host = match &object.spec.endpoint {
            Some(endpoint) => Some(endpoint.host.as_str().into()),
            None => self.address.map(|address| address.to_string().into()),
        };
        let well = self.healthy.status == Status::True && !self.paused && !self.failed && !object.deleting;
        let probed = self.healthy.reason == reason::PROBE_FAILED;
        let ready = self.ready(self.latest.filter(|_| probed).unwrap_or(&self.healthy.message));
        ProxyAvailability {
            phase: self.phase(),
            healthy: well && self.confirmed,
            awaited: well && !self.confirmed,
            unready: Unready::of(ready.status, ready.reason, &ready.message),
            check_url_suspect: self.check_url_suspect,
            draining: self.draining,
            drain_by: self.drain_by,
            port: self.port,
            host,
            ip: self.address.map(|address| address.to_string().into()),
            egress_ip: self.egress.map(|address| address.to_string().into()),
            latency_millis: self.latency_millis,
            checked_at: self.checked_at,
            ..entry(object, Arc::clone(self.attributes))
        }
    }
}

/// What the book knows of an object before anything is known of its instance.
fn entry(object: &ProxyObject, attributes: Arc<BTreeMap<String, String>>) -> ProxyAvailability {
    ProxyAvailability {
        key: object.key.clone(),
        uid: object.uid.clone(),
        mode: object.spec.mode,
        provider: object.spec.provider.as_deref().map(Arc::from),
        phase: Phase::Pending,
        healthy: false,
        awaited: false,
        unready: None,
        check_url_suspect: false,
        draining: false,
        drain_by: None,
        host: None,
        ip: None,
        egress_ip: None,
        port: object.spec.port,
        attributes,
        max_leases: object.spec.max_leases,
        latency_millis: None,
        checked_at: None,
        credentials: match &object.credentials {
            CredentialsState::Resolved(credentials) => Some(Arc::clone(credentials)),
            CredentialsState::NotNeeded | CredentialsState::Unresolved { .. } => None,
        },
    }
}

/// A proxy whose actor was given up (SV-2), on top of the status written last: what is shown by its supervisor.
pub(crate) fn given_up(object: &ProxyObject, last: &ProxyStatus, why: &str, now: Timestamp) -> (ProxyStatus, ProxyAvailability) {
    let mut status = last.clone();
    let phase = if object.deleting { Phase::Deleting } else { Phase::Failed };
    status.phase = Some(phase);
    let message = format!("its actor keeps crashing and is tried again every 5 minutes: {why}");
    conditions::set(&mut status.conditions, kind::READY, Status::False, GIVEN_UP, message.clone(), now, object.generation);
    let availability = ProxyAvailability {
        phase,
        unready: Unready::of(Status::False, GIVEN_UP, &message),
        draining: object.deleting,
        host: object.spec.endpoint.as_ref().map(|endpoint| endpoint.host.as_str()).or(last.ip.as_deref()).map(Arc::from),
        ip: last.ip.as_deref().map(Arc::from),
        egress_ip: last.egress_ip.as_deref().map(Arc::from),
        ..entry(object, Arc::new(object.spec.attributes.clone()))
    };
    (status, availability)
}

/// The reason of `Ready` while no other condition holds it back but its actor is given up (SV-2).
pub(crate) const GIVEN_UP: &str = "GivenUp";

/// Whether a status is worth a write: latency goes along with others only (HE-4).
pub(crate) fn differs(want: &ProxyStatus, last: &ProxyStatus) -> bool {
    let ProxyStatus {
        installation,
        phase,
        provider_id,
        ip,
        egress_ip,
        spec_hash,
        observed_generation,
        latency_millis: _,
        last_health_check_time,
        conditions,
    } = want;
    (phase, provider_id, ip, egress_ip) != (&last.phase, &last.provider_id, &last.ip, &last.egress_ip)
        || (installation, spec_hash) != (&last.installation, &last.spec_hash)
        || (observed_generation, last_health_check_time) != (&last.observed_generation, &last.last_health_check_time)
        || conditions != &last.conditions
}
