//! `run`: the settings of a cluster → a running tree (OP-1).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use egress_cluster::Scope;
use egress_cluster::health::HealthArgs;
use egress_cluster::leadership::{self, LeaderSettings, LeadershipArgs};
use egress_cluster::source::SourceArgs;
use egress_config::cli::RunSettings;
use egress_kube::{Access, ApiClient, ApiError};
use egress_monitor::MonitorArgs;
use egress_prober::GuardPolicy;
use egress_protocol::InstallationId;
use egress_protocol::leadership::{Fence, Standing, StandingCell};
use egress_protocol::metrics::Metrics;
use egress_supervision::System;
use egress_sweeper::SweeperArgs;

use super::leader::{self, LeaderArgs};
use super::root::{Branch, Rest, RootArgs};
use super::waiting::Waiting;
use super::{App, Front, Ports, Running, STOP_GRACE, StartError, providers};
use crate::http::certificate;
use crate::http::tls::Tls;
use crate::lifecycle::Lifecycle;

/// Between tries to reach an API server that does not answer.
const PAUSE: Duration = Duration::from_secs(1);
/// So many tries are told of once.
const TOLD: usize = 60;

impl App {
    /// Starts everything that the settings ask for, against the cluster they name.
    pub async fn start_in_cluster(settings: RunSettings, ports: Ports) -> Result<Running, StartError> {
        let common = &settings.common;
        let access = Access { kubeconfig: settings.kubeconfig.clone() };
        let api = ApiClient::new(access.clone());
        let link = api.link().await.map_err(StartError::settings)?;
        tracing::info!(server = link.server, "the cluster");
        let doors = super::bind(common)?;
        let waiting = Waiting::serve(&doors).map_err(StartError::settings)?;
        let installation = match &common.installation {
            Some(installation) => installation.clone(),
            // PC-51, of a cluster.
            None => ask(async || egress_cluster::installation(&api, &settings.own_namespace).await).await?,
        };
        // What else can fail there is the look-up of a name.
        let addresses = async || egress_cluster::server_addresses(&api).await.map_err(|error| ApiError::Transport(error.to_string()));
        let refused = ask(addresses).await?;
        drop(waiting);
        let probes =
            super::probe_settings(common, GuardPolicy { refuse_loopback: true, refused_addresses: refused, ..GuardPolicy::default() })?;
        let system = System::new(ports.clock, Metrics::new(common.per_proxy_metrics).shared());
        let lifecycle = Lifecycle::default();
        let (fence, standing) = match &settings.election {
            None => (Fence::open(), StandingCell::new(Standing::Alone)),
            Some(_) => (Fence::closed(), StandingCell::new(Standing::Follower { leader: None, address: None })),
        };
        let around = providers::Surroundings {
            state: None,
            installation: installation.clone(),
            egress_allow: common.egress_allow.clone(),
            cluster: providers::Cluster { access: access.clone(), has_the_proxies: true, namespace: settings.namespace.clone() },
            fence: fence.clone(),
            stop_grace: settings.election.as_ref().map_or(STOP_GRACE, |election| STOP_GRACE.min(election.lease_duration / 2)),
            ports,
            metrics: Metrics::clone(system.metrics()),
            gcp_full_payloads: settings.common.gcp_full_payloads,
        };
        let providers = providers::of(common, around);
        super::open_files::raise(super::files_needed(common, 1));

        let tls = settings
            .metrics_secure
            .then(|| Tls::new(certificate::names(&settings.instance, settings.pod_ip), system.now()))
            .transpose()
            .map_err(StartError::settings)?;
        let front = Front { standing: standing.clone(), metrics_tls: tls };
        let (http, addresses) = super::serve(common, doors, None, &system, &lifecycle, &installation, front)?;
        let leader = LeaderArgs {
            providers,
            leases: super::book_settings(common),
            installation: installation.clone(),
            machine: super::machine_settings(common),
            probes,
            sweeper: sweeper(&settings, &installation),
            health: Some(HealthArgs { client: ApiClient::new(access.clone()), installation: installation.clone(), fence: fence.clone() }),
            // Its interval of 0 still cleans up what an earlier start has left (PH-25).
            monitor: Some(MonitorArgs { interval: common.checks.interval, timeout: common.checks.timeout, fence: fence.clone() }),
        };
        let scope = settings.namespace.clone().map_or(Scope::All, Scope::Namespace);
        let source = SourceArgs::new(ApiClient::new(access.clone()), scope, fence.clone(), settings.instance.as_str());
        let branch = match settings.election {
            None => Branch::Own(Box::new(leader)),
            Some(election) => {
                let address = reached_at(addresses.discovery, settings.pod_ip);
                if address.is_none() {
                    tracing::warn!("WARNING: other replicas cannot reach this one: give --pod-ip, or a discovery address that is one");
                }
                let lease = LeaderSettings {
                    namespace: election.namespace,
                    name: election.id,
                    identity: election.identity,
                    lease_duration: election.lease_duration,
                    renew_deadline: election.renew_deadline,
                    retry_period: election.retry_period,
                    address: address.map(|address| address.to_string()).unwrap_or_default(),
                };
                let start: leadership::Branch = Arc::new(move |ctx| drop(ctx.start_child(leader::spec(leader.clone()))));
                Branch::Elected(LeadershipArgs::new(ApiClient::new(access.clone()), lease, fence.clone(), standing, start))
            }
        };
        let reviewer = settings.metrics_secure.then(|| ApiClient::new(access));
        let args = RootArgs { http, rest: Rest::Cluster { reviewer, source, branch } };
        super::start_tree(system, lifecycle, args, addresses, installation, None).await
    }
}

/// Asks until there is an answer. Whoever waits for us can see by then that we live.
async fn ask<T>(question: impl AsyncFn() -> Result<T, ApiError>) -> Result<T, StartError> {
    for tries in 0_usize.. {
        match question().await {
            Ok(answer) => return Ok(answer),
            Err(error @ (ApiError::Timeout(_) | ApiError::Transport(_))) => {
                if tries.is_multiple_of(TOLD) {
                    tracing::warn!(%error, "WARNING: the API server does not answer, it is asked again");
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(StartError::Unavailable(unreadable(&error))),
        }
    }
    Err(StartError::Unavailable("the API server never answered".to_owned()))
}

/// Where a right is missing the id can be given; a token that nobody knows must be mended.
fn unreadable(error: &ApiError) -> String {
    let way_out = match error.code() {
        Some(401) => "the API server does not know who asks: look at the user of the kubeconfig, or at the ServiceAccount's token",
        Some(403) => "give the right to read it, or --installation-id",
        _ => "look at the kubeconfig and at the API server",
    };
    format!("the namespace kube-system cannot be read: {error}: {way_out}")
}

/// `None`: off. In one namespace what is there is not all there is (OP-25).
fn sweeper(settings: &RunSettings, installation: &InstallationId) -> Option<SweeperArgs> {
    let may = settings.namespace.is_none() || settings.gc_allow_namespaced;
    if !may && !settings.common.gc.interval.is_zero() {
        tracing::info!("orphans are not collected: only one namespace is looked at");
    }
    super::sweeper(&settings.common, installation).filter(|_| may)
}

/// Where other replicas reach our discovery API.
fn reached_at(bound: SocketAddr, pod: Option<IpAddr>) -> Option<SocketAddr> {
    if bound.ip().is_unspecified() { pod.map(|ip| SocketAddr::new(ip, bound.port())) } else { Some(bound) }
}
