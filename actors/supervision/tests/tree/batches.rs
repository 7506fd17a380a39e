//! Work that is done once for several messages (`Actor::BATCH`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use egress_protocol::message::{Message, Never, Reply};
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Timestamp};
use egress_supervision::{Actor, AddressError, ChildSpec, Context, Failure, System};
use futures::future::join_all;

/// How many messages make a batch here.
const LIMIT: u32 = 8;

/// Answers each question with the size of the batch that it was answered in.
struct Clerk {
    waiting: Vec<Reply<usize>>,
    ends: Arc<AtomicUsize>,
}

enum Ask {
    Size(Reply<usize>),
    Fail,
}

impl Message for Ask {
    fn kind(&self) -> &'static str {
        "Ask"
    }
}

impl Actor for Clerk {
    type Message = Ask;
    type Internal = Never;
    type Args = Arc<AtomicUsize>;
    const KIND: &'static str = "clerk";
    const BATCH: u32 = LIMIT;

    async fn start(_: &Context<Self>, ends: Arc<AtomicUsize>) -> Result<Self, Failure> {
        Ok(Self { waiting: Vec::new(), ends })
    }

    fn handle(&mut self, _: &Context<Self>, message: Ask) -> Result<(), Failure> {
        match message {
            Ask::Size(reply_to) => self.waiting.push(reply_to),
            Ask::Fail => return Err(Failure::new("as told")),
        }
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn batch_done(&mut self, _: &Context<Self>) -> Result<(), Failure> {
        self.ends.fetch_add(1, Ordering::SeqCst);
        let size = self.waiting.len();
        for reply_to in self.waiting.drain(..) {
            let _gone = reply_to.send(size);
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

async fn clerk() -> (System, egress_supervision::Root, Arc<AtomicUsize>) {
    let system = System::new(Clock::starting_at(Timestamp::from_millis(0)), Metrics::default().shared());
    let ends = Arc::new(AtomicUsize::new(0));
    let root = system.start_root(ChildSpec::<Clerk>::essential("clerk", Arc::clone(&ends))).await.unwrap();
    (system, root, ends)
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_at_once_is_answered_at_once_and_no_more_than_a_batch() {
    let (system, root, ends) = clerk().await;
    let address = system.address::<Ask>("clerk");
    let sizes = join_all((0..5).map(|_| address.call(Duration::from_secs(1), Ask::Size))).await;
    assert_eq!(sizes, vec![Ok(5); 5]);
    let sizes = join_all((0..20).map(|_| address.call(Duration::from_secs(1), Ask::Size))).await;
    let sizes: Vec<usize> = sizes.into_iter().map(Result::unwrap).collect();
    assert_eq!(sizes, [vec![8; 16], vec![4; 4]].concat());
    assert_eq!(ends.load(Ordering::SeqCst), 4);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lone_asker_is_answered_each_time() {
    let (system, root, _) = clerk().await;
    let address = system.address::<Ask>("clerk");
    for _ in 0..200 {
        assert_eq!(address.call(Duration::from_secs(1), Ask::Size).await, Ok(1));
    }
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_within_a_batch_tells_all_its_askers() {
    let (system, root, ends) = clerk().await;
    let address = system.address::<Ask>("clerk");
    let asked = (0..3).map(|_| address.call(Duration::from_secs(1), Ask::Size));
    let fail = async {
        tokio::task::yield_now().await;
        address.send(Ask::Fail)
    };
    let (answers, failed) = tokio::join!(join_all(asked), fail);
    assert_eq!(failed, Ok(()));
    assert!(answers.iter().all(|answer| *answer == Err(AddressError::Dropped)), "{answers:?}");
    assert_eq!(ends.load(Ordering::SeqCst), 0);
    root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_orderly_stop_ends_the_batch() {
    let (system, root, _) = clerk().await;
    let address = system.address::<Ask>("clerk");
    let (answers, ()) = tokio::join!(join_all((0..3).map(|_| address.call(Duration::from_secs(1), Ask::Size))), async {
        tokio::task::yield_now().await;
        root.stop().await;
    });
    // Taken up before the stop and answered, or never taken up: none hangs.
    assert!(answers.iter().all(|answer| matches!(answer, Ok(_) | Err(AddressError::Dropped))), "{answers:?}");
}
