//! How each answer is had from a real API server.

use serde_json::{Value, json};

use super::Answer;
use crate::support::admin::{Admin, Hands};
use crate::support::bed::{Bed, until};

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "squid"}]}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

fn ask(who: &Admin, method: &str, path: &str, body: &Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (code, retry_after, body) = who.raw(method, path, &body);
    Answer { code, retry_after, body }
}

fn make(who: &Admin, hands: &Hands, pod: &Value) -> Answer {
    ask(who, "POST", &format!("/api/v1/namespaces/{}/pods", hands.namespace), pod)
}

/// Every one, each in a namespace of its own.
pub fn all(bed: &Bed) -> Vec<(&'static str, Answer)> {
    let admin = &bed.admin;
    let plain = bed.fresh_namespace(&json!({}));
    let at = format!("/api/v1/namespaces/{}/pods", plain.namespace);
    let mut all = vec![
        ("pod-absent", ask(admin, "GET", &format!("{at}/nope"), &Value::Null)),
        ("path-absent", ask(admin, "GET", &format!("/api/v1/namespaces/{}/podz/nope", plain.namespace), &Value::Null)),
        ("namespace-absent", ask(admin, "POST", "/api/v1/namespaces/it-nope/pods", &pod("p", &json!({})))),
        ("service-account-absent", make(admin, &plain, &pod("p", &json!({"serviceAccountName": "nope"})))),
        (
            "invalid",
            make(admin, &plain, &pod("p", &json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 70000}]}]}))),
        ),
        ("timed-out", ask(admin, "GET", "/api/v1/pods?timeout=1ns", &Value::Null)),
    ];
    // The API server forgets old revisions every five minutes: a younger one still answers, and shows nothing of this.
    let old = expired(admin);
    if old.code == 200 {
        eprintln!("a control plane younger than its first compaction: `expired` is not provoked anew");
    } else {
        all.push(("expired", old));
    }
    let (code, retry_after, body) = admin.raw("POST", &at, "{");
    all.push(("bad-request", Answer { code, retry_after, body }));
    make(admin, &plain, &pod("there", &json!({})));
    let other = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}});
    all.push(("conflict", ask(admin, "DELETE", &format!("{at}/there"), &other)));
    all.extend(strangers(bed, &plain));
    all.extend([
        ("quota-exceeded", quota(bed, &json!({"pods": "1"}))),
        ("quota-unstated", quota(bed, &json!({"requests.memory": "1Gi"}))),
        ("pod-security", pod_security(bed)),
        ("limit-range", limit_range(bed)),
        ("namespace-terminating", terminating(bed)),
        ("webhook-down", webhook_down(bed)),
        ("too-many", too_many(bed)),
    ]);
    plain.drop_namespace();
    all
}

/// A token of a list that began with the first revision of the store.
fn expired(admin: &Admin) -> Answer {
    let token = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0";
    ask(admin, "GET", &format!("/api/v1/pods?limit=1&continue={token}"), &Value::Null)
}

/// Those without rights, a name or a token.
fn strangers(bed: &Bed, plain: &Hands) -> Vec<(&'static str, Answer)> {
    let at = format!("/api/v1/namespaces/{}/pods", plain.namespace);
    let (_dir, path) = bed.kubeconfig_of(Some(&bed.token(&plain.namespace, "nobody")));
    let nobody = Admin::new(&path);
    let (_dir, path) = bed.kubeconfig_of(None);
    let anonymous = Admin::new(&path);
    let (_dir, path) = bed.kubeconfig_of(Some("no-token-of-this-server"));
    let refused = Admin::new(&path);
    vec![
        ("rbac-create", make(&nobody, plain, &pod("p", &json!({})))),
        ("rbac-get", ask(&nobody, "GET", &format!("{at}/p"), &Value::Null)),
        ("rbac-list", ask(&nobody, "GET", "/api/v1/pods", &Value::Null)),
        ("anonymous", ask(&anonymous, "GET", &format!("{at}/p"), &Value::Null)),
        ("token-refused", ask(&refused, "GET", &format!("{at}/p"), &Value::Null)),
    ]
}

