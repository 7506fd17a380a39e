//! The root of the tree: starts every part in order, owns nothing else.
//!
//! Role: the order of start and stop. Supervised by nobody: its crash ends the process with exit 3 (SV-2). Supervises
//! `http`, `providers`, `lease-journal`, `lease-broker`, `judge`, `proxies`, `source`, and unless they are off `sweeper` and
//! `monitor`, in this order. Receives nothing.
//!
//! Each part is started after those it speaks to. `http` comes first and is stopped last, though it serves nothing before
//! the others run: readiness can be read all the while, and running calls end after everything else did (OP-5).

use std::sync::Arc;

use egress_lease::{BookSettings, BrokerActor, BrokerArgs, JournalActor, JournalArgs};
use egress_manifests::ManifestsArgs;
use egress_monitor::MonitorArgs;
use egress_prober::ProbeSettings;
use egress_protocol::message::Never;
use egress_protocol::provider::ProvidersMessage;
use egress_protocol::{InstallationId, lease, provider, proxies};
use egress_provider::ProvidersArgs;
use egress_proxy::{Directory, DirectoryArgs, ProberFactory};
use egress_supervision::{Actor, ChildSpec, Context, Failure};
use egress_sweeper::SweeperArgs;
use serde_json::json;

use crate::http::actor::HttpArgs;

/// Everything the tree is made of.
#[derive(Debug, Clone)]
pub(super) struct RootArgs {
    pub(super) http: HttpArgs,
    pub(super) providers: ProvidersArgs,
    pub(super) leases: BookSettings,
    pub(super) installation: InstallationId,
    pub(super) machine: egress_proxy::Settings,
    pub(super) probes: Arc<ProbeSettings>,
    pub(super) source: ManifestsArgs,
    /// `None`: off.
    pub(super) sweeper: Option<SweeperArgs>,
    /// `None`: off. There are no objects to clean up without a cluster (PH-25, PH-48).
    pub(super) monitor: Option<MonitorArgs>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Root;

impl Actor for Root {
    type Message = Never;
    type Internal = Never;
    type Args = RootArgs;
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, args: RootArgs) -> Result<Self, Failure> {
        ctx.start_child_and_wait(args.http.spec()).await?;
        ctx.start_child_and_wait(args.providers.spec()).await?;
        let journal = ChildSpec::<JournalActor>::irreplaceable(lease::JOURNAL_ID, JournalArgs::from(&args.leases));
        ctx.start_child_and_wait(journal).await?;
        let broker = ChildSpec::<BrokerActor>::essential(lease::BROKER_ID, BrokerArgs { settings: args.leases });
        ctx.start_child_and_wait(broker).await?;
        ctx.start_child_and_wait(egress_prober::judge_actor::spec()).await?;
        let probes = args.probes;
        let prober: ProberFactory = Arc::new(move |ctx, target| ctx.start_child(egress_prober::spec(target, Arc::clone(&probes))));
        let directory = DirectoryArgs::new(args.installation, args.machine, prober);
        ctx.start_child_and_wait(ChildSpec::<Directory>::essential(proxies::ACTOR_ID, directory)).await?;
        // It knows no provider yet: let it be told now, not at the next repetition.
        let _ = ctx.system().address(provider::PROVIDERS_ID).send(ProvidersMessage::Announce);
        ctx.start_child_and_wait(egress_manifests::spec(args.source)).await?;
        if let Some(sweeper) = args.sweeper {
            ctx.start_child_and_wait(egress_sweeper::spec(sweeper)).await?;
        }
        if let Some(monitor) = args.monitor {
            ctx.start_child_and_wait(egress_monitor::spec(monitor)).await?;
        }
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
