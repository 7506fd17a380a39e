//! `host/<entry>/api` is killed at work (PC-8, PC-99, PC-101, K8-17).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use egress_backend_kubernetes::KubernetesBackend;
use egress_conformance::Intervention;
use egress_kube::ApiClient;
use egress_protocol::InstanceId;
use egress_protocol::provider::{CreateRequest, ErrorClass};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::support::bed::Bed;
use crate::support::kit::{Calls, HOST, access, config, request, standing};
use crate::support::relay::Relay;

/// As a Proxy's actor does: a Transient answer is asked again.
async fn made(backend: &KubernetesBackend, asked: &CreateRequest) -> InstanceId {
    let began = Instant::now();
    loop {
        match backend.made(asked).await {
            Ok(id) => return id,
            Err(error) => assert_eq!(error.class, ErrorClass::Transient, "{}", error.message),
        }
        assert!(began.elapsed() < Duration::from_secs(20), "the host does not come back");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_create_whose_host_is_killed_after_the_pod_was_made_adopts_it_pc_101() {
    let Some(bed) = Bed::find("a_create_whose_host_is_killed_after_the_pod_was_made_adopts_it_pc_101") else { return };
    let hands = bed.fresh_namespace(&json!({}));
    let relay = Relay::new(bed.admin.client.clone(), "https://api.example");
    let (backend, system) = standing(config(), relay.client()).await;
    let asked = request(&hands.namespace, "cut");
    // The API server makes the Pod, and its answer never arrives.
    relay.intervene(1, Intervention::BlockAfter);
    let death = async {
        while hands.pod(asked.name.as_str()).is_none() {
            sleep(Duration::from_millis(20)).await;
        }
        (system.kill(HOST), Instant::now())
    };
    let (answer, (killed, at)) = tokio::join!(backend.made(&asked), death);
    assert!(killed, "{HOST} is up");
    assert!(at.elapsed() < Duration::from_secs(1), "the call hears of it at once");
    let error = answer.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert!(error.message.contains("went away"), "{}", error.message);
    let first = hands.pod(asked.name.as_str()).unwrap()["metadata"]["uid"].clone();
    let id = made(&backend, &asked).await;
    assert_eq!(id.as_str(), format!("{}/{}", hands.namespace, asked.name));
    let pods = hands.pods();
    assert_eq!(pods.len(), 1, "no second Pod");
    assert_eq!(pods[0]["metadata"]["uid"], first);
    assert_eq!(system.inspect(Some(HOST), None).await.unwrap().restarts, 1);
    hands.drop_namespace();
}

#[tokio::test]
async fn creates_go_on_while_the_host_is_killed_again_and_again_pc_101() {
    let Some(bed) = Bed::find("creates_go_on_while_the_host_is_killed_again_and_again_pc_101") else { return };
    let hands = bed.fresh_namespace(&json!({}));
    let (backend, system) = standing(config(), ApiClient::new(access(&bed.kubeconfig()))).await;
    // Below the five of its budget.
    let kills = 4;
    let over = Cell::new(false);
    let lane = |lane: &'static str| {
        let (backend, hands, over) = (&backend, &hands, &over);
        async move {
            let mut ids = Vec::new();
            for n in 0.. {
                let last = over.get();
                ids.push(made(backend, &request(&hands.namespace, &format!("{lane}-{n}"))).await);
                if last {
                    break;
                }
            }
            ids
        }
    };
    let death = async {
        for _ in 0..kills {
            sleep(Duration::from_millis(50)).await;
            let began = Instant::now();
            while !system.kill(HOST) {
                assert!(began.elapsed() < Duration::from_secs(20), "the host does not come back");
                sleep(Duration::from_millis(5)).await;
            }
        }
        over.set(true);
    };
    let (left, right, ()) = tokio::join!(lane("left"), lane("right"), death);
    let ids: BTreeSet<_> = left.iter().chain(&right).map(|id| id.as_str().to_owned()).collect();
    assert_eq!(ids.len(), left.len() + right.len());
    let there: BTreeSet<_> =
        hands.pods().iter().map(|pod| format!("{}/{}", hands.namespace, pod["metadata"]["name"].as_str().unwrap())).collect();
    assert_eq!(there, ids, "one Pod for each create, and no other");
    println!("{} creates, {kills} deaths", ids.len());
    assert_eq!(system.inspect(Some(HOST), None).await.unwrap().restarts, kills);
    hands.drop_namespace();
}
