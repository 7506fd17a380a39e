//! Troubles of one Pod. Each case has a namespace of its own, whose one Proxy is called `px`.

use std::time::Duration;

use serde_json::json;

use super::stage::{PATIENCE, Stage, Told};
use crate::support::eventually;

/// The image cannot be pulled.
pub async fn image_absent(stage: &Stage) {
    stage.node.restricted("absent").await;
    stage.declare("absent", "absent", 3128).await;
    let told = stage
        .says("absent", "names the image", |told| {
            told.provisioned.2.starts_with("ImagePullBackOff: Back-off pulling image \"bed.test/absent:1\"")
        })
        .await;
    assert!(told.is("Provisioning", "False", "Provisioning"), "{told:?}");
    assert_eq!(told.ready, told.provisioned);
    // The first try has another word, for some seconds; both have what containerd said.
    assert!(told.provisioned.2.contains("failed to resolve"), "{told:?}");
}

/// The image has no `squid`: the Pod reads Running all the same.
pub async fn command_missing(stage: &Stage) {
    stage.node.restricted("no-squid").await;
    stage.declare("no-squid", "no-squid", 3128).await;
    let told =
        stage.says("no-squid", "is unhealthy", |told| told.phase == "Unhealthy" && told.ready.2.contains("StartError, exit 128")).await;
    assert!(told.is("Unhealthy", "True", "Provisioned"), "{told:?}");
    assert_eq!((told.ready.0.as_str(), told.ready.1.as_str()), ("False", "ProbeFailed"));
    stage
        .has_said("no-squid", "names the command", |told| {
            told.provisioned.2.contains("exec: \"squid\": executable file not found in $PATH")
        })
        .await;
}

/// Squid ends at once, again and again; between two ends the Pod reads Running.
pub async fn crash_loop(stage: &Stage) {
    stage.node.restricted("exits").await;
    stage.declare("exits", "exits", 3128).await;
    let told = stage.says("exits", "tells the exit", |told| told.phase == "Unhealthy" && told.ready.2.contains("Error, exit 1")).await;
    assert!(told.is("Unhealthy", "True", "Provisioned"), "{told:?}");
    assert!(told.provisioned.2.starts_with("Error, exit 1"), "{told:?}");
    assert_eq!((told.ready.0.as_str(), told.ready.1.as_str()), ("False", "ProbeFailed"));
    let pod = stage.pod_name("exits").await;
    stage
        .pods
        .until("exits", &pod, "restarts", PATIENCE, |pod| (pod["status"]["containerStatuses"][0]["restartCount"] == 2).then_some(()))
        .await;
    assert!(stage.all_said("exits").iter().all(|told| told.phase != "Ready" && !told.provisioned.2.contains("CrashLoopBackOff")));
    assert_eq!(stage.pods.history_of("exits", &pod).iter().filter(|seen| seen.object["deleted"] == true).count(), 0, "never replaced");
}

/// Squid takes more than its limit: never phase Failed, the Pod reads Running.
pub async fn out_of_memory(stage: &Stage) {
    stage.node.restricted("eats").await;
    stage.declare("eats", "eats", 3128).await;
    let told = stage.says("eats", "tells the kill", |told| told.phase == "Unhealthy" && told.ready.2.contains("OOMKilled, exit 137")).await;
    assert!(told.is("Unhealthy", "True", "Provisioned"), "{told:?}");
    assert!(told.provisioned.2.starts_with("OOMKilled, exit 137"), "{told:?}");
}

/// No node takes it.
pub async fn unschedulable(stage: &Stage) {
    stage.node.restricted("huge").await;
    stage.declare("huge", "huge", 3128).await;
    let told = stage.says("huge", "tells what is missing", |told| told.provisioned.2.contains("Insufficient cpu")).await;
    assert!(told.is("Provisioning", "False", "Provisioning"), "{told:?}");
    assert!(told.provisioned.2.starts_with("Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."), "{told:?}");
    // Deleting what never ran takes no node.
    stage.node.kubectl(&["-n", "huge", "delete", "px", "px", "--timeout=30s"]).await;
    assert!(stage.node.list("huge", "pods", "proxy-operator-managed=true").await.is_empty());
}

/// A quota is not an error: it is waited for (OP-18).
pub async fn quota_refused(stage: &Stage) {
    stage.node.restricted("quota").await;
    stage.node.kubectl(&["-n", "quota", "create", "quota", "pods", "--hard=pods=0"]).await;
    stage.node.wait("quota", "quota/pods", "jsonpath={.status.hard.pods}=0", Duration::from_secs(20)).await;
    stage.declare("quota", "kubernetes", 3128).await;
    let told = stage.says("quota", "tells the quota", |told| told.provisioned.1 == "QuotaExceeded").await;
    assert!(told.is("Provisioning", "False", "QuotaExceeded"), "{told:?}");
    assert!(told.provisioned.2.contains("exceeded quota: pods, requested: pods=1, used: pods=0, limited: pods=0"), "{told:?}");
    stage.node.kubectl(&["-n", "quota", "delete", "quota", "pods"]).await;
    stage.phase("quota", "Ready").await;
}

