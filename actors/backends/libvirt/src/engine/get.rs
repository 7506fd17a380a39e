//! Reading one (LV-150…156).

use egress_libvirt::procedures::{Domain, DomainGetState, DomainGetXmlDesc, DomainInterfaceAddresses, DomainState, address_source};
use egress_protocol::provider::{Instance, InstanceKey};
use egress_provider::BackendError;

use super::owned::Marked;
use super::{On, say};
use crate::address::{self, Answer, Found};
use crate::class::{During, code, failed};
use crate::domain::first_mac;
use crate::names::DomainRef;
use crate::state::{Seen, seen};

/// Reads the instance. What is not there, and what is not ours, is NotFound; only libvirt's word that there is no such domain
/// says that it is gone.
pub async fn get(on: On<'_>, key: &InstanceKey) -> Result<Instance, BackendError> {
    let of = DomainRef { host: on.host.name.clone(), name: key.name.clone() };
    look(on, key, &of).await.map_err(|error| if error.id.is_none() { error.about(of.id()) } else { error })
}

async fn look(on: On<'_>, key: &InstanceKey, of: &DomainRef) -> Result<Instance, BackendError> {
    let host = &on.host.name;
    let gone = || BackendError::not_found(format!("there is no domain {} on {host}", key.name));
    let domain = on.domain(&key.name).await?.ok_or_else(gone)?;
    let mark = match on.mark(&domain).await? {
        Marked::By(mark) => match mark.differs(&key.uid, &key.installation) {
            None => mark,
            Some(what) => return Err(foreign(on, key, &format!("another {what} in its mark"))),
        },
        Marked::Bare => return Err(foreign(on, key, &format!("no {} mark", on.profile.block))),
        Marked::Gone => return Err(gone()),
    };
    let state = match on.rpc.domain_get_state(DomainGetState { domain: domain.clone(), flags: 0 }, on.until).await {
        Ok(state) => state,
        Err(error) if error.is(code::NO_DOMAIN) => return Err(gone()),
        Err(error) => return Err(failed(error, During::Other, "reading the domain's state")),
    };
    let DomainState { state: number, reason } = state;
    let seen = seen(state);
    let (ip, state_detail) = match &seen {
        Seen::Up => match address_of(on, &domain, &mark.mac).await? {
            None => return Err(gone()),
            Some(Found::Address(address)) => (Some(address), None),
            Some(Found::NotYet(detail)) => (None, Some(detail.to_owned())),
            Some(Found::Failed) => return Err(no_source(host)),
        },
        Seen::Paused(why) => (None, Some(why.clone())),
        Seen::Provisioning | Seen::Stopped => (None, None),
    };
    say!(on.profile, debug, host = %host, name = %key.name, state = number, reason, ip = ?ip, "domain fetched");
    Ok(Instance {
        id: of.id(),
        name: key.name.clone(),
        state: seen.instance_state(ip.is_some()),
        state_detail,
        deleting: false,
        ip,
        uid: key.uid.clone(),
        installation: key.installation.clone(),
        created_at: mark.created_at,
    })
}

/// What sits under our name is another's: for us there is nothing, and a person should hear of it.
fn foreign(on: On<'_>, key: &InstanceKey, what: &str) -> BackendError {
    say!(on.profile, warn, host = %on.host.name, name = %key.name, differs = what, "WARNING: domain of our name is not ours");
    BackendError::not_found(format!("domain {} on {} is not ours: it has {what}", key.name, on.host.name))
}

fn no_source(host: &str) -> BackendError {
    BackendError::transient(format!("neither the guest agent nor ARP on {host} could be asked for the address"))
}

/// The address, by the agent and only then by ARP; none if the domain vanished.
async fn address_of(on: On<'_>, domain: &Domain, mac: &str) -> Result<Option<Found>, BackendError> {
    let mac = if mac.is_empty() {
        // A mark of an older version.
        let call = DomainGetXmlDesc { domain: domain.clone(), flags: 0 };
        match on.rpc.domain_get_xml_desc(call, on.until).await {
            // A definition without a card, or one that cannot be read, has no address that could be found.
            Ok(definition) => first_mac(&definition).ok().flatten().unwrap_or_default(),
            Err(error) if error.is(code::NO_DOMAIN) => return Ok(None),
            Err(error) => return Err(failed(error, During::Other, "reading the domain's definition")),
        }
    } else {
        mac.to_owned()
    };
    let Some(agent) = ask(on, domain, address_source::AGENT, &mac).await? else { return Ok(None) };
    if let Answer::Address(Some(address)) = agent {
        return Ok(Some(Found::Address(address)));
    }
    let Some(arp) = ask(on, domain, address_source::ARP, &mac).await? else { return Ok(None) };
    Ok(Some(address::both(agent, arp)))
}

/// One source; none if the domain vanished. A lost link and a spent budget are Transient at once (LV-155).
async fn ask(on: On<'_>, domain: &Domain, source: u32, mac: &str) -> Result<Option<Answer>, BackendError> {
    let call = DomainInterfaceAddresses { domain: domain.clone(), source, flags: 0 };
    match on.rpc.domain_interface_addresses(call, on.until).await {
        Ok(interfaces) => Ok(Some(Answer::Address(address::choose(&interfaces, mac)))),
        Err(error) if error.is(code::NO_DOMAIN) => Ok(None),
        Err(error) => match address::of_error(error.error.clone()) {
            Ok(answer) => Ok(Some(answer)),
            Err(_) => Err(BackendError::transient(format!("asking for the address: {error}")).caused_by(error)),
        },
    }
}
