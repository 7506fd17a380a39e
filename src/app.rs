//! Settings → a running tree → an exit code (OP-2, OP-4, OP-5).
//!
//! [`App::start`] is what tests use; [`run`] is what the command does with it: logging, signals, what is printed.
//!
//! What must stay true: whatever can be wrong with the settings is found before the first actor starts, and is exit 2;
//! a tree that ends by itself is exit 3; an orderly stop waits for every part and is exit 0.

mod clock;
mod cluster;
mod leader;
mod listeners;
mod open_files;
pub(crate) mod providers;
mod root;
mod run;
mod waiting;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use egress_backend_local::Observer;
use egress_config::cli::{BindAddress, CommonSettings, Objects, StandaloneSettings, TokenSource};
use egress_lease::BookSettings;
use egress_manifests::{ManifestFolders, ManifestsArgs, StateFolder};
use egress_monitor::MonitorArgs;
use egress_prober::{Guard, GuardPolicy, ProbeSettings};
use egress_protocol::leadership::{Fence, Standing, StandingCell};
use egress_protocol::metrics::Metrics;
use egress_protocol::net::AllowList;
use egress_protocol::{Clock, InstallationId};
use egress_supervision::{ChildSpec, Failure, System};
use egress_sweeper::SweeperArgs;
use egress_sweeper::sweep::Rules;

use crate::demo::{self, Demo};
use crate::http::actor::HttpArgs;
use crate::http::auth::Tokens;
use crate::http::connection::Limits;
use crate::http::debug::Debug;
use crate::http::discovery::Discovery;
use crate::http::health::{self, Health};
use crate::http::listener::ListenerArgs;
use crate::http::metrics::Exposition;
use crate::http::tls::Tls;
use crate::lifecycle::Lifecycle;
use leader::LeaderArgs;
use listeners::Bound;
use root::{Rest, Root, RootArgs};

pub use run::{Way, run};

/// More messages than this wait for the broker: calls are shed (SV-3). About a tenth of a second of its work.
const BROKER_BACKLOG: u64 = 10_000;
/// The listener that `--metrics-secure` is about.
const METRICS: &str = "metrics";
/// Connections of a listener beside those that may wait for a lease (LS-23).
const CONNECTIONS: usize = 1000;
/// How long tunnels may end on an orderly stop (OP-5).
const STOP_GRACE: Duration = Duration::from_secs(10);
/// The whole stop; each part has its own limit below this.
const STOP: Duration = Duration::from_secs(60);

/// What of the outside world tests stand in for.
#[derive(Clone)]
pub struct Ports {
    /// The clock of the process.
    pub clock: Clock,
    /// Told what the `local` backend makes and removes.
    pub local_observer: Option<Observer>,
}

impl std::fmt::Debug for Ports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ports").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Default for Ports {
    fn default() -> Self {
        Self { clock: Clock::system(), local_observer: None }
    }
}

/// Why nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings do not fit the machine: exit 2.
    #[error("{0}")]
    Settings(String),
    /// What is needed does not answer: exit 3.
    #[error("{0}")]
    Unavailable(String),
    /// A part did not start: exit 3.
    #[error("the tree did not start: {0}")]
    Tree(#[from] Failure),
}

impl StartError {
    fn settings(error: impl std::fmt::Display) -> Self {
        Self::Settings(error.to_string())
    }

    /// OP-4.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_) => 2,
            Self::Unavailable(_) | Self::Tree(_) => 3,
        }
    }
}

/// Where the process listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The API.
    pub discovery: SocketAddr,
    /// OB-4.
    pub debug: Option<SocketAddr>,
    /// OB-1.
    pub metrics: Option<SocketAddr>,
    /// OB-5.
    pub health: Option<SocketAddr>,
    /// The demonstration's endpoint.
    pub demonstration: Option<SocketAddr>,
}

/// The composition.
#[derive(Debug)]
pub struct App;

impl App {
    /// Starts everything that the settings ask for.
    pub async fn start(settings: StandaloneSettings) -> Result<Running, StartError> {
        Self::start_with(settings, Ports::default()).await
    }

