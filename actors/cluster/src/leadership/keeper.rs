//! `leadership/keeper`: keeps the Lease; it performs what the [`Elector`] decides, one call at a time.
//!
//! - Role: opens and closes the fence itself, without a detour, and tells who serves HTTP what this replica is.
//! - Supervised by `leadership`, irreplaceable; started before the branch and stopped after it, so that the Lease is renewed
//!   until nothing of the branch is left.
//! - Receives [`KeeperMessage`]; tells `leadership` by its context.
//! - Failure policy: however a life ends, the fence is closed when it has ended. Only an orderly stop gives the Lease up: after a
//!   crash something of the branch may be left.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egress_kube::ApiError;
use egress_protocol::Clock;
use egress_protocol::leadership::{Fence, Standing, StandingCell};
use egress_protocol::message::Message;
use egress_supervision::{Actor, ChildSpec, Context, Failure, Task, Timer};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::json;
use tokio::time::Instant;

use super::elector::{Effect, Elector, Input, Now, Outcome, Record, Terms, Write};
use super::store::LeaseStore;
use super::{LeaderSettings, LeadershipActor, LeadershipInternal, Report, document};

/// The actor's id.
pub(super) const KEEPER_ID: &str = "leadership/keeper";
/// Giving the Lease up may take this long.
const RELEASE: Duration = Duration::from_secs(2);

/// What the actor is started from.
#[derive(Clone)]
pub(super) struct KeeperArgs {
    pub(super) leadership: Context<LeadershipActor>,
    pub(super) settings: Arc<LeaderSettings>,
    pub(super) store: Arc<dyn LeaseStore>,
    pub(super) fence: Fence,
    pub(super) standing: StandingCell,
    /// Something of a former branch is left.
    pub(super) left: bool,
}

impl fmt::Debug for KeeperArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeeperArgs").field("settings", &self.settings).field("left", &self.left).finish_non_exhaustive()
    }
}

impl KeeperArgs {
    /// The child of `leadership`.
    pub(super) fn spec(self) -> ChildSpec<Keeper> {
        ChildSpec::irreplaceable(KEEPER_ID, self)
    }
}

/// See the module.
pub(super) struct Keeper {
    args: KeeperArgs,
    elector: Elector,
    clock: Clock,
    base: Instant,
    /// The Lease as seen last: what is written over.
    seen: Option<Lease>,
    /// What `leadership` knows.
    told: Report,
    /// The call under way, and its number: the answer to a former one is not taken.
    call: Option<Task>,
    calls: u64,
    /// When to look again, and how often that was set: a former one is not heard.
    wake: Option<Timer>,
    wakes: u64,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.args.fence.close();
        self.args.standing.set(Standing::Follower { leader: None, address: None });
    }
}

/// What `leadership` has to say.
#[derive(Debug)]
pub(super) enum KeeperMessage {
    /// Nothing is left of the branch.
    Cleared,
}

impl Message for KeeperMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Cleared => "Cleared",
        }
    }
}

/// What the actor tells itself.
#[derive(Debug)]
pub(super) enum KeeperInternal {
    Tick { wake: u64 },
    Answered { call: u64, answer: Box<Answer> },
}

impl Message for KeeperInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Tick { .. } => "Tick",
            Self::Answered { .. } => "Answered",
        }
    }
}

/// The answer to a call, with what the election needs to know of it.
#[derive(Debug)]
pub(super) enum Answer {
    Looked(Result<Option<Lease>, ApiError>),
    Wrote { sent: Duration, created: bool, result: Result<Lease, ApiError> },
}

/// Both clocks now.
fn now(clock: Clock, base: Instant) -> Now {
    Now { mono: base.elapsed(), wall: clock.now().unix_millis().saturating_mul(1000) }
}

/// What the election has to know of the settings.
fn terms(settings: &LeaderSettings) -> Terms {
    Terms {
        me: settings.identity.as_str().into(),
        lease: settings.lease_duration,
        renew_deadline: settings.renew_deadline,
        retry: settings.retry_period,
    }
}

