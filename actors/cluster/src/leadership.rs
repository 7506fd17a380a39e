//! `leadership`: which replica acts (OP-1, SV-4).
//!
//! - Role: starts and stops the branch that only a leader runs; its keeper holds the Lease of `coordination.k8s.io/v1`.
//! - Supervised by the root, essential. Supervises its keeper, and [`leadership::BRANCH_ID`], which is started by a closure it is
//!   given.
//! - Receives [`LeadershipMessage`]; sends nothing.
//! - States: following · leading · leading, fenced · following while the branch of the lost leadership still ends.
//! - Failure policy: calls that fail are tried again, for ever; the fence closes by itself meanwhile. A crash closes the
//!   fence and ends the branch; the next life finds the Lease in its own name and renews it at once. A branch that has not
//!   ended within the lease duration after the leadership was lost ends the process with exit 3, by a thread of its own.
//!
//! The parts: `elector` decides (pure), `document` reads and writes the Lease (pure), `keeper` is the actor that performs it,
//! `store` is where the Lease is kept, `watchdog` the thread.

mod document;
mod elector;
mod keeper;
mod store;
mod watchdog;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egress_kube::{ApiClient, REQUEST};
use egress_protocol::leadership::{self, Fence, LeadershipMessage, LeadershipState, Standing, StandingCell};
use egress_protocol::message::Message;
use egress_supervision::{Actor, Address, ChildSpec, Context, Failure, System};
use serde_json::json;

use keeper::{KeeperArgs, KeeperMessage};
use store::ApiLeases;
pub use store::{Call, LeaseStore};
use watchdog::{GiveUp, Watchdog, end_the_process};

/// How often it is looked whether anything is left of a branch.
const LOOK: Duration = Duration::from_millis(100);

/// Starts the branch that only a leader runs, as a child of `leadership` with the id [`leadership::BRANCH_ID`].
pub type Branch = Arc<dyn Fn(&Context<LeadershipActor>) + Send + Sync>;

/// The flags of OP-27, and who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderSettings {
    /// The Lease's namespace.
    pub namespace: String,
    /// Its name: `--leader-election-id`.
    pub name: String,
    /// `<pod name>_<pod UID>`: the same for a restarted container, never the same for two processes that may both live.
    pub identity: String,
    /// `--leader-election-lease-duration`: the others wait as long as this for a leader that says nothing any more.
    pub lease_duration: Duration,
    /// `--leader-election-renew-deadline`, less than that: the fence closes so long after the last renewal was sent.
    pub renew_deadline: Duration,
    /// `--leader-election-retry-period`, less than that: between two renewals. Followers look twice as often.
    pub retry_period: Duration,
    /// `HOST:PORT` at which other replicas reach our discovery API (LS-10); empty when they cannot.
    pub address: String,
}

impl LeaderSettings {
    /// A call may take this long: three fit into the renew deadline.
    fn attempt(&self) -> Duration {
        (self.renew_deadline / 3).min(REQUEST)
    }
}

/// What the actor is started from.
#[derive(Clone)]
pub struct LeadershipArgs {
    settings: Arc<LeaderSettings>,
    store: Arc<dyn LeaseStore>,
    fence: Fence,
    standing: StandingCell,
    branch: Branch,
    give_up: GiveUp,
}

impl fmt::Debug for LeadershipArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeadershipArgs").field("settings", &self.settings).field("standing", &self.standing).finish_non_exhaustive()
    }
}

impl LeadershipArgs {
    /// With the Lease at the API server. `client` is for this alone: what others send does not delay a renewal. `fence` is
    /// to be closed, `standing` that of a follower.
    pub fn new(client: ApiClient, settings: LeaderSettings, fence: Fence, standing: StandingCell, branch: Branch) -> Self {
        let store = Arc::new(ApiLeases::new(client, &settings));
        Self::with_store(store, settings, fence, standing, branch)
    }

    /// With the Lease kept elsewhere.
    pub fn with_store(store: Arc<dyn LeaseStore>, settings: LeaderSettings, fence: Fence, standing: StandingCell, branch: Branch) -> Self {
        Self { settings: Arc::new(settings), store, fence, standing, branch, give_up: Arc::new(end_the_process) }
    }

    /// What is done, on a thread of its own, when a branch does not end in time; the end of the process unless this is said.
    #[must_use]
    pub fn giving_up_by(mut self, give_up: impl Fn() + Send + Sync + 'static) -> Self {
        self.give_up = Arc::new(give_up);
        self
    }

    /// The child of the root.
    pub fn spec(self) -> ChildSpec<LeadershipActor> {
        ChildSpec::essential(leadership::ACTOR_ID, self)
    }
}

/// See the module.
pub struct LeadershipActor {
    args: LeadershipArgs,
    report: Report,
    keeper: Address<KeeperMessage>,
    /// As long as something is left of a branch.
    watchdog: Option<Watchdog>,
}

