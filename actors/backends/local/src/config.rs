//! What the composition root fills in from the providers file (LO-3) and from the process.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egress_config::providers::{FaultKnobs as Faults, LocalBlock};
use egress_protocol::metrics::Metrics;
use egress_protocol::net::AllowList;
use egress_protocol::{Clock, InstallationId};
use ipnet::{IpNet, Ipv4Net};

use crate::backend::Observer;
use crate::engine::{Resolve, SystemResolver, interface_addresses};

/// One entry of type `local`, validated.
#[derive(Debug, Clone)]
pub struct LocalConfig {
    /// The configured name; also the folder of its marks.
    pub entry: Arc<str>,
    /// Whose instances are ours (PC-43).
    pub installation: InstallationId,
    /// `listenAddresses`: an instance takes the first address on which its port is free.
    pub listen: Vec<Ipv4Net>,
    /// `sourceAddresses`; empty leaves the choice to the system.
    pub sources: Vec<IpAddr>,
    /// `allowedClients`.
    pub allowed_clients: Vec<IpNet>,
    /// `allowedTargets` and `--egress-allow` together (`AllowList::and`).
    pub allowed_targets: AllowList,
    /// Per instance.
    pub limits: Limits,
    /// Fault knobs, for the proxies that a pattern names; the first that fits counts.
    pub faults: Vec<Faults>,
    /// The state folder. Without one nothing is restored after a restart.
    pub state_dir: Option<PathBuf>,
}

impl LocalConfig {
    /// Whether a running backend of the one can go on as one of the other: what instances keep is the same.
    pub(crate) fn same_foundation(&self, other: &Self) -> bool {
        let of = |config: &Self| {
            (config.entry.clone(), config.installation.clone(), config.listen.clone(), config.sources.clone(), config.state_dir.clone())
        };
        of(self) == of(other)
    }

    /// What an entry says, with its defaults (LO-3); `egress_allow` is the process's own list.
    pub fn of(entry: impl Into<Arc<str>>, installation: InstallationId, block: &LocalBlock, egress_allow: &AllowList) -> Self {
        Self {
            entry: entry.into(),
            installation,
            listen: block.listen_addresses.clone(),
            sources: block.source_addresses.clone(),
            allowed_clients: block.allowed_clients.clone(),
            allowed_targets: block.allowed_targets.clone().and(egress_allow),
            limits: Limits::of(block),
            faults: block.faults.clone(),
            state_dir: None,
        }
    }

    /// The defaults of LO-3.
    pub fn new(entry: impl Into<Arc<str>>, installation: InstallationId) -> Self {
        Self::of(entry, installation, &LocalBlock::default(), &AllowList::default())
    }
}

/// What one instance may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `maxConnections`: client connections at a time, tunnels included.
    pub max_connections: usize,
    /// `maxHeaderBytes`: of a request's head.
    pub max_header_bytes: usize,
    /// `connectTimeout`: looking the name up and connecting, all addresses together.
    pub connect_timeout: Duration,
    /// `idleTimeout`: without a byte in either direction.
    pub idle_timeout: Duration,
}

impl Limits {
    fn of(block: &LocalBlock) -> Self {
        let size = |number| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            max_connections: size(block.max_connections),
            max_header_bytes: size(block.max_header_bytes),
            connect_timeout: block.connect_timeout,
            idle_timeout: block.idle_timeout,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(&LocalBlock::default())
    }
}

/// Reads this machine's own addresses.
pub(crate) type Interfaces = Arc<dyn Fn() -> std::io::Result<Vec<IpAddr>> + Send + Sync>;

/// What the backend touches outside itself, so that tests can stand in for it.
#[derive(Clone)]
pub struct Outside {
    /// The process's clock.
    pub clock: Clock,
    /// Looks names up.
    pub resolver: Arc<dyn Resolve>,
    /// Reads this machine's own addresses.
    pub interfaces: Arc<dyn Fn() -> std::io::Result<Vec<IpAddr>> + Send + Sync>,
    /// Counts clients that were refused for want of room.
    pub metrics: Metrics,
    /// Told what is made and removed; for tests.
    pub observer: Option<Observer>,
}

impl Outside {
    /// The system's resolver and interfaces.
    pub fn system(clock: Clock) -> Self {
        Self {
            clock,
            resolver: Arc::new(SystemResolver::default()),
            interfaces: Arc::new(interface_addresses),
            metrics: Metrics::default(),
            observer: None,
        }
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").field("clock", &self.clock).finish_non_exhaustive()
    }
}