    /// The same on other ports.
    pub async fn start_with(settings: StandaloneSettings, ports: Ports) -> Result<Running, StartError> {
        let installation = settings.common.installation.as_ref().map(InstallationId::as_str);
        let state = StateFolder::open(&settings.state, installation).map_err(StartError::settings)?;
        let installation = state.installation().clone();
        tracing::info!(state = %state.path().display(), installation = installation.as_str(), "state folder opened");

        let records = state.objects().map_err(StartError::settings)?;
        let (demo, folders) = match &settings.objects {
            Objects::Demonstration => {
                let demo = Demo::prepare(state.path()).map_err(StartError::settings)?;
                let folders = ManifestFolders::demonstration(demo.proxies.clone());
                (Some(demo), folders)
            }
            Objects::Folders(given) => (None, ManifestFolders::open(given, &records).map_err(StartError::settings)?),
        };
        let common = &settings.common;
        let probes = probe_settings(common, GuardPolicy::default())?;
        let system = System::new(ports.clock, Metrics::new(common.per_proxy_metrics).shared());
        let lifecycle = Lifecycle::default();
        // In a demonstration the built-in entry may reach the endpoint, that address and port only.
        let endpoint = demo.as_ref().map(|demo| AllowList::parse(&[demo.address.to_string()])).transpose();
        let endpoint = endpoint.map_err(|faults| StartError::Settings(faults.join("\n")))?.unwrap_or_default();
        let around = providers::Surroundings {
            state: Some(state.path().to_owned()),
            installation: installation.clone(),
            egress_allow: common.egress_allow.clone().and(&endpoint),
            cluster: providers::Cluster::default(),
            fence: Fence::open(),
            stop_grace: STOP_GRACE,
            ports,
            metrics: Metrics::clone(system.metrics()),
            gcp_full_payloads: settings.common.gcp_full_payloads,
        };
        let providers = providers::of(common, around);
        let objects = records.len().max(demo.as_ref().map_or(1, |demo| demo.proxies.len()));
        open_files::raise(files_needed(common, objects));

        let front = Front { standing: StandingCell::new(Standing::Alone), metrics_tls: None };
        let (http, addresses) = serve(common, bind(common)?, demo, &system, &lifecycle, &installation, front)?;
        let leader = LeaderArgs {
            providers,
            leases: book_settings(common),
            installation: installation.clone(),
            machine: machine_settings(common),
            probes,
            sweeper: sweeper(common, &installation),
            health: None,
            monitor: monitor(common, Fence::open()),
        };
        let rest = Rest::Standalone { source: ManifestsArgs::new(state.clone(), folders), leader: Box::new(leader) };
        let args = RootArgs { http, rest };
        start_tree(system, lifecycle, args, addresses, installation, Some(state.path().to_owned())).await
    }
}

/// Starts the root and what is below it.
async fn start_tree(
    system: System,
    lifecycle: Lifecycle,
    args: RootArgs,
    addresses: Addresses,
    installation: InstallationId,
    state: Option<PathBuf>,
) -> Result<Running, StartError> {
    system.metrics().providers_config_valid.set(1);
    let mut spec = ChildSpec::<Root>::essential("root", args);
    spec.policy.stop_timeout = STOP;
    let root = system.start_root(spec).await?;
    lifecycle.set_started();
    tracing::info!("started");
    Ok(Running { addresses, installation, state, system, lifecycle, root })
}

/// A running process. Dropping it kills every part.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub addresses: Addresses,
    /// Which operator it is.
    pub installation: InstallationId,
    /// The state folder, absolute; a cluster needs none.
    pub state: Option<PathBuf>,
    system: System,
    lifecycle: Lifecycle,
    root: egress_supervision::Root,
}

impl Running {
    /// The tree.
    pub const fn system(&self) -> &System {
        &self.system
    }

    /// Resolves when the tree ended by itself: exit 3.
    pub async fn failed(&mut self) -> Failure {
        self.root.failed().await
    }

    /// The end as SIGTERM asks for it (OP-5): not ready and no more leases, then every part in reverse order, the
    /// listeners last.
    pub async fn stop(self) {
        self.lifecycle.set_stopping();
        tracing::info!("stopping");
        self.root.stop().await;
        tracing::info!("stopped");
    }
}

