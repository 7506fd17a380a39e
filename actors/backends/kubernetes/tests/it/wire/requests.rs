//! The requests of each operation.

use egress_backend_kubernetes::KubernetesConfig;
use egress_config::providers::CloudInitPolicy;
use egress_protocol::provider::{DeleteOutcome, ErrorClass, InstanceState};
use egress_protocol::resource::Placement;
use egress_protocol::{InstallationId, Uid};
use serde_json::{Value, json};

use crate::support::double::{Double, Reply};
use crate::support::heard::Heard;
use crate::support::kit::{CLOUD_INIT, Calls, backend, config, key, request};

/// K8-4: nothing is read or sent before it is asked for.
#[tokio::test]
async fn the_constructor_sends_nothing_and_a_missing_kubeconfig_may_still_land_k8_4() {
    let double = Double::start();
    let path = double.kubeconfig();
    let moved = path.with_extension("moved");
    std::fs::rename(&path, &moved).unwrap();
    let backend = backend(config(), &path).await;
    let error = backend.made(&request("team-a", "u-1")).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient, "{}", error.message);
    assert!(error.message.contains("kubeconfig"), "{}", error.message);
    let verdict = backend.checked().await;
    assert_eq!((verdict.ready, verdict.reason, verdict.address.as_str()), (false, "Unreachable", ""), "{verdict:?}");
    assert!(double.seen().is_empty());
    std::fs::rename(&moved, &path).unwrap();
    backend.made(&request("team-a", "u-1")).await.unwrap();
}

/// K8-9, K8-10, K8-11: a whole life, request by request.
#[tokio::test]
async fn a_life_is_these_requests() {
    let double = Double::start();
    let backend = backend(KubernetesConfig { owned: true, ..config() }, &double.kubeconfig()).await;
    let request = request("team-a", "u-1");
    let id = backend.made(&request).await.unwrap();
    assert_eq!(id.as_str(), format!("team-a/{}", request.name));
    let seen = double.seen();
    assert_eq!(double.lines(), ["POST /api/v1/namespaces/team-a/pods"]);
    assert_eq!(seen[0].query.get("fieldManager").map(String::as_str), Some("egress-proxies-operator"));
    assert_eq!(seen[0].body["metadata"]["name"], request.name.as_str());
    assert_eq!(seen[0].body["metadata"]["ownerReferences"][0]["name"], "px");
    let pod = format!("/api/v1/namespaces/team-a/pods/{}", request.name);
    double.forget();
    let instance = backend.read(&key(&request)).await.unwrap();
    assert_eq!(double.lines(), [format!("GET {pod}")]);
    assert_eq!((instance.state, instance.deleting, instance.ip), (InstanceState::Provisioning, false, None));
    assert_eq!(
        (instance.name, instance.uid, instance.installation),
        (request.name.clone(), request.uid.clone(), request.installation.clone())
    );
    assert!(instance.created_at.is_some());
    double.forget();
    assert_eq!(backend.gone(&key(&request)).await.unwrap(), DeleteOutcome::InProgress);
    assert_eq!(double.lines(), [format!("GET {pod}"), format!("DELETE {pod}")]);
    assert_eq!(double.seen()[1].body["preconditions"], json!({"uid": "00000000-0000-4000-8000-000000000001"}));
    assert_eq!(double.seen()[1].body.get("gracePeriodSeconds"), None, "its own grace");
    double.forget();
    assert_eq!(backend.gone(&key(&request)).await.unwrap(), DeleteOutcome::Gone);
    assert_eq!(double.lines(), [format!("GET {pod}")]);
    assert_eq!(backend.read(&key(&request)).await.unwrap_err().class, ErrorClass::NotFound);
}

/// K8-9: what a name that is taken comes to.
#[tokio::test]
async fn a_taken_name_is_ours_or_dying_or_foreign_or_gone_k8_9() {
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let request = request("team-a", "u-1");
    let id = backend.made(&request).await.unwrap();
    double.forget();
    assert_eq!(backend.made(&request).await.unwrap(), id);
    assert_eq!(double.lines().len(), 2, "a POST and a look: {:?}", double.lines());
    // Another port is no error: the hash replaces it.
    let mut other = request.clone();
    other.port = 8080;
    assert_eq!(backend.made(&other).await.unwrap(), id);
    let name = request.name.as_str();
    let change = |change: &dyn Fn(&mut Value)| {
        double.pods(|pods| {
            let mut pod = pods.get("team-a", name).unwrap().clone();
            change(&mut pod);
            pods.put(pod);
        });
    };
    change(&|pod| pod["metadata"]["deletionTimestamp"] = "2026-11-29T21:20:21Z".into());
    let error = backend.made(&request).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert!(error.message.contains("being deleted"), "{}", error.message);
    change(&|pod| pod["metadata"]["deletionTimestamp"] = Value::Null);
    change(&|pod| pod["metadata"]["labels"] = json!({"app": "somebody-else"}));
    let error = backend.made(&request).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Permanent);
    assert!(error.message.contains(name) && error.message.contains("proxy-operator-managed"), "{}", error.message);
    // Gone between the two requests.
    double.script(|seen, pods| {
        if seen.method == "GET" {
            pods.remove("team-a", seen.path.rsplit('/').next().unwrap());
        }
        None
    });
    let error = backend.made(&request).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert!(error.message.contains("vanished"), "{}", error.message);
}

