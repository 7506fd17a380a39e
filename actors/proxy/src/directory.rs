//! The directory of all objects, actor `proxies`: one child per object, and who may be replaced when.
//!
//! - role: routes objects, providers' changes and questions for a repeat to the objects' actors; keeps the rollout's book
//! - supervised by: the leader-only branch of the tree; supervises: `proxy/<namespace>/<name>`
//! - receives: objects from the source, changes from the providers, `Republish` from the broker, doorbells of its
//!   children; sends: `Resend` to the source when it starts, withdrawals and who there is to the broker, a given-up proxy's status
//! - states: a map of children
//! - failure policy: a crash takes the children along; the next incarnation asks the source for every object. What the
//!   source cannot tell (providers, which proxies the broker was told) is kept across incarnations in the arguments.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::{BROKER_ID, BrokerMessage};
use egress_protocol::message::Message;
use egress_protocol::object::ProxyObject;
use egress_protocol::proxies::{ProxiesMessage, TargetsReady};
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::source::{self, EventReason, ProxyEvent, SourceMessage};
use egress_protocol::{InstallationId, ObjectKey, Uid};
use egress_supervision::{Actor, Address, ChildSpec, Context, Failure, Latest, Timer};
use tracing::Span;

use crate::actor::{ProberFactory, ProxyActor, ProxyArgs};
use crate::desk::Desk;
use crate::machine::Settings;
use crate::rollout::{Member, News, Place, Rollout};
use crate::status;

/// A write of a given-up proxy's status is waited for this long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the directory is started from.
#[derive(Clone)]
pub struct DirectoryArgs {
    settings: Arc<Settings>,
    installation: InstallationId,
    prober: ProberFactory,
    memory: Arc<Latest<Memory>>,
}

impl DirectoryArgs {
    /// The arguments of a tree's one directory.
    pub fn new(installation: InstallationId, settings: Settings, prober: ProberFactory) -> Self {
        Self { settings: Arc::new(settings), installation, prober, memory: Arc::default() }
    }
}

impl std::fmt::Debug for DirectoryArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirectoryArgs").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What outlives a life.
#[derive(Debug, Clone, Default)]
struct Memory {
    /// Fingerprints of the configured providers.
    providers: HashMap<Arc<str>, Arc<str>>,
    /// The targets of those that were checked, each with whether it is ready.
    targets: HashMap<Arc<str>, TargetsReady>,
    /// The objects the broker may have been told of.
    known: HashMap<ObjectKey, Uid>,
}

/// What the directory tells itself.
#[derive(Debug)]
pub enum DirectoryInternal {
    /// Nobody got a place for long, and somebody waits for one.
    RolloutStalled,
    /// The status of a given-up proxy was written, or not: its actor writes its own when it is back.
    GivenUpShown,
}

impl Message for DirectoryInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::RolloutStalled => "RolloutStalled",
            Self::GivenUpShown => "GivenUpShown",
        }
    }
}

struct Child {
    uid: Uid,
    desk: Arc<Desk>,
    address: Address<ProxyMessage>,
}

/// See the module's documentation.
pub struct Directory {
    args: DirectoryArgs,
    children: BTreeMap<ObjectKey, Child>,
    rollout: Rollout,
    /// Runs while somebody waits for a place, anew with each that is granted.
    stall: Option<Timer>,
    stalled: bool,
    /// The source has sent all there are.
    synced: bool,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").field("children", &self.children.len()).finish_non_exhaustive()
    }
}

impl Actor for Directory {
    type Message = ProxiesMessage;
    type Internal = DirectoryInternal;
    type Args = DirectoryArgs;
    const KIND: &'static str = "proxies";

