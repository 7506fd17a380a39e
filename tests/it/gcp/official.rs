//! The stand-in for Compute Engine judged by what is not ours (GC-30): Google's own client, and the discovery document, which
//! judges our requests too.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use egress_fake_gce::{Exchange, FakeGce};

use super::{Cloud, KEY, PROJECT, SOON, item};
use crate::support::{eventually, skip};

/// A script of `tests/bed/gce/official`; `None`: what it needs could not be installed, and the test is skipped.
fn official(test: &str, args: &[&str], input: &str) -> Option<Output> {
    let mut child = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bed/gce/official/run"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    if output.status.code() == Some(77) {
        skip(test, "Google's client and the discovery document cannot be installed (Python and its package registry)");
        return None;
    }
    Some(output)
}

/// What the discovery document says of exchanges.
fn judged(test: &str, log: &[Exchange]) -> Option<(bool, String)> {
    let lines: Vec<String> = log.iter().map(|exchange| exchange.to_json().to_string()).collect();
    let output = official(test, &["discovery.py", "--statuses"], &lines.join("\n"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), said))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn googles_own_client_runs_a_life_against_the_stand_in() {
    const TEST: &str = "gcp::official::googles_own_client_runs_a_life_against_the_stand_in";
    let fake = FakeGce::new(PROJECT);
    fake.set_quotas(&[("CPUS", 3.0, 24.0), ("IN_USE_ADDRESSES", 3.0, 8.0)]);
    let server = fake.serve(0).await.unwrap();
    let endpoint = format!("http://{}", server.address);
    let run = tokio::task::spawn_blocking(move || official(TEST, &["client.py", &endpoint, PROJECT], ""));
    let Some(output) = run.await.unwrap() else { return };
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && stdout.contains("deleted:"), "{stdout}\n{stderr}");
    assert!(fake.instances().is_empty());
    let log = fake.take_log();
    assert!(log.len() > 15, "{log:?}");
    let Some((fits, said)) = judged(TEST, &log) else { return };
    assert!(fits, "{said}");
}

/// Every request of the backend, and every answer it gets here, by way of a create, a late failure, a machine that vanished after a restart,
/// a list, a check with quotas and a delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_and_answer_fits_the_discovery_document() {
    const TEST: &str = "gcp::official::every_request_and_answer_fits_the_discovery_document";
    let cloud = Cloud::new().await;
    cloud.fake.set_quotas(&[("CPUS", 3.0, 24.0)]);
    let providers = cloud.site.path("providers.yaml");
    let text = std::fs::read_to_string(&providers).unwrap();
    let more = text.replace("{project:", "{quotaRegions: [europe-west1], subnetwork: regions/europe-west1/subnetworks/default, project:");
    std::fs::write(&providers, more).unwrap();
    assert!(cloud.check().status.success());
    cloud.fake.fail_next_insert("ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources.");
    let operator = cloud.site.start().up().await;
    cloud.declare(3128);
    eventually("the late failure is told", SOON, || async { item(&operator).await.to_string().contains("ZONE_RESOURCE").then_some(()) })
        .await;
    let (name, _) = cloud.vm().await;
    eventually("it runs", SOON, || async { item(&operator).await["ip"].as_str().map(str::to_owned) }).await;
    operator.kill();
    let operator = cloud.site.start().up().await;
    eventually("it is adopted", SOON, || async { item(&operator).await["ip"].as_str().map(str::to_owned) }).await;
    // Somebody removes the machine: the operation of its insert is looked for, which this process does not know.
    cloud.fake.alter("europe-west1-b", &name, None);
    eventually("it is made anew", SOON, || async { (cloud.fake.instances().len() == 1).then_some(()) }).await;
    eventually("it runs again", SOON, || async { item(&operator).await["ip"].as_str().map(str::to_owned) }).await;
    cloud.site.remove("vm.yaml");
    operator.wait_gone(KEY).await;

    let log = cloud.fake.take_log();
    let asked: Vec<String> = log.iter().map(|exchange| format!("{} {}", exchange.method, exchange.path)).collect();
    for part in ["aggregated/instances", "regions/europe-west1", "/operations?", "requestId="] {
        assert!(log.iter().any(|exchange| exchange.path.contains(part)), "nothing asked for {part}: {asked:#?}");
    }
    let Some((fits, said)) = judged(TEST, &log) else { return };
    assert!(fits, "{said}");
    // Every status of the enum has a row in GC-8: the pure table is `state`'s, its words are held here.
    let statuses = said.lines().find_map(|line| line.strip_prefix("statuses ")).unwrap();
    let known =
        "DEPROVISIONING PENDING PENDING_STOP PROVISIONING REPAIRING RUNNING STAGING STOPPED STOPPING SUSPENDED SUSPENDING TERMINATED";
    assert_eq!(statuses, known, "the discovery document has other words than provider-gcp.md");
    // The judge can refuse: a field that is not there, a parameter that is not there.
    let mut bad = log.iter().find(|exchange| exchange.method == "POST").unwrap().clone();
    bad.body = br#"{"name": "x", "machine_type": "y"}"#.to_vec();
    bad.path = bad.path.replace("requestId", "request_id");
    let (fits, said) = judged(TEST, &[bad]).unwrap();
    assert!(!fits && said.contains("machine_type") && said.contains("request_id"), "{said}");
}
