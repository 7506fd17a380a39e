//! What the whole process says to Compute Engine, held against the discovery document (GC-30).

use egress_fake_gce::official::{judge, python_or_skip};

use super::{Cloud, KEY, SOON, item};
use crate::support::eventually;

/// Every request of the backend, and every answer it gets here, by way of a create, a late failure, a machine that vanished after a restart,
/// a list, a check with quotas and a delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_and_answer_fits_the_discovery_document() {
    let Some(python) = python_or_skip("gcp::official::every_request_and_answer_fits_the_discovery_document") else { return };
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
    println!("{}", judge(&python, &log).unwrap_or_else(|faults| panic!("{faults}")));
}
