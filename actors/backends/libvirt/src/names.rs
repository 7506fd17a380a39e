//! What things are called: ids, volumes, addresses of cards (§4, §5). Pure.

use data_encoding::HEXLOWER;
use egress_protocol::{InstallationId, InstanceId, InstanceName};
use egress_provider::BackendError;
use sha2::{Digest, Sha256};

/// A domain of ours on a host: what a providerID says (LV-40).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DomainRef {
    /// The host's name in the entry.
    pub host: String,
    /// The domain's name.
    pub name: InstanceName,
}

impl DomainRef {
    /// Reads an id, strictly. A name that is not one of ours is refused too: a tampered status must never reach another
    /// machine (LV-41).
    pub fn parse(id: &InstanceId) -> Result<Self, BackendError> {
        let malformed = || {
            BackendError::permanent(format!("malformed providerID {:?}: want hosts/<host>/domains/<name>", id.as_str())).about(id.clone())
        };
        let parts: Vec<&str> = id.as_str().split('/').collect();
        let ["hosts", host, "domains", name] = parts[..] else { return Err(malformed()) };
        if host.is_empty() || name.is_empty() {
            return Err(malformed());
        }
        let name = InstanceName::parse(name).ok_or_else(|| {
            BackendError::permanent(format!(
                "providerID {:?} names a domain that is none of ours: want proxy- and 16 of a-z2-7",
                id.as_str()
            ))
            .about(id.clone())
        })?;
        Ok(Self { host: host.to_owned(), name })
    }

    /// The id: of host and name, and of nothing else (LV-42).
    pub fn id(&self) -> InstanceId {
        InstanceId::new(format!("hosts/{}/domains/{}", self.host, self.name))
    }
}

/// A machine's disk (§5.1).
pub fn overlay(name: &InstanceName, installation: &InstallationId) -> String {
    format!("{name}.{}.qcow2", installation.tag())
}

/// A machine's seed.
pub fn seed(name: &InstanceName, installation: &InstallationId) -> String {
    format!("{name}.{}-seed.iso", installation.tag())
}

/// Whose a volume is, if it is a disk or a seed of this installation (LV-173).
pub fn owner(volume: &str, installation: &InstallationId) -> Option<InstanceName> {
    let (name, rest) = volume.split_once('.')?;
    let name = InstanceName::parse(name)?;
    (volume == overlay(&name, installation) || volume == seed(&name, installation)).then_some(name).filter(|_| !rest.is_empty())
}

/// What says that a base is complete (LV-100).
pub fn marker(base: &str) -> String {
    format!("{base}.sha256")
}

/// A base while it is uploaded (LV-109).
pub fn part(base: &str, installation: &InstallationId, entry: &str, random: u32) -> String {
    format!("{base}.part-{}.{entry}.{random:08x}", installation.tag())
}

/// Whether a volume is a part that this entry of this installation has left: no other entry may delete it (LV-109).
pub fn is_part_of(volume: &str, installation: &InstallationId, entry: &str) -> bool {
    let Some((base, rest)) = volume.rsplit_once(&format!(".part-{}.{entry}.", installation.tag())) else { return false };
    !base.is_empty() && rest.len() == 8 && rest.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'))
}

/// The hardware address of a machine's card: the same at each attempt, and another one for a Proxy of the same name in
/// another cluster on the same network (LV-55).
pub fn mac(installation: &InstallationId, namespace: &str, proxy: &str) -> String {
    let digest = Sha256::digest(format!("{installation}|{namespace}|{proxy}"));
    // 02: given locally, to one card.
    let mut address = "02".to_owned();
    for byte in &digest[..5] {
        address.push(':');
        address.push_str(&HEXLOWER.encode(&[*byte]));
    }
    address
}

#[cfg(test)]
mod tests {
    use egress_protocol::provider::ErrorClass;
    use egress_protocol::{InstallationId, InstanceId, InstanceName};

    use super::{DomainRef, is_part_of, mac, marker, overlay, owner, part, seed};

    const NAME: &str = "proxy-ck4to7f6pzojj2fh";

    fn name() -> InstanceName {
        InstanceName::parse(NAME).unwrap()
    }