/// The level refuses the Pod, here because something puts a container beside Squid that the level does not admit, as the
/// sidecars of a mesh are: the environment's fault, so that it heals (PC-59).
pub async fn pod_security_refused(stage: &Stage) {
    stage.node.restricted("sidecars").await;
    let policy = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: sidecars.bed.test}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: sidecars}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: 'Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "injected", image: "bed.test/tool:1"}]}}'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: sidecars.bed.test}
spec: {policyName: sidecars.bed.test}
"#;
    stage.node.apply(policy).await;
    // It takes a moment to count.
    let probe = [
        "-n",
        "sidecars",
        "run",
        "probe",
        "--image=bed.test/pause:1",
        "--dry-run=server",
        "-o",
        "jsonpath={.spec.initContainers[0].name}{.metadata.name}",
    ];
    stage
        .node
        .until("the policy counts", Duration::from_secs(30), || async {
            // Refused for the injected container too, once it is injected.
            let tried = stage.node.try_kubectl(&probe).await;
            tried.err().filter(|error| error.contains("injected"))
        })
        .await;
    stage.declare("sidecars", "kubernetes", 3128).await;
    let told = stage.says("sidecars", "tells the refusal", |told| told.phase == "Failed").await;
    assert!(told.is("Failed", "False", "PermanentError"), "{told:?}");
    assert!(
        told.provisioned
            .2
            .contains("violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false (container \"injected\""),
        "{told:?}"
    );
    stage.node.kubectl(&["delete", "mutatingadmissionpolicybinding", "sidecars.bed.test"]).await;
    stage.phase("sidecars", "Ready").await;
}

/// Evicted, and ended with 0 on SIGTERM as Squid does. Mostly the Pod then reads Succeeded, and nothing in it tells of the
/// eviction; one that was evicted within its first second may read Evicted. It is made anew, later each time (OP-14).
pub async fn evicted_and_it_obeyed(stage: &Stage) {
    stage.node.restricted("prints").await;
    stage.declare("prints", "prints", 3128).await;
    let pod = stage.pod_name("prints").await;
    let ended = |pod: &serde_json::Value| {
        let status = &pod["status"];
        (status["phase"] == "Succeeded" || status["phase"] == "Failed").then(|| (status["phase"] == "Succeeded", status["reason"].clone()))
    };
    let (succeeded, reason) = stage.pods.ever("prints", &pod, "ends", PATIENCE, ended).await;
    assert_eq!(reason, if succeeded { serde_json::Value::Null } else { "Evicted".into() });
    println!("evicted, obeyed in time: {}", if succeeded { "Succeeded without a reason" } else { "Failed, Evicted" });
    let told = stage.has_said("prints", "ended", |told| told.provisioned.2.contains("was terminated by itself")).await;
    assert!(told.is("Provisioning", "False", "Provisioning"), "{told:?}");
    let how = if succeeded {
        "the instance was terminated by itself (Completed, exit 0)"
    } else {
        "Evicted: Pod ephemeral local storage usage exceeds"
    };
    assert!(told.provisioned.2.contains(how), "{told:?}");
    one_after_the_other(stage, "prints", &pod).await;
    let last = |told: &Told| told.provisioned.2.starts_with("one instance ended soon after its creation: it was terminated by itself (");
    stage.has_said("prints", "says how the last one ended", last).await;
}

/// Evicted, and killed when it did not end: the Pod says so.
pub async fn evicted_and_killed(stage: &Stage) {
    stage.node.restricted("stubborn").await;
    stage.declare("stubborn", "prints-stubbornly", 3128).await;
    let told = stage.has_said("stubborn", "was evicted", |told| told.provisioned.2.contains("Evicted")).await;
    assert!(told.is("Provisioning", "False", "Provisioning"), "{told:?}");
    let evicted = "(Evicted: Pod ephemeral local storage usage exceeds the total limit of containers 2Mi.";
    assert!(told.provisioned.2.contains(evicted) && told.provisioned.2.contains(", exit 137"), "{told:?}");
    let pod = stage.pod_name("stubborn").await;
    one_after_the_other(stage, "stubborn", &pod).await;
}

/// A Pod that ended is made anew: another UID under the same name, and never two at once.
async fn one_after_the_other(stage: &Stage, namespace: &str, pod: &str) {
    let uids = || {
        let mut uids: Vec<String> =
            stage.pods.history_of(namespace, pod).iter().map(|seen| seen.object["metadata"]["uid"].to_string()).collect();
        uids.dedup();
        uids
    };
    eventually("a second Pod", PATIENCE, || async { (uids().len() > 1).then_some(()) }).await;
    let events = stage.events(namespace).await;
    assert!(events.iter().any(|event| event.starts_with("Replacing: the instance was terminated by itself")), "{events:?}");
}

