//! Under the real RBAC authorizer (K8-12, K8-15, K8-16).

use egress_backend_kubernetes::KubernetesConfig;
use egress_protocol::InstallationId;
use egress_protocol::provider::{DeleteOutcome, ErrorClass};
use serde_json::{Value, json};

use crate::support::admin::Hands;
use crate::support::bed::Bed;
use crate::support::kit::{Calls, backend, config, key, request};

/// K8-16.
const VERBS: [&str; 4] = ["create", "get", "list", "delete"];

/// Gives a ServiceAccount the verbs on Pods: everywhere, or in one namespace. The names of what was made.
fn grant(bed: &Bed, hands: &Hands, account: &str, verbs: &[&str], only: Option<&Hands>) -> Vec<String> {
    let group = "/apis/rbac.authorization.k8s.io/v1";
    let name = format!("{}-{account}", hands.namespace);
    let (base, kind) = match only {
        Some(only) => (format!("{group}/namespaces/{}/", only.namespace), ""),
        None => (format!("{group}/"), "Cluster"),
    };
    let path = |what: &str| format!("{base}{}", format!("{kind}{what}").to_lowercase());
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Role"), "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]});
    bed.admin.ensure(&path("roles"), &role);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}RoleBinding"), "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": format!("{kind}Role"), "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": &*hands.namespace}]});
    bed.admin.ensure(&path("rolebindings"), &binding);
    vec![format!("{}/{name}", path("roles")), format!("{}/{name}", path("rolebindings"))]
}

/// Requests of a user that the audit log knows and that were forbidden.
fn forbidden(bed: &Bed, user: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(bed.dir.join("audit.log")).unwrap();
    let lines = log.lines().filter(|line| line.contains(user)).filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["user"]["username"] == user && line["responseStatus"]["code"] == 403).collect()
}

/// K8-16: the rule suffices for a whole life and the check, and nothing beyond it is asked for.
#[tokio::test]
async fn the_rule_suffices_for_a_whole_life_and_nothing_more_is_asked_for_k8_16() {
    let Some(bed) = Bed::find("the_rule_suffices_for_a_whole_life_and_nothing_more_is_asked_for_k8_16") else { return };
    let (hands, other) = (bed.fresh_namespace(&json!({})), bed.fresh_namespace(&json!({})));
    for (account, only) in [("everywhere", None), ("restricted", Some(&hands))] {
        let granted = grant(&bed, &hands, account, &VERBS, only);
        let (_dir, path) = bed.kubeconfig_of(Some(&bed.token(&hands.namespace, account)));
        let backend = backend(KubernetesConfig { namespace: only.map(|only| only.namespace.clone()), ..config() }, &path).await;
        let asked = request(&hands.namespace, account);
        backend.made(&asked).await.unwrap();
        backend.made(&asked).await.unwrap();
        backend.read(&key(&asked)).await.unwrap();
        assert!(backend.all().await.unwrap().instances.iter().any(|instance| instance.uid == asked.uid));
        let verdict = backend.checked().await;
        assert!(verdict.ready && !verdict.details.is_empty(), "{verdict:?}");
        backend.gone(&key(&asked)).await.unwrap();
        assert_eq!(backend.gone(&key(&asked)).await.unwrap(), DeleteOutcome::Gone);
        let user = format!("system:serviceaccount:{}:{account}", hands.namespace);
        assert_eq!(forbidden(&bed, &user), Vec::<Value>::new());
        if only.is_some() {
            // OP-25: the rest of the cluster is none of its business, and this is what going there would come to.
            let error = backend.made(&request(&other.namespace, "elsewhere")).await.unwrap_err();
            assert_eq!((error.class, error.environment), (ErrorClass::Permanent, true), "{}", error.message);
            assert_eq!(self::backend(config(), &path).await.all().await.unwrap_err().class, ErrorClass::Permanent);
            assert_eq!(forbidden(&bed, &user).len(), 2, "the log does see what is forbidden");
        }
        granted.iter().for_each(|path| drop(bed.admin.delete(path, None)));
    }
    hands.drop_namespace();
    other.drop_namespace();
}

