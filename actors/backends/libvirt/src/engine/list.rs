//! All of ours on one host (LV-170…173).

use std::collections::HashSet;

use egress_libvirt::procedures::{ConnectListAllDomains, Domain, StoragePoolGetInfo, StoragePoolListAllVolumes, list_domains};
use egress_libvirt::procedures::{DomainGetMetadata, METADATA_ELEMENT};
use egress_protocol::provider::{Instance, InstanceState, Leftover};
use egress_protocol::{InstallationId, InstanceName, Uid};
use egress_provider::BackendError;

use super::{On, say};
use crate::class::{During, code, failed};
use crate::mark::Mark;
use crate::names::{self, DomainRef};
use crate::rpc::RpcError;
use crate::state::POOL_RUNNING;

/// What a host has of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostListing {
    /// By their marks alone: neither state nor address is looked at.
    pub instances: Vec<Instance>,
    /// Domains whose mark libvirt would not give, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// Volumes of ours without a domain.
    pub leftovers: Vec<Leftover>,
}

/// Lists a host. Anything but libvirt's own answers fails it as a whole: half a list would count as the whole (LV-171).
pub async fn list(on: On<'_>, installation: &InstallationId) -> Result<HostListing, BackendError> {
    let flags = list_domains::ACTIVE | list_domains::INACTIVE;
    let all = on.rpc.connect_list_all_domains(ConnectListAllDomains { need_results: 1, flags }, on.until).await;
    let all = all.map_err(|error| failed(error, During::Other, "listing domains"))?.domains;
    let mut listing = HostListing::default();
    for domain in &all {
        match instance(on, domain, installation).await {
            Ok(found) => listing.instances.extend(found),
            Err(Unread::Domain(why)) => listing.left_out.push((domain.name.clone(), why)),
            Err(Unread::Host(error)) => return Err(error),
        }
    }
    listing.leftovers = leftovers(on, &all, installation).await?;
    Ok(listing)
}

/// What a mark that is not read costs.
enum Unread {
    Domain(String),
    Host(BackendError),
}

async fn instance(on: On<'_>, domain: &Domain, installation: &InstallationId) -> Result<Option<Instance>, Unread> {
    // A name that is none of ours could never be deleted by its id (LV-41).
    let Some(name) = InstanceName::parse(&domain.name) else { return Ok(None) };
    let uri = Some(on.profile.namespace.to_owned());
    let call = DomainGetMetadata { domain: domain.clone(), kind: METADATA_ELEMENT, uri, flags: 0 };
    let text = match on.rpc.domain_get_metadata(call, on.until).await {
        Ok(text) => text,
        Err(error) if error.is(code::NO_DOMAIN) || error.is(code::NO_DOMAIN_METADATA) => return Ok(None),
        Err(error) => return Err(unread(on, domain, error)),
    };
    let mark = match Mark::parse(&text) {
        Ok(mark) if mark.is_of(installation) => mark,
        Ok(_) => return Ok(None),
        Err(error) => {
            say!(on.profile, warn, host = %on.host.name, name = %domain.name, error = %error, "WARNING: domain skipped (unreadable mark)");
            return Ok(None);
        }
    };
    Ok(Some(Instance {
        id: DomainRef { host: on.host.name.clone(), name: name.clone() }.id(),
        name,
        // Nobody reads it of a list, and to ask would be a call for each domain.
        state: InstanceState::Provisioning,
        state_detail: None,
        deleting: false,
        ip: None,
        uid: Uid::new(mark.uid.as_str()),
        installation: InstallationId::new(mark.installation.as_str()),
        created_at: mark.created_at,
    }))
}

fn unread(on: On<'_>, domain: &Domain, error: RpcError) -> Unread {
    if error.said().is_none() {
        return Unread::Host(failed(error, During::Other, "reading marks"));
    }
    say!(on.profile, debug, host = %on.host.name, name = %domain.name, error = %error, "domain skipped (unreadable mark)");
    Unread::Domain(error.to_string())
}

/// Volumes with our tag whose domain is not there (LV-173). A pool that is missing or does not run has none to tell.
async fn leftovers(on: On<'_>, all: &[Domain], installation: &InstallationId) -> Result<Vec<Leftover>, BackendError> {
    let Some(pool) = on.pool(&on.host.pool).await? else { return Ok(Vec::new()) };
    let info = on.rpc.storage_pool_get_info(StoragePoolGetInfo { pool: pool.clone() }, on.until).await;
    if info.map_err(|error| failed(error, During::Other, "reading the storage pool's state"))?.state != POOL_RUNNING {
        return Ok(Vec::new());
    }
    let volumes = on.rpc.storage_pool_list_all_volumes(StoragePoolListAllVolumes { pool, need_results: 1, flags: 0 }, on.until).await;
    let volumes = volumes.map_err(|error| failed(error, During::Other, "listing volumes"))?.volumes;
    let domains: HashSet<&str> = all.iter().map(|domain| domain.name.as_str()).collect();
    let mut seen = HashSet::new();
    let names = volumes.iter().filter_map(|volume| names::owner(&volume.name, installation));
    let without = names.filter(|name| !domains.contains(name.as_str())).filter(|name| seen.insert(name.clone()));
    Ok(without.map(|name| Leftover { name, created_at: None }).collect())
}
