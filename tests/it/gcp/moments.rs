//! The process is killed at each request of a create and of a delete, before Compute Engine has carried it out and after, and
//! started again: one machine or none (PC-13, PC-51, GC-5, GC-7, GC-11, GC-13).

use futures::future::join_all;

use super::{Cloud, KEY, SOON, count, item};
use crate::support::eventually;
use crate::support::operator::Operator;

/// More than a create or a delete needs; that the last ones were never reached is asserted.
const MOMENTS: usize = 10;

async fn runs(cloud: &Cloud, operator: &Operator) {
    eventually("the machine runs", SOON, || async { item(operator).await["ip"].as_str().map(str::to_owned) }).await;
    assert_eq!(cloud.fake.instances().len(), 1);
}

/// Kills the process when the request has come that gets no answer. `None`: what it was about was over before.
async fn killed_at_the_request(cloud: &Cloud, operator: Operator, over: impl AsyncFn(&Operator) -> bool) -> Option<()> {
    let stalled = eventually("a request stalls, or all is over", SOON, || async {
        if cloud.fake.stalled() {
            return Some(true);
        }
        over(&operator).await.then_some(false)
    })
    .await;
    operator.kill();
    cloud.fake.stall_none();
    stalled.then_some(())
}

/// Whether the moment was reached.
async fn while_creating(after: usize, carried_out: bool) -> bool {
    let cloud = Cloud::new().await;
    cloud.fake.stall(after, carried_out);
    let operator = cloud.site.start().up().await;
    cloud.declare(3128);
    let over = async |operator: &Operator| item(operator).await["ip"].is_string();
    let reached = killed_at_the_request(&cloud, operator, over).await.is_some();
    let operator = cloud.site.start().up().await;
    runs(&cloud, &operator).await;
    let log = cloud.fake.take_log();
    let made = log.iter().filter(|exchange| exchange.method == "POST" && exchange.answer.status == 200).count();
    assert_eq!(made, 1, "killed at request {after} of a create, carried out: {carried_out}: {log:#?}");
    cloud.site.remove("vm.yaml");
    eventually("nothing is left", SOON, || async { cloud.fake.instances().is_empty().then_some(()) }).await;
    operator.wait_gone(KEY).await;
    reached
}

/// Whether the moment was reached.
async fn while_deleting(after: usize, carried_out: bool) -> bool {
    let cloud = Cloud::new().await;
    let operator = cloud.site.start().up().await;
    cloud.declare(3128);
    runs(&cloud, &operator).await;
    cloud.fake.stall(after, carried_out);
    cloud.site.remove("vm.yaml");
    let over = async |operator: &Operator| item(operator).await["name"].is_null();
    let reached = killed_at_the_request(&cloud, operator, over).await.is_some();
    let operator = cloud.site.start().up().await;
    let what = format!("killed at request {after} of a delete, carried out: {carried_out}: nothing is left");
    eventually(&what, SOON, || async { cloud.fake.instances().is_empty().then_some(()) }).await;
    operator.wait_gone(KEY).await;
    let log = cloud.fake.take_log();
    assert_eq!(count(&log, "POST"), 1, "{what}, and nothing is made anew: {log:#?}");
    reached
}

/// Four worlds at once: most of the time is spent waiting. How many of the moments were reached.
async fn each(moment: impl AsyncFn(usize, bool) -> bool) -> usize {
    let mut reached = 0;
    for after in (0..MOMENTS).step_by(2) {
        let all = join_all([(after, false), (after, true), (after + 1, false), (after + 1, true)].map(|(n, done)| moment(n, done))).await;
        let now = all.iter().filter(|reached| **reached).count();
        reached += now;
        if now == 0 {
            return reached;
        }
    }
    panic!("{MOMENTS} moments were not enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_request_of_a_create_there_is_one_machine() {
    let reached = each(while_creating).await;
    println!("killed at {reached} moments of a create");
    assert!(reached >= 4, "the insert and a read at least, each before and after: {reached}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_request_of_a_delete_there_is_none() {
    let reached = each(while_deleting).await;
    println!("killed at {reached} moments of a delete");
    assert!(reached >= 6, "a read, the delete and a read at least, each before and after: {reached}");
}
