//! A tree with the source, and in the directory's place a puppet that writes down what it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_cluster::source::{self, SourceArgs};
use egress_protocol::message::{Message, Never, Reply};
use egress_protocol::metrics::Metrics;
use egress_protocol::object::ProxyObject;
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::resource::ProxyStatus;
use egress_protocol::source::{ACTOR_ID, LiveSet, SourceError, SourceMessage};
use egress_protocol::{Clock, ObjectKey, Uid};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Root, System};
use tracing::Span;

use crate::bed::{SOON, eventually};

const ASK: Duration = Duration::from_secs(15);

/// What the directory was told, in order.
pub type Heard = Arc<Mutex<Vec<ProxiesMessage>>>;

pub struct Directory(Heard);

impl Actor for Directory {
    type Message = ProxiesMessage;
    type Internal = Never;
    type Args = Heard;
    const KIND: &'static str = "proxies";

    async fn start(ctx: &Context<Self>, heard: Heard) -> Result<Self, Failure> {
        let _ = ctx.system().address::<SourceMessage>(ACTOR_ID).send(SourceMessage::Resend);
        Ok(Self(heard))
    }
    fn handle(&mut self, _: &Context<Self>, message: ProxiesMessage) -> Result<(), Failure> {
        self.0.lock().unwrap().push(message);
        Ok(())
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// What the root is told to do.
pub enum Order {
    StartDirectory,
    StopDirectory,
    RestartSource,
}

impl Message for Order {
    fn kind(&self) -> &'static str {
        "Order"
    }
}

pub struct TestRoot(SourceArgs, Heard);

impl Actor for TestRoot {
    type Message = Order;
    type Internal = Never;
    type Args = (SourceArgs, Heard);
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, (args, heard): Self::Args) -> Result<Self, Failure> {
        ctx.start_child_and_wait(source::spec(args.clone())).await?;
        Ok(Self(args, heard))
    }
    fn handle(&mut self, ctx: &Context<Self>, order: Order) -> Result<(), Failure> {
        match order {
            Order::StartDirectory => {
                ctx.start_child(ChildSpec::<Directory>::essential(proxies::ACTOR_ID, Arc::clone(&self.1)));
            }
            Order::StopDirectory => ctx.stop_child(proxies::ACTOR_ID),
            Order::RestartSource => {
                ctx.stop_child(ACTOR_ID);
                ctx.start_child(source::spec(self.0.clone()));
            }
        }
        Ok(())
    }
    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }
    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// The running tree.
pub struct Tree {
    pub system: System,
    heard: Heard,
    _root: Root,
}

impl Tree {
    /// As on the leader.
    pub async fn start(args: SourceArgs) -> Self {
        let tree = Self::follower(args).await;
        tree.order(Order::StartDirectory);
        tree
    }

    /// Without a directory.
    pub async fn follower(args: SourceArgs) -> Self {
        let system = System::new(Clock::system(), Metrics::default().shared());
        let heard = Heard::default();
        let root = system.start_root(ChildSpec::<TestRoot>::essential("root", (args, Arc::clone(&heard)))).await.unwrap();
        Self { system, heard, _root: root }
    }

    pub fn order(&self, order: Order) {
        self.system.address("root").send(order).unwrap();
    }

    pub fn heard(&self) -> Vec<ProxiesMessage> {
        self.heard.lock().unwrap().clone()
    }

    pub fn forget(&self) {
        self.heard.lock().unwrap().clear();
    }

    /// How often everything was told.
    pub fn syncs(&self) -> usize {
        self.heard().iter().filter(|message| matches!(message, ProxiesMessage::Synced { .. })).count()
    }

    pub async fn synced(&self) {
        eventually("the source told everything", SOON, || async { (self.syncs() > 0).then_some(()) }).await;
    }

    /// What was told of an object last.
    pub fn last(&self, name: &str) -> Option<Arc<ProxyObject>> {
        self.heard().into_iter().rev().find_map(|message| match message {
            ProxiesMessage::Apply { object } if &*object.key.name == name => Some(object),
            _ => None,
        })
    }

    /// How often an object was told.
    pub fn applied(&self, name: &str) -> usize {
        self.heard().iter().filter(|message| matches!(message, ProxiesMessage::Apply { object } if &*object.key.name == name)).count()
    }

    pub fn gone(&self, uid: &Uid) -> usize {
        self.heard().iter().filter(|message| matches!(message, ProxiesMessage::Gone { uid: gone, .. } if gone == uid)).count()
    }

    /// The object, when it is as `is` wants it.
    pub async fn until(&self, name: &str, what: &str, is: impl Fn(&ProxyObject) -> bool) -> Arc<ProxyObject> {
        eventually(&format!("{name}: {what}"), SOON, || async { self.last(name).filter(|object| is(object)) }).await
    }

    pub async fn ask<T: Send + 'static>(&self, message: impl FnOnce(Reply<T>) -> SourceMessage + Send) -> T {
        self.system.address::<SourceMessage>(ACTOR_ID).call(ASK, message).await.unwrap()
    }

    pub fn send(&self, message: SourceMessage) {
        self.system.address(ACTOR_ID).send(message).unwrap();
    }

    pub async fn write(&self, key: &ObjectKey, uid: &Uid, status: ProxyStatus) -> Result<i64, SourceError> {
        let (key, uid, status, span) = (key.clone(), uid.clone(), Arc::new(status), Span::none());
        self.ask(|reply_to| SourceMessage::WriteStatus { key, uid, status, span, reply_to }).await
    }

    pub async fn add_finalizer(&self, key: &ObjectKey, uid: &Uid) -> Result<(), SourceError> {
        let (key, uid, span) = (key.clone(), uid.clone(), Span::none());
        self.ask(|reply_to| SourceMessage::AddFinalizer { key, uid, span, reply_to }).await
    }

    pub async fn remove_finalizer(&self, key: &ObjectKey, uid: &Uid) -> Result<(), SourceError> {
        let (key, uid, span) = (key.clone(), uid.clone(), Span::none());
        self.ask(|reply_to| SourceMessage::RemoveFinalizer { key, uid, span, reply_to }).await
    }

    pub async fn live(&self) -> Result<LiveSet, SourceError> {
        self.ask(|reply_to| SourceMessage::LiveUids { reply_to }).await
    }

    pub async fn list(&self) -> Option<Vec<Arc<ProxyObject>>> {
        self.ask(|reply_to| SourceMessage::List { reply_to }).await
    }

    pub async fn faults(&self) -> Vec<String> {
        self.ask(|reply_to| SourceMessage::Faults { reply_to }).await
    }
}
