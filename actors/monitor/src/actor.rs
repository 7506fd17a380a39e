//! `monitor`: provider check rounds (PH-11…16).
//!
//! - Role: at once and then every interval, checks all providers concurrently under one deadline; keeps the last round for
//!   readers; tells transitions to the log, statuses to the publisher, and the directory which targets are down (OP-33).
//! - Supervised by the leader-only branch; given up after a spent budget and tried again (SV-2). Supervises nothing.
//! - Receives [`MonitorMessage`]; sends `List` to `providers`, `Check` to `provider/<entry>`, `ProviderHealth` to `proxies`,
//!   [`PublisherMessage`] to whoever writes `ProviderHealth` objects (standalone: nobody).
//! - States: idle or in a round. A check that outlives its round is waited for beside it; until it ends no other is asked
//!   of its provider, whose verdict repeats (PH-15).
//! - Failure policy: a crash forgets the last round; the next incarnation checks at once, and everything is first seen.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::leadership::Fence;
use egress_protocol::message::{Message, Reply};
use egress_protocol::monitor::{self, HealthSnapshot, MonitorMessage, PUBLISHER_ID, ProviderChecked, PublisherMessage};
use egress_protocol::provider::{self, CallContext, Op, ProviderMessage, ProvidersMessage, TargetVerdict};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::resource::grammar;
use egress_supervision::{Actor, Address, AddressError, ChildSpec, Context, Failure, Task, Timer};
use serde_json::json;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::status::{self, Checked, Outcome, Transition};

/// How long after the deadline a check may still answer (PH-15, PH-28).
const GRACE: Duration = Duration::from_secs(1);
/// The entries are in memory.
const ENTRIES: Duration = Duration::from_secs(10);

/// What the actor is started from.
#[derive(Debug, Clone)]
pub struct MonitorArgs {
    /// `--provider-check-interval`. Zero: no rounds; our objects are cleaned up, once (PH-25).
    pub interval: Duration,
    /// `--provider-check-timeout`, resolved (PH-9).
    pub timeout: Duration,
    /// Closed: no round begins, a check is a provider call, and one under way counts for nothing (SV-4).
    pub fence: Fence,
}

/// The monitor as a child.
pub fn spec(args: MonitorArgs) -> ChildSpec<MonitorActor> {
    ChildSpec::retried(monitor::ACTOR_ID, args)
}

/// See the module.
#[derive(Debug)]
pub struct MonitorActor {
    args: MonitorArgs,
    snapshot: Arc<HealthSnapshot>,
    round: Option<Round>,
    /// Providers whose check has not ended, with the number of the round it belongs to.
    running: HashMap<Arc<str>, (u64, Task)>,
    rounds: u64,
    /// The names that the objects were last cleaned up for (PH-26).
    kept: Option<Vec<Arc<str>>>,
    /// Names that cannot be those of objects, warned of (PH-24).
    nameless: HashSet<Arc<str>>,
    publisher: Address<PublisherMessage>,
    directory: Address<ProxiesMessage>,
    tick: Option<Timer>,
    entries: Option<Task>,
}

/// The round under way.
#[derive(Debug)]
struct Round {
    number: u64,
    began: Instant,
    entries: Vec<(Arc<str>, &'static str)>,
    results: BTreeMap<Arc<str>, Checked>,
    /// A check of it ended without leadership: what it says is about us, not about its provider (SV-4).
    fenced: bool,
    span: Span,
    _due: Timer,
}

/// How a check ended.
#[derive(Debug)]
#[doc(hidden)]
pub enum Answer {
    /// With verdicts, or because the type has none.
    Verdicts(Option<Vec<TargetVerdict>>),
    /// Without an answer.
    Lost(AddressError),
}

/// What the actor tells itself.
#[derive(Debug)]
pub enum MonitorInternal {
    /// Time for a round.
    #[doc(hidden)]
    Tick,
    /// Which providers there are.
    #[doc(hidden)]
    Entries(Result<Vec<(Arc<str>, &'static str)>, AddressError>),
    /// A check of that round ended.
    #[doc(hidden)]
    Ended(u64, Arc<str>, Answer),
    /// The round's time is over.
    #[doc(hidden)]
    Due(u64),
}

impl Message for MonitorInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Tick => "Tick",
            Self::Entries(_) => "Entries",
            Self::Ended(..) => "Ended",
            Self::Due(_) => "Due",
        }
    }
}

impl Actor for MonitorActor {
    type Message = MonitorMessage;
    type Internal = MonitorInternal;
    type Args = MonitorArgs;
    const KIND: &'static str = "monitor";