/// Where a cluster is refused things, `policy` says so; the exceptions are the settings'.
fn probe_settings(settings: &CommonSettings, policy: GuardPolicy) -> Result<Arc<ProbeSettings>, StartError> {
    let roots = match &settings.check_ca_file {
        None => None,
        Some(path) => Some(egress_config::open::read(path).map_err(|error| named("--check-ca-file", path, error))?),
    };
    let tls = egress_prober::tls::client_config(roots.as_deref()).map_err(|error| match &settings.check_ca_file {
        Some(path) => named("--check-ca-file", path, error),
        None => StartError::settings(error),
    })?;
    let guard = Guard::new(GuardPolicy {
        endpoint_allow: settings.endpoint_allow.clone(),
        check_url_allow: settings.check_url_allow.clone(),
        ..policy
    });
    let mut probes = ProbeSettings::new(tls, guard);
    probes.traced = settings.trace_health_probes;
    Ok(Arc::new(probes))
}

fn named(flag: &str, path: &Path, error: impl std::fmt::Display) -> StartError {
    StartError::Settings(format!("{flag} {}: {error}", path.display()))
}

fn book_settings(settings: &CommonSettings) -> BookSettings {
    BookSettings {
        default_ttl: settings.leases.default_ttl,
        max_ttl: settings.leases.max_ttl,
        drain_timeout: settings.leases.drain_timeout,
        grace: settings.leases.grace,
        ..BookSettings::default()
    }
}

fn machine_settings(settings: &CommonSettings) -> egress_proxy::Settings {
    egress_proxy::Settings {
        poll_provisioning: settings.polls.provisioning,
        poll_deletion: settings.polls.deletion,
        poll_drift: settings.polls.drift,
        quota_retry: settings.polls.quota_retry,
        backoff_max: settings.polls.backoff_max,
        max_unavailable: settings.max_unavailable,
        drain_timeout: settings.leases.drain_timeout,
        ..egress_proxy::Settings::default()
    }
}

/// `None`: off.
fn sweeper(settings: &CommonSettings, installation: &InstallationId) -> Option<SweeperArgs> {
    let gc = settings.gc;
    let max_deletes = usize::try_from(gc.max_deletes).unwrap_or(usize::MAX);
    let rules = Rules { installation: installation.clone(), min_age: gc.min_age, max_deletes };
    (!gc.interval.is_zero()).then_some(SweeperArgs { interval: gc.interval, rules, dry_run: gc.dry_run })
}

/// `None`: off.
fn monitor(settings: &CommonSettings, fence: Fence) -> Option<MonitorArgs> {
    let checks = settings.checks;
    (!checks.interval.is_zero()).then_some(MonitorArgs { interval: checks.interval, timeout: checks.timeout, fence })
}

fn connections(settings: &CommonSettings) -> usize {
    usize::try_from(settings.leases.queue_limit).unwrap_or(usize::MAX).saturating_add(CONNECTIONS)
}

/// Two files for each connection of a local proxy, one for each of ours, one for each probe, and some to live.
fn files_needed(settings: &CommonSettings, objects: usize) -> u64 {
    let proxies = providers::connections(&settings.providers).saturating_mul(2).saturating_mul(objects);
    let all = connections(settings).saturating_add(proxies).saturating_add(2 * objects).saturating_add(256);
    u64::try_from(all).unwrap_or(u64::MAX)
}

/// What the listeners of a cluster have beside those of `standalone`.
struct Front {
    standing: StandingCell,
    /// `--metrics-secure`.
    metrics_tls: Option<Tls>,
}

/// The sockets of the listeners, and who may come in.
#[derive(Debug)]
struct Doors {
    discovery: Bound,
    debug: Option<Bound>,
    metrics: Option<Bound>,
    health: Option<Bound>,
    tokens: Tokens,
    token_file: Option<(PathBuf, Tokens)>,
    /// `None` on loopback.
    debug_tokens: Option<Tokens>,
}

