//! What the API server admits, and what its controllers do with it (K8-5, K8-7, K8-13).

use std::time::Duration;

use egress_backend_kubernetes::KubernetesConfig;
use egress_protocol::provider::{DeleteOutcome, ErrorClass};
use egress_protocol::resource::crd;
use egress_protocol::{InstanceName, Uid};
use serde_json::{Value, json};

use crate::support::bed::{Bed, until, until_within};
use crate::support::kit::{Calls, backend, config, key, request};
use crate::support::relay::Relay;

/// Everything of `part` is in `whole` as it is.
fn contains(whole: &Value, part: &Value, path: &str) {
    match part {
        Value::Object(map) => map.iter().for_each(|(key, part)| contains(&whole[key], part, &format!("{path}.{key}"))),
        Value::Array(list) => {
            assert_eq!(whole.as_array().map(Vec::len), Some(list.len()), "{path}: {whole}");
            list.iter().enumerate().for_each(|(i, part)| contains(&whole[i], part, &format!("{path}[{i}]")));
        }
        plain => assert_eq!(whole, plain, "{path}"),
    }
}

/// K8-5: the `restricted` level admits it, the sysctl for a port below 1024 included, and the API server kept all of it.
#[tokio::test]
async fn the_restricted_level_admits_the_pod_on_ports_3128_and_80_k8_5() {
    let Some(bed) = Bed::find("the_restricted_level_admits_the_pod_on_ports_3128_and_80_k8_5") else { return };
    let hands = bed.fresh_namespace(&json!({"pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest", "pod-security.kubernetes.io/warn": "restricted"}));
    let configured = KubernetesConfig {
        allowed_clients: vec!["10.0.0.0/8".parse().unwrap()],
        image_pull_secrets: vec!["regcred".to_owned()],
        ..config()
    };
    let backend = backend(configured, &bed.kubeconfig()).await;
    for port in [3128, 80] {
        let mut asked = request(&hands.namespace, &format!("port-{port}"));
        asked.port = port;
        backend.made(&asked).await.unwrap();
        let pod = hands.pod(asked.name.as_str()).unwrap();
        contains(
            &pod,
            &json!({
                "metadata": {"labels": {"proxy-operator-managed": "true", "proxy-operator-uid": format!("port-{port}"),
                    "proxy-operator-installation": "it-ours", "app.kubernetes.io/name": "squid",
                    "app.kubernetes.io/managed-by": "egress-proxies-operator"}},
                "spec": {
                    "restartPolicy": "Always", "automountServiceAccountToken": false, "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 10, "imagePullSecrets": [{"name": "regcred"}],
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 13, "runAsGroup": 13, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "squid", "command": ["squid", "-N", "-f", "/etc/egress/squid.conf"],
                        "ports": [{"containerPort": port}], "readinessProbe": {"tcpSocket": {"port": port}},
                        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
                        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
                    }],
                    "volumes": [{"name": "conf"}, {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
                },
            }),
            "",
        );
        let sysctls = &pod["spec"]["securityContext"]["sysctls"];
        assert_eq!(sysctls.is_array(), port == 80, "{sysctls}");
        let conf = pod["metadata"]["annotations"]["crawl.example.com/squid-conf"].as_str().unwrap();
        assert!(conf.starts_with(&format!("http_port {port}\n")) && conf.contains("\nacl clients src 10.0.0.0/8\n"), "{conf}");
        let manager = &pod["metadata"]["managedFields"][0]["manager"];
        assert_eq!(manager, "egress-proxies-operator");
    }
    hands.drop_namespace();
}

