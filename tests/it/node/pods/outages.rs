//! Troubles of the node as a whole.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::QUICK;
use super::stage::{PATIENCE, Stage};
use crate::support::node::condition;

/// The node is lost: what runs goes on and the probe decides; what is new is not scheduled; what is deleted waits. All is well
/// again when the kubelet is back.
pub async fn kubelet_stopped(stage: &Stage) {
    for namespace in ["keeps", "leaves", "late"] {
        stage.node.restricted(namespace).await;
    }
    stage.ready("keeps", 3128).await;
    stage.ready("leaves", 3128).await;
    let start = Instant::now();
    stage.node.bed("kill", &["kubelet"]).await;
    let lost = || async { (condition(&stage.node.get("default", "node", "node1").await?, "Ready")["status"] == "Unknown").then_some(()) };
    stage.node.until("the node is lost", PATIENCE, lost).await;
    println!("the kubelet is missed after {} s", start.elapsed().as_secs());
    let pod = stage.pod_name("keeps").await;
    let unready = |pod: &Value| (condition(pod, "Ready")["status"] == "False").then(|| pod["status"]["phase"].clone());
    assert_eq!(stage.pods.until("keeps", &pod, "is not Ready", PATIENCE, unready).await, "Running");

    stage.declare("late", "kubernetes", 3128).await;
    let told = stage.says("late", "is not scheduled", |told| told.provisioned.2.starts_with("Unschedulable: ")).await;
    assert!(told.is("Provisioning", "False", "Provisioning"), "{told:?}");
    assert!(told.provisioned.2.contains("untolerated taint"), "{told:?}");

    stage.node.kubectl(&["-n", "leaves", "delete", "px", "px", "--wait=false"]).await;
    let told = stage.says("leaves", "waits", |told| told.provisioned.2.contains("terminating on node node1, due at")).await;
    assert!(told.is("Deleting", "False", "Provisioning"), "{told:?}");

    // Squid works, so its proxy is Ready, whatever the node is taken for.
    let said = stage.all_said("keeps");
    let last = said.last().unwrap();
    assert_eq!((last.phase.as_str(), last.ready.0.as_str()), ("Ready", "True"), "{said:#?}");
    let first_ready = said.iter().position(|told| told.phase == "Ready").unwrap();
    assert!(said[first_ready..].iter().all(|told| told.phase == "Ready"), "{said:#?}");

    stage.node.bed("start", &["kubelet"]).await;
    stage.proxies.gone("leaves", "px", PATIENCE).await;
    stage.phase("late", "Ready").await;
    assert!(stage.all_said("keeps")[first_ready..].iter().all(|told| told.phase == "Ready"), "{:#?}", stage.all_said("keeps"));
}

/// The machine goes off and on: the same Pods with their UIDs, at other addresses; no proxy is made anew.
pub async fn rebooted(stage: &Stage) {
    stage.phase("keeps", "Ready").await;
    stage.phase("late", "Ready").await;
    let before = [stage.pod("keeps").await, stage.pod("late").await];
    stage.node.down().await;
    stage.node.up(&QUICK).await;
    let stage = stage.anew();
    for (namespace, before) in ["keeps", "late"].into_iter().zip(before) {
        let name = before["metadata"]["name"].as_str().unwrap();
        let restarted = |pod: &Value| {
            let (now, then) = (&pod["status"]["containerStatuses"][0], &before["status"]["containerStatuses"][0]);
            (now["restartCount"] != then["restartCount"] && now["ready"] == true)
                .then(|| (pod["status"]["podIP"].clone(), pod["metadata"]["uid"].clone()))
        };
        let (ip, uid) = stage.pods.until(namespace, name, "runs again", PATIENCE, restarted).await;
        assert_eq!(uid, before["metadata"]["uid"]);
        let there = |proxy: &Value| (proxy["status"]["ip"] == ip && proxy["status"]["phase"] == "Ready").then_some(());
        stage.proxies.until(namespace, "px", "is Ready where the Pod is now", PATIENCE, there).await;
    }
}