/// K8-2, K8-3.
#[tokio::test]
async fn placement_and_cloud_init_never_reach_a_pod_k8_2_k8_3() {
    let (heard, _guard) = Heard::listen();
    let double = Double::start();
    let ignoring = backend(config(), &double.kubeconfig()).await;
    let mut asked = request("team-a", "u-1");
    let word = || Some("SENTINEL-placement".to_owned());
    asked.placement = Placement { region: word(), zone: word(), machine_type: word(), image: word() };
    ignoring.made(&asked).await.unwrap();
    let said = heard.take();
    let warnings = said.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].message.starts_with("WARNING:") && warnings[0].fields["bytes"] == CLOUD_INIT.len().to_string(), "{warnings:?}");
    assert!(!format!("{:?} {said:?}", double.seen()).contains("SENTINEL-c"), "cloud-init");
    assert!(!format!("{:?}", double.seen()).contains("SENTINEL-p"), "placement");
    // Without any there is nothing to say.
    let mut plain = request("team-a", "u-2");
    plain.cloud_init = std::sync::Arc::default();
    ignoring.made(&plain).await.unwrap();
    assert!(heard.take().warnings().is_empty());
    double.forget();
    let rejecting = backend(KubernetesConfig { cloud_init: CloudInitPolicy::Reject, ..config() }, &double.kubeconfig()).await;
    let error = rejecting.made(&request("team-a", "u-3")).await.unwrap_err();
    assert_eq!((error.class, error.environment), (ErrorClass::Permanent, false));
    assert!(error.message.contains("cloudInit") && !error.message.contains("SENTINEL"), "{}", error.message);
    assert!(double.seen().is_empty(), "refused before any call (PC-19)");
    rejecting.made(&plain).await.expect("nothing to reject");
}

/// K8-11: a namesake that is swapped in between the read and the delete is never hit.
#[tokio::test]
async fn a_namesake_is_never_hit_k8_11() {
    for (theirs, outcome) in [(true, DeleteOutcome::Gone), (false, DeleteOutcome::InProgress)] {
        let double = Double::start();
        let backend = backend(config(), &double.kubeconfig()).await;
        let request = request("team-a", "u-1");
        backend.made(&request).await.unwrap();
        double.forget();
        let mut swapped = false;
        double.script(move |seen, pods| {
            if seen.method == "DELETE" && !swapped {
                let mut pod = pods.remove("team-a", seen.path.rsplit('/').next().unwrap()).unwrap();
                pod["metadata"]["uid"] = "another".into();
                if theirs {
                    pod["metadata"]["labels"]["proxy-operator-uid"] = "somebody-else".into();
                }
                pods.put(pod);
                swapped = true;
            }
            None
        });
        assert_eq!(backend.gone(&key(&request)).await.unwrap(), outcome);
        let verbs: Vec<_> = double.seen().iter().map(|seen| seen.method.to_string()).collect();
        let there = double.pods(|pods| pods.get("team-a", request.name.as_str()).is_some());
        if theirs {
            assert_eq!((verbs.join(" "), there), ("GET DELETE GET".to_owned(), true));
        } else {
            assert_eq!((verbs.join(" "), there), ("GET DELETE GET DELETE".to_owned(), false));
        }
    }
    // Swapped again and again: once more is enough for one call.
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let request = request("team-a", "u-1");
    backend.made(&request).await.unwrap();
    double.forget();
    double.script(|seen, _| (seen.method == "DELETE").then(|| Reply::status(409, "Conflict", "the UID in the precondition", json!({}))));
    assert_eq!(backend.gone(&key(&request)).await.unwrap_err().class, ErrorClass::Transient);
    assert_eq!(double.lines().len(), 4);
}

/// K8-11, PC-40.
#[tokio::test]
async fn a_delete_without_an_id_looks_by_name_and_one_without_a_uid_touches_nothing() {
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let request = request("team-a", "u-1");
    backend.made(&request).await.unwrap();
    double.forget();
    let mut nameless = key(&request);
    (nameless.id, nameless.uid) = (None, Uid::new(""));
    assert_eq!(backend.gone(&nameless).await.unwrap(), DeleteOutcome::Gone);
    assert!(double.seen().is_empty());
    let mut by_name = key(&request);
    by_name.id = None;
    assert_eq!(backend.gone(&by_name).await.unwrap(), DeleteOutcome::InProgress);
    assert_eq!(backend.gone(&by_name).await.unwrap(), DeleteOutcome::Gone);
    // One that is on its way out is not asked again.
    backend.made(&request).await.unwrap();
    double.pods(|pods| {
        let mut pod = pods.get("team-a", request.name.as_str()).unwrap().clone();
        pod["metadata"]["deletionTimestamp"] = "2026-11-29T21:20:21Z".into();
        pods.put(pod);
    });
    double.forget();
    assert_eq!(backend.gone(&key(&request)).await.unwrap(), DeleteOutcome::InProgress);
    assert_eq!(double.lines().len(), 1, "K8-11: without a call");
}

