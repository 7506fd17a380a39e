//! An actor that does what a test tells it to, and a diary of what happened.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_protocol::message::{Message, Reply};
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Timestamp};
use egress_supervision::{Actor, Address, AddressError, ChildSpec, Context, Failure, Root, System};
use futures::future::BoxFuture;
use serde_json::json;

/// What happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(crate) fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    pub(crate) fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// How often.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.read().iter().filter(|note| *note == text).count()
    }

    pub(crate) fn note_when_dropped(&self, text: impl Into<String>) -> NoteWhenDropped {
        NoteWhenDropped(self.clone(), text.into())
    }
}

pub(crate) struct NoteWhenDropped(Diary, String);

impl Drop for NoteWhenDropped {
    fn drop(&mut self) {
        self.0.note(std::mem::take(&mut self.1));
    }
}

pub(crate) type Deed<const K: usize> = Box<dyn FnOnce(&mut Puppet<K>, &Context<Puppet<K>>) -> Result<(), Failure> + Send>;
pub(crate) type Hook<const K: usize> = Arc<dyn Fn(Context<Puppet<K>>) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

pub(crate) enum Tell<const K: usize = 0> {
    Count(Reply<u32>),
    Do(Deed<K>),
}

impl<const K: usize> Message for Tell<K> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Count(_) => "Count",
            Self::Do(_) => "Do",
        }
    }
}

pub(crate) struct Heard(pub &'static str);

impl Message for Heard {
    fn kind(&self) -> &'static str {
        "Heard"
    }
}

/// What a puppet does when it starts and when it stops.
#[derive(Clone)]
pub(crate) struct Play<const K: usize = 0> {
    pub(crate) diary: Diary,
    pub(crate) start: Option<Hook<K>>,
    pub(crate) stopping: Option<Hook<K>>,
}

impl<const K: usize> Play<K> {
    pub(crate) fn new(diary: &Diary) -> Self {
        Self { diary: diary.clone(), start: None, stopping: None }
    }

    pub(crate) fn start<F>(mut self, hook: impl Fn(Context<Puppet<K>>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.start = Some(Arc::new(move |ctx| Box::pin(hook(ctx))));
        self
    }

    pub(crate) fn stopping<F>(mut self, hook: impl Fn(Context<Puppet<K>>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.stopping = Some(Arc::new(move |ctx| {
            let done = hook(ctx);
            Box::pin(async move {
                done.await;
                Ok(())
            })
        }));
        self
    }

    /// Notes `<id> stops` and, after a while, `<id> stopped`.
    pub(crate) fn slow_to_stop(self, millis: u64) -> Self {
        let diary = self.diary.clone();
        self.stopping(move |ctx| {
            let diary = diary.clone();
            async move {
                diary.note(format!("{} stops", ctx.id()));
                tokio::time::sleep(Duration::from_millis(millis)).await;
                diary.note(format!("{} stopped", ctx.id()));
            }
        })
    }
}

/// Counts what it was asked, and forgets with a crash. Of kind `k0`, `k1`, `k2`.
pub(crate) struct Puppet<const K: usize = 0> {
    pub(crate) play: Play<K>,
    pub(crate) asked: u32,
    /// Dropped with the state.
    pub(crate) kept: Vec<Box<dyn Any + Send>>,
}

impl<const K: usize> Actor for Puppet<K> {
    type Message = Tell<K>;
    type Internal = Heard;
    type Args = Play<K>;
    const KIND: &'static str = ["k0", "k1", "k2"][K];

    async fn start(ctx: &Context<Self>, play: Play<K>) -> Result<Self, Failure> {
        play.diary.note(format!("{} starts", ctx.id()));
        if let Some(hook) = &play.start {
            hook(ctx.clone()).await?;
        }
        Ok(Self { play, asked: 0, kept: Vec::new() })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: Tell<K>) -> Result<(), Failure> {
        match message {
            Tell::Count(reply_to) => {
                self.asked += 1;
                let _ = reply_to.send(self.asked);
                Ok(())
            }
            Tell::Do(deed) => deed(self, ctx),
        }
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, Heard(what): Heard) -> Result<(), Failure> {
        self.play.diary.note(format!("{} hears {what}", ctx.id()));
        Ok(())
    }

    fn child_given_up(&mut self, _: &Context<Self>, child: &str, reason: Option<&str>) {
        self.play.diary.note(match reason {
            Some(reason) => format!("{child} given up: {reason}"),
            None => format!("{child} is back"),
        });
    }

    fn describe(&self) -> serde_json::Value {
        json!({ "asked": self.asked })
    }

    async fn stopping(&mut self, ctx: &Context<Self>) {
        if let Some(hook) = &self.play.stopping {
            let _ = hook(ctx.clone()).await;
        }
    }
}

pub(crate) fn system() -> System {
    System::new(Clock::starting_at(Timestamp::from_millis(0)), Arc::new(Metrics::default()))
}

/// A tree of one: the actor `root`.
pub(crate) async fn root(play: Play) -> (System, Root) {
    let system = system();
    let root = system.start_root::<Puppet>(ChildSpec::essential("root", play)).await.expect("the tree starts");
    (system, root)
}

/// Has the actor do something; waits until it is done.
pub(crate) async fn have<const K: usize, T: Send + 'static>(
    address: &Address<Tell<K>>,
    deed: impl FnOnce(&mut Puppet<K>, &Context<Puppet<K>>) -> T + Send + 'static,
) -> T {
    address
        .call(Duration::from_secs(10), |reply_to| {
            Tell::Do(Box::new(move |puppet, ctx| {
                let _ = reply_to.send(deed(puppet, ctx));
                Ok(())
            }))
        })
        .await
        .expect("it does as it is told")
}

/// Starts a child under a running puppet and waits until it is up.
pub(crate) async fn child<const P: usize, const K: usize>(parent: &Address<Tell<P>>, spec: ChildSpec<Puppet<K>>) -> Address<Tell<K>> {
    let address = have(parent, |_, ctx| ctx.start_child(spec)).await;
    up(&address).await;
    address
}

pub(crate) async fn up<const K: usize>(address: &Address<Tell<K>>) {
    while !address.is_up() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) async fn count(address: &Address<Tell>) -> Result<u32, AddressError> {
    address.call(Duration::from_secs(1), Tell::Count).await
}

pub(crate) async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Crashes an actor as often as it takes, each time as soon as it is up.
pub(crate) async fn crash_times(system: &System, id: &str, times: usize) {
    for _ in 0..times {
        while !system.crash(id) {
            pause(10).await;
        }
        pause(1).await;
    }
}
