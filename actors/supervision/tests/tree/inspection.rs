//! What `/debug/actors` can rely on (OB-4).

use std::sync::mpsc;
use std::time::Duration;

use egress_supervision::{ActorStatus, ChildSpec};
use serde_json::json;

use crate::puppet::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_actor_that_blocks_its_thread_is_shown_busy_with_its_message_and_asked_once() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let a = child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    let (begun, running) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let deed = move |_: &mut Puppet, _: &_| {
        begun.send(()).unwrap();
        let _ = wait.recv();
        Ok(())
    };
    a.send(Tell::Do(Box::new(deed))).expect("it is up");
    tokio::task::block_in_place(|| running.recv()).expect("it is handled");
    for _ in 0..3 {
        let node = system.inspect(None, None).await.expect("there is a root");
        assert_eq!((node.status, &node.state), (ActorStatus::Running, &Some(json!({ "asked": 0 }))), "its parent is not");
        let busy = &node.children[0];
        assert_eq!((busy.status, &busy.state), (ActorStatus::Busy, &None));
        let handling = busy.handling.as_ref().expect("it handles something");
        assert_eq!(handling.message, "Do");
        assert!(handling.for_millis >= 1);
        assert_eq!(busy.mailbox_depth, 1, "one question waits, however often it is looked at");
    }
    go_on.send(()).expect("it waits for that");
    assert_eq!(count(&a).await, Ok(1));
    let node = system.inspect(Some("a"), None).await.expect("it is there");
    assert_eq!((node.status, node.mailbox_depth, &node.state), (ActorStatus::Running, 0, &Some(json!({ "asked": 1 }))));
    assert!(node.handling.is_none());
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_starts_or_stops_is_shown_so_and_not_waited_for() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let top = system.address::<Tell>("root");
    let starting = ChildSpec::<Puppet>::retried("starting", Play::new(&diary).start(|_| std::future::pending()));
    have(&top, |_, ctx| drop(ctx.start_child(starting))).await;
    child(&top, ChildSpec::<Puppet>::retried("stopping", Play::new(&diary).slow_to_stop(1000))).await;
    have(&top, |_, ctx| ctx.stop_child("stopping")).await;
    pause(1).await;
    let begun = tokio::time::Instant::now();
    let node = system.inspect(None, None).await.expect("there is a root");
    assert!(begun.elapsed() < Duration::from_millis(5));
    let seen: Vec<_> = node.children.iter().map(|child| (child.id.as_str(), child.status)).collect();
    assert_eq!(seen, [("starting", ActorStatus::Starting), ("stopping", ActorStatus::Stopping)]);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_look_goes_as_deep_as_asked() {
    let diary = Diary::default();
    let (system, root) = root(Play::new(&diary)).await;
    let a = child(&system.address::<Tell>("root"), ChildSpec::<Puppet>::retried("a", Play::new(&diary))).await;
    child(&a, ChildSpec::<Puppet>::retried("b", Play::new(&diary))).await;
    assert!(system.inspect(Some("nobody"), None).await.is_none());
    let node = system.inspect(None, Some(0)).await.expect("the root");
    assert!(node.children.is_empty());
    let node = system.inspect(None, Some(1)).await.expect("the root");
    assert!(node.children[0].children.is_empty());
    let node = system.inspect(Some("a"), None).await.expect("a");
    assert_eq!((node.id.as_str(), node.children[0].id.as_str()), ("a", "b"));
    let shown = serde_json::to_value(&node).expect("it is JSON");
    assert_eq!(
        shown["children"][0],
        json!({ "id": "b", "kind": "k0", "status": "running", "since": shown["children"][0]["since"],
                "state": { "asked": 0 }, "restarts": 0, "mailboxDepth": 0, "children": [] })
    );
    root.stop().await;
}
