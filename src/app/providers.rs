//! Entries of the providers file → backends: the one place that knows every backend's constructor. The types are those
//! of [`egress_config::providers`]; a new one is a new arm of [`backend`] and of [`settings`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egress_backend_gcp::{GcpBackend, GcpConfig};
use egress_backend_kubernetes::{KubernetesBackend, KubernetesConfig};
use egress_backend_local::{LocalBackend, LocalConfig, Outside};
use egress_config::cli::CommonSettings;
use egress_config::providers::gcp::GcpBlock;
use egress_config::providers::{KubernetesBlock, LocalBlock, ProviderBlock, ProviderEntry, ProvidersConfig};
use egress_kube::{Access, ApiClient};
use egress_protocol::InstallationId;
use egress_protocol::leadership::Fence;
use egress_protocol::metrics::Metrics;
use egress_protocol::net::AllowList;
use egress_protocol::provider::Settings;
use egress_provider::{Backend, BuildBackend, Ground, MakeEntries, ProviderArgs, ProvidersArgs};
use egress_supervision::Failure;

use crate::app::Ports;

/// What every backend may need from the process.
#[derive(Debug, Clone)]
pub(super) struct Surroundings {
    /// `None`: nothing is kept.
    pub(super) state: Option<PathBuf>,
    pub(super) installation: InstallationId,
    pub(super) egress_allow: AllowList,
    pub(super) cluster: Cluster,
    /// Closed: no call starts (SV-4).
    pub(super) fence: Fence,
    /// How long tunnels may end on an orderly stop (OP-5).
    pub(super) stop_grace: Duration,
    pub(super) ports: Ports,
    pub(super) metrics: Metrics,
    /// `--gcp-wire-log-full-payloads` (GC-2).
    pub(super) gcp_full_payloads: bool,
}

/// The cluster that Pods are made in.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    pub(super) access: Access,
    /// Whether the Proxies are objects there (K8-7).
    pub(super) has_the_proxies: bool,
    /// `--proxy-namespace` (OP-25).
    pub(super) namespace: Option<Arc<str>>,
}

/// Every entry with its backend's constructor. What is doubtful about the file is logged.
pub(super) fn of(settings: &CommonSettings, around: Surroundings) -> ProvidersArgs {
    for warning in &settings.providers.warnings {
        tracing::warn!(warning, "WARNING: providers file");
    }
    if around.gcp_full_payloads {
        tracing::warn!("WARNING: --gcp-wire-log-full-payloads: at log level gcp::wire=trace bodies of calls to Google Cloud are logged");
    }
    let make: MakeEntries = Arc::new(move |config| config.entries.iter().map(|entry| made(entry, &around)).collect());
    let entries = ProvidersArgs::new(make(&settings.providers));
    match &settings.providers_file {
        None => entries,
        Some(path) => entries.following(path.clone(), make),
    }
}

/// An entry with its backend's constructor. Dials nothing, reads nothing.
fn made(entry: &ProviderEntry, around: &Surroundings) -> egress_provider::ProviderEntry {
    let (type_, fingerprint, foundation) = (entry.type_name(), entry.fingerprint.clone(), entry.foundation.clone());
    let (name, max_concurrent_creates) = (Arc::clone(&entry.name), size(entry.max_concurrent_creates));
    let settings = settings(entry, around);
    let (stop_grace, fence) = (around.stop_grace, around.fence.clone());
    let (entry, around) = (entry.clone(), around.clone());
    let build: BuildBackend = Arc::new(move |ground| backend(&entry, &around, ground));
    let args = ProviderArgs { name, max_concurrent_creates, stop_grace, fence, build };
    egress_provider::ProviderEntry { type_, fingerprint, foundation, settings, args }
}

/// The entries for a round of checks, which changes nothing (PH-30): nothing is kept and no file is followed (PH-48).
pub(crate) fn for_a_check(config: &ProvidersConfig) -> Vec<egress_provider::ProviderEntry> {
    let around = Surroundings {
        state: None,
        installation: InstallationId::new("check"),
        egress_allow: AllowList::default(),
        cluster: Cluster::default(),
        fence: Fence::open(),
        stop_grace: Duration::ZERO,
        ports: Ports::default(),
        metrics: Metrics::default(),
        gcp_full_payloads: false,
    };
    config.entries.iter().map(|entry| made(entry, &around)).collect()
}

/// How many connections one proxy may have, of whatever entry allows most.
pub(super) fn connections(config: &ProvidersConfig) -> usize {
    let of = |entry: &ProviderEntry| match &entry.block {
        ProviderBlock::Local(block) => size(block.max_connections),
        ProviderBlock::Kubernetes(_)
        | ProviderBlock::Gcp(_)
        | ProviderBlock::Kvm(_)
        | ProviderBlock::Kvm2(_)
        | ProviderBlock::Proxmox(_) => 0,
    };
    config.entries.iter().map(of).max().unwrap_or_default()
}

fn backend(entry: &ProviderEntry, around: &Surroundings, ground: &Ground) -> Result<Arc<dyn Backend>, Failure> {
    Ok(match &entry.block {
        ProviderBlock::Local(block) => {
            let outside = Outside {
                metrics: around.metrics.clone(),
                observer: around.ports.local_observer.clone(),
                ..Outside::system(around.ports.clock)
            };
            Arc::new(LocalBackend::new(local(entry, block, around), outside, Arc::new(ground.clone())))
        }
        ProviderBlock::Kubernetes(block) => {
            let client = ApiClient::new(around.cluster.access.clone());
            Arc::new(KubernetesBackend::new(kubernetes(entry, block, around), client, ground))
        }
        ProviderBlock::Gcp(block) => Arc::new(GcpBackend::new(gcp(entry, block, around), ground, around.ports.clock)?),
        // No file can name them yet: `config` has their blocks and does not register the types.
        ProviderBlock::Kvm(_) | ProviderBlock::Kvm2(_) | ProviderBlock::Proxmox(_) => {
            return Err(Failure::new(format!("providers of type {} are not supported by this version", entry.type_name())));
        }
    })
}

/// What a running backend of that type takes over when the entry changed in nothing that needs a restart.
fn settings(entry: &ProviderEntry, around: &Surroundings) -> Settings {
    match &entry.block {
        ProviderBlock::Local(block) => Arc::new(local(entry, block, around)),
        ProviderBlock::Gcp(block) => Arc::new(gcp(entry, block, around).live),
        ProviderBlock::Kubernetes(_) | ProviderBlock::Kvm(_) | ProviderBlock::Kvm2(_) | ProviderBlock::Proxmox(_) => Arc::new(()),
    }
}

fn local(entry: &ProviderEntry, block: &LocalBlock, around: &Surroundings) -> LocalConfig {
    let config = LocalConfig::of(Arc::clone(&entry.name), around.installation.clone(), block, &around.egress_allow);
    LocalConfig { state_dir: around.state.clone(), ..config }
}

fn gcp(entry: &ProviderEntry, block: &GcpBlock, around: &Surroundings) -> GcpConfig {
    GcpConfig::of(Arc::clone(&entry.name), around.installation.clone(), block, around.gcp_full_payloads)
}

fn kubernetes(entry: &ProviderEntry, block: &KubernetesBlock, around: &Surroundings) -> KubernetesConfig {
    let config = KubernetesConfig::of(Arc::clone(&entry.name), around.installation.clone(), block);
    KubernetesConfig { owned: around.cluster.has_the_proxies, namespace: around.cluster.namespace.clone(), ..config }
}

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
