//! The lease broker: the one actor that decides about leases, round the pure [`crate::book`].
//!
//! - *supervised by* the root, as a singleton; *supervises* nothing
//! - *receives* what proxies' actors publish, and what the HTTP layer asks on behalf of crawlers ([`BrokerMessage`]);
//!   *sends* entries, `Attach`, `Fold` and `Load` to the lease journal, `Republish` to the directory, `ProbeNow` and `Drained` to proxies' actors,
//!   `Publish` to the source (cordons, drains)
//! - *states*: one; a start loads what the journal kept, and its leases hold their places before their proxies are
//!   published again
//! - *failure policy*: a crash loses nothing that was answered, since every entry is in the journal's channel before the
//!   answer leaves. A journal that takes nothing is a 503 and a restart from what it kept.
//!
//! What must stay true: an answer leaves after its entries; a grant whose asker is gone is released at once.

mod asked;
mod busiest;
mod owed;
mod say;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Reply;
use egress_protocol::judge::{self, JudgeMessage};
use egress_protocol::lease::{
    BrokerMessage, Caller, Entry, GrantRequest, JOURNAL_ID, JournalMessage, LeaseError, LeaseState, LeaseView, ProxyList, ProxyWalk,
    ReportRequest, ReportResult,
};
use egress_protocol::message::Message;
use egress_protocol::metrics::{Reason, Report};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::proxy::ProxyMessage;
use egress_supervision::{Actor, Address, Context, Failure, Timer};
use hashbrown::HashMap;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::json;
use tokio::sync::mpsc;

use crate::book::{Book, BookSettings, Entropy, LeaseWalk, Reported, Testimony};
use asked::Asked;
use busiest::{Busiest, Name};
use owed::Owed;

/// How often time alone is looked at while leases run, and while none does.
const TICK: Duration = Duration::from_millis(20);
const IDLE_TICK: Duration = Duration::from_millis(200);
/// A start that gets no answer from the journal in this time is a crash.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Batches of entries that wait in the journal's channel at most before it is told.
const UNSAID: u32 = 64;
const REPUBLISH_EVERY: Duration = Duration::from_secs(1);

/// What the broker needs to know.
#[derive(Debug, Clone, Copy, Default)]
pub struct BrokerArgs {
    /// The limits of leases.
    pub settings: BookSettings,
}

/// What the broker tells itself.
#[derive(Debug)]
pub enum BrokerInternal {
    /// Time passed.
    Tick,
    /// The last bite of expiry left something.
    More,
    /// Go on with finding out what new selectors name.
    Work,
    /// The directory was not up: ask again.
    Republish,
    /// Go on with a page.
    Proxies(Box<ProxyWalk>, Reply<ProxyList>),
    /// Go on with a page.
    Leases(Box<LeaseWalk>, Reply<(Vec<LeaseView>, Option<String>)>),
}

impl Message for BrokerInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Tick => "Tick",
            Self::More => "More",
            Self::Work => "Work",
            Self::Republish => "Republish",
            Self::Proxies(..) => "ContinueListProxies",
            Self::Leases(..) => "ContinueListLeases",
        }
    }
}

/// The actor `lease-broker`. See the module's documentation.
#[derive(Debug)]
pub struct BrokerActor {
    book: Book,
    journal: Address<JournalMessage>,
    /// What the journal has once it is in here.
    entries: mpsc::UnboundedSender<Vec<Entry>>,
    /// Batches of entries that the journal was not told of.
    unsaid: u32,
    /// Seeded by the system; nobody can predict what it gives (LS-5).
    random: StdRng,
    busiest: Busiest,
    /// Some published proxy needs credentials.
    credentialed: bool,
    warned: bool,
    /// Answers that leave when the journal has what was done for them.
    owed: Vec<Owed>,
    /// Who waits for which work of the book.
    waiting: HashMap<u64, Vec<Asked>>,
    tick: Option<Timer>,
    republish: Option<Timer>,
}

impl Actor for BrokerActor {
    type Message = BrokerMessage;
    type Internal = BrokerInternal;
    type Args = BrokerArgs;
    const KIND: &'static str = "leaseBroker";
    /// One message to the journal for so many answers at most, and one wake-up of this actor for as many as are asked for at once.
    const BATCH: u32 = 64;

