//! The calls of libvirt that the engine makes, one method each, so that a test can replace each (LV-234); and how they are
//! made on a link: each within its budget (LV-88).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egress_libvirt::procedures::*;
use egress_libvirt::{Client, Error as LibvirtCallError, LibvirtError};
use futures::future::BoxFuture;
use tokio::time::Instant;

/// What an ordinary call may take.
pub const ORDINARY: Duration = Duration::from_secs(30);

/// How a call ends.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, RpcError>>;

macro_rules! rpc {
    ($($(#[$about:meta])* $method:ident: $procedure:ident within $budget:expr;)*) => {
        /// libvirt on one host. `until` is when the caller's time is over; a call's own budget may end before.
        pub trait Rpc: Send + Sync {
            $($(#[$about])* fn $method(&self, call: $procedure, until: Instant) -> Answer<'_, <$procedure as Procedure>::Reply>;)*
        }

        impl Rpc for Wire {
            $(fn $method(&self, call: $procedure, until: Instant) -> Answer<'_, <$procedure as Procedure>::Reply> {
                Box::pin(self.call(call, $budget, until))
            })*
        }
    };
}

rpc! {
    /// Finds a domain.
    domain_lookup_by_name: DomainLookupByName within ORDINARY;
    /// Reads a mark.
    domain_get_metadata: DomainGetMetadata within ORDINARY;
    /// What it does.
    domain_get_state: DomainGetState within ORDINARY;
    /// Its definition.
    domain_get_xml_desc: DomainGetXmlDesc within ORDINARY;
    /// Its addresses, of one source.
    domain_interface_addresses: DomainInterfaceAddresses within ORDINARY;
    /// Pulls its plug.
    domain_destroy: DomainDestroy within ORDINARY;
    /// Makes it unknown.
    domain_undefine_flags: DomainUndefineFlags within ORDINARY;
    /// All domains.
    connect_list_all_domains: ConnectListAllDomains within ORDINARY;
    /// Finds a pool.
    storage_pool_lookup_by_name: StoragePoolLookupByName within ORDINARY;
    /// How full it is.
    storage_pool_get_info: StoragePoolGetInfo within ORDINARY;
    /// What is in it.
    storage_pool_list_all_volumes: StoragePoolListAllVolumes within ORDINARY;
    /// Finds a volume.
    storage_vol_lookup_by_name: StorageVolLookupByName within ORDINARY;
    /// Deletes it.
    storage_vol_delete: StorageVolDelete within ORDINARY;
}

/// A call that failed.
#[derive(Debug, Clone)]
pub struct RpcError {
    /// Which.
    pub rpc: &'static str,
    /// Where.
    pub host: Arc<str>,
    /// What it might take; none if the caller's time ended before.
    pub budget: Option<Duration>,
    /// How it ended.
    pub error: LibvirtCallError,
}

impl RpcError {
    /// What libvirt answered, if it did. Anything else says nothing about what was asked for (LV-83).
    pub fn said(&self) -> Option<&LibvirtError> {
        self.error.libvirt()
    }

    /// Whether libvirt answered with this code.
    pub fn is(&self, code: i32) -> bool {
        self.said().is_some_and(|said| said.code == code)
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libvirt call {} on {}", self.rpc, self.host)?;
        match (&self.error, self.budget) {
            (LibvirtCallError::Deadline { sent: false, .. }, _) => f.write_str(" not started"),
            (LibvirtCallError::Deadline { sent: true, .. }, Some(budget)) => write!(f, " exceeded its {budget:?} budget"),
            (LibvirtCallError::Deadline { sent: true, .. }, None) => f.write_str(" abandoned"),
            (LibvirtCallError::Libvirt { error, .. }, _) => write!(f, ": {error}"),
            (LibvirtCallError::Closed { closed, .. }, _) => write!(f, ": {closed}"),
            (other, _) => write!(f, ": {other}"),
        }
    }
}

impl std::error::Error for RpcError {}

/// A link to one host.
#[derive(Debug, Clone)]
pub struct Wire {
    client: Client,
    host: Arc<str>,
}

impl Wire {
    /// Over a link that is open.
    pub fn new(client: Client, host: impl Into<Arc<str>>) -> Self {
        Self { client, host: host.into() }
    }

    async fn call<P: Procedure>(&self, call: P, budget: Duration, until: Instant) -> Result<P::Reply, RpcError> {
        let own = Instant::now() + budget;
        let failed = |error| RpcError { rpc: P::NAME, host: Arc::clone(&self.host), budget: (own <= until).then_some(budget), error };
        if until <= Instant::now() {
            return Err(failed(LibvirtCallError::Deadline { procedure: P::NAME, sent: false }));
        }
        self.client.call(call, own.min(until)).await.map_err(failed)
    }
}

#[cfg(test)]
mod tests;
