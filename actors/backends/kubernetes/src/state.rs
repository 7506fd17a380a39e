//! What a Pod's status is read as (K8-10): pure. Each read takes the status as it is now; nothing is smoothed (PC-62).
//!
//! A crash loop is told by what ended last and how often, never by the word `CrashLoopBackOff`, which shows only for
//! moments; between restarts the Pod even reads Ready.

use std::net::Ipv4Addr;

use egress_protocol::Timestamp;
use egress_protocol::provider::InstanceState;
use egress_protocol::resource::conditions::cut_bytes;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The longest detail: a kubelet's message can be long.
const DETAIL_LIMIT: usize = 512;

/// A Pod as the contract sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) state: InstanceState,
    pub(crate) detail: String,
    pub(crate) deleting: bool,
    pub(crate) ip: Option<Ipv4Addr>,
}

/// The table.
pub(crate) fn observe(pod: &Pod) -> Observed {
    let nothing = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&nothing);
    if let Some(due) = &pod.metadata.deletion_timestamp {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        return Observed { state: InstanceState::Terminated, detail: terminating(due, node, status), deleting: true, ip: None };
    }
    let (state, ip, lacks) = match status.phase.as_deref() {
        // The API server gives every new Pod a phase; one without has certainly not ended (PC-32).
        None | Some("" | "Pending") => (InstanceState::Provisioning, None, None),
        Some("Running") => match address(status) {
            Ok(ip) => (InstanceState::Running, Some(ip), None),
            Err(lacks) => (InstanceState::Provisioning, None, Some(lacks)),
        },
        Some("Succeeded" | "Failed" | "Unknown") => (InstanceState::Terminated, None, None),
        Some(_) => (InstanceState::Stopped, None, None),
    };
    let mut causes = causes(status);
    causes.extend(lacks);
    let phase = || status.phase.clone().filter(|phase| !phase.is_empty()).unwrap_or_else(|| "no phase yet".to_owned());
    let detail = if causes.is_empty() { phase() } else { causes.join("; ") };
    Observed { state, detail: bounded(detail), deleting: false, ip }
}

/// When it was made, by the API server's clock.
pub(crate) fn created_at(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|Time(at)| Timestamp::from(*at))
}

/// The first IPv4 address, or what there is instead.
fn address(status: &PodStatus) -> Result<Ipv4Addr, String> {
    let several = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let all: Vec<&str> = several.chain(status.pod_ip.as_deref()).filter(|ip| !ip.is_empty()).collect();
    all.iter().find_map(|ip| ip.parse().ok()).ok_or_else(|| match all.first() {
        Some(other) => format!("no IPv4 address, only {other}"),
        None => "no address yet".to_owned(),
    })
}

/// A Pod on a lost node stays so until someone deletes it by force (K8-20): who reads this can see by the time that it is due.
fn terminating(due: &Time, node: Option<&str>, status: &PodStatus) -> String {
    let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let why = disruption(status).map(|why| format!("; {why}")).unwrap_or_default();
    bounded(format!("terminating{on}, due at {}{why}", Timestamp::from(due.0)))
}

/// Everything that says why it is not just running.
fn causes(status: &PodStatus) -> Vec<String> {
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let mut causes: Vec<String> = containers.clone().filter_map(waiting).collect();
    causes.extend(unschedulable(status));
    causes.extend(status.reason.as_deref().filter(|reason| !reason.is_empty()).map(|reason| told(reason, status.message.as_deref())));
    causes.extend(disruption(status));
    causes.extend(containers.filter_map(ended));
    causes
}

fn told(reason: &str, message: Option<&str>) -> String {
    match message.map(str::trim).filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

fn waiting(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().filter(|reason| !reason.is_empty() && *reason != "CrashLoopBackOff")?;
    Some(told(reason, waiting.message.as_deref()))
}

fn unschedulable(status: &PodStatus) -> Option<String> {
    let condition =
        status.conditions.iter().flatten().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    Some(told(condition.reason.as_deref().unwrap_or("not scheduled"), condition.message.as_deref()))
}

fn disruption(status: &PodStatus) -> Option<String> {
    let condition =
        status.conditions.iter().flatten().find(|condition| condition.type_ == "DisruptionTarget" && condition.status == "True")?;
    condition.reason.clone().filter(|reason| !reason.is_empty())
}

/// `OOMKilled, exit 137, 3 restarts`.
fn ended(container: &ContainerStatus) -> Option<String> {
    let of = |state: &Option<_>| -> Option<ContainerStateTerminated> {
        let state: &k8s_openapi::api::core::v1::ContainerState = state.as_ref()?;
        state.terminated.clone()
    };
    let ended = of(&container.state).or_else(|| of(&container.last_state))?;
    let reason = ended.reason.as_deref().filter(|reason| !reason.is_empty()).unwrap_or("ended");
    let restarts = match container.restart_count {
        0 => String::new(),
        1 => ", 1 restart".to_owned(),
        n => format!(", {n} restarts"),
    };
    Some(format!("{reason}, exit {}{restarts}", ended.exit_code))
}

fn bounded(mut text: String) -> String {
    if text.len() > DETAIL_LIMIT {
        text.truncate(cut_bytes(&text, DETAIL_LIMIT).len());
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