    async fn start(ctx: &Context<Self>, args: BrokerArgs) -> Result<Self, Failure> {
        let journal = ctx.system().address::<JournalMessage>(JOURNAL_ID);
        let (entries, receiver) = mpsc::unbounded_channel();
        // Failing, the next call fails too.
        let _ = journal.send(JournalMessage::Attach { entries: receiver });
        let kept = journal.call(LOAD_TIMEOUT, |reply_to| JournalMessage::Load { reply_to }).await;
        let kept = kept.map_err(|error| Failure::new(format!("the lease journal did not hand over what it kept: {error}")))?;
        let mut broker = Self {
            book: Book::restore(args.settings, *kept, ctx.now()),
            journal,
            entries,
            unsaid: 0,
            random: StdRng::from_os_rng(),
            busiest: Busiest::default(),
            credentialed: false,
            warned: false,
            owed: Vec::new(),
            waiting: HashMap::new(),
            tick: None,
            republish: None,
        };
        broker.book.open(ctx.now());
        broker.settle(ctx)?;
        // Not from here: an answer could come before anybody can reach this incarnation.
        ctx.tell(BrokerInternal::Republish);
        broker.wind(ctx);
        Ok(broker)
    }

    fn handle(&mut self, ctx: &Context<Self>, message: BrokerMessage) -> Result<(), Failure> {
        let now = ctx.now();
        match message {
            BrokerMessage::Grant { request, caller, reply_to } => return self.decide(ctx, Asked::Grant(request, caller, reply_to)),
            BrokerMessage::Release { id, caller, reply_to } => {
                let ended = self.book.release(id, &caller, now);
                tracing::debug!(ended, "lease released");
                self.owed.push(Owed::Done(Ok(()), reply_to));
                return Ok(());
            }
            BrokerMessage::Renew { id, ttl, caller, reply_to } => {
                let renewed = self.book.renew(id, ttl, &caller, now);
                if let Ok(view) = &renewed {
                    tracing::debug!(fence = view.record.fence, until = %view.expires_at, "lease renewed");
                }
                self.owed.push(Owed::Lease(renewed, reply_to));
                return Ok(());
            }
            BrokerMessage::Report { id, request, caller, reply_to } => {
                let reported = self.book.report(id, &request, &caller, now);
                if let Ok(reported) = &reported {
                    self.count_report(ctx, &request, reported);
                }
                self.owed.push(Owed::Report(reported.map(|reported| reported.answer), reply_to));
                return Ok(());
            }
            BrokerMessage::Get { id, caller, reply_to } => {
                let found = self.book.get(id, &caller, now);
                self.owed.push(Owed::Lease(found, reply_to));
                return Ok(());
            }
            BrokerMessage::Cordon { key, request, caller, reply_to } => {
                let cordoned = self.book.cordon(&key, &request, &caller, now);
                self.owed.push(Owed::Item(Box::new(cordoned), reply_to));
            }
            BrokerMessage::Uncordon { key, target, caller, reply_to } => {
                let lifted = self.book.uncordon(&key, target.as_ref(), &caller);
                self.owed.push(Owed::Done(lifted, reply_to));
            }
            BrokerMessage::LiftCooldown { key, target, caller, reply_to } => {
                let lifted = self.book.lift_cooldown(&key, target.as_ref(), &caller, now);
                if matches!(lifted, Ok(true)) {
                    tracing::info!(proxy = %key, cooled_target = target.as_deref(), by = &*caller.token_name, "cooldown lifted");
                }
                self.owed.push(Owed::Done(lifted.map(|_| ()), reply_to));
            }
            BrokerMessage::Publish { proxy } => {
                self.credentialed |= proxy.credentials.is_some();
                self.book.publish(proxy, now);
            }
            BrokerMessage::Expect { live } => self.book.expect(live),
            BrokerMessage::Withdraw { key, uid } => self.book.withdraw(&key, &uid, now),
            BrokerMessage::ClockSet { millis } => self.book.clock_set(millis, now),
            BrokerMessage::ProbePassed { key, uid } => self.book.probe_passed(&key, &uid),
            BrokerMessage::ListProxies { filter, after, limit, caller, reply_to } => {
                self.list_proxies(ctx, Box::new(ProxyWalk::new(*filter, after, limit, caller)), reply_to);
            }
            BrokerMessage::ListLeases { filter, after, limit, caller, reply_to } => {
                self.list_leases(ctx, Box::new(LeaseWalk::new(filter, after, limit, caller)), reply_to);
            }
            // Whoever asked and left needs no answer.
            BrokerMessage::GetProxy { key, caller, reply_to } => drop(reply_to.send(self.book.proxy(&key, &caller))),
            BrokerMessage::Explain { request, caller, reply_to } => return self.decide(ctx, Asked::Explain(request, caller, reply_to)),
            BrokerMessage::Stats { reply_to } => drop(reply_to.send(self.book.stats())),
        }
        self.settle(ctx)
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: BrokerInternal) -> Result<(), Failure> {
        match message {
            BrokerInternal::Tick => {
                self.advance(ctx);
                if self.unsaid > 0 {
                    self.tell_the_journal();
                }
                ctx.metrics().targets_suspect.set(i64::try_from(self.book.suspect_targets()).unwrap_or(i64::MAX));
                self.wind(ctx);
            }
            BrokerInternal::More => self.advance(ctx),
            BrokerInternal::Work => return self.work(ctx),
            BrokerInternal::Republish => self.ask_for_proxies(ctx),
            BrokerInternal::Proxies(walk, reply_to) => self.list_proxies(ctx, walk, reply_to),
            BrokerInternal::Leases(walk, reply_to) => self.list_leases(ctx, walk, reply_to),
        }
        self.settle(ctx)
    }

