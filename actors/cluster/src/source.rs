//! The source of objects in a cluster: `source`.
//!
//! - Role: follows Proxies and the Secrets with our two labels; tells the directory of every object with its Secrets resolved;
//!   writes status, finalizers and Events; reads the live set for orphan collection.
//! - Supervised by the process's root as essential (SV-2), on every replica: the directory it tells exists on the leader only,
//!   and asks for everything when it starts. Supervises nothing.
//! - Receives: `SourceMessage` from proxies' actors, the directory, the sweeper, the discovery API and the readiness page.
//! - Sends: `Apply`, `Gone` and `Synced` to `proxies`.
//! - States: unsynced until Proxies and both kinds of Secrets had their first full list, the Secrets for a bounded time only;
//!   synced afterwards. Three watches run as tasks; writes run as tasks, one per object at a time and a bounded number of all.
//! - Failure policy: whatever the API server refuses or does not answer is a fault that is shown, and tried again by whoever
//!   asked (writes) or here (watches). A crash starts over from a list; a write of the dead incarnation counts only for the
//!   object as it was (OP-24).

mod args;
mod decode;
mod lines;
mod live;
mod patches;
mod secrets;
mod store;
mod telling;
mod version;
mod watch;
mod watched;
mod watching;
mod writes;
mod writing;

use std::collections::BTreeMap;
use std::time::Duration;

use egress_kube::Request;
use egress_protocol::message::Message;
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::resource::{LABEL_CLOUD_INIT, LABEL_CREDENTIALS};
use egress_protocol::source::{SourceError, SourceMessage};
use egress_protocol::{Clock, ObjectKey};
use egress_supervision::{Actor, Address, Context, Failure, Task, Timer};
use serde_json::json;

use crate::events::Events;
use crate::lanes::Lanes;
use crate::paths::{PROXIES, SECRETS};
use decode::{Seen, SeenSecret};
use secrets::Secrets;
use store::Store;
use watch::{Plan, Told};
use watching::{Away, Watching};
use writes::{Change, Done, Job, Waiter};

pub use args::{Pace, SourceArgs, spec};

/// How often it looks whether something lasts too long.
const TICK: Duration = Duration::from_secs(1);
/// A directory that asks is up a moment later.
const SOON: Duration = Duration::from_millis(20);
/// Events sent at once, and how many may wait.
const EVENTS: usize = 8;
const EVENTS_WAITING: usize = 10_000;
/// Faults of one kind that are named one by one.
const NAMED: usize = 20;

/// Whose Secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Use {
    /// User data.
    CloudInit,
    /// Credentials.
    Credentials,
}

/// What a watch says.
#[derive(Debug)]
#[doc(hidden)]
pub struct News(Watched);

#[derive(Debug)]
enum Watched {
    Proxies(Told<Seen>),
    Secrets(Use, Told<SeenSecret>),
}

/// How a write ended.
#[derive(Debug)]
#[doc(hidden)]
pub struct Wrote {
    key: ObjectKey,
    change: Change,
    waiter: Waiter,
    done: Done,
}

/// What the actor tells itself.
#[doc(hidden)]
#[derive(Debug)]
pub enum Internal {
    /// A watch said something.
    Watched(News),
    /// The Secrets were waited for long enough.
    Overdue,
    /// Time to look.
    Tick,
    /// The directory that asked for everything may be up now.
    Resend,
    /// A write ended.
    Wrote(Box<Wrote>),
    /// An Event was sent, or not.
    Announced(ObjectKey),
    /// The live set was read and handed over.
    Read,
}

impl Message for Internal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Watched(_) => "Watched",
            Self::Overdue => "Overdue",
            Self::Tick => "Tick",
            Self::Resend => "Resend",
            Self::Wrote(_) => "Wrote",
            Self::Announced(_) => "Announced",
            Self::Read => "Read",
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct ClusterSource {
    args: SourceArgs,
    clock: Clock,
    store: Store,
    secrets: Secrets,
    proxies_watch: Watching,
    cloud_init_watch: Watching,
    credentials_watch: Watching,
    synced: bool,
    /// The Secrets were waited for long enough.
    overdue: bool,
    /// Something could not be told: the directory was down.
    untold: bool,
    lanes: Lanes<ObjectKey, Job>,
    /// What the API server does not take, by object.
    refused: BTreeMap<ObjectKey, String>,
    /// Whether it takes anything.
    away: Away,
    events: Events,
    announcing: Lanes<ObjectKey, Request>,
    proxies: Address<ProxiesMessage>,
    waiting: Option<Timer>,
    /// The directory asked for everything and was not up yet.
    asked: Option<Timer>,
    _tick: Timer,
    _watches: [Task; 3],
}

impl Actor for ClusterSource {
    type Message = SourceMessage;
    type Internal = Internal;
    type Args = SourceArgs;
    const KIND: &'static str = "source";