    #[test]
    fn an_id_is_host_and_name_and_nothing_else_lv_40() {
        let id = InstanceId::new(format!("hosts/host-a/domains/{NAME}"));
        let read = DomainRef::parse(&id).unwrap();
        assert_eq!((read.host.as_str(), read.name.as_str(), read.id()), ("host-a", NAME, id));
        for text in [
            "",
            NAME,
            &format!("hosts/host-a/domains/{NAME}/x"),
            &format!("/hosts/host-a/domains/{NAME}"),
            &format!("hosts/host-a/domains/{NAME}/"),
            &format!("hosts//domains/{NAME}"),
            "hosts/host-a/domains/",
            &format!("host/host-a/domains/{NAME}"),
            &format!("hosts/host-a/domain/{NAME}"),
            &format!("hosts/host-a/{NAME}"),
        ] {
            let refused = DomainRef::parse(&InstanceId::new(text)).unwrap_err();
            assert_eq!(refused.class, ErrorClass::Permanent);
            assert_eq!(refused.message, format!("malformed providerID {text:?}: want hosts/<host>/domains/<name>"));
            assert_eq!(refused.id.unwrap().as_str(), text);
        }
    }

    #[test]
    fn an_id_of_a_foreign_name_reaches_nothing_lv_41() {
        for name in [
            "database",
            "proxy-",
            "proxy-CK4TO7F6PZOJJ2FH",
            "proxy-ck4to7f6pzojj2f1",
            "proxy-ck4to7f6pzojj2fhx",
            "proxy-ck4to7f6pzojj2fh\n",
        ] {
            let refused = DomainRef::parse(&InstanceId::new(format!("hosts/host-a/domains/{name}"))).unwrap_err();
            assert_eq!(refused.class, ErrorClass::Permanent);
            assert!(refused.message.contains("none of ours"), "{}", refused.message);
        }
    }

    #[test]
    fn volumes_carry_the_installations_tag_and_are_told_by_it_lv_173() {
        let (ours, other) = (InstallationId::new("inst-a"), InstallationId::new("inst-b"));
        let (disk, iso) = (overlay(&name(), &ours), seed(&name(), &ours));
        assert_eq!(disk, format!("{NAME}.{}.qcow2", ours.tag()));
        assert_eq!(iso, format!("{NAME}.{}-seed.iso", ours.tag()));
        for volume in [&disk, &iso] {
            assert_eq!(owner(volume, &ours), Some(name()));
            assert_eq!(owner(volume, &other), None);
        }
        for foreign in
            ["database.qcow2", &format!("{NAME}.qcow2"), &format!("{NAME}."), &format!("{disk}.bak"), &format!("x{disk}"), NAME, ""]
        {
            assert_eq!(owner(foreign, &ours), None, "{foreign}");
        }
    }

    #[test]
    fn a_part_belongs_to_one_entry_of_one_installation_lv_109() {
        let (ours, other) = (InstallationId::new("inst-a"), InstallationId::new("inst-b"));
        let volume = part("base-debian.qcow2", &ours, "lab", 0x2a);
        assert_eq!(volume, format!("base-debian.qcow2.part-{}.lab.0000002a", ours.tag()));
        assert!(is_part_of(&volume, &ours, "lab"));
        assert!(!is_part_of(&volume, &other, "lab") && !is_part_of(&volume, &ours, "la") && !is_part_of(&volume, &ours, "ab"));
        for foreign in
            ["base-debian.qcow2", &marker("base-debian.qcow2"), &format!("{volume}0"), &volume[..volume.len() - 1], &volume.to_uppercase()]
        {
            assert!(!is_part_of(foreign, &ours, "lab"), "{foreign}");
        }
    }

    #[test]
    fn a_card_has_one_local_address_for_ever_lv_55() {
        let (a, b) = (InstallationId::new("inst-a"), InstallationId::new("inst-b"));
        let first = mac(&a, "default", "px-1");
        assert_eq!(first, mac(&a, "default", "px-1"));
        assert!(first.starts_with("02:") && first.len() == 17, "{first}");
        assert_ne!(first, mac(&b, "default", "px-1"));
        assert_ne!(first, mac(&a, "default", "px-2"));
        assert_eq!(first, "02:a0:9d:1a:2d:8b", "a vector: it must never change, since running machines have it");
    }
}
