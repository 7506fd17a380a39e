//! What the composition root fills in from the providers file (LO-3) and from the process.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::net::AllowList;
use egress_protocol::provider::ErrorClass;
use egress_protocol::{Clock, InstallationId};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

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

    /// The defaults of LO-3.
    pub fn new(entry: impl Into<Arc<str>>, installation: InstallationId) -> Self {
        Self {
            entry: entry.into(),
            installation,
            listen: vec![Ipv4Net::from(Ipv4Addr::LOCALHOST)],
            sources: Vec::new(),
            allowed_clients: default_clients(),
            allowed_targets: AllowList::default(),
            limits: Limits::default(),
            faults: Vec::new(),
            state_dir: None,
        }
    }
}

/// Loopback only.
fn default_clients() -> Vec<IpNet> {
    let v4 = Ipv4Net::new(Ipv4Addr::new(127, 0, 0, 0), 8).map(IpNet::V4);
    v4.into_iter().chain([IpNet::V6(Ipv6Net::from(Ipv6Addr::LOCALHOST))]).collect()
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

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_header_bytes: 16384,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
        }
    }
}

/// Fault knobs for rehearsals (LO-1).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    /// `NAMESPACE/NAME` patterns, `*` stands for any characters.
    pub proxies: Vec<String>,
    /// Added before every request.
    pub latency: Option<Duration>,
    /// Requests served before the rest are refused (403).
    pub refuse_after: Option<u64>,
    /// Every request is answered 407.
    pub proxy_auth: bool,
    /// Share of connections that are reset at their first request.
    pub reset_ratio: f64,
    /// Share of requests that fail (502).
    pub fail_ratio: f64,
    /// `create` fails with this class.
    pub create_error: Option<ErrorClass>,
}

impl Faults {
    /// Whether a pattern names this proxy.
    pub fn name(&self, namespace: &str, proxy: &str) -> bool {
        self.name_key(&format!("{namespace}/{proxy}"))
    }

    /// The same for `NAMESPACE/NAME`.
    pub(crate) fn name_key(&self, key: &str) -> bool {
        self.proxies.iter().any(|pattern| matches(pattern.as_bytes(), key.as_bytes()))
    }
}

/// `*` stands for any number of characters.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
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
    /// Told what is made and removed; for tests.
    pub observer: Option<Observer>,
}

impl Outside {
    /// The system's resolver and interfaces.
    pub fn system(clock: Clock) -> Self {
        Self { clock, resolver: Arc::new(SystemResolver::default()), interfaces: Arc::new(interface_addresses), observer: None }
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").field("clock", &self.clock).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_proxies_with_stars() {
        for (pattern, key, fits) in [
            ("default/px-1", ("default", "px-1"), true),
            ("default/px-1", ("default", "px-10"), false),
            ("default/*", ("default", "px-10"), true),
            ("*/px-1", ("shop", "px-1"), true),
            ("*", ("shop", "px-1"), true),
            ("*/px-*-eu", ("shop", "px-1-us-eu"), true),
            ("*/px-*-eu", ("shop", "px-1-eu-1"), false),
            ("", ("shop", "px-1"), false),
        ] {
            let faults = Faults { proxies: vec![pattern.to_owned()], ..Faults::default() };
            assert_eq!(faults.name(key.0, key.1), fits, "{pattern} on {key:?}");
        }
    }
}
