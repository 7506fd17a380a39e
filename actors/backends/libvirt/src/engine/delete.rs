//! Removing one (LV-160…164).

use egress_libvirt::procedures::{Domain, DomainDestroy, DomainUndefineFlags, undefine};
use egress_protocol::provider::{DeleteOutcome, InstanceKey};
use egress_provider::BackendError;

use super::owned::Marked;
use super::{On, say};
use crate::class::{During, code, failed};
use crate::names;

/// Removes the domain and its volumes. The base and its marker stay. What is not ours stays with all that has its name.
pub async fn delete(on: On<'_>, key: &InstanceKey) -> Result<DeleteOutcome, BackendError> {
    let Some(domain) = on.domain(&key.name).await? else {
        remove_volumes(on, key, None).await?;
        return Ok(DeleteOutcome::Gone);
    };
    if key.uid.as_str().trim().is_empty() {
        // Leftovers of an instance that is not there: this one is.
        say!(on.profile, debug, host = %on.host.name, name = %key.name, "leftovers kept: there is a domain of that name");
        return Ok(DeleteOutcome::Gone);
    }
    let mark = match on.mark(&domain).await? {
        Marked::By(mark) => match mark.differs(&key.uid, &key.installation) {
            None => mark,
            Some(what) => return Ok(kept(on, key, &format!("another {what} in its mark"))),
        },
        Marked::Bare => return Ok(kept(on, key, &format!("no {} mark", on.profile.block))),
        Marked::Gone => {
            remove_volumes(on, key, None).await?;
            return Ok(DeleteOutcome::Gone);
        }
    };
    match on.rpc.domain_destroy(DomainDestroy { domain: domain.clone() }, on.until).await {
        Ok(()) => {}
        Err(error) if error.is(code::OPERATION_INVALID) || error.is(code::NO_DOMAIN) => {
            say!(on.profile, debug, host = %on.host.name, name = %key.name, "domain not running");
        }
        Err(error) => return Err(failed(error, During::Other, "stopping the domain")),
    }
    // Before the definition: what is interrupted leaves a domain with a mark, which collection sees (LV-162).
    remove_volumes(on, key, Some(&mark.pool)).await?;
    forget(on, domain).await?;
    say!(on.profile, debug, host = %on.host.name, name = %key.name, "domain deleted");
    Ok(DeleteOutcome::Gone)
}

fn kept(on: On<'_>, key: &InstanceKey, what: &str) -> DeleteOutcome {
    say!(on.profile, warn, host = %on.host.name, name = %key.name, differs = what, "WARNING: domain of our name is not ours and stays");
    DeleteOutcome::Gone
}

/// Where the mark says, and where the configuration says (LV-59).
async fn remove_volumes(on: On<'_>, key: &InstanceKey, marked: Option<&str>) -> Result<(), BackendError> {
    let configured = on.host.pool.as_str();
    let pools = marked.filter(|pool| !pool.is_empty() && *pool != configured).into_iter().chain([configured]);
    for name in pools {
        let Some(pool) = on.pool(name).await? else {
            say!(on.profile, debug, host = %on.host.name, name = %key.name, pool = name, "storage pool already gone");
            continue;
        };
        for volume in [names::overlay(&key.name, &key.installation), names::seed(&key.name, &key.installation)] {
            on.delete_volume(&pool, &volume).await?;
        }
    }
    Ok(())
}

async fn forget(on: On<'_>, domain: Domain) -> Result<(), BackendError> {
    let always = undefine::MANAGED_SAVE | undefine::SNAPSHOTS_METADATA | undefine::NVRAM;
    for flags in [always | undefine::CHECKPOINTS_METADATA, always] {
        match on.rpc.domain_undefine_flags(DomainUndefineFlags { domain: domain.clone(), flags }, on.until).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is(code::NO_DOMAIN) => return Ok(()),
            // An older libvirt does not know checkpoints.
            Err(error) if error.is(code::INVALID_ARG) && flags != always => {}
            Err(error) => return Err(failed(error, During::Other, "undefining the domain")),
        }
    }
    Ok(())
}
