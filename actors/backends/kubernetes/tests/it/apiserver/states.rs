//! K8-10 by patched status: what the API server keeps of it is what a kubelet could have written.

use egress_protocol::provider::DeleteOutcome;
use egress_protocol::provider::InstanceState::{self, Provisioning, Running, Stopped, Terminated};
use serde_json::{Value, json};

use crate::support::bed::Bed;
use crate::support::kit::{Calls, backend, config, key, request};

fn addresses(all: &[&str]) -> Value {
    let ips: Vec<_> = all.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"podIP": all.first(), "podIPs": if ips.is_empty() { Value::Null } else { ips.into() }})
}

fn container(count: u32, state: &Value, last: &Value) -> Value {
    json!([{"name": "squid", "image": "ubuntu/squid", "imageID": "", "ready": false, "started": false, "restartCount": count, "state": state,
        "lastState": last}])
}

/// Phase, addresses, what else the status has; state, address, detail.
type Row = (&'static str, &'static [&'static str], Value, InstanceState, Option<&'static str>, &'static str);

#[tokio::test]
async fn every_row_of_the_state_table_k8_10() {
    let Some(bed) = Bed::find("every_row_of_the_state_table_k8_10") else { return };
    let hands = bed.fresh_namespace(&json!({}));
    let backend = backend(config(), &bed.kubeconfig()).await;
    let asked = request(&hands.namespace, "states");
    let name = asked.name.as_str();
    backend.made(&asked).await.unwrap();
    let fresh = backend.read(&key(&asked)).await.unwrap();
    assert_eq!((fresh.state, fresh.ip, fresh.state_detail.as_deref()), (Provisioning, None, Some("Pending")), "PC-32");
    hands.bind(name);
    let oom = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    let none = json!({});
    // A controller takes the condition back when it is old.
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let rows: [Row; 12] = [
        ("Pending", &[], none.clone(), Provisioning, None, "Pending"),
        (
            "Pending",
            &["10.0.0.7"],
            json!({"containerStatuses": container(0,
            &json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image \"x\""}}), &none)}),
            Provisioning,
            None,
            "ImagePullBackOff: Back-off pulling image \"x\"",
        ),
        (
            "Pending",
            &[],
            json!({"containerStatuses": container(0, &json!({"waiting": {"reason": "ContainerCreating"}}), &none)}),
            Provisioning,
            None,
            "ContainerCreating",
        ),
        (
            "Pending",
            &[],
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu."}]}),
            Provisioning,
            None,
            "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
        ("Running", &[], none.clone(), Provisioning, None, "no address yet"),
        ("Running", &["10.0.0.7"], none.clone(), Running, Some("10.0.0.7"), "Running"),
        ("Running", &["fd00::7", "10.0.0.8"], none.clone(), Running, Some("10.0.0.8"), "Running"),
        ("Running", &["fd00::7"], none.clone(), Provisioning, None, "no IPv4 address, only fd00::7"),
        (
            "Running",
            &["10.0.0.9"],
            json!({"containerStatuses": container(3, &oom, &oom)}),
            Running,
            Some("10.0.0.9"),
            "OOMKilled, exit 137, 3 restarts",
        ),
        (
            "Running",
            &["10.0.0.9"],
            json!({"containerStatuses": container(3, &json!({"waiting": {"reason": "CrashLoopBackOff"}}), &oom)}),
            Running,
            Some("10.0.0.9"),
            "OOMKilled, exit 137, 3 restarts",
        ),
        (
            "Running",
            &["10.0.0.9"],
            json!({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
                "lastTransitionTime": now}]}),
            Running,
            Some("10.0.0.9"),
            "DeletionByTaintManager",
        ),
        ("Unknown", &["10.0.0.9"], none.clone(), Terminated, None, "Unknown"),
    ];
    for (phase, ips, more, state, ip, detail) in rows {
        let mut status = addresses(ips);
        (status["phase"], status["conditions"], status["containerStatuses"]) = (phase.into(), Value::Null, Value::Null);
        status.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        hands.set_status(name, &status);
        let read = backend.read(&key(&asked)).await.unwrap();
        let seen = (read.state, read.ip.map(|ip| ip.to_string()), read.state_detail.unwrap_or_default(), read.deleting);
        assert_eq!(seen, (state, ip.map(str::to_owned), detail.to_owned(), false), "{phase} {ips:?}");
    }
    // A word from a later version of Kubernetes.
    let (code, _) = hands.admin.patch(&format!("{}/status", hands.path(name)), &json!({"status": {"phase": "Hibernating"}}));
    let read = backend.read(&key(&asked)).await.unwrap();
    println!("a phase that nobody knows: the API server answers {code}, it reads {:?}", read.state);
    assert!(code != 200 || read.state == Stopped, "PC-30: {:?}", read.state);
    // Terminating, whatever its phase: never Running, and the name is not free.
    hands.set_status(name, &json!({"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}));
    assert_eq!(backend.gone(&key(&asked)).await.unwrap(), DeleteOutcome::InProgress);
    for phase in ["Running", "Failed"] {
        hands.set_status(name, &json!({"phase": phase}));
        let read = backend.read(&key(&asked)).await.unwrap();
        let detail = read.state_detail.unwrap();
        assert_eq!((read.state, read.deleting, read.ip), (Terminated, true, None), "{phase}");
        assert!(detail.starts_with("terminating on node it-node, due at 20"), "K8-20: {detail}");
        assert_eq!(backend.gone(&key(&asked)).await.unwrap(), DeleteOutcome::InProgress);
    }
    hands.end(name);
    assert_eq!(backend.gone(&key(&asked)).await.unwrap(), DeleteOutcome::Gone);
    hands.drop_namespace();
}

/// K8-10: how a Pod can end.
#[tokio::test]
async fn an_ended_pod_is_terminated_with_what_ended_it_k8_10() {
    let Some(bed) = Bed::find("an_ended_pod_is_terminated_with_what_ended_it_k8_10") else { return };
    let hands = bed.fresh_namespace(&json!({}));
    let backend = backend(config(), &bed.kubeconfig()).await;
    let ended = |code: i32, reason: &str| container(0, &json!({"terminated": {"exitCode": code, "reason": reason}}), &json!({}));
    for (n, (status, detail)) in [
        (json!({"phase": "Succeeded", "containerStatuses": ended(0, "Completed")}), "Completed, exit 0"),
        (json!({"phase": "Failed", "containerStatuses": ended(1, "Error")}), "Error, exit 1"),
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}),
            "Evicted: The node was low on resource: memory.",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let asked = request(&hands.namespace, &format!("ended-{n}"));
        backend.made(&asked).await.unwrap();
        hands.bind(asked.name.as_str());
        hands.set_status(asked.name.as_str(), &status);
        let read = backend.read(&key(&asked)).await.unwrap();
        assert_eq!((read.state, read.ip, read.state_detail.as_deref()), (Terminated, None, Some(detail)), "{status}");
    }
    hands.drop_namespace();
}
