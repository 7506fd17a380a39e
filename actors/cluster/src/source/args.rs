//! What the source is started from.

use std::sync::Arc;
use std::time::Duration;

use egress_kube::ApiClient;
use egress_protocol::leadership::Fence;
use egress_protocol::source;
use egress_supervision::ChildSpec;

use super::ClusterSource;
use crate::paths::Scope;

/// What the source is started from.
#[derive(Debug, Clone)]
pub struct SourceArgs {
    /// Its own.
    pub client: ApiClient,
    /// Which objects (OP-25).
    pub scope: Scope,
    /// Asked before every write (SV-4).
    pub fence: Fence,
    /// Who reports Events: the Pod's name.
    pub reporter: Arc<str>,
    /// How often and how long.
    pub pace: Pace,
}

impl SourceArgs {
    /// With the usual pace.
    pub fn new(client: ApiClient, scope: Scope, fence: Fence, reporter: impl Into<Arc<str>>) -> Self {
        Self { client, scope, fence, reporter: reporter.into(), pace: Pace::default() }
    }
}

/// How often and how long.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// A watch without a byte for this long is reopened (OP-29).
    pub idle: Duration,
    /// Between tries, from and to; jitter takes up to half of it.
    pub retry: (Duration, Duration),
    /// A watch that lasted this long has shown that it works.
    pub lasting: Duration,
    /// Objects of one page of a list.
    pub page: u32,
    /// The Secrets are waited for this long after the Proxies are known.
    pub secrets: Duration,
    /// A failure that lasts is told to a person after this long.
    pub patience: Duration,
    /// So many writes at once.
    pub writes: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(90),
            retry: (Duration::from_millis(500), Duration::from_secs(10)),
            lasting: Duration::from_secs(5),
            page: 200,
            secrets: Duration::from_secs(30),
            patience: Duration::from_secs(15),
            writes: 32,
        }
    }
}

/// The child to start: its id is `source`, and the process does not outlive it (SV-2).
pub fn spec(args: SourceArgs) -> ChildSpec<ClusterSource> {
    ChildSpec::essential(source::ACTOR_ID, args)
}
