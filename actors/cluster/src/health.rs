//! The writer of `ProviderHealth` objects: `provider-health` (provider-health.md §6).
//!
//! - Role: per provider and round one read, a create where there is none, and exactly one patch of the status; deletes our
//!   objects of providers that are not configured any more.
//! - Supervised by the leader-only branch; given up after a spent budget and tried again (SV-2). Supervises nothing.
//! - Receives: `PublisherMessage` from the monitor. Sends nothing.
//! - States: writing, or cleaning up; one never overlaps the other, so that nothing is made again that was just removed.
//! - Failure policy: a failed write is logged and left to the next round (PH-22), a failed cleanup is repeated. An object of
//!   another installation is left alone (PH-23). Behind a closed fence nothing is sent (PH-11).

mod calls;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use egress_kube::ApiClient;
use egress_protocol::InstallationId;
use egress_protocol::leadership::Fence;
use egress_protocol::message::Message;
use egress_protocol::monitor::{PUBLISHER_ID, PublisherMessage};
use egress_protocol::resource::ProviderHealthStatus;
use egress_supervision::{Actor, ChildSpec, Context, Failure, Task, Timer};
use serde_json::json;

use crate::lanes::Lanes;
use calls::{Calls, Cleaned, Written};

/// Objects written at once.
const AT_ONCE: usize = 8;
/// Between tries of a cleanup.
const AGAIN: Duration = Duration::from_secs(30);

/// What the publisher is started from.
#[derive(Debug, Clone)]
pub struct HealthArgs {
    /// Its own.
    pub client: ApiClient,
    /// Whose the objects are.
    pub installation: InstallationId,
    /// Asked before every write (SV-4).
    pub fence: Fence,
}

/// The child to start; its id is `provider-health`.
pub fn spec(args: HealthArgs) -> ChildSpec<HealthPublisher> {
    ChildSpec::retried(PUBLISHER_ID, args)
}

/// What the actor tells itself.
#[derive(Debug)]
#[doc(hidden)]
pub enum Internal {
    /// A provider's object was written, or not.
    Wrote(Arc<str>, Outcome),
    /// The cleanup that kept these ended; with what went wrong, if something did.
    CleanedUp(Vec<Arc<str>>, CleanupOutcome),
    /// Time to clean up again.
    Again,
}

/// How a write ended.
#[derive(Debug)]
#[doc(hidden)]
pub struct Outcome(Result<Written, String>);

/// How a cleanup ended.
#[derive(Debug)]
#[doc(hidden)]
pub struct CleanupOutcome(Result<Cleaned, String>);

impl Message for Internal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Wrote(..) => "Wrote",
            Self::CleanedUp(..) => "CleanedUp",
            Self::Again => "Again",
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct HealthPublisher {
    args: HealthArgs,
    lanes: Lanes<Arc<str>, Arc<ProviderHealthStatus>>,
    /// The names to keep, while our other objects are not yet known to be gone.
    keep: Option<Vec<Arc<str>>>,
    cleaning: Option<Task>,
    again: Option<Timer>,
    /// Whose last write failed.
    failing: HashSet<Arc<str>>,
    /// Whose object is another installation's, as a person was told.
    foreign: HashSet<Arc<str>>,
    cleanup_failed: bool,
}

impl Actor for HealthPublisher {
    type Message = PublisherMessage;
    type Internal = Internal;
    type Args = HealthArgs;
    const KIND: &'static str = "provider-health";

    async fn start(_: &Context<Self>, args: HealthArgs) -> Result<Self, Failure> {
        Ok(Self {
            args,
            lanes: Lanes::new(AT_ONCE),
            keep: None,
            cleaning: None,
            again: None,
            failing: HashSet::new(),
            foreign: HashSet::new(),
            cleanup_failed: false,
        })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: PublisherMessage) -> Result<(), Failure> {
        match message {
            // One that still waits is of an earlier round.
            PublisherMessage::Publish { name, status } => self.lanes.push(name, status, |_| false),
            PublisherMessage::Cleanup { keep } => {
                self.again = None;
                self.keep = Some(keep);
            }
        }
        self.go_on(ctx);
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: Internal) -> Result<(), Failure> {
        match message {
            Internal::Wrote(name, Outcome(result)) => {
                self.lanes.done(&name);
                self.wrote(name, result);
            }
            Internal::CleanedUp(keep, CleanupOutcome(result)) => self.cleaned_up(ctx, &keep, result),
            Internal::Again => self.again = None,
        }
        self.go_on(ctx);
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        json!({
            "writing": self.lanes.running(),
            "waiting": self.lanes.waiting(),
            "failing": self.failing.len(),
            "foreign": self.foreign.len(),
            "cleaningUp": self.cleaning.is_some(),
        })
    }
}

impl HealthPublisher {
    fn go_on(&mut self, ctx: &Context<Self>) {
        if self.cleaning.is_some() {
            return;
        }
        if let (Some(keep), None) = (&self.keep, &self.again) {
            if self.lanes.running() == 0 {
                let (calls, keep) = (self.calls(ctx), keep.clone());
                self.cleaning = Some(ctx.spawn(async move {
                    let result = calls.clean_up(&keep).await;
                    Internal::CleanedUp(keep, CleanupOutcome(result))
                }));
            }
            return;
        }
        while let Some((name, status)) = self.lanes.next() {
            let calls = self.calls(ctx);
            ctx.spawn(async move {
                let result = calls.write(&name, &status).await;
                Internal::Wrote(name, Outcome(result))
            })
            .keep();
        }
    }

    fn calls(&self, ctx: &Context<Self>) -> Calls {
        Calls { args: self.args.clone(), stop: ctx.cancelled() }
    }

    fn wrote(&mut self, name: Arc<str>, result: Result<Written, String>) {
        match result {
            Ok(Written::Ours) => {
                self.foreign.remove(&name);
                if self.failing.remove(&name) {
                    tracing::info!(provider = %name, "ProviderHealth is written again");
                }
            }
            Ok(Written::Foreign(owner)) => {
                self.failing.remove(&name);
                if self.foreign.insert(Arc::clone(&name)) {
                    tracing::warn!(
                        provider = %name, owner, installation = %self.args.installation,
                        "WARNING: this ProviderHealth belongs to another installation and is left alone"
                    );
                }
            }
            Ok(Written::Withheld) => tracing::debug!(provider = %name, "ProviderHealth not written: this replica does not lead"),
            Err(error) if self.failing.contains(&name) => tracing::debug!(provider = %name, error, "ProviderHealth not written"),
            Err(error) => {
                tracing::warn!(provider = %name, error, "WARNING: ProviderHealth was not written, the next round tries again");
                self.failing.insert(name);
            }
        }
    }

    fn cleaned_up(&mut self, ctx: &Context<Self>, keep: &[Arc<str>], result: Result<Cleaned, String>) {
        self.cleaning = None;
        match result {
            Ok(Cleaned::All) => {
                self.cleanup_failed = false;
                self.keep.take_if(|wanted| wanted == keep);
            }
            Ok(Cleaned::Withheld) => self.again = Some(ctx.after(AGAIN, Internal::Again)),
            Err(error) => {
                if !std::mem::replace(&mut self.cleanup_failed, true) {
                    tracing::warn!(error, "WARNING: ProviderHealth objects of providers that are gone were not deleted");
                }
                self.again = Some(ctx.after(AGAIN, Internal::Again));
            }
        }
    }
}
