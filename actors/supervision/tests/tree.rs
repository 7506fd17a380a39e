//! The tree as its users see it: restarts, addresses, stops, questions.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::message::{Message, Never, Reply};
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Timestamp};
use egress_supervision::{Actor, ActorStatus, Address, AddressError, ChildSpec, Context, Failure, Root, System};
use serde_json::json;

#[derive(Debug)]
enum Say {
    Count(Reply<u32>),
}

impl Message for Say {
    fn kind(&self) -> &'static str {
        "Count"
    }
}

/// Counts what it was asked; forgets with a crash.
struct Counter(u32);

impl Actor for Counter {
    type Message = Say;
    type Internal = Never;
    type Args = ();
    const KIND: &'static str = "counter";

    async fn start(_: &Context<Self>, (): ()) -> Result<Self, Failure> {
        Ok(Self(0))
    }

    fn handle(&mut self, _: &Context<Self>, message: Say) -> Result<(), Failure> {
        let Say::Count(reply_to) = message;
        self.0 += 1;
        let _ = reply_to.send(self.0);
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        json!({ "count": self.0 })
    }
}

/// A parent of counters.
struct Parent;

impl Actor for Parent {
    type Message = Never;
    type Internal = Never;
    type Args = Vec<&'static str>;
    const KIND: &'static str = "parent";

    async fn start(ctx: &Context<Self>, children: Vec<&'static str>) -> Result<Self, Failure> {
        for child in children {
            ctx.start_child_and_wait::<Counter>(ChildSpec::retried(child, ())).await?;
        }
        Ok(Self)
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        json!({})
    }
}

/// The root: one parent.
struct Top;

impl Actor for Top {
    type Message = Never;
    type Internal = Never;
    type Args = Vec<&'static str>;
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, children: Vec<&'static str>) -> Result<Self, Failure> {
        ctx.start_child_and_wait::<Parent>(ChildSpec::essential("parent", children)).await?;
        Ok(Self)
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        json!({})
    }
}

async fn tree(children: Vec<&'static str>) -> (System, Root) {
    let system = System::new(Clock::starting_at(Timestamp::from_millis(0)), Arc::new(Metrics::default()));
    let root = system.start_root::<Top>(ChildSpec::essential("root", children)).await.expect("the tree starts");
    (system, root)
}

async fn count(address: &Address<Say>) -> Result<u32, AddressError> {
    address.call(Duration::from_secs(1), Say::Count).await
}

#[tokio::test(start_paused = true)]
async fn a_crashed_child_is_restarted_alone_and_its_address_stays_valid() {
    let (system, root) = tree(vec!["a", "b"]).await;
    let (a, b) = (system.address::<Say>("a"), system.address::<Say>("b"));
    assert_eq!(count(&a).await, Ok(1));
    assert_eq!(count(&b).await, Ok(1));
    assert!(system.crash("a"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(count(&a).await, Err(AddressError::Down), "backing off");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(count(&a).await, Ok(1), "state comes from the source, not from the crash");
    assert_eq!(count(&b).await, Ok(2), "its sibling did not notice");
    root.stop().await;
    assert_eq!(count(&b).await, Err(AddressError::Down));
}

#[tokio::test(start_paused = true)]
async fn a_killed_parent_takes_its_children_down_and_brings_them_back() {
    let (system, root) = tree(vec!["a"]).await;
    let a = system.address::<Say>("a");
    assert_eq!(count(&a).await, Ok(1));
    assert!(system.kill("parent"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&a).await, Ok(1), "a new life at the old address");
    let node = system.inspect(None, None).await.expect("there is a root");
    assert_eq!(node.children[0].restarts, 1);
    assert_eq!(node.children[0].last_error.as_ref().map(|e| e.message.as_str()), Some("killed"));
    assert_eq!(node.children[0].children[0].id, "a");
    assert_eq!(node.children[0].children[0].state, Some(json!({ "count": 1 })));
    assert_eq!(node.children[0].children[0].status, ActorStatus::Running);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_singleton_whose_budget_is_spent_ends_the_tree() {
    let (system, mut root) = tree(vec![]).await;
    for _ in 0..6 {
        while !system.crash("parent") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::task::yield_now().await;
    }
    let failure = tokio::time::timeout(Duration::from_secs(60), root.failed()).await.expect("the root fails");
    assert!(failure.0.contains("made to panic"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_child_of_many_crashes_is_given_up_and_tried_again_after_five_minutes() {
    let (system, root) = tree(vec!["a"]).await;
    let a = system.address::<Say>("a");
    for _ in 0..6 {
        while !system.crash("a") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let node = system.inspect(Some("a"), None).await.expect("it is still in the tree");
    assert_eq!(node.status, ActorStatus::GaveUp);
    assert_eq!(count(&a).await, Err(AddressError::Down));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(count(&a).await, Ok(1));
    root.stop().await;
}
