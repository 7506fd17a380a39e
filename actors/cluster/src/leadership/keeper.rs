//! The task of `leadership` that keeps the Lease: it performs what the [`Elector`] decides, one call at a time.
//!
//! A task and not the mailbox, because a stop first waits for the branch and handles no message meanwhile, and the Lease is
//! to be renewed until nothing of the branch is left. It opens and closes the fence itself, without a detour.
//!
//! What must stay true: however it ends, the fence is closed when it has ended.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use egress_kube::ApiError;
use egress_protocol::Clock;
use egress_protocol::leadership::{Fence, Standing, StandingCell};
use egress_supervision::Context;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::elector::{Effect, Elector, Input, Now, Outcome, Record, Terms, Write};
use super::store::LeaseStore;
use super::{LeaderSettings, LeadershipActor, LeadershipInternal, Report, document};

/// Giving the Lease up may take this long.
pub(super) const RELEASE: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Keeper {
    pub(super) ctx: Context<LeadershipActor>,
    pub(super) settings: Arc<LeaderSettings>,
    pub(super) store: Arc<dyn LeaseStore>,
    pub(super) fence: Fence,
    pub(super) standing: StandingCell,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    pub(super) elector: Elector,
    pub(super) clock: Clock,
    pub(super) base: Instant,
    /// The Lease as seen last: what is written over.
    pub(super) seen: Option<Lease>,
    /// What the actor knows.
    pub(super) told: Report,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.fence.close();
        self.standing.set(Standing::Follower { leader: None, address: None });
    }
}

/// What the actor wants of its keeper.
pub(super) enum Order {
    /// Nothing is left of the branch.
    Cleared,
    /// Give the Lease up, and say when that is done. Only an orderly stop asks for it: after a crash something of the branch
    /// may be left.
    Release(oneshot::Sender<()>),
}

/// The answer to a call, with what the election needs to know of it.
enum Answer {
    Looked(Result<Option<Lease>, ApiError>),
    Wrote { sent: Duration, created: bool, result: Result<Lease, ApiError> },
}

/// Both clocks now.
pub(super) fn now(clock: Clock, base: Instant) -> Now {
    Now { mono: base.elapsed(), wall: clock.now().unix_millis().saturating_mul(1000) }
}

/// What the election has to know of the settings.
pub(super) fn terms(settings: &LeaderSettings) -> Terms {
    Terms {
        me: settings.identity.as_str().into(),
        lease: settings.lease_duration,
        renew_deadline: settings.renew_deadline,
        retry: settings.retry_period,
    }
}

impl Keeper {
    /// Until the Lease is to be given up.
    pub(super) async fn run(mut self) -> LeadershipInternal {
        let mut call: Option<BoxFuture<'static, Answer>> = None;
        let mut input = Input::Tick;
        let released = loop {
            for effect in self.elector.step(self.now(), input) {
                if let Some(next) = self.perform(effect) {
                    call = Some(next);
                }
            }
            self.report();
            let wake = self.elector.wake().map(|wake| self.base + wake);
            input = tokio::select! {
                biased;
                Some(order) = self.orders.recv() => match order {
                    Order::Cleared => Input::Cleared,
                    Order::Release(released) => break released,
                },
                answer = of(&mut call) => {
                    call = None;
                    self.taken(answer)
                }
                () = at(wake) => Input::Tick,
            };
        };
        drop(call);
        self.fence.close();
        if self.elector.may_hold() && tokio::time::timeout(RELEASE, self.release()).await.is_err() {
            tracing::warn!(lease = self.lease(), "WARNING: the leadership could not be given up in time; the others wait until it expires");
        }
        let _ = released.send(());
        LeadershipInternal::Ended
    }

    fn now(&self) -> Now {
        now(self.clock, self.base)
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    /// Does it; a call is handed back to be waited for.
    fn perform(&mut self, effect: Effect) -> Option<BoxFuture<'static, Answer>> {
        match effect {
            Effect::Look => {
                let look = self.store.get();
                return Some(Box::pin(async move { Answer::Looked(look.await) }));
            }
            Effect::Write(write) => return Some(self.write(&write)),
            Effect::Extend(until) => self.fence.extend(self.base + until),
            Effect::Lead => {
                self.standing.set(Standing::Leader);
                tracing::info!(lease = self.lease(), identity = self.settings.identity, "leadership acquired");
                self.ctx.tell(LeadershipInternal::Lead);
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
                self.fence.close();
                self.standing.set(Standing::Follower { leader: None, address: None });
                tracing::info!(lease = self.lease(), "leadership lost");
                self.ctx.tell(LeadershipInternal::Lose);
            }
            Effect::Follow { leader, address } => {
                match &leader {
                    Some(leader) => tracing::info!(lease = self.lease(), %leader, address = address.as_deref(), "another replica leads"),
                    None => tracing::info!(lease = self.lease(), "no replica leads"),
                }
                self.standing.set(Standing::Follower { leader, address });
            }
            Effect::Trouble(reason) => {
                tracing::warn!(lease = self.lease(), reason, "WARNING: the Lease of the leadership cannot be read or written");
            }
            Effect::Well => tracing::info!(lease = self.lease(), "the Lease of the leadership can be read and written again"),
        }
        None
    }

    fn write(&self, write: &Write) -> BoxFuture<'static, Answer> {
        let lease = document::held(self.seen.as_ref().filter(|_| write.base.is_some()), write, &self.settings);
        let (created, store, base) = (write.base.is_none(), Arc::clone(&self.store), self.base);
        Box::pin(async move {
            // Read here, when the call begins, and not when it was decided on.
            let sent = base.elapsed();
            let result = if created { store.create(lease).await } else { store.replace(lease).await };
            Answer::Wrote { sent, created, result }
        })
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
            self.ctx.tell(LeadershipInternal::Report(report));
        }
    }

    /// Gives the Lease up if it is ours: whoever looks next takes it.
    async fn release(&mut self) {
        // Over the version we know, else over the one there is: a write of ours may have been under way.
        let mut known = self.seen.take().filter(|lease| self.is_ours(lease));
        for _ in 0..3 {
            let held = match known.take() {
                Some(lease) => lease,
                None => match self.store.get().await {
                    Ok(Some(lease)) if self.is_ours(&lease) => lease,
                    Ok(_) => return,
                    Err(error) => return self.not_released(&error),
                },
            };
            match self.store.replace(document::given_up(&held, self.now().wall)).await {
                Ok(_) => return tracing::info!(lease = self.lease(), "leadership released"),
                Err(error) if error.code() == Some(409) => {}
                Err(error) if error.code() == Some(404) => return,
                Err(error) => return self.not_released(&error),
            }
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        document::record(lease).holder.as_deref() == Some(self.settings.identity.as_str())
    }

    fn not_released(&self, error: &ApiError) {
        tracing::warn!(lease = self.lease(), %error, "WARNING: the leadership could not be given up; the others wait until it expires");
    }
}

/// The answer to the call under way; never, when there is none.
async fn of(call: &mut Option<BoxFuture<'static, Answer>>) -> Answer {
    match call {
        Some(call) => call.await,
        None => pending().await,
    }
}

async fn at(wake: Option<Instant>) {
    match wake {
        Some(wake) => tokio::time::sleep_until(wake).await,
        None => pending().await,
    }
}
