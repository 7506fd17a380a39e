//! Inserts that Compute Engine accepts and fails later, each kind through the process, also across its restart (GC-10 to GC-12, GC-18).

use std::time::Duration;

use egress_fake_gce::Hold;
use futures::future::join_all;

use super::{Cloud, SOON, count, item};
use crate::support::eventually;

/// Code, Google's words, the reason of the condition; whether it is tried again by itself.
const KINDS: [(&str, &str, &str, bool); 5] = [
    ("QUOTA_EXCEEDED", "Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1.", "QuotaExceeded", true),
    ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "The zone does not have enough resources available.", "QuotaExceeded", true),
    ("INVALID_FIELD_VALUE", "Invalid value for field 'sourceImage': no such image.", "PermanentError", false),
    ("IP_SPACE_EXHAUSTED", "IP space of 'subnetworks/default' is exhausted.", "TransientError", true),
    ("SOMETHING_THAT_GOOGLE_INVENTED", "A sentence that nobody has seen.", "TransientError", true),
];

async fn told_and_made_anew((code, message, reason, again): (&str, &str, &str, bool), restart: bool) {
    let cloud = Cloud::new().await;
    cloud.fake.hold(Hold::UntilSettled);
    cloud.fake.fail_next_insert(code, message);
    let mut operator = cloud.site.start().up().await;
    cloud.declare(3128);
    let posts = async |wanted: usize| {
        eventually(&format!("{code}: insert {wanted}"), SOON, || async {
            (cloud.fake.count("POST", "/instances") >= wanted).then_some(())
        })
        .await;
    };
    posts(1).await;
    if restart {
        // A process that does not know the id yet would make it anew, which adopts or starts over.
        // What is in a temporary file is not kept yet.
        let kept = || {
            let files = std::fs::read_dir(cloud.site.path("state/objects")).unwrap().filter_map(Result::ok);
            files.filter(|file| !file.file_name().to_string_lossy().starts_with('.')).filter_map(|file| std::fs::read(file.path()).ok())
        };
        let known = |file: Vec<u8>| String::from_utf8_lossy(&file).contains("zones/europe-west1-b/instances/");
        eventually("the id is kept", SOON, || async { kept().any(known).then_some(()) }).await;
        operator.kill();
        operator = cloud.site.start().up().await;
    }
    assert_eq!(cloud.fake.count("POST", "/instances"), 1, "{code}: while its insert runs nothing is made anew");
    cloud.fake.settle();
    let told = eventually(&format!("{code} is told"), SOON, || async {
        let told = item(&operator).await.to_string();
        (told.contains(code) && told.contains(message)).then_some(told)
    })
    .await;
    assert!(told.contains(reason), "{code}: {told}");
    cloud.fake.hold(Hold::Never);
    if again {
        posts(2).await;
    } else {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(cloud.fake.count("POST", "/instances"), 1, "{code}: waits for a change");
        cloud.declare(3129);
    }
    eventually(&format!("{code}: it runs"), SOON, || async { item(&operator).await["ip"].as_str().map(str::to_owned) }).await;
    assert_eq!((cloud.fake.instances().len(), count(&cloud.fake.take_log(), "POST")), (1, 2), "{code}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_late_failure_is_told_and_made_anew_as_its_class_says() {
    join_all(KINDS.map(|kind| told_and_made_anew(kind, false))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_failure_is_told_by_the_next_process_too() {
    join_all(KINDS.map(|kind| told_and_made_anew(kind, true))).await;
}

/// Ten in a row: the pause of the class lies between any two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_failures_are_never_tried_again_in_a_tight_loop() {
    let worlds = ["QUOTA_EXCEEDED", "SOMETHING_NEW"].map(|code| async move {
        let cloud = Cloud::new().await;
        for _ in 0..10 {
            cloud.fake.fail_next_insert(code, "no");
        }
        let _operator = cloud.site.start().up().await;
        cloud.declare(3128);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let made = cloud.fake.count("POST", "/instances");
        println!("{code}: {made} inserts in 5 s");
        assert!((2..=6).contains(&made), "{code}: {made} inserts in 5 s");
    });
    join_all(worlds).await;
}