/// K8-7: a bypassed finalizer cannot leak the Pod; standalone, the same reference would have the collector delete it at once.
#[tokio::test]
async fn the_collector_removes_the_pod_of_a_proxy_that_is_gone_and_leaves_others_k8_7() {
    let Some(bed) = Bed::find("the_collector_removes_the_pod_of_a_proxy_that_is_gone_and_leaves_others_k8_7") else { return };
    bed.admin.ensure("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd::proxy());
    let hands = bed.fresh_namespace(&json!({}));
    let proxies = format!("/apis/crawl.example.com/v1alpha1/namespaces/{}/proxies", hands.namespace);
    let object = json!({"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": "px"},
        "spec": {"mode": "Managed", "provider": "pods"}});
    let proxy = until("the kind is served", || {
        let (code, answer) = bed.admin.post(&proxies, &object);
        (code == 201).then_some(answer)
    });
    let uid = proxy["metadata"]["uid"].as_str().unwrap();
    let in_cluster = backend(KubernetesConfig { owned: true, ..config() }, &bed.kubeconfig()).await;
    let standalone = backend(config(), &bed.kubeconfig()).await;
    let (owned, alone) = (request(&hands.namespace, uid), request(&hands.namespace, "alone"));
    in_cluster.made(&owned).await.unwrap();
    standalone.made(&alone).await.unwrap();
    // Nobody's by its UID: this is what standalone would come to.
    let stray = request(&hands.namespace, "00000000-0000-4000-8000-00000000dead");
    in_cluster.made(&stray).await.unwrap();
    // The collector looks for new kinds every 30 s, and this one may be as young as the control plane.
    let limit = Duration::from_secs(120);
    until_within(limit, "the collector removes what names an owner that is not there", || {
        hands.pod(stray.name.as_str()).is_none().then_some(())
    });
    let pod = hands.pod(owned.name.as_str()).expect("its Proxy lives");
    assert_eq!(
        pod["metadata"]["ownerReferences"],
        json!([{"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "name": "px", "uid": uid, "controller": true, "blockOwnerDeletion": false}])
    );
    bed.admin.delete(&format!("{proxies}/px"), None);
    until_within(limit, "the collector removes the Pod of a Proxy that is gone", || hands.pod(owned.name.as_str()).is_none().then_some(()));
    let pod = hands.pod(alone.name.as_str()).expect("standalone, a Pod names no owner");
    assert_eq!(pod["metadata"]["ownerReferences"], Value::Null);
    hands.drop_namespace();
}

/// K8-11: the precondition, at the real server.
#[tokio::test]
async fn a_namesake_that_is_swapped_in_survives_k8_11() {
    let Some(bed) = Bed::find("a_namesake_that_is_swapped_in_survives_k8_11") else { return };
    let hands = bed.fresh_namespace(&json!({}));
    let relay = Relay::new(bed.admin.client.clone(), "https://api.example");
    let backend = crate::support::kit::over(config(), relay.client()).await;
    let asked = request(&hands.namespace, "swapped");
    let (name, path) = (asked.name.to_string(), format!("/api/v1/namespaces/{}/pods", hands.namespace));
    backend.made(&asked).await.unwrap();
    let aside = hands.clone();
    relay.before(2, move || {
        aside.end(&name);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"proxy-operator-managed": "true",
            "proxy-operator-uid": "somebody-else", "proxy-operator-installation": "it-ours"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        until("the name is free", || (aside.admin.post(&path, &pod).0 == 201).then_some(()));
    });
    assert_eq!(backend.gone(&key(&asked)).await.unwrap(), DeleteOutcome::Gone);
    let pod = hands.pod(asked.name.as_str()).expect("the namesake is untouched");
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(relay.calls(), ["create_pod", "get_pod", "delete_pod", "get_pod"]);
    hands.drop_namespace();
}

/// K8-13: in a namespace that has just been made.
#[tokio::test]
async fn a_new_namespace_takes_pods_a_moment_later_k8_13() {
    let Some(bed) = Bed::find("a_new_namespace_takes_pods_a_moment_later_k8_13") else { return };
    let backend = backend(config(), &bed.kubeconfig()).await;
    let namespace = format!("it-new-{}", std::process::id());
    let asked = request(&namespace, "early");
    let error = backend.made(&asked).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient, "no namespace yet: {}", error.message);
    assert_eq!(backend.read(&key(&asked)).await.unwrap_err().class, ErrorClass::NotFound);
    assert_eq!(backend.gone(&key(&asked)).await.unwrap(), DeleteOutcome::Gone);
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    bed.admin.ensure("/api/v1/namespaces", &object);
    let deadline = tokio::time::Instant::now() + crate::support::double::SOON;
    let id = loop {
        match backend.made(&asked).await {
            Ok(id) => break id,
            Err(error) => assert_eq!(error.class, ErrorClass::Transient, "{}", error.message),
        }
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(id.as_str(), format!("{namespace}/{}", InstanceName::of(&Uid::new("early"))));
    bed.admin.delete(&format!("/api/v1/namespaces/{namespace}"), None);
}