/// K8-12: every page of every namespace; other installations are left out here.
#[tokio::test]
async fn a_list_drains_its_pages_and_begins_again_once_k8_12() {
    let double = Double::start();
    let mut paged = config();
    paged.budgets.page_size = 2;
    let backend = backend(paged.clone(), &double.kubeconfig()).await;
    for n in 0..5 {
        backend.made(&request(["team-a", "team-b"][n % 2], &format!("u-{n}"))).await.unwrap();
    }
    let mut theirs = request("team-a", "theirs");
    theirs.installation = InstallationId::new("it-theirs");
    backend.made(&theirs).await.unwrap();
    double.forget();
    let listed = backend.all().await.unwrap();
    assert_eq!((listed.instances.len(), listed.left_out.len(), listed.leftovers.len()), (5, 0, 0));
    let seen = double.seen();
    assert_eq!(double.lines(), ["GET /api/v1/pods"; 3]);
    for seen in &seen {
        assert_eq!(seen.query["labelSelector"], "proxy-operator-managed=true");
        assert_eq!(seen.query["limit"], "2");
    }
    assert!(!seen[0].query.contains_key("continue") && seen[1].query["continue"] != seen[2].query["continue"]);
    // The second page is too late, once.
    double.forget();
    let expired = crate::classes::captured("expired").reply();
    let (mut late, reply) = (false, expired.clone());
    double.script(move |seen, _| {
        let now = seen.query.contains_key("continue") && !late;
        late |= now;
        now.then(|| reply.clone())
    });
    let again = backend.all().await.unwrap();
    assert_eq!(again.instances, listed.instances, "nothing twice");
    assert_eq!(double.lines().len(), 2 + 3);
    // Always too late: an error, never a short list (PC-45).
    double.forget();
    double.script(move |seen, _| seen.query.contains_key("continue").then(|| expired.clone()));
    let error = backend.all().await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient, "{}", error.message);
    assert_eq!(double.lines().len(), 4);
    // OP-25.
    double.calm();
    double.forget();
    let restricted = self::backend(KubernetesConfig { namespace: Some("team-b".into()), ..paged }, &double.kubeconfig()).await;
    assert_eq!(restricted.all().await.unwrap().instances.len(), 2);
    assert_eq!(double.lines(), ["GET /api/v1/namespaces/team-b/pods"]);
}

/// K8-15: one list of one Pod with the verb and scope of the list.
#[tokio::test]
async fn a_check_lists_one_pod_and_knows_the_version_k8_15() {
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let verdict = backend.checked().await;
    assert_eq!((verdict.name.as_str(), verdict.ready, verdict.reason, verdict.message.as_str()), ("apiserver", true, "Reachable", ""));
    assert!(verdict.address.starts_with("http://127.0.0.1:"), "{}", verdict.address);
    assert_eq!(verdict.details, [("serverVersion".to_owned(), "v1.36.3".to_owned())]);
    assert_eq!(double.lines(), ["GET /api/v1/pods", "GET /version"]);
    let query = &double.seen()[0].query;
    assert_eq!((query["limit"].as_str(), query["labelSelector"].as_str()), ("1", "proxy-operator-managed=true"));
    double.forget();
    let restricted = self::backend(KubernetesConfig { namespace: Some("team-b".into()), ..config() }, &double.kubeconfig()).await;
    assert!(restricted.checked().await.ready);
    assert_eq!(double.lines()[0], "GET /api/v1/namespaces/team-b/pods");
    // The version is for show.
    for reply in [Reply::status(403, "Forbidden", "no", json!({})), Reply::Raw(200, vec![], "?".to_owned())] {
        double.script(move |seen, _| (seen.path == "/version").then(|| reply.clone()));
        let verdict = backend.checked().await;
        assert_eq!((verdict.ready, verdict.details.len()), (true, 0));
    }
    for (name, reason) in [
        ("token-refused", "Unauthorized"),
        ("rbac-list", "Forbidden"),
        ("anonymous", "Forbidden"),
        ("timed-out", "Timeout"),
        ("webhook-down", "APIError"),
        ("path-absent", "APIError"),
        ("too-many", "APIError"),
    ] {
        double.always(crate::classes::captured(name).reply());
        let verdict = backend.checked().await;
        assert_eq!((verdict.ready, verdict.reason, verdict.message.is_empty()), (false, reason, false), "{name}: {}", verdict.message);
        assert!(verdict.address.starts_with("http://127.0.0.1:"));
    }
    double.always(Reply::Break);
    assert_eq!(backend.checked().await.reason, "Unreachable");
}
