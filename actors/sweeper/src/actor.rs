//! `sweeper`: orphan rounds (OG-1…6).
//!
//! - Role: every interval, and for all providers at once: list, read the live set, decide, delete.
//! - Supervised by the leader-only branch; given up after a spent budget and tried again (SV-2). Supervises nothing.
//! - Receives nothing; sends `List` to `providers`, `List` and `Delete` to `provider/<entry>`, `LiveUids` to `source`.
//! - States: per provider idle, surveying or deleting, each under the round's deadline; a provider that is not idle when
//!   the next round begins is left out of it, the others are not.
//! - Failure policy: whatever fails skips that provider for this round and leaves no evidence. A crash forgets all
//!   evidence, so that nothing is deleted before two further rounds.

#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::message::{Message, Never};
use egress_protocol::metrics::GcDeletion;
use egress_protocol::provider::{self, ProvidersMessage};
use egress_protocol::{Timestamp, source};
use egress_supervision::{Actor, AddressError, ChildSpec, Context, Failure, Task, Timer};
use serde_json::json;
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::sweep::{self, Chosen, Evidence, Plan, Rules, Survey};
use work::{Outcome, Peers};

/// How long after its start the first round begins: the source has understood what it found by then.
const FIRST: Duration = Duration::from_secs(10);
/// One provider's round (OG-1).
const DEADLINE: Duration = Duration::from_secs(300);
/// The entries are in memory.
const ENTRIES: Duration = Duration::from_secs(10);
/// So many names are shown of what a round chose.
const SHOWN: usize = 100;

/// What the actor is started from.
#[derive(Debug, Clone)]
pub struct SweeperArgs {
    /// Between rounds; never zero.
    pub interval: Duration,
    /// What may be deleted.
    pub rules: Rules,
    /// Only say what would be deleted.
    pub dry_run: bool,
}

/// The sweeper as a child. Not to be started with `--gc-interval 0`.
pub fn spec(args: SweeperArgs) -> ChildSpec<SweeperActor> {
    ChildSpec::retried(crate::ACTOR_ID, args)
}

/// See the module.
#[derive(Debug)]
pub struct SweeperActor {
    args: SweeperArgs,
    lanes: BTreeMap<Arc<str>, Lane>,
    rounds: u64,
    entries: Option<Task>,
    tick: Option<Timer>,
}

/// One provider.
#[derive(Debug, Default)]
struct Lane {
    evidence: Evidence,
    /// The round under way.
    work: Option<Work>,
    last: Last,
}

/// What is under way for a provider.
#[derive(Debug)]
struct Work {
    due: Instant,
    span: Span,
    _task: Task,
}

/// What the last round came to, for people.
#[derive(Debug, Default)]
struct Last {
    at: Option<Timestamp>,
    listed: usize,
    left_out: usize,
    orphans: usize,
    waiting: usize,
    chosen: Vec<String>,
    deleted: usize,
    failed: usize,
    skipped: Option<String>,
}

/// What the actor tells itself.
#[derive(Debug)]
pub enum SweeperInternal {
    /// Time for a round.
    #[doc(hidden)]
    Tick,
    /// Which providers there are.
    #[doc(hidden)]
    Entries(Result<Vec<(Arc<str>, &'static str)>, AddressError>),
    /// A provider's list and the live set, or why there is none.
    #[doc(hidden)]
    Surveyed(Arc<str>, Result<Box<Survey>, String>),
    /// What became of the deletes.
    #[doc(hidden)]
    Deleted(Arc<str>, Vec<(Chosen, Outcome)>),
}

impl Message for SweeperInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Tick => "Tick",
            Self::Entries(_) => "Entries",
            Self::Surveyed(..) => "Surveyed",
            Self::Deleted(..) => "Deleted",
        }
    }
}

impl Actor for SweeperActor {
    type Message = Never;
    type Internal = SweeperInternal;
    type Args = SweeperArgs;
    const KIND: &'static str = "sweeper";

    async fn start(ctx: &Context<Self>, args: SweeperArgs) -> Result<Self, Failure> {
        let tick = Some(ctx.after(args.interval.min(FIRST), SweeperInternal::Tick));
        Ok(Self { args, lanes: BTreeMap::new(), rounds: 0, entries: None, tick })
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: SweeperInternal) -> Result<(), Failure> {
        match message {
            SweeperInternal::Tick => {
                self.tick = Some(ctx.after(self.args.interval, SweeperInternal::Tick));
                let providers = ctx.system().address::<ProvidersMessage>(provider::PROVIDERS_ID);
                self.entries = Some(ctx.spawn(async move {
                    SweeperInternal::Entries(providers.call(ENTRIES, |reply_to| ProvidersMessage::List { reply_to }).await)
                }));
            }
            SweeperInternal::Entries(Ok(entries)) => self.begin(ctx, entries.into_iter().map(|(name, _)| name).collect()),
            SweeperInternal::Entries(Err(error)) => {
                // Without a round in between, what was seen before it is no evidence.
                self.lanes.values_mut().for_each(|lane| lane.evidence = Evidence::default());
                tracing::debug!(%error, "orphan round skipped: the providers are not known");
            }
            SweeperInternal::Surveyed(name, surveyed) => self.surveyed(ctx, &name, surveyed),
            SweeperInternal::Deleted(name, results) => self.deleted(ctx, &name, results),
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let providers = self.lanes.iter().map(|(name, lane)| (name.to_string(), lane.describe()));
        json!({
            "rounds": self.rounds,
            "dryRun": self.args.dry_run,
            "providers": serde_json::Map::from_iter(providers),
        })
    }
}

impl SweeperActor {
    /// A round: every provider at once, each on its own (PC-47).
    fn begin(&mut self, ctx: &Context<Self>, names: Vec<Arc<str>>) {
        self.entries = None;
        self.rounds += 1;
        self.lanes.retain(|name, _| names.contains(name));
        for name in names {
            let lane = self.lanes.entry(Arc::clone(&name)).or_default();
            if lane.work.is_some() {
                tracing::debug!(provider = %name, "the last orphan round of this provider is still under way");
                continue;
            }
            let (due, span) = (Instant::now() + DEADLINE, tracing::info_span!("gc.sweep", provider = %name));
            let peers = Peers::of(ctx.system(), &name, ctx.cancelled());
            let work = async move { SweeperInternal::Surveyed(name, peers.survey(due).await) };
            lane.work = Some(Work { due, span: span.clone(), _task: ctx.spawn(work.instrument(span)) });
        }
    }

