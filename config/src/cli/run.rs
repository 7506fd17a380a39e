//! `run`: its flags → its settings, every fault at once.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use egress_protocol::resource::grammar;
use rand::Rng;

use super::common::{self, Own, providers_of};
use super::faults::Faults;
use super::raw;
use super::settings::{ElectionSettings, RunSettings};
use crate::open;

/// Where a Pod finds its own namespace.
const OWN_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const HOST_NAME: &str = "/proc/sys/kernel/hostname";
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const SHORTEST_RETRY: Duration = Duration::from_millis(100);

/// The error is a text of one line for each fault.
pub(super) fn read(raw: raw::Run, token: Option<OsString>, variables: &BTreeSet<String>) -> Result<RunSettings, String> {
    let mut faults = Faults::new(variables);
    let own = Own {
        providers_config: raw.providers_config.clone(),
        discovery_bind_address: raw.discovery_bind_address.clone(),
        metrics_bind_address: raw.metrics_bind_address.clone(),
        health_probe_bind_address: raw.health_probe_bind_address.clone(),
        installation_id: raw.installation_id.clone(),
    };
    let election = election(&raw, &mut faults);
    for (flag, namespace) in [("proxy-namespace", &raw.proxy_namespace), ("leader-election-namespace", &raw.leader_election_namespace)] {
        if let Some(namespace) = namespace.as_deref().filter(|namespace| !grammar::is_dns_label(namespace)) {
            faults.value(flag, namespace, "must be the name of a namespace: at most 63 of a-z, 0-9 and -");
        }
    }
    let gc_allow_namespaced = faults.switch("gc-allow-namespaced", &raw.gc_allow_namespaced) == Some(true);
    if gc_allow_namespaced && raw.proxy_namespace.is_none() {
        faults.say(format!("{}: means something with --proxy-namespace only: leave it out", faults.name("gc-allow-namespaced")));
    }
    let pod_ip = raw.pod_ip.as_deref().map(str::parse::<IpAddr>);
    if let (Some(Err(_)), Some(text)) = (&pod_ip, &raw.pod_ip) {
        faults.value("pod-ip", text, "must be an IP address");
    }
    if let Some(path) = &raw.kubeconfig
        && let Err(error) = open::file(path)
    {
        faults.value("kubeconfig", path.display(), format!("cannot be read: {error}"));
    }
    let metrics_secure = faults.switch("metrics-secure", &raw.metrics_secure) == Some(true);
    if metrics_secure && raw.metrics_bind_address == "0" {
        let (secure, address) = (faults.name("metrics-secure"), faults.name("metrics-bind-address"));
        faults.say(format!(
            "{secure}: there is nothing to secure while {address} is 0: give it an address such as :8443, or leave {secure} out"
        ));
    }
    let file = raw.providers_config.clone();
    let namespace = raw.pod_namespace.clone().or_else(own_namespace).or_else(|| raw.leader_election_namespace.clone());
    let common = common::read(own, raw.common, token, &mut faults, |look, faults| match &file {
        None => {
            faults.say(format!("{}: is required: name the file with the provider entries", faults.name("providers-config")));
            None
        }
        Some(_) if !look => None,
        Some(path) => providers_of(Some(path), faults),
    });
    let common = faults.finish(common)?;
    Ok(RunSettings {
        kubeconfig: raw.kubeconfig,
        namespace: raw.proxy_namespace.map(Into::into),
        election,
        instance: raw.pod_name.unwrap_or_else(host_name),
        own_namespace: namespace.unwrap_or_else(|| "default".to_owned()),
        pod_ip: pod_ip.and_then(Result::ok),
        gc_allow_namespaced,
        metrics_secure,
        common,
    })
}

/// `None`: off, or a fault.
fn election(raw: &raw::Run, faults: &mut Faults<'_>) -> Option<ElectionSettings> {
    if !faults.switch("leader-elect", &raw.leader_elect)? {
        return None;
    }
    if !grammar::is_dns_label(&raw.leader_election_id) {
        faults.value("leader-election-id", &raw.leader_election_id, "must be the name of a Lease: at most 63 of a-z, 0-9 and -");
    }
    let namespace = raw.leader_election_namespace.clone().or_else(|| raw.pod_namespace.clone()).or_else(own_namespace);
    if namespace.is_none() {
        let flag = faults.name("leader-election-namespace");
        faults.say(format!("{flag}: is required outside a Pod: name the namespace of the Lease, or leave --leader-elect out"));
    }
    let lease = faults.duration("leader-election-lease-duration", &raw.leader_election_lease_duration, SECOND..=HOUR);
    let deadline = faults.duration("leader-election-renew-deadline", &raw.leader_election_renew_deadline, SHORTEST_RETRY..=HOUR);
    let retry = faults.duration("leader-election-retry-period", &raw.leader_election_retry_period, SHORTEST_RETRY..=HOUR);
    if lease.subsec_nanos() != 0 {
        let rule = "must be whole seconds: the Lease has no finer ones";
        faults.value("leader-election-lease-duration", &raw.leader_election_lease_duration, rule);
    }
    if deadline >= lease {
        let rule = format!(
            "must be below {} {}: a leader must stop before another may begin",
            faults.name("leader-election-lease-duration"),
            raw.leader_election_lease_duration
        );
        faults.value("leader-election-renew-deadline", &raw.leader_election_renew_deadline, rule);
    }
    if retry > deadline / 2 {
        let rule = format!(
            "must be at most half of {} {}: one failed renewal must not be the last",
            faults.name("leader-election-renew-deadline"),
            raw.leader_election_renew_deadline
        );
        faults.value("leader-election-retry-period", &raw.leader_election_retry_period, rule);
    }
    Some(ElectionSettings {
        id: raw.leader_election_id.clone(),
        namespace: namespace?,
        identity: identity(raw.pod_name.as_deref(), raw.pod_uid.as_deref()),
        lease_duration: lease,
        renew_deadline: deadline,
        retry_period: retry,
    })
}

/// A restarted container is the same Pod; a restarted process outside one is somebody new.
fn identity(pod: Option<&str>, uid: Option<&str>) -> String {
    match (pod, uid) {
        (Some(pod), Some(uid)) => format!("{pod}_{uid}"),
        _ => format!("{}_{:016x}", pod.map_or_else(host_name, str::to_owned), rand::rng().random::<u64>()),
    }
}

fn own_namespace() -> Option<String> {
    let text = fs::read_to_string(OWN_NAMESPACE).ok()?;
    Some(text.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}

fn host_name() -> String {
    let name = fs::read_to_string(HOST_NAME).unwrap_or_default();
    if name.trim().is_empty() { "unknown-host".to_owned() } else { name.trim().to_owned() }
}