    fn batch_done(&mut self, ctx: &Context<Self>) -> Result<(), Failure> {
        self.settle(ctx)
    }

    fn describe(&self) -> serde_json::Value {
        json!({
            "store": "memory",
            "durable": false,
            "proxies": self.book.proxies(),
            "activeLeases": self.book.active_leases(),
            "selectorsKept": self.book.indexes(),
            "targetsSuspect": self.book.suspect_targets(),
        })
    }
}

impl BrokerActor {
    fn grant(
        &mut self,
        ctx: &Context<Self>,
        request: &GrantRequest,
        caller: &Caller,
        reply_to: Reply<Result<LeaseView, LeaseError>>,
    ) -> Result<(), Failure> {
        if reply_to.is_closed() {
            return Ok(());
        }
        if caller.anonymous && self.credentialed && !self.warned {
            self.warned = true;
            tracing::warn!(
                "WARNING: proxies that need credentials are never granted while the API has no token: set DISCOVERY_TOKEN or --discovery-token-file"
            );
        }
        let mut entropy = Entropy { id: [0; 16], spread: self.random.random() };
        self.random.fill_bytes(&mut entropy.id);
        let granted = self.book.grant(request, caller, entropy, ctx.now());
        match &granted {
            Ok(view) => {
                ctx.metrics().lease_grants.inc();
                let proxy = view.proxy.proxy();
                tracing::debug!(
                    fence = view.record.fence,
                    namespace = &*proxy.namespace,
                    name = &*proxy.name,
                    owner = request.owner.as_deref(),
                    target = request.target.as_deref(),
                    "lease granted"
                );
            }
            Err(error) => {
                let code = error.code();
                if matches!(error, LeaseError::Refused(_)) {
                    ctx.metrics().lease_refusals.get_or_create(&Reason { reason: code.as_str() }).inc();
                }
                tracing::debug!(
                    reason = code.as_str(),
                    owner = request.owner.as_deref(),
                    target = request.target.as_deref(),
                    "lease refused"
                );
            }
        }
        self.owed.push(Owed::Grant(granted, caller.clone(), reply_to));
        Ok(())
    }

    /// Sends out what the book left to do, then the answers that waited for it. An error means that the journal has not what the
    /// book has.
    fn settle(&mut self, ctx: &Context<Self>) -> Result<(), Failure> {
        loop {
            let kept = self.send_effects(ctx);
            for owed in self.owed.drain(..) {
                if let Some((id, caller)) = owed.pay(kept.is_ok()) {
                    self.book.release(id, &caller, ctx.now());
                    tracing::debug!("lease released, nobody waits for its grant");
                }
            }
            if kept.is_err() || self.book.effects_are_empty() {
                return kept;
            }
        }
    }