impl Actor for Keeper {
    type Message = KeeperMessage;
    type Internal = KeeperInternal;
    type Args = KeeperArgs;
    const KIND: &'static str = "keeper";

    async fn start(ctx: &Context<Self>, args: KeeperArgs) -> Result<Self, Failure> {
        let (clock, base) = (ctx.system().clock(), Instant::now());
        let elector = Elector::new(terms(&args.settings), args.left, now(clock, base));
        let told = Report::default();
        let mut this = Self { args, elector, clock, base, seen: None, told, call: None, calls: 0, wake: None, wakes: 0 };
        this.step(ctx, Input::Tick);
        Ok(this)
    }

    fn handle(&mut self, ctx: &Context<Self>, message: KeeperMessage) -> Result<(), Failure> {
        match message {
            KeeperMessage::Cleared => self.step(ctx, Input::Cleared),
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: KeeperInternal) -> Result<(), Failure> {
        match message {
            KeeperInternal::Tick { wake } if wake == self.wakes => self.step(ctx, Input::Tick),
            KeeperInternal::Answered { call, answer } if call == self.calls => {
                self.call = None;
                let input = self.taken(*answer);
                self.step(ctx, input);
            }
            KeeperInternal::Tick { .. } | KeeperInternal::Answered { .. } => {}
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        json!({ "lease": self.lease(), "holder": self.record().and_then(|record| record.holder), "calling": self.call.is_some() })
    }

    /// The branch has stopped: the Lease is given up, so that another replica need not wait until it expires (OP-5).
    async fn stopping(&mut self, _: &Context<Self>) {
        self.call = None;
        self.args.fence.close();
        if self.elector.may_hold() && tokio::time::timeout(RELEASE, self.release()).await.is_err() {
            tracing::warn!(lease = self.lease(), "WARNING: the leadership could not be given up in time; the others wait until it expires");
        }
    }
}

impl Keeper {
    /// Tells the election, does what it decides, and sees to it that it is asked again in time.
    fn step(&mut self, ctx: &Context<Self>, input: Input) {
        for effect in self.elector.step(self.now(), input) {
            self.perform(ctx, effect);
        }
        self.report();
        self.wakes += 1;
        let wake = self.wakes;
        let pause = self.elector.wake().map(|wake| wake.saturating_sub(self.base.elapsed()));
        self.wake = pause.map(|pause| ctx.after(pause, KeeperInternal::Tick { wake }));
    }

    /// The next call; a former one that has not been answered is given up.
    fn call(&mut self, ctx: &Context<Self>, answer: impl Future<Output = Answer> + Send + 'static) {
        self.calls += 1;
        let call = self.calls;
        self.call = Some(ctx.spawn(async move { KeeperInternal::Answered { call, answer: Box::new(answer.await) } }));
    }

    fn now(&self) -> Now {
        now(self.clock, self.base)
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.args.settings.namespace, self.args.settings.name)
    }

    fn perform(&mut self, ctx: &Context<Self>, effect: Effect) {
        match effect {
            Effect::Look => {
                let look = self.args.store.get();
                self.call(ctx, async move { Answer::Looked(look.await) });
            }
            Effect::Write(write) => self.write(ctx, &write),
            Effect::Extend(until) => self.args.fence.extend(self.base + until),
            Effect::Lead => {
                self.args.standing.set(Standing::Leader);
                tracing::info!(lease = self.lease(), identity = self.args.settings.identity, "leadership acquired");
                self.args.leadership.tell(LeadershipInternal::Lead);
            }
            Effect::Fenced => tracing::warn!(
                lease = self.lease(),
                reason = self.elector.trouble(),
                "WARNING: the leadership could not be renewed in time: no provider call and no status write until it is"
            ),
            Effect::Renewed => tracing::info!(lease = self.lease(), "leadership renewed after all"),
            Effect::Disowned => {
                tracing::warn!(
                    lease = self.lease(),
                    "WARNING: somebody deleted or cleared the Lease that this replica holds; it is written again"
                );
            }
            Effect::Lose => {
                self.args.fence.close();
                self.args.standing.set(Standing::Follower { leader: None, address: None });
                tracing::info!(lease = self.lease(), "leadership lost");
                self.args.leadership.tell(LeadershipInternal::Lose);
            }
            Effect::Follow { leader, address } => {
                match &leader {
                    Some(leader) => tracing::info!(lease = self.lease(), %leader, address = address.as_deref(), "another replica leads"),
                    None => tracing::info!(lease = self.lease(), "no replica leads"),
                }
                self.args.standing.set(Standing::Follower { leader, address });
            }
            Effect::Trouble(reason) => {
                tracing::warn!(lease = self.lease(), reason, "WARNING: the Lease of the leadership cannot be read or written");
            }
            Effect::Well => tracing::info!(lease = self.lease(), "the Lease of the leadership can be read and written again"),
        }
    }

    fn write(&mut self, ctx: &Context<Self>, write: &Write) {
        let lease = document::held(self.seen.as_ref().filter(|_| write.base.is_some()), write, &self.args.settings);
        let (created, store, base) = (write.base.is_none(), Arc::clone(&self.args.store), self.base);
        self.call(ctx, async move {
            // Read here, when the call begins, and not when it was decided on.
            let sent = base.elapsed();
            let result = if created { store.create(lease).await } else { store.replace(lease).await };
            Answer::Wrote { sent, created, result }
        });
    }

    fn taken(&mut self, answer: Answer) -> Input {
        match answer {
            Answer::Looked(Ok(lease)) => {
                self.seen = lease;
                Input::Looked(Ok(self.record()))
            }
            Answer::Looked(Err(error)) => Input::Looked(Err(error.to_string())),
            Answer::Wrote { sent, created, result } => Input::Wrote {
                sent,
                outcome: match result {
                    Ok(lease) => {
                        let record = document::record(&lease);
                        self.seen = Some(lease);
                        Outcome::Done(record)
                    }
                    Err(error) => match error.code() {
                        Some(409) => Outcome::Conflict,
                        // On a create it is the namespace that is missing.
                        Some(404) if !created => {
                            self.seen = None;
                            Outcome::Gone
                        }
                        _ => Outcome::Failed(error.to_string()),
                    },
                },
            },
        }
    }

    fn record(&self) -> Option<Record> {
        self.seen.as_ref().map(document::record)
    }

    /// Tells the actor, when there is something new.
    fn report(&mut self) {
        let report = Report { settled: self.elector.settled(), trouble: self.elector.trouble().map(Arc::from) };
        if self.told != report {
            self.told = report.clone();
            self.args.leadership.tell(LeadershipInternal::Report(report));
        }
    }

    /// Gives the Lease up if it is ours: whoever looks next takes it.
    async fn release(&mut self) {
        // Over the version we know, else over the one there is: a write of ours may have been under way.
        let mut known = self.seen.take().filter(|lease| self.is_ours(lease));
        for _ in 0..3 {
            let held = match known.take() {
                Some(lease) => lease,
                None => match self.args.store.get().await {
                    Ok(Some(lease)) if self.is_ours(&lease) => lease,
                    Ok(_) => return,
                    Err(error) => return self.not_released(&error),
                },
            };
            match self.args.store.replace(document::given_up(&held, self.now().wall)).await {
                Ok(_) => return tracing::info!(lease = self.lease(), "leadership released"),
                Err(error) if error.code() == Some(409) => {}
                Err(error) if error.code() == Some(404) => return,
                Err(error) => return self.not_released(&error),
            }
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        document::record(lease).holder.as_deref() == Some(self.args.settings.identity.as_str())
    }

    fn not_released(&self, error: &ApiError) {
        tracing::warn!(lease = self.lease(), %error, "WARNING: the leadership could not be given up; the others wait until it expires");
    }
}
