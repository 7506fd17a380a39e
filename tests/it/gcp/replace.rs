//! A machine is replaced while its delete still runs, which takes minutes at Compute Engine (GC-7, GC-13, PC-27).

use std::time::Duration;

use egress_fake_gce::Hold;
use serde_json::json;

use super::{Cloud, KEY, SOON, ZONE, item};
use crate::support::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_is_made_when_the_delete_has_ended_and_not_before() {
    let cloud = Cloud::new().await;
    let operator = cloud.site.start().up().await;
    cloud.declare(3128);
    let runs = async || eventually("it runs", SOON, || async { item(&operator).await["ip"].as_str().map(str::to_owned) }).await;
    runs().await;
    let (name, first) = cloud.vm().await;
    cloud.fake.hold(Hold::UntilSettled);
    cloud.declare(3129);
    let deletes = async || cloud.fake.count("DELETE", "/instances/");
    eventually("its delete is submitted", SOON, || async { (deletes().await > 0).then_some(()) }).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((deletes().await, cloud.fake.count("POST", "/instances")), (1, 1), "one delete, and nothing is made beside it");
    assert_eq!(cloud.vm().await.1["id"], first["id"]);
    // Compute Engine shows a machine that is being deleted in one of several words.
    for status in ["RUNNING", "STOPPING", "TERMINATED"] {
        cloud.fake.alter(ZONE, &name, Some(&|vm| vm["status"] = json!(status)));
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!((deletes().await, cloud.fake.count("POST", "/instances")), (1, 1), "{status}");
    }
    cloud.fake.hold(Hold::Never);
    cloud.fake.settle();
    eventually("its replacement is made", SOON, || async { (cloud.fake.count("POST", "/instances") == 2).then_some(()) }).await;
    runs().await;
    let (same, second) = cloud.vm().await;
    assert!(same == name && second["id"] != first["id"], "the name is the Proxy's, the machine another");
    cloud.site.remove("vm.yaml");
    operator.wait_gone(KEY).await;
    assert!(cloud.fake.instances().is_empty());
}
