//! The first minute: `standalone` in a fresh folder is five proxies that can be listed, leased and used (OP-2).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::support::eventually;
use crate::support::operator::{BINARY, Operator, Site};

/// The items of the pool, once all are Ready.
async fn ready(operator: &Operator, limit: Duration) -> Vec<Value> {
    eventually("five proxies are Ready", limit, || async {
        let answer = operator.api.try_send(http::Method::GET, "/v1/proxies?phase=Ready", None).await.ok()?;
        answer.json()["items"].as_array().filter(|items| items.len() == 5).cloned()
    })
    .await
}

fn ports(items: &[Value]) -> BTreeMap<String, u16> {
    items.iter().map(|item| (item["name"].as_str().unwrap().to_owned(), u16::try_from(item["port"].as_u64().unwrap()).unwrap())).collect()
}

/// The three printed lines.
fn printed(operator: &Operator) -> Vec<String> {
    let mut lines = Vec::new();
    while lines.len() < 3 {
        let line = operator.stdout.recv_timeout(Duration::from_secs(15)).expect("three curl lines on stdout");
        if line.starts_with("curl ") {
            lines.push(line);
        }
    }
    lines
}

/// Pastes a line into a shell.
fn paste(line: &str) -> String {
    let output = std::process::Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn assert_private(path: &Path) {
    let mode = std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    if path.is_dir() {
        assert_eq!(mode, 0o700, "{}", path.display());
        for entry in std::fs::read_dir(path).unwrap() {
            assert_private(&entry.unwrap().path());
        }
    } else {
        assert_eq!(mode, 0o600, "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_fresh_folder_five_proxies_are_ready_within_five_seconds_and_the_printed_lines_work_as_pasted_twice_op_2() {
    if !crate::support::third_party::has("/usr/bin/curl") {
        return crate::support::skip("the printed lines", "curl is not installed");
    }
    let site = Site::new().flag("--log-level", "debug");
    let started = Instant::now();
    let operator = site.start_with(&[]);
    ready(&operator, Duration::from_secs(5)).await;
    println!("all Ready {:?} after the start of the process", started.elapsed());

    let lines = printed(&operator);
    for _ in 0..2 {
        let list: Value = serde_json::from_str(&paste(&lines[0])).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 5);

        let lease: Value = serde_json::from_str(&paste(&lines[1])).unwrap();
        let id = lease["id"].as_str().unwrap_or_else(|| panic!("{lease}"));
        assert_eq!((lease["state"].as_str(), lease["proxy"]["attributes"]["geo"].as_str()), (Some("active"), Some("de")));
        assert_eq!(operator.api.get(&format!("/v1/leases/{id}")).await.json()["state"], "active");

        let before = operator.api.get("/v1/leases").await.json()["items"].as_array().unwrap().len();
        let page = paste(&lines[2]);
        assert!(page.contains("Hello from the demonstration endpoint"), "{page}");
        assert_eq!(operator.api.get("/v1/leases").await.json()["items"].as_array().unwrap().len(), before + 1, "it takes a lease first");
    }
    // What is read of the log is gone from it, so it is counted on.
    let asked = AtomicUsize::new(0);
    let requests = eventually("the proxies log the requests for the page", Duration::from_secs(5), || async {
        let log: Vec<Value> = operator.stderr.try_iter().map(|line| serde_json::from_str(&line).unwrap()).collect();
        let more = log.iter().filter(|line| line["message"] == "proxy request" && line["status"] == 200).count();
        let asked = asked.fetch_add(more, Ordering::Relaxed) + more;
        (asked >= 2).then_some(asked)
    });
    assert_eq!(requests.await, 2, "each page came through a proxy");
    assert_private(&site.path("state"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_the_ports_and_a_taken_one_is_picked_anew_op_2() {
    let site = Site::new();
    let mut operator = site.start_with(&[]);
    let first = ports(&ready(&operator, Duration::from_secs(20)).await);
    assert_eq!(operator.terminate().await.code(), Some(0));
    drop(operator);

    let operator = site.start_with(&[]);
    assert_eq!(ports(&ready(&operator, Duration::from_secs(20)).await), first);
    operator.kill();

    let taken = std::net::TcpListener::bind(("127.0.0.1", first["demo-3"])).unwrap();
    let operator = site.start_with(&[]);
    let moved = eventually("the pool is Ready on another port", Duration::from_secs(30), || async {
        Some(ports(&ready(&operator, Duration::from_secs(20)).await)).filter(|now| now["demo-3"] != first["demo-3"])
    })
    .await;
    drop(taken);
    for name in ["demo-1", "demo-2", "demo-4", "demo-5"] {
        assert_eq!(moved[name], first[name], "{name}");
    }
    operator.kill();
    let operator = site.start_with(&[]);
    assert_eq!(ports(&ready(&operator, Duration::from_secs(20)).await), moved, "what was picked anew is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_on_the_same_state_folder_is_exit_2_and_names_the_first_op_2() {
    let site = Site::new();
    let first = site.start_with(&[]).up().await;
    let state = site.path("state");
    let output = std::process::Command::new(BINARY)
        .args(["standalone", "--state", state.to_str().unwrap(), "--discovery-bind-address", "127.0.0.1:0"])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{log}");
    assert!(log.contains(&format!("process {}", first.child.id())), "{log}");
    assert_eq!(first.api.get("/readyz").await.status, 200, "the first goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_providers_file_without_manifests_is_exit_2_op_2() {
    let site = Site::new();
    let file = site.path("providers.yaml");
    std::fs::write(&file, "providers:\n  - name: lab\n    type: local\n").unwrap();
    let mut operator = site.start_with(&["--providers-config", file.to_str().unwrap()]);
    assert_eq!(operator.exit().await.code(), Some(2));
    let log: Vec<String> = operator.stderr.iter().collect();
    assert!(log.iter().any(|line| line.contains("--manifests")), "{log:?}");
    assert!(!site.path("state").exists(), "nothing starts half-configured (OP-4)");
}
