//! What only the leader runs (SV-4): standalone as children of the root, in a cluster as children of the branch that
//! leadership starts and stops.

use std::sync::Arc;

use egress_cluster::health::{self, HealthArgs};
use egress_lease::{BookSettings, BrokerActor, BrokerArgs, JournalActor, JournalArgs};
use egress_monitor::MonitorArgs;
use egress_prober::ProbeSettings;
use egress_protocol::leadership::BRANCH_ID;
use egress_protocol::message::Never;
use egress_protocol::provider::ProvidersMessage;
use egress_protocol::{InstallationId, lease, provider, proxies};
use egress_provider::ProvidersArgs;
use egress_proxy::{Directory, DirectoryArgs, ProberFactory};
use egress_supervision::{Actor, ChildSpec, Context, Failure};
use egress_sweeper::SweeperArgs;
use serde_json::json;

/// Everything the branch is made of.
#[derive(Debug, Clone)]
pub(super) struct LeaderArgs {
    pub(super) providers: ProvidersArgs,
    pub(super) leases: BookSettings,
    pub(super) installation: InstallationId,
    pub(super) machine: egress_proxy::Settings,
    pub(super) probes: Arc<ProbeSettings>,
    /// `None`: off.
    pub(super) sweeper: Option<SweeperArgs>,
    /// `None`: nobody writes `ProviderHealth` objects (PH-48).
    pub(super) health: Option<HealthArgs>,
    /// `None`: off, and there are no objects to clean up (PH-25).
    pub(super) monitor: Option<MonitorArgs>,
}

impl LeaderArgs {
    /// Everything up to the directory, each after those it speaks to.
    pub(super) async fn start_proxies<A: Actor>(&self, ctx: &Context<A>) -> Result<(), Failure> {
        ctx.start_child_and_wait(self.providers.clone().spec()).await?;
        let journal = ChildSpec::<JournalActor>::irreplaceable(lease::JOURNAL_ID, JournalArgs::from(&self.leases));
        ctx.start_child_and_wait(journal).await?;
        let broker = ChildSpec::<BrokerActor>::essential(lease::BROKER_ID, BrokerArgs { settings: self.leases });
        ctx.start_child_and_wait(broker).await?;
        ctx.start_child_and_wait(egress_prober::judge_actor::spec()).await?;
        let probes = Arc::clone(&self.probes);
        let prober: ProberFactory = Arc::new(move |ctx, target| ctx.start_child(egress_prober::spec(target, Arc::clone(&probes))));
        let directory = DirectoryArgs::new(self.installation.clone(), self.machine.clone(), prober);
        ctx.start_child_and_wait(ChildSpec::<Directory>::essential(proxies::ACTOR_ID, directory)).await?;
        // It knows no provider yet: let it be told now, not at the next repetition.
        let _ = ctx.system().address(provider::PROVIDERS_ID).send(ProvidersMessage::Announce);
        Ok(())
    }

    /// The rounds, which look at what the others have made of the world.
    pub(super) async fn start_rounds<A: Actor>(&self, ctx: &Context<A>) -> Result<(), Failure> {
        if let Some(sweeper) = &self.sweeper {
            ctx.start_child_and_wait(egress_sweeper::spec(sweeper.clone())).await?;
        }
        if let Some(args) = &self.health {
            ctx.start_child_and_wait(health::spec(args.clone())).await?;
        }
        if let Some(monitor) = &self.monitor {
            ctx.start_child_and_wait(egress_monitor::spec(monitor.clone())).await?;
        }
        Ok(())
    }
}

/// The branch of a leader as a child. The budgets are its children's: one that is spent is its own end, and no further level
/// multiplies it (SV-2).
pub(super) fn spec(args: LeaderArgs) -> ChildSpec<Leader> {
    ChildSpec::irreplaceable(BRANCH_ID, args)
}

/// Role: the order of start and stop of what only a leader runs. Supervised by `leadership`, or without an election by
/// the root; supervises `providers`, `lease-journal`, `lease-broker`, `judge`, `proxies`, `sweeper`, `provider-health` and
/// `monitor`. Receives nothing. Failure policy: its first crash, which is a child's whose budget is spent, is its parent's.
#[derive(Debug)]
pub(super) struct Leader;

impl Actor for Leader {
    type Message = Never;
    type Internal = Never;
    type Args = LeaderArgs;
    const KIND: &'static str = "leader";

    async fn start(ctx: &Context<Self>, args: LeaderArgs) -> Result<Self, Failure> {
        args.start_proxies(ctx).await?;
        args.start_rounds(ctx).await?;
        Ok(Self)
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        json!({})
    }
}
