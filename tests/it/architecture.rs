//! One direction of knowledge (`src → actors → protocol`), one TLS stack, known licences: read from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Of what an image is made of: packages for other systems need not have been fetched.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"].map(|target| format!("--filter-platform={target}")))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// Our crates, each with our crates that it depends on outside tests.
fn own_edges(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let members: BTreeSet<&str> = metadata["workspace_members"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let own: Vec<&Value> =
        metadata["packages"].as_array().unwrap().iter().filter(|p| members.contains(p["id"].as_str().unwrap())).collect();
    let names: BTreeSet<&str> = own.iter().map(|p| p["name"].as_str().unwrap()).collect();
    own.iter()
        .map(|p| {
            let deps = p["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|d| d["kind"].is_null())
                .filter_map(|d| d["name"].as_str())
                .filter(|n| names.contains(n))
                .map(str::to_owned)
                .collect();
            (p["name"].as_str().unwrap().to_owned(), deps)
        })
        .collect()
}

#[test]
fn actors_know_the_protocol_and_never_each_other() {
    let edges = own_edges(&metadata());
    let shared = ["egress-protocol", "egress-config", "egress-supervision"];
    for (name, deps) in &edges {
        let allowed: &[&str] = match name.as_str() {
            // Below `protocol`: what several crates share and what knows nothing of ours (PC-108).
            "egress-protocol" | "egress-kube" | "egress-libvirt" | "egress-nocloud" | "egress-net" => &[],
            "egress-config" | "egress-supervision" => &["egress-protocol"],
            "egress-cluster" => &["egress-protocol", "egress-config", "egress-supervision", "egress-kube"],
            // For the tests of backends, their authors' outside this repository included.
            "egress-conformance" => &["egress-protocol", "egress-supervision", "egress-provider"],
            "egress-backend-kubernetes" => &["egress-protocol", "egress-config", "egress-supervision", "egress-provider", "egress-kube"],
            "egress-backend-libvirt" => {
                &["egress-protocol", "egress-config", "egress-supervision", "egress-provider", "egress-libvirt", "egress-nocloud"]
            }
            "egress-backend-proxmox" => &["egress-protocol", "egress-config", "egress-supervision", "egress-provider", "egress-nocloud"],
            // It opens connections through foreign proxies, as `local` serves them: one resolver for both.
            "egress-prober" => &["egress-protocol", "egress-config", "egress-supervision", "egress-net"],
            "egress-proxies-operator" | "egress-bench" => continue,
            backend if backend.starts_with("egress-backend-") => {
                &["egress-protocol", "egress-config", "egress-supervision", "egress-provider", "egress-net"]
            }
            _ => &shared,
        };
        for dep in deps {
            assert!(allowed.contains(&dep.as_str()), "{name} must not depend on {dep}; it may know {allowed:?}");
        }
    }
    assert!(edges.contains_key("egress-proxy") && edges.contains_key("egress-lease"), "the workspace was read: {edges:?}");
}

#[test]
fn only_the_cluster_and_the_kubernetes_backend_have_the_client() {
    let metadata = metadata();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if !name.starts_with("egress-") {
            continue;
        }
        let client = package["dependencies"].as_array().unwrap().iter().any(|dependency| {
            let features = dependency["features"].as_array().unwrap();
            dependency["name"] == "kube" && features.iter().any(|feature| feature == "client")
        });
        let may = ["egress-kube", "egress-cluster", "egress-backend-kubernetes"].contains(&name);
        assert_eq!(client, may, "{name}: the Kubernetes client belongs to the cluster crate and the kubernetes backend alone");
    }
}

#[test]
fn only_the_supervision_knows_the_library_of_actors() {
    for package in metadata()["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        if name.starts_with("egress-") {
            let knows = package["dependencies"].as_array().unwrap().iter().any(|dependency| dependency["name"] == "ractor");
            assert_eq!(knows, name == "egress-supervision", "{name}: actors are written against egress-supervision");
        }
    }
}

#[test]
fn there_is_one_tls_stack_and_one_crypto_backend() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock")).expect("Cargo.lock is there");
    let names: BTreeSet<&str> = lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    assert!(names.contains("rustls") && names.contains("ring"), "the lock file was read");
    for banned in ["openssl-sys", "native-tls", "aws-lc-sys", "aws-lc-rs"] {
        assert!(!names.contains(banned), "{banned} entered the dependency tree");
    }
}

#[test]
fn every_licence_is_on_the_list_of_deny_toml() {
    let deny = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deny.toml")).expect("deny.toml is there");
    let list = deny.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).expect("deny.toml allows licences");
    let allowed: BTreeSet<&str> = list.split(',').map(|s| s.trim().trim_matches('"')).filter(|s| !s.is_empty()).collect();
    assert!(allowed.contains("Apache-2.0"));
    for package in metadata()["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or_default().replace('/', " OR ");
        // Good enough for SPDX as crates write it: one alternative of `OR` must be allowed in all its `AND` parts.
        let fine = licence.replace(['(', ')'], "").split(" OR ").any(|alternative| {
            alternative.split(" AND ").all(|part| allowed.contains(part.split(" WITH ").next().unwrap_or_default().trim()))
        });
        assert!(fine, "{name} has the licence {licence:?}, which deny.toml does not allow");
    }
}
