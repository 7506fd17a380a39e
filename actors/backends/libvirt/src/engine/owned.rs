//! Whether what has our name is ours.

use egress_libvirt::procedures::{Domain, DomainGetMetadata, DomainLookupByName, METADATA_ELEMENT};
use egress_protocol::InstanceName;
use egress_provider::BackendError;

use super::On;
use crate::class::{During, code, failed};
use crate::mark::Mark;

/// What a domain says about itself.
#[derive(Debug)]
pub(super) enum Marked {
    /// It vanished meanwhile.
    Gone,
    /// It has no mark of this type.
    Bare,
    /// It has one.
    By(Mark),
}

impl On<'_> {
    /// The domain of this name, or none if there is none.
    pub(super) async fn domain(&self, name: &InstanceName) -> Result<Option<Domain>, BackendError> {
        match self.rpc.domain_lookup_by_name(DomainLookupByName { name: name.as_str().to_owned() }, self.until).await {
            Ok(domain) => Ok(Some(domain)),
            Err(error) if error.is(code::NO_DOMAIN) => Ok(None),
            Err(error) => Err(failed(error, During::Other, "looking up the domain")),
        }
    }

    /// A domain's mark. One that cannot be read is Transient, one that is not a mark is Permanent (LV-152).
    pub(super) async fn mark(&self, domain: &Domain) -> Result<Marked, BackendError> {
        let uri = Some(self.profile.namespace.to_owned());
        let call = DomainGetMetadata { domain: domain.clone(), kind: METADATA_ELEMENT, uri, flags: 0 };
        let text = match self.rpc.domain_get_metadata(call, self.until).await {
            Ok(text) => text,
            Err(error) if error.is(code::NO_DOMAIN) => return Ok(Marked::Gone),
            Err(error) if error.is(code::NO_DOMAIN_METADATA) => return Ok(Marked::Bare),
            Err(error) => return Err(BackendError::transient(format!("reading the mark: {error}")).caused_by(error)),
        };
        match Mark::parse(&text) {
            Ok(mark) => Ok(Marked::By(mark)),
            Err(error) => {
                let message = format!("domain {} on {} has a mark that cannot be read: {error}", domain.name, self.host.name);
                Err(BackendError::permanent(message).caused_by(error))
            }
        }
    }
}
