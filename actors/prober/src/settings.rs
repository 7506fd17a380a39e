//! What all probers of a process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use egress_protocol::Timestamp;
use rustls::ClientConfig;

use crate::guard::Guard;
use crate::resolve::Resolver;
use crate::schedule::Ramp;
use crate::targets::Targets;

/// Built once; probers hold an `Arc` of it.
#[derive(Debug)]
pub struct ProbeSettings {
    /// Trust and parameters of the handshake with targets; see [`crate::tls::client_config`].
    pub tls: Arc<ClientConfig>,
    /// What is refused (HE-10).
    pub guard: Guard,
    /// How names are looked up.
    pub resolver: Resolver,
    /// Bounds first probes (HE-6).
    pub ramp: Ramp,
    /// `--trace-health-probes`: one root span `health.probe` per probe (HE-8).
    pub traced: bool,
    pub(crate) targets: Targets,
    complaint: AtomicI64,
}

impl ProbeSettings {
    /// With the system's resolver and the ramp of HE-6.
    pub fn new(tls: Arc<ClientConfig>, guard: Guard) -> Self {
        Self {
            tls,
            guard,
            resolver: Resolver::system(),
            ramp: Ramp::default(),
            traced: false,
            targets: Targets::default(),
            complaint: AtomicI64::new(i64::MIN),
        }
    }

    /// The same with another resolver; for tests.
    #[must_use]
    pub fn with_resolver(self, resolver: Resolver) -> Self {
        Self { resolver, ..self }
    }

    /// Whether a fault of this machine that stops all probes may be logged now: at most every 10 s.
    pub(crate) fn may_complain(&self, now: Timestamp) -> bool {
        let due = |last: i64| (now.as_millis() >= last.saturating_add(10_000)).then_some(now.as_millis());
        self.complaint.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }

    pub(crate) fn interval(check: &egress_protocol::resource::HealthCheck) -> Duration {
        Duration::from_secs(u64::from(check.interval_seconds.max(1)))
    }
}