fn quota(bed: &Bed, hard: &Value) -> Answer {
    let hands = bed.fresh_namespace(&json!({}));
    let quotas = format!("/api/v1/namespaces/{}/resourcequotas", hands.namespace);
    bed.admin.ensure(&quotas, &json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}));
    until("the quota counts", || bed.admin.get(&format!("{quotas}/q")).filter(|quota| quota["status"]["hard"].is_object()));
    let refused = until("the quota is used up", || {
        let answer = make(
            &bed.admin,
            &hands,
            &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"},
            "spec": {"containers": [{"name": "c", "image": "squid"}]}}),
        );
        (answer.code != 201).then_some(answer)
    });
    hands.drop_namespace();
    refused
}

fn pod_security(bed: &Bed) -> Answer {
    let hands = bed.fresh_namespace(&json!({"pod-security.kubernetes.io/enforce": "restricted"}));
    let refused = make(&bed.admin, &hands, &pod("p", &json!({})));
    hands.drop_namespace();
    refused
}

fn limit_range(bed: &Bed) -> Answer {
    let hands = bed.fresh_namespace(&json!({}));
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "max": {"memory": "64Mi"}}]}});
    bed.admin.ensure(&format!("/api/v1/namespaces/{}/limitranges", hands.namespace), &range);
    let hungry = json!({"containers": [{"name": "c", "image": "i", "resources": {"limits": {"memory": "128Mi"}}}]});
    let refused = until("the range is known", || {
        let answer = make(&bed.admin, &hands, &pod("p", &hungry));
        hands.end("p");
        (answer.code != 201).then_some(answer)
    });
    hands.drop_namespace();
    refused
}

fn terminating(bed: &Bed) -> Answer {
    let hands = bed.fresh_namespace(&json!({}));
    let mut held = pod("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["it.example/held"]);
    make(&bed.admin, &hands, &held);
    bed.admin.delete(&format!("/api/v1/namespaces/{}", hands.namespace), None);
    let refused = until("the namespace is on its way out", || {
        let answer = make(&bed.admin, &hands, &pod("late", &json!({})));
        (answer.code != 201).then_some(answer)
    });
    bed.admin.patch(&hands.path("held"), &json!({"metadata": {"finalizers": null}}));
    refused
}

fn webhook_down(bed: &Bed) -> Answer {
    let hands = bed.fresh_namespace(&json!({"it.example/webhook": "down"}));
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let name = format!("it-{}", hands.namespace);
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{"name": "down.it.example", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "timeoutSeconds": 1, "clientConfig": {"url": "https://127.0.0.1:1/"},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": hands.namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]}]});
    bed.admin.ensure(hooks, &hook);
    let refused = until("the webhook is asked", || {
        let answer = make(&bed.admin, &hands, &pod("p", &json!({})));
        hands.end("p");
        (answer.code != 201).then_some(answer)
    });
    bed.admin.delete(&format!("{hooks}/{name}"), None);
    hands.drop_namespace();
    refused
}

/// Priority and fairness with no share at all. Not by a create: what it refuses it has not looked at.
fn too_many(bed: &Bed) -> Answer {
    let hands = bed.fresh_namespace(&json!({}));
    let group = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let name = format!("it-{}", hands.namespace);
    let level = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"}}}});
    bed.admin.ensure(&format!("{group}/prioritylevelconfigurations"), &level);
    let flow = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {"priorityLevelConfiguration": {"name": name}, "matchingPrecedence": 500, "rules": [{
            "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "busy", "namespace": hands.namespace}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]}]}});
    bed.admin.ensure(&format!("{group}/flowschemas"), &flow);
    let (_dir, path) = bed.kubeconfig_of(Some(&bed.token(&hands.namespace, "busy")));
    let busy = Admin::new(&path);
    // One is always let through when nothing else runs.
    let refused = until("the level counts", || {
        let answers = busy.at_once(64, "GET", &format!("/api/v1/namespaces/{}/pods", hands.namespace), "");
        let refused = answers.into_iter().find(|(code, ..)| *code == 429)?;
        Some(Answer { code: refused.0, retry_after: refused.1, body: refused.2 })
    });
    bed.admin.delete(&format!("{group}/flowschemas/{name}"), None);
    bed.admin.delete(&format!("{group}/prioritylevelconfigurations/{name}"), None);
    hands.drop_namespace();
    refused
}