/// LONG: the API server is away for a minute, longer than the operator may lead without it. Nothing restarts, nothing is made
/// anew, and all is as before when it is back.
pub async fn api_server_away_for_a_minute(stage: &Stage) {
    let before = stage.anew().pod("keeps").await["metadata"]["uid"].clone();
    let replica = || async {
        let replica = stage.node.replicas().await.remove(0);
        (replica["metadata"]["uid"].clone(), replica["status"]["containerStatuses"][0]["restartCount"].clone())
    };
    let operator = replica().await;
    stage.node.bed("kill", &["apiserver"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    stage.node.bed("start", &["apiserver"]).await;
    let answers = || async { stage.node.try_kubectl(&["get", "--raw", "/readyz"]).await.ok() };
    stage.node.until("the API server answers", PATIENCE, answers).await;
    let stage = stage.anew();
    // It leads again: what is declared now is made.
    let made = async {
        stage.node.restricted("after").await;
        stage.ready("after", 3128).await;
    };
    // The scheduler ends when its cache turns out to be wrong, as it may after this; elsewhere its own kubelet starts it again.
    let kept = async {
        loop {
            stage.node.bed("start", &["scheduler"]).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    tokio::select! {
        () = made => {}
        () = kept => {}
    }
    assert_eq!(stage.pod("keeps").await["metadata"]["uid"], before);
    stage.phase("keeps", "Ready").await;
    assert_eq!(replica().await, operator);
}

/// LONG: with another node Ready the controllers do evict, after the 300 s that every Pod tolerates. The Pod is then terminating
/// on a node that nobody answers for: its Proxy waits, and says so, until somebody deletes the Pod by force (K8-20).
pub async fn evicted_after_five_minutes(stage: &Stage) {
    let (start, second, stage) = (Instant::now(), stage.node.verb("second", &["node2"]).spawn().unwrap(), stage.anew());
    let before = stage.pod("keeps").await;
    let name = before["metadata"]["name"].as_str().unwrap();
    let both = || async { (condition(&stage.node.get("default", "node", "node2").await?, "Ready")["status"] == "True").then_some(()) };
    stage.node.until("the second node is Ready", PATIENCE, both).await;
    stage.node.bed("kill", &["kubelet"]).await;
    let evicted =
        |pod: &Value| (!pod["metadata"]["deletionTimestamp"].is_null()).then(|| condition(pod, "DisruptionTarget")["reason"].clone());
    let reason = stage.pods.until("keeps", name, "is evicted", Duration::from_secs(600), evicted).await;
    assert_eq!(reason, "DeletionByTaintManager");
    println!("evicted after {} s", start.elapsed().as_secs());
    let told = stage.says("keeps", "waits", |told| told.provisioned.2.contains("terminating on node node1, due at")).await;
    assert!(told.is("Provisioning", "False", "Provisioning"), "{told:?}");
    assert!(told.provisioned.2.contains("DeletionByTaintManager"), "{told:?}");

    stage.node.kubectl(&["-n", "keeps", "delete", "pod", name, "--grace-period=0", "--force"]).await;
    let anew = |pod: &Value| {
        (pod["metadata"]["uid"] != before["metadata"]["uid"]).then(|| condition(pod, "PodScheduled")["reason"] == "Unschedulable")
    };
    stage
        .pods
        .until("keeps", name, "is made anew, and not scheduled", PATIENCE, |pod| anew(pod).filter(|not_scheduled| *not_scheduled))
        .await;
    stage.node.bed("start", &["kubelet"]).await;
    stage.phase("keeps", "Ready").await;
    stage.phase("late", "Ready").await;
    drop(second);
    stage.node.kubectl(&["delete", "node", "node2"]).await;
}

/// LONG: the node's object is deleted. The collector takes every Pod with it, the operator's too; with the node they come back,
/// one of each.
pub async fn node_object_deleted(stage: &Stage) {
    let stage = stage.anew();
    let before = [stage.pod("keeps").await, stage.pod("late").await];
    stage.node.kubectl(&["delete", "node", "node1"]).await;
    let collected = |pod: &Value| (condition(pod, "DisruptionTarget")["reason"] == "DeletionByPodGC").then_some(());
    let name = before[0]["metadata"]["name"].as_str().unwrap();
    stage.pods.ever("keeps", name, "is collected", Duration::from_secs(120), collected).await;
    // It registers anew when it starts.
    stage.node.bed("kill", &["kubelet"]).await;
    stage.node.bed("start", &["kubelet"]).await;
    for (namespace, before) in ["keeps", "late"].into_iter().zip(before) {
        let name = before["metadata"]["name"].as_str().unwrap();
        let anew = |pod: &Value| {
            (pod["metadata"]["uid"] != before["metadata"]["uid"] && condition(pod, "Ready")["status"] == "True").then_some(())
        };
        stage.pods.until(namespace, name, "is made anew", PATIENCE, anew).await;
        stage.phase(namespace, "Ready").await;
    }
}