impl fmt::Debug for LeadershipActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeadershipActor").field("args", &self.args).field("report", &self.report).finish_non_exhaustive()
    }
}

/// What the keeper tells from time to time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[doc(hidden)]
pub struct Report {
    settled: bool,
    trouble: Option<Arc<str>>,
}

/// What the actor tells itself.
#[derive(Debug)]
pub enum LeadershipInternal {
    /// We lead.
    #[doc(hidden)]
    Lead,
    /// We do not any more.
    #[doc(hidden)]
    Lose,
    /// Nothing is left of the branch.
    #[doc(hidden)]
    Cleared,
    /// How it goes.
    #[doc(hidden)]
    Report(Report),
}

impl Message for LeadershipInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Lead => "Lead",
            Self::Lose => "Lose",
            Self::Cleared => "Cleared",
            Self::Report(_) => "Report",
        }
    }
}

impl Actor for LeadershipActor {
    type Message = LeadershipMessage;
    type Internal = LeadershipInternal;
    type Args = LeadershipArgs;
    const KIND: &'static str = "leadership";

    async fn start(ctx: &Context<Self>, args: LeadershipArgs) -> Result<Self, Failure> {
        let left = !ctx.system().left_of(leadership::BRANCH_ID).is_empty();
        let LeadershipArgs { settings, store, fence, standing, .. } = args.clone();
        let keeper = KeeperArgs { leadership: ctx.clone(), settings, store, fence, standing, left };
        let keeper = ctx.start_child_and_wait(keeper.spec()).await?;
        let mut this = Self { args, report: Report::default(), keeper, watchdog: None };
        if left {
            this.await_the_end(ctx)?;
        }
        Ok(this)
    }

    fn handle(&mut self, _: &Context<Self>, message: LeadershipMessage) -> Result<(), Failure> {
        match message {
            LeadershipMessage::State { reply_to } => {
                let _ = reply_to.send(LeadershipState { settled: self.report.settled, faults: self.faults() });
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: LeadershipInternal) -> Result<(), Failure> {
        match message {
            LeadershipInternal::Lead => (self.args.branch)(ctx),
            LeadershipInternal::Lose => {
                ctx.stop_child(leadership::BRANCH_ID);
                self.await_the_end(ctx)?;
            }
            LeadershipInternal::Cleared => {
                self.watchdog = None;
                let _ = self.keeper.send(KeeperMessage::Cleared);
            }
            LeadershipInternal::Report(report) => self.report = report,
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let settings = &self.args.settings;
        let mut state = json!({
            "lease": format!("{}/{}", settings.namespace, settings.name),
            "identity": settings.identity,
            "fenced": !self.args.fence.holds(),
            "branchEnding": self.watchdog.is_some(),
            "faults": self.faults(),
        });
        match &*self.args.standing.get() {
            Standing::Follower { leader, address } => {
                state["role"] = json!("follower");
                state["leader"] = json!(leader);
                state["address"] = json!(address);
            }
            Standing::Leader | Standing::Alone => state["role"] = json!("leader"),
        }
        state
    }
}

impl LeadershipActor {
    /// Watches the branch end, and does not watch for ever.
    fn await_the_end(&mut self, ctx: &Context<Self>) -> Result<(), Failure> {
        let (system, limit, give_up) = (ctx.system().clone(), self.args.settings.lease_duration, Arc::clone(&self.args.give_up));
        let hung = move || {
            let left = system.left_of(leadership::BRANCH_ID).join(", ");
            tracing::error!(left, after = limit.as_secs_f64(), "tasks of the lost leadership do not end: the process gives up");
            give_up();
        };
        let watchdog = Watchdog::arm(limit, Arc::new(hung)).map_err(|error| Failure(format!("no watchdog: {error}")))?;
        self.watchdog = Some(watchdog);
        ctx.spawn(gone(ctx.system().clone())).keep();
        Ok(())
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let leads = matches!(*self.args.standing.get(), Standing::Leader);
        if leads && !self.args.fence.holds() {
            faults.push("the leadership could not be renewed in time: no provider call and no status write until it is".to_owned());
        }
        if let Some(trouble) = &self.report.trouble {
            faults.push(format!("the Lease cannot be read or written: {trouble}"));
        } else if !self.report.settled {
            faults.push("the Lease was not seen yet".to_owned());
        }
        if self.watchdog.is_some() {
            faults.push("what a former leadership had begun still ends".to_owned());
        }
        faults
    }
}

/// Resolves when nothing is left of the branch.
async fn gone(system: System) -> LeadershipInternal {
    loop {
        tokio::time::sleep(LOOK).await;
        if system.left_of(leadership::BRANCH_ID).is_empty() {
            return LeadershipInternal::Cleared;
        }
    }
}
