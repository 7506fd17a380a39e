//! The providerID of a virtual machine: `zones/<zone>/instances/<name>` (GC-4). The project comes from the entry.

use std::fmt;

use egress_protocol::{InstanceId, InstanceName};
use egress_provider::BackendError;

/// Which virtual machine of the project.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct VmRef {
    pub(crate) zone: String,
    pub(crate) name: InstanceName,
}

impl VmRef {
    /// Reads an id strictly (PC-10): four segments, both literals, a zone, a name of the contract's form.
    pub(crate) fn parse(id: &InstanceId) -> Result<Self, BackendError> {
        Self::from_path(id.as_str()).ok_or_else(|| {
            BackendError::permanent(format!("malformed id {:?}, expected zones/ZONE/instances/NAME", id.as_str())).about(id.clone())
        })
    }

    fn from_path(path: &str) -> Option<Self> {
        let mut parts = path.split('/');
        let (Some("zones"), Some(zone), Some("instances"), Some(name), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        Some(Self { zone: is_zone(zone).then(|| zone.to_owned())?, name: InstanceName::parse(name)? })
    }

    pub(crate) fn id(&self) -> InstanceId {
        InstanceId::new(self.to_string())
    }
}

impl fmt::Display for VmRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zones/{}/instances/{}", self.zone, self.name)
    }
}

/// `^[a-z]([-a-z0-9]*[a-z0-9])?$`, at most 63 characters as every resource name of Compute Engine.
pub(crate) fn is_zone(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(|last| *last != b'-')
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

#[cfg(test)]
mod tests {
    use egress_protocol::provider::ErrorClass;

    use super::*;

    const NAME: &str = "proxy-ck4to7f6pzojj2fh";

    /// GC-4.
    #[test]
    fn an_id_is_a_zone_and_a_name_and_survives_the_round_trip() {
        let text = format!("zones/europe-west1-b/instances/{NAME}");
        let at = VmRef::parse(&InstanceId::new(text.as_str())).unwrap();
        assert_eq!((at.zone.as_str(), at.name.as_str()), ("europe-west1-b", NAME));
        assert_eq!(at.id().as_str(), text);
    }

    /// GC-4, PC-10.
    #[test]
    fn anything_else_is_permanent_and_names_the_id() {
        for text in [
            String::new(),
            NAME.to_owned(),
            format!("zones/europe-west1-b/instances/{NAME}/x"),
            format!("/zones/europe-west1-b/instances/{NAME}"),
            format!("zones/europe-west1-b/disks/{NAME}"),
            format!("projects/p/zones/europe-west1-b/instances/{NAME}"),
            format!("regions/europe-west1/instances/{NAME}"),
            format!("zones//instances/{NAME}"),
            format!("zones/Europe/instances/{NAME}"),
            format!("zones/1a/instances/{NAME}"),
            format!("zones/a-/instances/{NAME}"),
            format!("zones/{}/instances/{NAME}", "a".repeat(64)),
            "zones/europe-west1-b/instances/".to_owned(),
            "zones/europe-west1-b/instances/web-1".to_owned(),
            "zones/europe-west1-b/instances/proxy-CK4TO7F6PZOJJ2FH".to_owned(),
            "zones/europe-west1-b/instances/proxy-ck4to7f6pzojj2f1".to_owned(),
            format!("zones/europe-west1-b/instances/{NAME}\n"),
        ] {
            let error = VmRef::parse(&InstanceId::new(text.as_str())).unwrap_err();
            assert_eq!(error.class, ErrorClass::Permanent, "{text:?}");
            assert_eq!(error.id.as_ref().map(InstanceId::as_str), Some(text.as_str()));
        }
    }
}