/// Binds every listener. All addresses that cannot be had are told at once.
fn bind(settings: &CommonSettings) -> Result<Doors, StartError> {
    let (tokens, token_file) = match &settings.tokens {
        TokenSource::Open => (Tokens::open(), None),
        TokenSource::Variable(tokens) => (Tokens::of(tokens.clone()), None),
        TokenSource::File { path, tokens } => {
            let tokens = Tokens::of(tokens.clone());
            (tokens.clone(), Some((path.clone(), tokens)))
        }
    };
    if tokens.is_open() {
        tracing::warn!("WARNING: the discovery API is open to everybody who can reach it: set DISCOVERY_TOKEN or --discovery-token-file");
    }
    let debug_tokens = settings.debug.is_some_and(|debug| !debug.is_loopback()).then(|| tokens.clone());
    let mut faults = Vec::new();
    if debug_tokens.as_ref().is_some_and(|tokens| !tokens.someone_may_do_all()) {
        faults.push("--debug-bind-address: off loopback the debug endpoint needs a token that may do all".to_owned());
    }
    let mut bind = |name, flag, wanted: Option<BindAddress>| {
        let bound = Bound::bind(name, flag, wanted?);
        bound.map_err(|fault| faults.push(fault)).ok()
    };
    let discovery = bind("discovery", "discovery-bind-address", Some(settings.discovery));
    let debug = bind("debug", "debug-bind-address", settings.debug);
    let metrics = bind(METRICS, "metrics-bind-address", settings.metrics);
    let health = bind("health", "health-probe-bind-address", settings.health);
    match (discovery, faults.is_empty()) {
        (Some(discovery), true) => Ok(Doors { discovery, debug, metrics, health, tokens, token_file, debug_tokens }),
        _ => Err(StartError::Settings(faults.join("\n"))),
    }
}

/// Lays out what each listener serves.
fn serve(
    settings: &CommonSettings,
    doors: Doors,
    demo: Option<Demo>,
    system: &System,
    lifecycle: &Lifecycle,
    installation: &InstallationId,
    front: Front,
) -> Result<(HttpArgs, Addresses), StartError> {
    let Doors { discovery, debug, metrics, health: probe, tokens, token_file, debug_tokens } = doors;
    let demonstration = demo.map(|demo| Bound::ready("demonstration", demo.endpoint, demo.address));
    let at = |bound: &Option<Bound>| bound.as_ref().map(|bound| bound.address);
    let addresses = Addresses {
        discovery: discovery.address,
        debug: at(&debug),
        metrics: at(&metrics),
        health: at(&probe),
        demonstration: at(&demonstration),
    };

    let Front { standing, metrics_tls } = front;
    let health = Health::new(system, lifecycle.clone(), installation.clone(), standing.clone(), false);
    let limits = Limits { connections: connections(settings), ..Limits::default() };
    let small = Limits { connections: CONNECTIONS, ..Limits::default() };
    // Answers at once to whoever asks once.
    let probes = Limits { head: Duration::from_secs(1), spared: Duration::from_millis(10), uses_reserve: true, ..small };
    let api = Discovery::new(system, tokens.clone(), lifecycle.clone(), standing, limits.body, BROKER_BACKLOG);
    let mut sites = vec![(discovery, api.routes().merge(health::routes(health.clone(), tokens)), limits)];
    sites.extend(debug.map(|bound| (bound, Debug::new(system.clone(), debug_tokens).routes(), small)));
    let exposition = Exposition::new(system);
    let exposition = if metrics_tls.is_some() { exposition.reviewed(system) } else { exposition };
    sites.extend(metrics.map(|bound| (bound, exposition.routes(), small)));
    sites.extend(probe.map(|bound| (bound, health::routes(health, Tokens::open()), probes)));
    sites.extend(demonstration.map(|bound| (bound, demo::routes(), limits)));
    let listeners = sites.into_iter().map(|(bound, router, limits)| bound.serving(router, limits));
    let listeners = listeners.collect::<std::io::Result<Vec<_>>>().map_err(StartError::settings)?;
    let secured = |listener: ListenerArgs| match &metrics_tls {
        Some(tls) if listener.name == METRICS => listener.secured(tls.clone()),
        _ => listener,
    };
    let listeners = listeners.into_iter().map(secured).collect();
    Ok((HttpArgs { listeners, token_file }, addresses))
}

#[cfg(test)]
mod tests;