    async fn start(ctx: &Context<Self>, args: SourceArgs) -> Result<Self, Failure> {
        let proxies = Plan { kind: PROXIES, path: args.scope.proxies(), selector: None, decode: decode::proxy };
        let secrets = |label: &str| {
            let selector = Some(format!("{label}=true"));
            Plan { kind: SECRETS, path: args.scope.secrets(), selector, decode: decode::secret }
        };
        let watches = [
            follow(ctx, &args, proxies, Watched::Proxies),
            follow(ctx, &args, secrets(LABEL_CLOUD_INIT), |told| Watched::Secrets(Use::CloudInit, told)),
            follow(ctx, &args, secrets(LABEL_CREDENTIALS), |told| Watched::Secrets(Use::Credentials, told)),
        ];
        let now = ctx.now();
        Ok(Self {
            clock: ctx.system().clock(),
            store: Store::default(),
            secrets: Secrets::default(),
            proxies_watch: Watching::new("Proxies", now),
            cloud_init_watch: Watching::new("Secrets for cloud-init", now),
            credentials_watch: Watching::new("Secrets for credentials", now),
            synced: false,
            overdue: false,
            untold: false,
            lanes: Lanes::new(args.pace.writes),
            refused: BTreeMap::new(),
            away: Away::default(),
            events: Events::default(),
            announcing: Lanes::new(EVENTS),
            proxies: ctx.system().address(proxies::ACTOR_ID),
            waiting: None,
            asked: None,
            _tick: ctx.after(TICK, Internal::Tick),
            _watches: watches,
            args,
        })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: SourceMessage) -> Result<(), Failure> {
        match message {
            SourceMessage::WriteStatus { key, uid, status, span, reply_to } => {
                self.write(ctx, key, uid, Change::Status(status), span, Waiter::Status(reply_to));
            }
            SourceMessage::AddFinalizer { key, uid, span, reply_to } => {
                self.write(ctx, key, uid, Change::AddFinalizer, span, Waiter::Finalizer(reply_to));
            }
            SourceMessage::RemoveFinalizer { key, uid, span, reply_to } => {
                self.write(ctx, key, uid, Change::RemoveFinalizer, span, Waiter::Finalizer(reply_to));
            }
            SourceMessage::Publish { event } => self.announce(ctx, &event),
            SourceMessage::Resend => self.asked_for_everything(ctx),
            SourceMessage::LiveUids { reply_to } => {
                let (client, path, clock) = (self.args.client.clone(), self.args.scope.proxies(), self.clock);
                ctx.spawn(async move {
                    let live = live::read(&client, &path, &clock).await;
                    let _gave_up = reply_to.send(live.map_err(|error| SourceError::Unavailable(error.to_string()))).is_err();
                    Internal::Read
                })
                .keep();
            }
            SourceMessage::List { reply_to } => {
                let _gave_up = reply_to.send(self.objects()).is_err();
            }
            SourceMessage::Faults { reply_to } => {
                let _gave_up = reply_to.send(self.faults()).is_err();
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: Internal) -> Result<(), Failure> {
        match message {
            Internal::Watched(News(Watched::Proxies(told))) => self.proxies_told(ctx, told),
            Internal::Watched(News(Watched::Secrets(uses, told))) => self.secrets_told(uses, told),
            Internal::Overdue => {
                self.overdue = true;
                self.sync();
            }
            Internal::Tick => {
                let (now, patience) = (ctx.now(), self.args.pace.patience);
                self.watches_mut().for_each(|watch| watch.look(now, patience));
                self.away.look(now, patience);
                if self.untold && self.proxies.is_up() {
                    self.resend();
                }
                self._tick = ctx.after(TICK, Internal::Tick);
            }
            Internal::Resend => {
                self.asked = None;
                if self.proxies.is_up() {
                    self.resend();
                }
            }
            Internal::Wrote(wrote) => self.wrote(ctx, *wrote),
            Internal::Announced(key) => {
                self.announcing.done(&key);
                self.send_events(ctx);
            }
            Internal::Read => {}
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let now = self.clock.now();
        json!({
            "objects": self.store.len(),
            "unreadable": self.store.iter().filter(|entry| entry.fault.is_some()).count(),
            "secrets": self.secrets.cloud_init.len() + self.secrets.credentials.len(),
            "synced": self.synced,
            "writing": self.lanes.running(),
            "writesWaiting": self.lanes.waiting(),
            "eventsWaiting": self.announcing.waiting(),
            "proxies": self.proxies_watch.describe(now),
            "cloudInit": self.cloud_init_watch.describe(now),
            "credentials": self.credentials_watch.describe(now),
            "faults": self.faults().len(),
        })
    }
}

/// Starts a watch. It lives as long as the incarnation.
fn follow<T: Send + 'static>(ctx: &Context<ClusterSource>, args: &SourceArgs, plan: Plan<T>, news: fn(Told<T>) -> Watched) -> Task {
    let (me, client, pace) = (ctx.clone(), args.client.clone(), args.pace);
    ctx.spawn(async move { match watch::follow(&client, &plan, &pace, |told| me.tell(Internal::Watched(News(news(told))))).await {} })
}

impl ClusterSource {
    /// A directory that starts asks before it can be told.
    fn asked_for_everything(&mut self, ctx: &Context<Self>) {
        if self.proxies.is_up() {
            self.resend();
        } else {
            self.untold = true;
            self.asked = Some(ctx.after(SOON, Internal::Resend));
        }
    }

    fn faults(&self) -> Vec<String> {
        let (now, idle) = (self.clock.now(), self.args.pace.idle);
        let mut faults: Vec<String> = self.watches().iter().flat_map(|watch| watch.faults(now, idle)).collect();
        if self.overdue && !(self.cloud_init_watch.listed && self.credentials_watch.listed) {
            faults.push("objects are handled without the Secrets that could not be listed".to_owned());
        }
        faults.extend(self.away.fault(now));
        let unreadable = self.store.iter().filter_map(|entry| entry.fault.as_ref().map(|why| (&entry.meta.key, why)));
        faults.extend(named(unreadable.map(|(key, why)| format!("Proxy {key} cannot be read: {why}"))));
        faults.extend(named(self.refused.iter().map(|(key, why)| format!("what is written to Proxy {key} is refused: {why}"))));
        faults
    }
}

/// The first ones, and how many more there are.
fn named(mut faults: impl Iterator<Item = String>) -> Vec<String> {
    let mut named: Vec<String> = faults.by_ref().take(NAMED).collect();
    let more = faults.count();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named
}
