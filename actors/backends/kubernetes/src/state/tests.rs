use egress_protocol::provider::InstanceState::{Provisioning, Running, Stopped, Terminated};
use serde_json::{Value, json};

use super::*;

fn read(status: &Value) -> Observed {
    observe(&serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap())
}

/// K8-10: phase, address, deletion.
#[test]
fn every_row_of_the_table() {
    let v4 = json!({"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]});
    let with = |phase: &str, address: &Value| {
        let mut status = address.clone();
        status["phase"] = phase.into();
        status
    };
    let ip = Some(Ipv4Addr::new(10, 1, 2, 3));
    for (phase, address, state, expected, detail) in [
        ("Pending", &json!({}), Provisioning, None, "Pending"),
        ("Pending", &v4, Provisioning, None, "Pending"),
        ("Running", &json!({}), Provisioning, None, "no address yet"),
        ("Running", &v4, Running, ip, "Running"),
        ("Succeeded", &v4, Terminated, None, "Succeeded"),
        ("Failed", &v4, Terminated, None, "Failed"),
        ("Unknown", &v4, Terminated, None, "Unknown"),
        ("Hibernating", &v4, Stopped, None, "Hibernating"),
    ] {
        let observed = read(&with(phase, address));
        assert_eq!((observed.state, observed.ip, observed.detail.as_str(), observed.deleting), (state, expected, detail, false), "{phase}");
        let mut pod: Pod = serde_json::from_value(json!({"metadata": {}, "status": with(phase, address)})).unwrap();
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-29T21:20:21Z")).unwrap();
        let observed = observe(&pod);
        assert_eq!((observed.state, observed.ip, observed.deleting), (Terminated, None, true), "{phase}, terminating");
        assert!(observed.detail.starts_with("terminating, due at 2026-11-29T21:20:21"), "{}", observed.detail);
    }
    let fresh = observe(&Pod::default());
    assert_eq!((fresh.state, fresh.detail.as_str()), (Provisioning, "no phase yet"), "PC-32");
}

#[test]
fn the_first_ipv4_address_counts_wherever_it_stands() {
    let of = |status: Value| {
        let observed = read(&status);
        (observed.state, observed.ip.map(|ip| ip.to_string()), observed.detail)
    };
    let dual = of(json!({"phase": "Running", "podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}, {"ip": "10.0.0.7"}, {"ip": "10.0.0.8"}]}));
    assert_eq!(dual, (Running, Some("10.0.0.7".to_owned()), "Running".to_owned()));
    let single = of(json!({"phase": "Running", "podIP": "10.0.0.9"}));
    assert_eq!(single.1.as_deref(), Some("10.0.0.9"));
    let v6 = of(json!({"phase": "Running", "podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}]}));
    assert_eq!(v6, (Provisioning, None, "no IPv4 address, only fd00::1".to_owned()));
}

/// The records of a real node (facts/kubernetes.md §4), and what a person is told.
#[test]
fn the_detail_tells_the_cause() {
    let oom = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let unready = json!([{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}, {"type": "PodScheduled", "status": "True"}]);
    let container = |count: i32, state: Value, last: Value| json!([{"name": "squid", "image": "x", "imageID": "", "ready": false, "restartCount": count, "state": state, "lastState": last}]);
    for (status, state, detail) in [
        (
            json!({"phase": "Pending", "podIP": "10.244.0.5", "conditions": unready, "containerStatuses":
                container(0, json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"r/absent:1\": not found"}}), json!({}))}),
            Provisioning,
            "ImagePullBackOff: Back-off pulling image \"r/absent:1\": not found",
        ),
        (
            json!({"phase": "Pending", "containerStatuses": container(0, json!({"waiting": {"reason": "ContainerCreating"}}), json!({}))}),
            Provisioning,
            "ContainerCreating",
        ),
        (
            json!({"phase": "Pending", "containerStatuses": container(0,
                json!({"waiting": {"reason": "CreateContainerConfigError", "message": "container has runAsNonRoot and image will run as root"}}), json!({}))}),
            Provisioning,
            "CreateContainerConfigError: container has runAsNonRoot and image will run as root",
        ),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/1 nodes are available: 1 Insufficient cpu."}]}),
            Provisioning,
            "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": unready, "containerStatuses": container(3, oom.clone(), oom.clone())}),
            Running,
            "OOMKilled, exit 137, 3 restarts",
        ),
        (
            json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": container(3,
                json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s restarting failed container"}}),
                json!({"terminated": {"exitCode": 1, "reason": "Error"}}))}),
            Running,
            "Error, exit 1, 3 restarts",
        ),
        (
            json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": container(1,
                json!({"waiting": {"reason": "RunContainerError", "message": "exec: \"squid\": not found"}}),
                json!({"terminated": {"exitCode": 128, "reason": "StartError"}}))}),
            Running,
            "RunContainerError: exec: \"squid\": not found; StartError, exit 128, 1 restart",
        ),
        (
            json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": container(0, json!({"terminated": {"exitCode": 1}}), json!({}))}),
            Running,
            "ended, exit 1",
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "Usage of EmptyDir volume \"d\" exceeds the limit \"5Mi\". ",
                "containerStatuses": container(0, json!({"terminated": {"exitCode": 137, "reason": "Error"}}), json!({}))}),
            Terminated,
            "Evicted: Usage of EmptyDir volume \"d\" exceeds the limit \"5Mi\".; Error, exit 137",
        ),
        (
            json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough resource: cpu", "conditions": []}),
            Terminated,
            "OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu",
        ),
        (
            json!({"phase": "Succeeded", "containerStatuses": container(0, json!({"terminated": {"exitCode": 0, "reason": "Completed"}}), json!({}))}),
            Terminated,
            "Completed, exit 0",
        ),
        (
            json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "DisruptionTarget", "status": "True",
                "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint"}]}),
            Running,
            "DeletionByTaintManager",
        ),
    ] {
        let observed = read(&status);
        assert_eq!((observed.state, observed.detail.as_str()), (state, detail), "{status}");
    }
}

/// K8-20: a Pod on a lost node.
#[test]
fn a_terminating_pod_says_where_and_since_when_it_is_due() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"deletionTimestamp": "2026-11-29T21:20:21Z"},
        "spec": {"nodeName": "node-1", "containers": []},
        "status": {"phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]},
    }))
    .unwrap();
    let detail = observe(&pod).detail;
    assert_eq!(detail, "terminating on node node-1, due at 2026-11-29T21:20:21.000Z; DeletionByPodGC");
}

#[test]
fn a_detail_is_bounded_and_stays_text() {
    let status = json!({"phase": "Failed", "reason": "R", "message": "é".repeat(400)});
    let detail = read(&status).detail;
    assert!(detail.len() <= DETAIL_LIMIT + '…'.len_utf8() && detail.ends_with('…'), "{}", detail.len());
}