    async fn start(ctx: &Context<Self>, args: MonitorArgs) -> Result<Self, Failure> {
        let mut actor = Self {
            args,
            snapshot: Arc::default(),
            round: None,
            running: HashMap::new(),
            rounds: 0,
            kept: None,
            nameless: HashSet::new(),
            publisher: ctx.system().address(PUBLISHER_ID),
            directory: ctx.system().address(proxies::ACTOR_ID),
            tick: None,
            entries: None,
        };
        if actor.args.interval.is_zero() {
            actor.clean_up(Vec::new());
        } else {
            ctx.tell(MonitorInternal::Tick);
        }
        Ok(actor)
    }

    fn handle(&mut self, _: &Context<Self>, message: MonitorMessage) -> Result<(), Failure> {
        match message {
            MonitorMessage::Snapshot { reply_to } => {
                let _gave_up = reply_to.send(Arc::clone(&self.snapshot)).is_err();
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: MonitorInternal) -> Result<(), Failure> {
        match message {
            MonitorInternal::Tick => {
                self.tick = Some(ctx.after(self.args.interval, MonitorInternal::Tick));
                if self.round.is_none() && self.entries.is_none() && self.args.fence.holds() {
                    let providers = ctx.system().address::<ProvidersMessage>(provider::PROVIDERS_ID);
                    self.entries = Some(ctx.spawn(async move {
                        MonitorInternal::Entries(providers.call(ENTRIES, |reply_to| ProvidersMessage::List { reply_to }).await)
                    }));
                }
            }
            MonitorInternal::Entries(entries) => {
                self.entries = None;
                match entries {
                    Ok(entries) => self.begin(ctx, entries),
                    Err(error) => tracing::debug!(%error, "check round skipped: the providers are not known"),
                }
            }
            MonitorInternal::Ended(number, name, answer) => self.ended(ctx, number, name, answer),
            MonitorInternal::Due(number) => {
                if self.round.as_ref().is_some_and(|round| round.number == number) {
                    self.finish(ctx);
                }
            }
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let mut late: Vec<&Arc<str>> = self.running.keys().collect();
        late.sort_unstable();
        let providers = self.snapshot.providers.iter().map(|checked| (checked.name.to_string(), json!(checked.status.targets_ready)));
        json!({
            "rounds": self.rounds,
            "inRound": self.round.is_some(),
            "checksRunning": late,
            "targetsReady": serde_json::Map::from_iter(providers),
        })
    }
}

impl MonitorActor {
    /// Asks every provider whose last check has ended. All under one deadline (PH-13).
    fn begin(&mut self, ctx: &Context<Self>, entries: Vec<(Arc<str>, &'static str)>) {
        self.clean_up(entries.iter().map(|(name, _)| Arc::clone(name)).collect());
        self.rounds += 1;
        let (number, timeout) = (self.rounds, self.args.timeout);
        let span = tracing::info_span!("providerhealth.check");
        self.running.retain(|name, _| entries.iter().any(|(entry, _)| entry == name));
        for (name, _) in &entries {
            if self.running.contains_key(name) {
                continue;
            }
            let provider = ctx.system().address::<ProviderMessage>(&provider::actor_id(name));
            let call = CallContext { deadline: timeout, ..CallContext::new(Op::List, ctx.cancelled().child_token()) };
            let asked = Arc::clone(name);
            // It has no time limit of its own: as long as it has no answer the check may still run (PH-15).
            let work = async move {
                let (reply_to, answer) = Reply::channel();
                let answer = match provider.send(ProviderMessage::Check { call, reply_to }) {
                    Ok(()) => answer.await.map_or(Answer::Lost(AddressError::Dropped), Answer::Verdicts),
                    Err(error) => Answer::Lost(error),
                };
                MonitorInternal::Ended(number, asked, answer)
            };
            self.running.insert(Arc::clone(name), (number, ctx.spawn(work.instrument(span.clone()))));
        }
        let due = ctx.after(timeout + GRACE, MonitorInternal::Due(number));
        self.round = Some(Round { number, began: Instant::now(), entries, results: BTreeMap::new(), fenced: false, span, _due: due });
        self.finish_if_complete(ctx);
    }

    fn ended(&mut self, ctx: &Context<Self>, number: u64, name: Arc<str>, answer: Answer) {
        if self.running.get(&name).is_some_and(|(of, _)| *of == number) {
            self.running.remove(&name);
        }
        let Some(round) = self.round.as_mut().filter(|round| round.number == number) else { return };
        round.fenced |= !self.args.fence.holds();
        let took = round.began.elapsed();
        let outcome = match answer {
            Answer::Verdicts(Some(verdicts)) => Outcome::Verdicts(verdicts),
            Answer::Verdicts(None) => Outcome::NotImplemented,
            // The provider gives up a check that does not end; one that is lost sooner broke down.
            Answer::Lost(AddressError::Dropped) if took >= self.args.timeout => Outcome::Abandoned,
            Answer::Lost(AddressError::Dropped) => Outcome::Broken("the check broke down".to_owned()),
            Answer::Lost(error) => Outcome::Broken(format!("the provider's actor is {error}")),
        };
        let type_ = round.entries.iter().find(|(entry, _)| *entry == name).map_or("", |(_, type_)| type_);
        round.results.insert(Arc::clone(&name), Checked { name, type_, outcome, finished: ctx.now(), took });
        self.finish_if_complete(ctx);
    }

    /// Ends the round when every check of it has ended. One of an earlier round that still runs is not waited for.
    fn finish_if_complete(&mut self, ctx: &Context<Self>) {
        let Some(round) = &self.round else { return };
        let waits = |(name, _): &(Arc<str>, &'static str)| self.running.get(name).is_some_and(|(number, _)| *number == round.number);
        if !round.entries.iter().any(waits) {
            self.finish(ctx);
        }
    }

    /// Stores the round, then tells of it (PH-16).
    fn finish(&mut self, ctx: &Context<Self>) {
        let Some(mut round) = self.round.take() else { return };
        let _entered = round.span.clone().entered();
        if round.fenced || !self.args.fence.holds() {
            tracing::debug!("check round discarded: leadership did not hold");
            return;
        }
        let earlier = std::mem::take(&mut self.snapshot);
        let abandoned = |name: &Arc<str>, type_| Checked {
            name: Arc::clone(name),
            type_,
            outcome: Outcome::Abandoned,
            finished: ctx.now(),
            took: round.began.elapsed(),
        };
        let providers: Vec<ProviderChecked> = round
            .entries
            .iter()
            .map(|(name, type_)| {
                let checked = round.results.remove(name).unwrap_or_else(|| abandoned(name, type_));
                status::next(earlier.provider(name).map(|checked| &*checked.status), &checked)
            })
            .collect();
        self.snapshot = Arc::new(HealthSnapshot { providers });
        for checked in &self.snapshot.providers {
            tell_transitions(earlier.provider(&checked.name), checked);
        }
        let gone = earlier.providers.iter().filter(|before| self.snapshot.provider(&before.name).is_none());
        for name in gone.map(|before| Arc::clone(&before.name)) {
            let _down = self.directory.send(ProxiesMessage::ProviderHealth { name, targets: Arc::default() });
        }
        for checked in Arc::clone(&self.snapshot).providers.iter() {
            let targets = checked.status.targets.iter().map(|target| (Arc::from(target.name.as_str()), target.ready));
            let _down = self.directory.send(ProxiesMessage::ProviderHealth { name: Arc::clone(&checked.name), targets: targets.collect() });
            self.publish(checked);
        }
    }

    /// One message per provider and round (PH-20). Nobody hears it standalone (PH-48).
    fn publish(&mut self, checked: &ProviderChecked) {
        if grammar::is_dns_label(&checked.name) {
            let message = PublisherMessage::Publish { name: Arc::clone(&checked.name), status: Arc::clone(&checked.status) };
            let _nobody = self.publisher.send(message);
        } else if self.nameless.insert(Arc::clone(&checked.name)) {
            tracing::warn!(provider = %checked.name, "WARNING: the provider's name cannot be that of an object, its health is in log and metrics only");
        }
    }

    /// Once at start and after each change of the entries (PH-26).
    fn clean_up(&mut self, keep: Vec<Arc<str>>) {
        if self.kept.as_ref() != Some(&keep) {
            let _nobody = self.publisher.send(PublisherMessage::Cleanup { keep: keep.clone() });
            self.kept = Some(keep);
        }
    }
}

/// PH-43.
fn tell_transitions(earlier: Option<&ProviderChecked>, now: &ProviderChecked) {
    let provider = &now.name;
    for (target, transition) in status::transitions(earlier.map(|checked| &*checked.status), &now.status) {
        let (name, address) = (&target.name, target.address.as_deref());
        match transition {
            Transition::Down => {
                let (reason, message) = (target.reason.as_deref(), target.message.as_deref());
                let text = message.unwrap_or_default();
                // `message` and `target` are the line's own.
                tracing::warn!(%provider, provider_target = %name, address, reason, detail = text, "WARNING: provider target not ready");
            }
            Transition::Back => tracing::info!(%provider, provider_target = %name, address, "Provider target ready"),
            Transition::Found => tracing::debug!(%provider, provider_target = %name, address, "Provider target ready"),
        }
    }
}
