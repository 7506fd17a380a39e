//! Many Proxies at once (O12, O13): all become Ready, and what the process holds for them stays small.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;

use crate::support::cluster::{ControlPlane, Setting};
use crate::support::origin::{Manner, Origin};
use crate::support::{eventually, rounds};

/// Of the process, whatever the size of the fleet.
const MEMORY_KIB: u64 = 128 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_is_applied_at_once_is_ready_and_stays_within_128_mib_o12() {
    let Some(plane) = ControlPlane::own("a_fleet_that_is_applied_at_once_is_ready") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let count = rounds(100, 2000);
    // A port for all, and an address for each: 16,384 of them.
    let net = format!("127.{}.0.0/18", rand::random_range(64..96));
    let site = setting.site(&net).flag("--drain-timeout", "5m");
    let operator = site.start().up().await;
    let begun = tokio::time::Instant::now();
    let applied = futures::stream::iter(0..count).for_each_concurrent(32, |n| {
        let mut proxy = setting.managed(&format!("px-{n}"), "lab", 3128, origin.port);
        proxy["spec"]["healthCheck"]["intervalSeconds"] = json!(30);
        let setting = &setting;
        async move { setting.create(&proxy).await }
    });
    applied.await;
    let written = begun.elapsed();
    let limit = Duration::from_secs(60) + Duration::from_millis(200) * u32::try_from(count).unwrap();
    eventually("all are Ready in the API server's eyes", limit, || async {
        let phase = "fieldSelector=status.phase%3DReady";
        let list = setting.admin.get(&format!("{}?{phase}", setting.path("").trim_end_matches('/'))).await;
        let ready = list["items"].as_array().map_or(0, Vec::len);
        if ready < count {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        (ready == count).then_some(())
    })
    .await;
    let (now, highest) = operator.memory();
    println!("{count} Proxies: created in {written:?}, all Ready after {:?}; resident {now} KiB, at most {highest} KiB", begun.elapsed());
    assert!(highest < MEMORY_KIB, "{highest} KiB");
    let listed = operator.api.get("/v1/proxies?limit=1000&healthy=true").await.json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(count.min(1000)));
}