/// K8-16: without its rule the provider says which verb it lacks, and the check that it is forbidden.
#[tokio::test]
async fn a_missing_right_is_named_k8_16() {
    let Some(bed) = Bed::find("a_missing_right_is_named_k8_16") else { return };
    let hands = bed.fresh_namespace(&json!({}));
    let asked = request(&hands.namespace, "rightless");
    backend(config(), &bed.kubeconfig()).await.made(&asked).await.unwrap();
    for lacking in VERBS {
        let account = format!("no-{lacking}");
        let verbs: Vec<_> = VERBS.into_iter().filter(|verb| *verb != lacking).collect();
        let granted = grant(&bed, &hands, &account, &verbs, None);
        let (_dir, path) = bed.kubeconfig_of(Some(&bed.token(&hands.namespace, &account)));
        let backend = backend(config(), &path).await;
        let error = match lacking {
            "create" => backend.made(&request(&hands.namespace, "another")).await.unwrap_err(),
            "get" => backend.read(&key(&asked)).await.unwrap_err(),
            "list" => backend.all().await.unwrap_err(),
            _ => backend.gone(&key(&asked)).await.unwrap_err(),
        };
        assert_eq!((error.class, error.environment), (ErrorClass::Permanent, true), "{lacking}: {}", error.message);
        assert!(error.message.contains(&format!("cannot {lacking} resource \"pods\"")), "{}", error.message);
        let verdict = backend.checked().await;
        let expected = if lacking == "list" { "Forbidden" } else { "Reachable" };
        assert_eq!(verdict.reason, expected, "{lacking}: {verdict:?}");
        granted.iter().for_each(|path| drop(bed.admin.delete(path, None)));
    }
    let (_dir, path) = bed.kubeconfig_of(Some("no-token-of-this-server"));
    let stranger = backend(config(), &path).await;
    let error = stranger.made(&asked).await.unwrap_err();
    assert_eq!((error.class, error.environment), (ErrorClass::Permanent, true), "{}", error.message);
    assert_eq!(stranger.checked().await.reason, "Unauthorized");
    hands.drop_namespace();
}

/// K8-12, PC-44: three pages over several namespaces; another installation's are left out; OP-25.
#[tokio::test]
async fn a_list_spans_namespaces_and_pages_and_leaves_others_out_k8_12() {
    let Some(bed) = Bed::find("a_list_spans_namespaces_and_pages_and_leaves_others_out_k8_12") else { return };
    let all = [bed.fresh_namespace(&json!({})), bed.fresh_namespace(&json!({})), bed.fresh_namespace(&json!({}))];
    // An installation of this test's own: others list and make Pods here at the same time.
    let ours = InstallationId::new(format!("it-list-{}", std::process::id()));
    let mut configured = KubernetesConfig { installation: ours.clone(), ..config() };
    configured.budgets.page_size = 3;
    let backend = backend(configured.clone(), &bed.kubeconfig()).await;
    let mut made = Vec::new();
    for n in 0..7 {
        let mut asked = request(&all[n % 3].namespace, &format!("list-{n}"));
        asked.installation = ours.clone();
        made.push(backend.made(&asked).await.unwrap());
        let mut theirs = request(&all[n % 3].namespace, &format!("theirs-{n}"));
        theirs.installation = InstallationId::new("it-theirs");
        backend.made(&theirs).await.unwrap();
    }
    let listed = backend.all().await.unwrap();
    let mut ids: Vec<_> = listed.instances.iter().map(|instance| instance.id.clone()).collect();
    made.sort();
    ids.sort();
    assert_eq!(ids, made);
    assert!(listed.instances.iter().all(|instance| instance.installation == ours && instance.created_at.is_some()));
    assert!(listed.left_out.is_empty());
    let restricted = self::backend(KubernetesConfig { namespace: Some(all[0].namespace.clone()), ..configured }, &bed.kubeconfig()).await;
    assert_eq!(restricted.all().await.unwrap().instances.len(), 3, "0, 3, 6");
    all.iter().for_each(Hands::drop_namespace);
}