/// Keeps a Pod from going, or lets it.
async fn hold(stage: &Stage, namespace: &str, pod: &str, held: bool) {
    let finalizers = if held { json!(["bed.test/held"]) } else { json!(null) };
    let patch = json!({"metadata": {"finalizers": finalizers}}).to_string();
    stage.node.kubectl(&["-n", namespace, "patch", "pod", pod, "--type=merge", "-p", &patch]).await;
}

/// Somebody deletes the Pod of a Ready proxy: it waits until the name is free, says for what, and makes another.
pub async fn deleted_by_somebody_else(stage: &Stage) {
    stage.node.restricted("deleted").await;
    stage.ready("deleted", 3128).await;
    let before = stage.pod("deleted").await;
    let name = before["metadata"]["name"].as_str().unwrap();
    hold(stage, "deleted", name, true).await;
    stage.node.kubectl(&["-n", "deleted", "delete", "pod", name, "--wait=false"]).await;
    let waits = "the instance is being deleted at the backend; it is replaced: terminating on node node1, due at";
    let told = stage.says("deleted", "waits", |told| told.provisioned.2.starts_with(waits)).await;
    assert!(told.is("Provisioning", "False", "Provisioning"), "{told:?}");
    hold(stage, "deleted", name, false).await;
    let made_anew = |pod: &serde_json::Value| (pod["metadata"]["uid"] != before["metadata"]["uid"]).then_some(());
    stage.pods.until("deleted", name, "is made anew", PATIENCE, made_anew).await;
    stage.phase("deleted", "Ready").await;
}

/// The Pod does not go: its Proxy waits, and says for what (K8-20).
pub async fn stuck_terminating(stage: &Stage) {
    stage.node.restricted("stuck").await;
    stage.ready("stuck", 3128).await;
    let pod = stage.pod_name("stuck").await;
    hold(stage, "stuck", &pod, true).await;
    stage.node.kubectl(&["-n", "stuck", "delete", "px", "px", "--wait=false"]).await;
    let waits = |told: &Told| told.phase == "Deleting" && told.provisioned.2.contains("terminating on node node1, due at");
    let told = stage.says("stuck", "waits", waits).await;
    assert!(told.is("Deleting", "False", "Provisioning"), "{told:?}");
    // Squid has ended, and still the Pod is there.
    let ended =
        |pod: &serde_json::Value| (pod["status"]["phase"] == "Succeeded" && !pod["metadata"]["deletionTimestamp"].is_null()).then_some(());
    stage.pods.until("stuck", &pod, "has ended", PATIENCE, ended).await;
    assert_eq!(stage.phase("stuck", "Deleting").await["metadata"]["finalizers"], json!(["crawl.example.com/instance-cleanup"]));
    hold(stage, "stuck", &pod, false).await;
    stage.proxies.gone("stuck", "px", PATIENCE).await;
    stage.pods.gone("stuck", &pod, PATIENCE).await;
}

/// The sandbox is made anew: another address under the same UID, and the old one is reported for some seconds.
pub async fn sandbox_killed(stage: &Stage) {
    stage.node.restricted("sandbox").await;
    stage.ready("sandbox", 3128).await;
    let before = stage.pod("sandbox").await;
    let (uid, ip) = (before["metadata"]["uid"].as_str().unwrap(), &before["status"]["podIP"]);
    let filter = format!("labels.\"io.kubernetes.pod.uid\"=={uid},labels.\"io.cri-containerd.kind\"==sandbox");
    let sandbox = stage.node.run(&["ctr", "-n", "k8s.io", "containers", "ls", "-q", &filter]).await;
    stage.node.run(&["ctr", "-n", "k8s.io", "task", "kill", "-s", "SIGKILL", sandbox.trim()]).await;
    let name = before["metadata"]["name"].as_str().unwrap();
    let moved = |pod: &serde_json::Value| {
        let now = &pod["status"]["podIP"];
        (now != ip && now.is_string() && pod["metadata"]["uid"] == uid).then(|| now.clone())
    };
    let now = stage.pods.until("sandbox", name, "has another address", PATIENCE, moved).await;
    let there = |proxy: &serde_json::Value| (proxy["status"]["ip"] == now && proxy["status"]["phase"] == "Ready").then_some(());
    stage.proxies.until("sandbox", "px", "is Ready at the new address", PATIENCE, there).await;
}

/// A port below 1024 without a capability: by the safe sysctl (K8-5).
pub async fn port_below_1024(stage: &Stage) {
    stage.node.restricted("port-80").await;
    stage.ready("port-80", 80).await;
}
