//! What the operations do on one host, over the seam of [`Rpc`](crate::rpc::Rpc): read, delete, list (§10, §11).
//!
//! An operation owns nothing between two calls of libvirt and changes nothing that it cannot repeat: dropped at any await and
//! begun anew, it ends the same.

mod delete;
mod get;
mod list;
mod owned;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use egress_libvirt::procedures::{StoragePool, StoragePoolLookupByName, StorageVolDelete, StorageVolLookupByName};
use egress_provider::BackendError;
use tokio::time::Instant;

use crate::class::{During, code, failed};
use crate::profile::Profile;
use crate::rpc::Rpc;
use crate::settings::Host;

pub use delete::delete;
pub use get::get;
pub use list::{HostListing, list};

/// On which host an operation works, and until when.
#[derive(Clone, Copy)]
pub struct On<'a> {
    /// The type.
    pub profile: Profile,
    /// The host.
    pub host: &'a Host,
    /// Its libvirt.
    pub rpc: &'a dyn Rpc,
    /// When the caller's time is over.
    pub until: Instant,
}

impl std::fmt::Debug for On<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("On").field("profile", &self.profile.block).field("host", &self.host.name).finish_non_exhaustive()
    }
}

impl On<'_> {
    /// The pool of this name, or none if there is none.
    async fn pool(&self, name: &str) -> Result<Option<StoragePool>, BackendError> {
        match self.rpc.storage_pool_lookup_by_name(StoragePoolLookupByName { name: name.to_owned() }, self.until).await {
            Ok(pool) => Ok(Some(pool)),
            Err(error) if error.is(code::NO_STORAGE_POOL) => Ok(None),
            Err(error) => Err(failed(error, During::Other, "looking up the storage pool")),
        }
    }

    /// Deletes a volume; one that is not there is deleted (LV-163).
    async fn delete_volume(&self, pool: &StoragePool, name: &str) -> Result<(), BackendError> {
        let gone = |error: &crate::rpc::RpcError| error.is(code::NO_STORAGE_VOL) || error.is(code::NO_STORAGE_POOL);
        let lookup = StorageVolLookupByName { pool: pool.clone(), name: name.to_owned() };
        let volume = match self.rpc.storage_vol_lookup_by_name(lookup, self.until).await {
            Ok(volume) => volume,
            Err(error) if gone(&error) => return Ok(()),
            Err(error) => return Err(failed(error, During::Other, &format!("looking up volume {name}"))),
        };
        match self.rpc.storage_vol_delete(StorageVolDelete { volume, flags: 0 }, self.until).await {
            Ok(()) => Ok(()),
            Err(error) if gone(&error) => Ok(()),
            Err(error) => Err(failed(error, During::Other, &format!("deleting volume {name}"))),
        }
    }
}

/// A line of the type's own target (LV-200): targets are static.
macro_rules! say {
    ($profile:expr, $level:ident, $($rest:tt)*) => {
        if $profile == crate::profile::KVM { tracing::$level!(target: "kvm", $($rest)*) } else { tracing::$level!(target: "kvm2", $($rest)*) }
    };
}
use say;