    fn send_effects(&mut self, ctx: &Context<Self>) -> Result<(), Failure> {
        let effects = self.book.take_effects();
        for entry in &effects.entries {
            if let Entry::Ended { ending, .. } = entry
                && ending.state == LeaseState::Revoked
            {
                tracing::debug!(reason = ending.reason, "lease revoked");
            }
        }
        if !effects.entries.is_empty() {
            let sent = self.entries.send(effects.entries);
            sent.map_err(|_| Failure::new("the lease journal took nothing: it is not running"))?;
            self.unsaid += 1;
            if self.unsaid >= UNSAID {
                self.tell_the_journal();
            }
        }
        for change in effects.cordons {
            say::cordon(ctx, change);
        }
        for drain in effects.drains {
            say::drain(ctx, drain);
        }
        for (key, by) in effects.drained {
            // One that is down publishes again when it is back, and hears it then.
            let _ = ctx.system().address::<ProxyMessage>(&key.actor_id()).send(ProxyMessage::Drained { by });
        }
        for Testimony { key, uid, failed } in effects.testimony {
            // A judge that is down holds nothing to be suspect.
            let _ = ctx.system().address::<JudgeMessage>(judge::ACTOR_ID).send(JudgeMessage::Reported { key, uid, failed });
        }
        for key in effects.probes {
            tracing::debug!(proxy = %key, "three failing reports in a row, probing");
            // One that is down probes when it is back.
            let _ = ctx.system().address::<ProxyMessage>(&key.actor_id()).send(ProxyMessage::ProbeNow);
        }
        Ok(())
    }

    fn advance(&mut self, ctx: &Context<Self>) {
        if self.book.advance(ctx.now()) {
            ctx.tell(BrokerInternal::More);
        }
    }

    /// Else entries wait in the journal's channel for the next tick.
    fn tell_the_journal(&mut self) {
        // One that is down has dropped its end of the channel: the next entry fails.
        let _ = self.journal.send(JournalMessage::Fold);
        self.unsaid = 0;
    }

    fn wind(&mut self, ctx: &Context<Self>) {
        let after = if self.book.active_leases() > 0 { TICK } else { IDLE_TICK };
        self.tick = Some(ctx.after(after, BrokerInternal::Tick));
    }

    /// The book knows no proxy: have all of them published again.
    fn ask_for_proxies(&mut self, ctx: &Context<Self>) {
        let directory = ctx.system().address::<ProxiesMessage>(proxies::ACTOR_ID);
        let asked = directory.send(ProxiesMessage::Republish).is_ok();
        self.republish = (!asked).then(|| ctx.after(REPUBLISH_EVERY, BrokerInternal::Republish));
    }

    fn list_proxies(&self, ctx: &Context<Self>, mut walk: Box<ProxyWalk>, reply_to: Reply<ProxyList>) {
        match self.book.walk_proxies(&mut walk) {
            _ if reply_to.is_closed() => {}
            Some(page) => drop(reply_to.send(page)),
            None => ctx.tell(BrokerInternal::Proxies(walk, reply_to)),
        }
    }

    fn list_leases(&self, ctx: &Context<Self>, mut walk: Box<LeaseWalk>, reply_to: Reply<(Vec<LeaseView>, Option<String>)>) {
        match self.book.walk_leases(&mut walk, ctx.now()) {
            _ if reply_to.is_closed() => {}
            Some(page) => drop(reply_to.send(page)),
            None => ctx.tell(BrokerInternal::Leases(walk, reply_to)),
        }
    }

    fn count_report(&mut self, ctx: &Context<Self>, request: &ReportRequest, reported: &Reported) {
        let result = request.result.as_str();
        tracing::debug!(
            result,
            target = reported.target.as_deref(),
            counted = reported.answer.counted,
            detail = request.message.as_deref(),
            "lease reported"
        );
        let family = &ctx.metrics().lease_reports;
        let target = match &reported.target {
            None => String::new(),
            Some(target) => match self.busiest.count(target) {
                Name::Own => target.to_string(),
                Name::Other => "other".to_owned(),
                Name::OwnInsteadOf(old) => {
                    self.forget_series(ctx, &old);
                    target.to_string()
                }
            },
        };
        family.get_or_create(&Report { provider: reported.provider.to_string(), target, result }).inc();
    }

    fn forget_series(&self, ctx: &Context<Self>, target: &Arc<str>) {
        for provider in self.book.providers() {
            for result in ReportResult::ALL {
                let series = Report { provider: provider.to_string(), target: target.to_string(), result: result.as_str() };
                ctx.metrics().lease_reports.remove(&series);
            }
        }
    }
}
