//! What a backend may do on its ground: hosts and tasks (PC-99, PC-101, PC-102).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use egress_protocol::message::{Message, Never, Reply};
use egress_protocol::provider::ErrorClass;
use egress_provider::{BackendError, Call, CallEnd, Caller, Ground, HOST_KIND, Host, HostError};
use egress_supervision::{Actor, ActorStatus, Context, Failure};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::{Bed, Does, bed_on, secs};

/// A host that starts unless it is told not to.
struct Link {
    held: Vec<Reply<()>>,
}

#[derive(Debug)]
enum LinkMessage {
    /// Answered at once.
    Ping { caller: Caller, reply_to: Reply<bool> },
    /// Never answered.
    Hold { reply_to: Reply<()> },
}

impl Message for LinkMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Ping { .. } => "Ping",
            Self::Hold { .. } => "Hold",
        }
    }
}

impl Actor for Link {
    type Message = LinkMessage;
    type Internal = Never;
    type Args = Arc<AtomicBool>;
    const KIND: &'static str = HOST_KIND;

    async fn start(_: &Context<Self>, broken: Self::Args) -> Result<Self, Failure> {
        if broken.load(Ordering::SeqCst) { Err(Failure::new("no way in")) } else { Ok(Self { held: Vec::new() }) }
    }
    fn handle(&mut self, _: &Context<Self>, message: LinkMessage) -> Result<(), Failure> {
        match message {
            LinkMessage::Ping { caller, reply_to } => drop(reply_to.send(caller.call.fence.holds())),
            LinkMessage::Hold { reply_to } => self.held.push(reply_to),
        }
        Ok(())
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> Value {
        json!({ "held": self.held.len() })
    }
}

fn call() -> Call {
    Call::until(Instant::now() + secs(60))
}

/// The two providers, each with a host `x`, and the grounds of their latest lives.
async fn with_hosts(broken: &Arc<AtomicBool>) -> (Bed, Arc<Mutex<Vec<Ground>>>) {
    let grounds: Arc<Mutex<Vec<Ground>>> = Arc::default();
    let (kept, broken) = (Arc::clone(&grounds), Arc::clone(broken));
    let constructor = move |ground: &Ground| {
        ground.start_host::<Link>("x", Arc::clone(&broken));
        kept.lock().unwrap().push(ground.clone());
    };
    let bed = bed_on(|_, _| Does::Answer(secs(1)), constructor).await;
    (bed, grounds)
}

fn of(grounds: &Mutex<Vec<Ground>>, entry: &str) -> Ground {
    grounds.lock().unwrap().iter().rfind(|ground| &**ground.entry() == entry).unwrap().clone()
}

/// The way to a host that is there already.
fn host(ground: &Ground, name: &str) -> Host<LinkMessage> {
    ground.start_host::<Link>(name, Arc::default())
}

async fn ping(host: &Host<LinkMessage>) -> Result<bool, HostError> {
    host.ask(&call(), |caller, reply_to| LinkMessage::Ping { caller, reply_to }).await
}

async fn hold(host: &Host<LinkMessage>, call: &Call) -> Result<(), HostError> {
    host.ask(call, |_, reply_to| LinkMessage::Hold { reply_to }).await
}

#[tokio::test(start_paused = true)]
async fn hosts_of_one_name_stand_apart_below_their_entries_and_are_up_before_the_first_call_pc_99() {
    let (bed, grounds) = with_hosts(&Arc::default()).await;
    for entry in ["a", "b"] {
        assert_eq!(ping(&host(&of(&grounds, entry), "x")).await, Ok(true));
        let node = bed.system.inspect(Some(&format!("host/{entry}/x")), None).await.unwrap();
        assert_eq!((node.kind, node.status), (HOST_KIND, ActorStatus::Running));
    }
    of(&grounds, "a").stop_host("x");
    sleep(secs(1)).await;
    assert!(bed.system.inspect(Some("host/a/x"), None).await.is_none(), "stopped for good");
    assert_eq!(ping(&host(&of(&grounds, "b"), "x")).await, Ok(true));
    bed.root.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_host_that_dies_or_is_not_up_or_does_not_answer_is_transient_pc_101() {
    let (bed, grounds) = with_hosts(&Arc::default()).await;
    let host = host(&of(&grounds, "a"), "x");
    let death = async {
        sleep(secs(1)).await;
        bed.system.kill("host/a/x")
    };
    let call = call();
    let (answer, killed) = tokio::join!(hold(&host, &call), death);
    assert!(killed);
    assert_eq!(answer, Err(HostError::WentAway("host/a/x".into())));
    assert_eq!(ping(&host).await, Err(HostError::Down("host/a/x".into())), "not up yet");
    for error in [HostError::WentAway("h".into()), HostError::Down("h".into()), HostError::Ended(CallEnd::Overdue)] {
        assert_eq!(BackendError::from(error).class, ErrorClass::Transient);
    }
    sleep(secs(1)).await;
    assert_eq!(ping(&host).await, Ok(true), "the way to it is the same");
    let overdue = Call::until(Instant::now() + secs(1));
    assert_eq!(hold(&host, &overdue).await, Err(HostError::Ended(CallEnd::Overdue)));
    let cancelled = self::call();
    cancelled.cancel.cancel();
    assert_eq!(hold(&host, &cancelled).await, Err(HostError::Ended(CallEnd::Cancelled)));
    bed.root.stop().await;
}

async fn given_up(bed: &Bed, entry: &str) -> Value {
    bed.system.inspect(Some(&format!("provider/{entry}")), None).await.unwrap().state.unwrap()["hostsGivenUp"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_given_up_shows_at_its_provider_until_it_is_back_pc_99() {
    let broken = Arc::new(AtomicBool::new(false));
    let (bed, grounds) = with_hosts(&broken).await;
    assert_eq!(given_up(&bed, "a").await, json!({}));
    broken.store(true, Ordering::SeqCst);
    assert!(bed.system.kill("host/a/x"));
    sleep(secs(10)).await;
    let shown = given_up(&bed, "a").await;
    assert!(shown["host/a/x"].as_str().is_some_and(|reason| reason.contains("no way in")), "{shown}");
    assert_eq!(given_up(&bed, "b").await, json!({}), "the other provider does not notice");
    assert_eq!(ping(&host(&of(&grounds, "b"), "x")).await, Ok(true));
    broken.store(false, Ordering::SeqCst);
    sleep(secs(6 * 60)).await;
    assert_eq!(given_up(&bed, "a").await, json!({}));
    assert_eq!(ping(&host(&of(&grounds, "a"), "x")).await, Ok(true));
    bed.root.stop().await;
}

/// Counts while it lives.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_of_the_ground_ends_with_its_actor_and_its_panic_ends_it_alone_pc_102() {
    let (bed, grounds) = with_hosts(&Arc::default()).await;
    let alive = Arc::new(AtomicUsize::new(0));
    for entry in ["a", "b"] {
        let guard = Alive::new(&alive);
        of(&grounds, entry).spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
    }
    of(&grounds, "a").spawn(async { panic!("a defect of the task") });
    sleep(secs(1)).await;
    assert_eq!(alive.load(Ordering::SeqCst), 2);
    assert_eq!(bed.system.inspect(Some("provider/a"), None).await.unwrap().restarts, 0);
    let first = of(&grounds, "a");
    assert!(bed.system.kill("provider/a"));
    sleep(secs(1)).await;
    assert_eq!(alive.load(Ordering::SeqCst), 1, "that of the other goes on");
    bed.up("a").await;
    assert_eq!(ping(&host(&of(&grounds, "a"), "x")).await, Ok(true), "the next life has its hosts");
    // A ground that outlived its actor starts nothing any more.
    let late = Alive::new(&alive);
    first.spawn(async move { drop(late) });
    sleep(secs(1)).await;
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    first.start_host::<Link>("late", Arc::default());
    sleep(secs(1)).await;
    assert!(bed.system.inspect(Some("host/a/late"), None).await.is_none());
    // A task that outlives calls asks this fence.
    bed.fence.close();
    assert!(!of(&grounds, "b").fence().holds());
    bed.root.stop().await;
}