    fn surveyed(&mut self, ctx: &Context<Self>, name: &Arc<str>, surveyed: Result<Box<Survey>, String>) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        let Some(Work { due, span, .. }) = lane.work.take() else { return };
        let _entered = span.clone().entered();
        let before = std::mem::take(&mut lane.evidence);
        let failing = lane.last.skipped.is_some();
        lane.last = Last { at: Some(ctx.now()), ..Last::default() };
        let decided = surveyed.and_then(|survey| {
            lane.last.listed = survey.list.instances.len() + survey.list.leftovers.len();
            lane.last.left_out = survey.list.left_out.len();
            for (part, reason) in &survey.list.left_out {
                tracing::debug!(provider = %name, part, reason, "the list left out a part, nothing in it is an orphan");
            }
            sweep::sweep(&self.args.rules, &before, &survey).map_err(|refusal| format!("{}: {refusal}", source::ACTOR_ID))
        });
        let Plan { chosen, waiting } = match decided {
            Ok((plan, evidence)) => {
                lane.evidence = evidence;
                plan
            }
            Err(reason) => {
                if failing {
                    tracing::debug!(provider = %name, reason, "orphan collection skips a provider");
                } else {
                    tracing::warn!(provider = %name, reason, "WARNING: orphan collection skips a provider");
                }
                lane.last.skipped = Some(reason);
                return;
            }
        };
        lane.last.orphans = lane.evidence.len();
        lane.last.waiting = waiting;
        lane.last.chosen = chosen.iter().take(SHOWN).map(|chosen| called(chosen).to_owned()).collect();
        tracing::debug!(provider = %name, listed = lane.last.listed, orphans = lane.last.orphans, chosen = chosen.len(), waiting, "orphan round");
        if self.args.dry_run {
            for chosen in &chosen {
                report(ctx, name, chosen, &Outcome::dry());
            }
        } else if !chosen.is_empty() {
            let peers = Peers::of(ctx.system(), name, ctx.cancelled());
            let (name, installation) = (Arc::clone(name), self.args.rules.installation.clone());
            let work = async move { SweeperInternal::Deleted(name, peers.delete(chosen, installation, due).await) };
            lane.work = Some(Work { due, span: span.clone(), _task: ctx.spawn(work.instrument(span)) });
        }
    }

    fn deleted(&mut self, ctx: &Context<Self>, name: &Arc<str>, results: Vec<(Chosen, Outcome)>) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        let _entered = lane.work.take().map(|work| work.span.entered());
        for (chosen, outcome) in &results {
            lane.last.deleted += usize::from(outcome.failed.is_none());
            lane.last.failed += usize::from(outcome.failed.is_some());
            report(ctx, name, chosen, outcome);
        }
    }
}

/// What people know it by.
fn called(chosen: &Chosen) -> &str {
    chosen.orphan.id.as_ref().map_or(chosen.orphan.name.as_str(), |id| id.as_str())
}

/// Counted and logged, one by one (OG-4).
fn report(ctx: &Context<SweeperActor>, provider: &Arc<str>, chosen: &Chosen, outcome: &Outcome) {
    ctx.metrics().gc_deletions.get_or_create(&GcDeletion { provider: provider.to_string(), result: outcome.result }).inc();
    let id = chosen.orphan.id.as_ref().map(tracing::field::display);
    let (instance, uid) = (&chosen.orphan.name, &chosen.orphan.uid);
    let age = chosen.age.map(|age| age.as_secs());
    let result = outcome.result;
    match &outcome.failed {
        Some(error) => {
            tracing::warn!(%provider, id, %instance, %uid, age, result, error, "WARNING: an orphan was not deleted, the next round tries again");
        }
        None if result == work::DRY_RUN => tracing::info!(%provider, id, %instance, %uid, age, "orphan found, not deleted by --gc-dry-run"),
        None => tracing::info!(%provider, id, %instance, %uid, age, result, "orphan deleted"),
    }
}

impl Lane {
    fn describe(&self) -> serde_json::Value {
        let last = &self.last;
        json!({
            "at": last.at,
            "underWay": self.work.is_some(),
            "listed": last.listed,
            "partsLeftOut": last.left_out,
            "orphans": last.orphans,
            "waiting": last.waiting,
            "chosen": last.chosen,
            "deleted": last.deleted,
            "failed": last.failed,
            "skipped": last.skipped,
        })
    }
}
