//! The root of the tree: starts every part in order, owns nothing else.
//!
//! Role: the order of start and stop. Supervised by nobody: its crash ends the process with exit 3 (SV-2). Receives
//! nothing. Supervises `http` and `clock`, and then
//!
//! - standalone: what a leader runs ([`LeaderArgs`]), with `source` between the directory and the rounds;
//! - in a cluster: the reviewer of those who scrape metrics, `source`, which every replica has, and `leadership`, or without an election the leader's branch itself.
//!
//! Each part is started after those it speaks to. `http` comes first and is stopped last, though it serves nothing before
//! the others run: readiness can be read all the while, and running calls end after everything else did (OP-5).

use egress_cluster::leadership::LeadershipArgs;
use egress_cluster::reviewer;
use egress_cluster::source::{self, SourceArgs};
use egress_kube::ApiClient;
use egress_manifests::ManifestsArgs;
use egress_protocol::message::Never;
use egress_supervision::{Actor, Context, Failure};
use serde_json::json;

use super::clock;
use super::leader::{self, LeaderArgs};
use crate::http::actor::HttpArgs;

/// Everything the tree is made of.
#[derive(Debug, Clone)]
pub(super) struct RootArgs {
    pub(super) http: HttpArgs,
    pub(super) rest: Rest,
}

/// What the two ways to run have beside the listeners.
#[derive(Debug, Clone)]
pub(super) enum Rest {
    Standalone { source: ManifestsArgs, leader: Box<LeaderArgs> },
    Cluster { reviewer: Option<ApiClient>, source: SourceArgs, branch: Branch },
}

/// Who starts the leader's branch.
#[derive(Debug, Clone)]
pub(super) enum Branch {
    /// Nobody but us is there.
    Own(Box<LeaderArgs>),
    /// Whoever holds the Lease.
    Elected(LeadershipArgs),
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
        ctx.start_child_and_wait(clock::spec()).await?;
        match args.rest {
            Rest::Standalone { source, leader } => {
                leader.start_proxies(ctx).await?;
                ctx.start_child_and_wait(egress_manifests::spec(source)).await?;
                leader.start_rounds(ctx).await?;
            }
            Rest::Cluster { reviewer, source, branch } => {
                if let Some(client) = reviewer {
                    ctx.start_child_and_wait(reviewer::spec(client)).await?;
                }
                ctx.start_child_and_wait(source::spec(source)).await?;
                match branch {
                    Branch::Own(leader) => drop(ctx.start_child_and_wait(leader::spec(*leader)).await?),
                    Branch::Elected(args) => drop(ctx.start_child_and_wait(args.spec()).await?),
                }
            }
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
