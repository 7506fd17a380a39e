//! What the API server says of Proxies is what `validate` says offline (OP-32): one table, both judges.

use serde_json::{Value, json};

use crate::support::cluster::{Admin, ControlPlane, PROXIES};
use crate::support::http::Answer;

const CASES: &str = include_str!("../../../protocol/src/resource/cases.json");

/// The API server, asked as kubectl asks: strictly.
struct Judge {
    admin: Admin,
    path: String,
}

impl Judge {
    async fn of(plane: &ControlPlane, namespace: &str) -> Self {
        Self { admin: Admin::of(plane).await, path: format!("{PROXIES}/namespaces/{namespace}/proxies") }
    }

    async fn create(&self, name: &str, spec: &Value, query: &str) -> Answer {
        self.admin.post(&format!("{}?fieldValidation=Strict{query}", self.path), &object(name, spec)).await
    }
}

fn object(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": name}, "spec": spec})
}

/// The verdict of `validate` on the same object.
fn offline(name: &str, spec: &Value) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("px.json");
    std::fs::write(&file, object(name, spec).to_string()).unwrap();
    let report = egress_config::validate_files(&[file]);
    (report.exit_code() == 0, report.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_and_validate_give_the_same_verdict_on_every_spec_of_the_table_op_32() {
    let Some(plane) = ControlPlane::shared("the_api_server_and_validate_give_the_same_verdict") else { return };
    let namespace = plane.namespace("kinds");
    let judge = Judge::of(&plane, &namespace.name).await;
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let (accepted, rejected) = (cases["accepted"].as_array().unwrap(), cases["rejected"].as_array().unwrap());
    assert!(accepted.len() >= 15 && rejected.len() >= 40, "{} and {}", accepted.len(), rejected.len());
    let mut differences = Vec::new();
    for (case, good) in accepted.iter().map(|case| (case, true)).chain(rejected.iter().map(|case| (case, false))) {
        let (what, spec) = (case["name"].as_str().unwrap(), &case["spec"]);
        let answer = judge.create("px-1", spec, "&dryRun=All").await;
        let (taken, told) = (answer.status == 201, answer.text());
        let (valid, report) = offline("px-1", spec);
        if taken != good || valid != good {
            differences.push(format!("{what}: the API server {taken}, validate {valid}, the table {good}\n  {told}\n  {report}"));
        }
        // The person sees the field.
        let path = case["path"].as_str().unwrap_or_default();
        let leaf = path.rsplit(['.', '[']).next().unwrap_or_default().trim_end_matches(']');
        if !good && !told.contains(leaf) {
            differences.push(format!("{what}: the message names no {path}: {told}"));
        }
    }
    assert_eq!(differences, [""; 0], "{}", differences.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_server_refuses_a_changed_mode_or_provider_and_takes_other_changes_op_32() {
    let Some(plane) = ControlPlane::shared("the_api_server_refuses_a_changed_mode_or_provider") else { return };
    let namespace = plane.namespace("changes");
    let judge = Judge::of(&plane, &namespace.name).await;
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let changes = cases["changes"].as_array().unwrap();
    assert!(!changes.is_empty());
    for (n, case) in changes.iter().enumerate() {
        let name = format!("px-{n}");
        let made = judge.create(&name, &case["old"], "").await;
        assert_eq!(made.status, 201, "{case}: {}", made.text());
        let mut changed = object(&name, &case["new"]);
        changed["metadata"]["resourceVersion"] = made.json()["metadata"]["resourceVersion"].clone();
        let answer = judge.admin.put(&format!("{}/{name}", judge.path), &changed).await;
        let told = answer.text();
        let paths: Vec<&str> = case["paths"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert_eq!(answer.status == 200, paths.is_empty(), "{case}: {told}");
        for path in paths {
            assert!(told.contains(path), "{path}: {told}");
        }
    }
}

fn columns(text: &str) -> Vec<Vec<String>> {
    text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// The columns, the short name, selection by field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_shows_the_columns_and_selects_by_field_op_8() {
    let Some(plane) = ControlPlane::shared("kubectl_shows_the_columns_and_selects_by_field") else { return };
    let namespace = plane.namespace("columns");
    let at = ["-n", namespace.name.as_str()];
    let mut proxy = object("px-1", &json!({"mode": "Managed", "provider": "lab"}));
    proxy["metadata"]["namespace"] = json!(namespace.name);
    plane.apply(&proxy.to_string());
    let healthy = json!({"type": "Healthy", "status": "True", "reason": "ProbeSucceeded", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let down =
        json!({"type": "Ready", "status": "False", "reason": "Paused", "message": "by-hand", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let status = json!({"status": {"phase": "Ready", "ip": "192.0.2.7", "providerID": "lab/px-1", "latencyMillis": 12, "conditions": [healthy, down]}});
    plane.kubectl(&["patch", "px", "px-1", "--subresource=status", "--type=merge", "-p", &status.to_string(), at[0], at[1]]);
    let narrow = columns(&plane.kubectl(&["get", "px", at[0], at[1]]));
    assert_eq!(narrow[0], ["NAME", "MODE", "PROVIDER", "PHASE", "IP", "HEALTHY", "AGE"]);
    assert_eq!(narrow[1][..6], ["px-1", "Managed", "lab", "Ready", "192.0.2.7", "True"]);
    let wide = columns(&plane.kubectl(&["get", "px", "-o", "wide", at[0], at[1]]));
    assert_eq!(wide[0][7..], ["PORT", "LATENCY", "PROVIDER-ID", "REASON", "MESSAGE"]);
    assert_eq!(wide[1][7..], ["3128", "12", "lab/px-1", "Paused", "by-hand"], "why, too (issue 10, 20)");
    let fields =
        [("status.phase=Ready", true), ("status.phase=Failed", false), ("spec.provider=lab", true), ("spec.provider=other", false)];
    for (field, found) in fields {
        let names = plane.kubectl(&["get", "px", "-o", "name", "--field-selector", field, at[0], at[1]]);
        assert_eq!(names.contains("px-1"), found, "{field}: {names}");
    }
}

/// O16: applied again by another way, nothing is in conflict, and what the binary prints is what runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crds_apply_clean_on_the_server_side_o16() {
    let Some(plane) = ControlPlane::shared("the_crds_apply_clean_on_the_server_side") else { return };
    let printed = std::process::Command::new(crate::support::operator::BINARY).arg("crds").output().unwrap();
    let printed = String::from_utf8_lossy(&printed.stdout);
    let again = plane.try_kubectl(&["apply", "--server-side", "-f", "-"], &printed);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let difference = plane.try_kubectl(&["diff", "--server-side", "-f", "-"], &printed);
    assert_eq!(difference.status.code(), Some(0), "{}", String::from_utf8_lossy(&difference.stdout));
}