    async fn start(ctx: &Context<Self>, args: DirectoryArgs) -> Result<Self, Failure> {
        // A source that is down sends everything when it starts.
        let _ = ctx.system().address::<SourceMessage>(source::ACTOR_ID).send(SourceMessage::Resend);
        Ok(Self { args, children: BTreeMap::new(), rollout: Rollout::default(), stall: None, stalled: false, synced: false })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProxiesMessage) -> Result<(), Failure> {
        match message {
            ProxiesMessage::Apply { object } => self.apply(ctx, object),
            ProxiesMessage::Gone { key, uid } => {
                if self.children.get(&key).is_none_or(|child| child.uid == uid) {
                    self.forget(ctx, &key, &uid);
                }
            }
            ProxiesMessage::Synced { live } => self.synced(ctx, live),
            ProxiesMessage::Republish => {
                self.say_who_lives(ctx);
                for child in self.children.values() {
                    child.desk.order(&child.address, |orders| orders.republish += 1);
                }
            }
            ProxiesMessage::ProviderChanged { name, fingerprint } => {
                let fingerprint: Option<Arc<str>> = fingerprint.map(Into::into);
                self.args.memory.work(|memory| match &fingerprint {
                    Some(fingerprint) => memory.providers.insert(Arc::clone(&name), Arc::clone(fingerprint)),
                    None => memory.providers.remove(&name),
                });
                for child in self.children_of(&name) {
                    child.desk.order(&child.address, |orders| orders.provider.clone_from(&fingerprint));
                }
            }
            ProxiesMessage::ProviderHealth { name, targets } => self.provider_checked(name, targets),
            ProxiesMessage::MemberChanged { key } => {
                if let Some(child) = self.children.get(&key) {
                    let member = child.desk.member();
                    self.put_member(ctx, &key, member);
                }
            }
            ProxiesMessage::CapacityFreed { provider } => {
                for child in self.children_of(&provider) {
                    child.desk.order(&child.address, |orders| orders.freed += 1);
                }
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: DirectoryInternal) -> Result<(), Failure> {
        match message {
            DirectoryInternal::RolloutStalled => self.stand_still(ctx),
            DirectoryInternal::GivenUpShown => {}
        }
        Ok(())
    }

    /// SV-2: shown as Failed, unhealthy for leasing; its actor says otherwise when it is back.
    fn child_given_up(&mut self, ctx: &Context<Self>, child: &str, reason: Option<&str>) {
        let key = child.strip_prefix("proxy/").and_then(ObjectKey::parse);
        let (Some(key), Some(reason)) = (key, reason) else { return };
        let Some(child) = self.children.get(&key) else { return };
        let object = child.desk.object();
        let last = child.desk.recorded().unwrap_or_else(|| Arc::clone(&object.status));
        let (status, availability) = status::given_up(&object, &last, reason, ctx.now());
        tracing::info!(proxy = %key, detail = reason, "proxy given up");
        let _ = ctx.system().address(BROKER_ID).send(BrokerMessage::Publish { proxy: Arc::new(availability) });
        let foreign = last.installation.as_deref().is_some_and(|owner| owner != self.args.installation.as_str());
        if object.suspended || foreign {
            return;
        }
        let status = Arc::new(status);
        child.desk.record(Arc::clone(&status));
        self.publish(ctx, &object, EventReason::Failed, format!("its actor keeps crashing: {reason}"));
        let source = ctx.system().address::<SourceMessage>(source::ACTOR_ID);
        let (key, uid) = (object.key.clone(), object.uid.clone());
        ctx.spawn(async move {
            let written =
                source.call(WRITE_TIMEOUT, |reply_to| SourceMessage::WriteStatus { key, uid, status, span: Span::none(), reply_to });
            if let Err(error) = written.await {
                tracing::debug!(%error, "status of a given-up proxy was not written");
            }
            DirectoryInternal::GivenUpShown
        })
        .keep();
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::json!({"proxies": self.children.len()})
    }
}

impl Directory {
    fn apply(&mut self, ctx: &Context<Self>, object: Arc<ProxyObject>) {
        let key = object.key.clone();
        match self.children.get(&key) {
            Some(child) if child.uid == object.uid => return child.desk.order(&child.address, |orders| orders.object = object),
            Some(child) => {
                let old = child.uid.clone();
                self.forget(ctx, &key, &old);
            }
            None => {}
        }
        let uid = object.uid.clone();
        let (provider, down) = self.args.memory.work(|memory| {
            memory.known.insert(key.clone(), uid.clone());
            let name = object.spec.provider.as_deref();
            let down = name.and_then(|name| memory.targets.get(name)).is_some_and(|targets| is_down(targets, &object));
            (name.and_then(|name| memory.providers.get(name)).cloned(), down)
        });
        let desk = Arc::new(Desk::new(object, provider, down));
        let args = ProxyArgs {
            desk: Arc::clone(&desk),
            settings: Arc::clone(&self.args.settings),
            installation: self.args.installation.clone(),
            prober: Arc::clone(&self.args.prober),
        };
        let address = ctx.start_child(ChildSpec::<ProxyActor>::retried(key.actor_id(), args));
        self.children.insert(key, Child { uid, desk, address });
    }

    /// The object is gone: its actor, its place, its entry in the book and its series go too.
    fn forget(&mut self, ctx: &Context<Self>, key: &ObjectKey, uid: &Uid) {
        if let Some(child) = self.children.remove(key) {
            child.desk.dismiss();
            ctx.stop_child(&key.actor_id());
            let news = self.rollout.remove(self.args.settings.max_unavailable, key);
            self.deliver(ctx, news);
        }
        self.args.memory.work(|memory| memory.known.remove(key));
        ctx.metrics().forget_proxy(key);
        let _ = ctx.system().address(BROKER_ID).send(BrokerMessage::Withdraw { key: key.clone(), uid: uid.clone() });
    }

    fn synced(&mut self, ctx: &Context<Self>, live: Vec<Uid>) {
        let live: HashSet<Uid> = live.into_iter().collect();
        let dead: Vec<_> = self
            .args
            .memory
            .look()
            .known
            .iter()
            .filter(|(_, uid)| !live.contains(*uid))
            .map(|(key, uid)| (key.clone(), uid.clone()))
            .collect();
        for (key, uid) in dead {
            self.forget(ctx, &key, &uid);
        }
        self.synced = true;
        self.say_who_lives(ctx);
    }

    /// The broker waits for those that have not spoken yet.
    fn say_who_lives(&self, ctx: &Context<Self>) {
        if self.synced {
            let live = self.children.values().map(|child| child.uid.clone()).collect();
            let _ = ctx.system().address(BROKER_ID).send(BrokerMessage::Expect { live });
        }
    }

    fn children_of(&self, provider: &str) -> impl Iterator<Item = &Child> {
        self.children.values().filter(move |child| child.desk.object().spec.provider.as_deref() == Some(provider))
    }

    /// OP-33. Told once more by the next round, so that what came too early is made good.
    fn provider_checked(&mut self, name: Arc<str>, targets: TargetsReady) {
        for child in self.children_of(&name) {
            let down = is_down(&targets, &child.desk.object());
            if child.desk.provider_down() != down {
                child.desk.order(&child.address, |orders| orders.provider_down = down);
            }
        }
        self.args.memory.work(|memory| match targets.is_empty() {
            true => memory.targets.remove(&name),
            false => memory.targets.insert(name, targets),
        });
    }

    fn put_member(&mut self, ctx: &Context<Self>, key: &ObjectKey, member: Member) {
        let news = self.rollout.put(self.args.settings.max_unavailable, key, member);
        self.deliver(ctx, news);
    }

    fn deliver(&mut self, ctx: &Context<Self>, news: News) {
        let moved = news.iter().any(|(_, place)| matches!(place, Place::Granted(_)));
        for (key, place) in news {
            if let Some(child) = self.children.get(&key) {
                child.desk.order(&child.address, |orders| orders.place = place);
            }
        }
        if !self.rollout.anybody_waits() {
            (self.stall, self.stalled) = (None, false);
        } else if moved || (self.stall.is_none() && !self.stalled) {
            self.stalled = false;
            self.stall = Some(ctx.after(self.args.settings.rollout_stall, DirectoryInternal::RolloutStalled));
        }
    }

    /// A rollout stands still: one Event for it, and every waiting member says behind whom (OP-16).
    fn stand_still(&mut self, ctx: &Context<Self>) {
        (self.stall, self.stalled) = (None, true);
        let (news, speakers) = self.rollout.stand_still();
        self.deliver(ctx, news);
        for (key, behind) in speakers {
            let Some(child) = self.children.get(&key) else { continue };
            let behind = behind.map_or_else(|| "others".to_owned(), |behind| format!("{behind}, which is not Healthy"));
            self.publish(ctx, &child.desk.object(), EventReason::Replacing, format!("the rollout stands still: it waits behind {behind}"));
        }
    }

    fn publish(&self, ctx: &Context<Self>, object: &ProxyObject, reason: EventReason, note: String) {
        let note = egress_protocol::resource::conditions::cut(note, 256);
        let event = ProxyEvent { key: object.key.clone(), uid: object.uid.clone(), reason, note, at: ctx.now() };
        let _ = ctx.system().address::<SourceMessage>(source::ACTOR_ID).send(SourceMessage::Publish { event });
    }
}

/// Whether the target that an object depends on is down: the one that its zone names, else any, for it is not known which.
fn is_down(targets: &[(Arc<str>, bool)], object: &ProxyObject) -> bool {
    let zone = object.spec.placement.as_ref().and_then(|placement| placement.zone.as_deref());
    let own = targets.iter().find(|(name, _)| Some(&**name) == zone);
    own.map_or_else(|| targets.iter().any(|(_, ready)| !ready), |(_, ready)| !ready)
}
