//! What a node really does to a Pod, and what its Proxy then says (K8-10, K8-13, K8-20): class, phase, reason, message.
//!
//! One node of the test's own, since the kubelet is stopped and the machine rebooted. The cases of [`cases`] run at the same
//! time, each in a namespace of its own; those of [`outages`] follow, for they concern every Pod.

mod cases;
mod outages;
mod stage;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use crate::support::long;
use crate::support::node::{Node, Steps};
use stage::Stage;

type Case = fn(Arc<Stage>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! cases {
    ($($path:path),* $(,)?) => {
        [$((stringify!($path), (|stage| Box::pin(async move { $path(&stage).await })) as Case)),*]
    };
}

/// A stopped kubelet is noticed after 24 s instead of 52.
const QUICK: [(&str, &str); 3] = [("EPO_BED_NODE_GRACE", "16s"), ("EPO_BED_LEASE_SECONDS", "8"), ("EPO_BED_STATUS_FREQUENCY", "4s")];

#[tokio::test]
async fn what_a_node_does_to_a_pod_shows_in_its_proxy() {
    let Some(node) = Node::of_its_own("what_a_node_does_to_a_pod_shows_in_its_proxy", &QUICK).await else { return };
    let mut steps = Steps::new();
    let stage = Arc::new(Stage::new(node).await);
    steps.done("a node with the operator and its stand-ins for Squid");
    let mut failed = run(
        &stage,
        &cases![
            cases::image_absent,
            cases::command_missing,
            cases::crash_loop,
            cases::out_of_memory,
            cases::unschedulable,
            cases::quota_refused,
            cases::pod_security_refused,
            cases::evicted_and_it_obeyed,
            cases::evicted_and_killed,
            cases::deleted_by_somebody_else,
            cases::stuck_terminating,
            cases::sandbox_killed,
            cases::port_below_1024,
        ],
    )
    .await;
    steps.done("the cases");
    failed.extend(run(&stage, &cases![outages::kubelet_stopped]).await);
    steps.done("the kubelet stopped and back");
    failed.extend(run(&stage, &cases![outages::rebooted]).await);
    steps.done("the node rebooted");
    stage.tell();
    let warnings = stage.node.warnings().await;
    if long() {
        for case in cases![outages::api_server_away_for_a_minute, outages::evicted_after_five_minutes, outages::node_object_deleted] {
            failed.extend(run(&stage, &[case]).await);
        }
        steps.done("LONG: an API server that is away, the eviction timers, a node's object deleted");
    }
    let forbidden = stage.node.forbidden();
    assert!(failed.is_empty(), "{failed:?}, see above");
    // Since the reboot, and before what warnings are for.
    assert_eq!((forbidden, warnings), (Vec::<String>::new(), Vec::<String>::new()));
}

/// Runs cases at the same time, each to its end whatever becomes of the others; the names of those that failed.
async fn run(stage: &Arc<Stage>, cases: &[(&'static str, Case)]) -> Vec<&'static str> {
    let mut running = JoinSet::new();
    for (name, case) in cases {
        let (name, case, stage, start) = (*name, *case, Arc::clone(stage), Instant::now());
        running.spawn(async move {
            let ended = tokio::task::spawn(case(stage)).await;
            let how = if ended.is_ok() { "ok" } else { "FAILED" };
            println!("{:>6} ms  {name} {how}", start.elapsed().as_millis());
            (name, ended.is_ok())
        });
    }
    let ended = running.join_all().await;
    ended.into_iter().filter(|(_, ok)| !ok).map(|(name, _)| name).collect()
}
