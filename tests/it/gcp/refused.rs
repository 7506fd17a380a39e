//! Refusals of an insert, as a person sees them: the class of each, Google's words, and what is tried again (GC-16, GC-17, PC-59).

use std::time::Duration;

use egress_fake_gce::{Answer, Fault};
use futures::future::join_all;

use super::{Cloud, SOON, item};
use crate::support::eventually;

/// Status, reason, message; the reason of the condition; whether it is tried again within seconds (a quota is, after `--quota-retry`).
const KINDS: [(u16, &str, &str, &str, bool); 7] = [
    (403, "rateLimitExceeded", "Rate Limit Exceeded", "QuotaExceeded", true),
    (403, "quotaExceeded", "Quota 'IN_USE_ADDRESSES' exceeded. Limit: 8.0", "QuotaExceeded", true),
    (429, "rateLimitExceeded", "Too many requests", "QuotaExceeded", true),
    (
        403,
        "forbidden",
        "Required 'compute.subnetworks.use' permission for 'projects/sandbox-1/regions/r/subnetworks/s'",
        "PermanentError",
        true,
    ),
    (403, "accessNotConfigured", "Compute Engine API has not been used in project 1 before or it is disabled.", "PermanentError", true),
    (400, "invalid", "Invalid value for field 'resource.disks[0].initializeParams.sourceImage'", "PermanentError", false),
    (503, "backendError", "The service is currently unavailable.", "TransientError", true),
];

async fn refused((status, reason, message, condition, again): (u16, &'static str, &'static str, &'static str, bool)) {
    let what = format!("{status} {reason}");
    let cloud = Cloud::new().await;
    let answer = Answer::error(status, reason, message);
    cloud.fake.fault(Fault { method: "POST", path: "/instances".to_owned(), times: 1, answer, carried_out: false });
    let operator = cloud.site.start().up().await;
    cloud.declare(3128);
    let told = eventually(&format!("{what} is told"), SOON, || async {
        let told = item(&operator).await.to_string();
        told.contains(message).then_some(told)
    })
    .await;
    assert!(told.contains(condition), "{what}: {told}");
    if again {
        eventually(&format!("{what}: it runs"), SOON, || async { item(&operator).await["ip"].as_str().map(str::to_owned) }).await;
        assert_eq!((cloud.fake.instances().len(), cloud.fake.count("POST", "/instances")), (1, 2), "{what}");
    } else {
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!((cloud.fake.instances().len(), cloud.fake.count("POST", "/instances")), (0, 1), "{what}: waits for a change");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_is_told_with_googles_words_and_tried_again_as_its_class_says() {
    join_all(KINDS.map(refused)).await;
}
