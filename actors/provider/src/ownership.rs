//! Whose instance it is: the ownership labels of PC-52, for backends whose labels are a map.

use std::collections::BTreeMap;

use egress_protocol::{InstallationId, Uid};

/// `true` on every instance of ours.
pub const MANAGED: &str = "proxy-operator-managed";
/// The Proxy's UID.
pub const UID: &str = "proxy-operator-uid";
/// The installation id of the operator that made it.
pub const INSTALLATION: &str = "proxy-operator-installation";
/// The ownership labels of one instance. Absent ones read as empty, which is a mismatch everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership<'a> {
    managed: &'a str,
    /// The Proxy's UID, as the label says it.
    pub uid: &'a str,
    /// The installation id, as the label says it.
    pub installation: &'a str,
}

impl<'a> Ownership<'a> {
    /// Of an instance with these labels.
    pub fn of(labels: Option<&'a BTreeMap<String, String>>) -> Self {
        let of = |key| labels.and_then(|labels| labels.get(key)).map_or("", |value| value.trim());
        Self { managed: of(MANAGED), uid: of(UID), installation: of(INSTALLATION) }
    }

    /// Which label keeps the instance from being that of `uid` under `installation`; `None`: it is (PC-14, PC-26, PC-34).
    pub fn differs(&self, uid: &Uid, installation: &InstallationId) -> Option<&'static str> {
        if !self.is_managed() {
            Some(MANAGED)
        } else if uid.as_str().trim().is_empty() || !self.uid.eq_ignore_ascii_case(uid.as_str().trim()) {
            Some(UID)
        } else if !self.is_of(installation) {
            Some(INSTALLATION)
        } else {
            None
        }
    }

    /// Whether an operator made it, of whatever installation.
    pub fn is_managed(&self) -> bool {
        self.managed.eq_ignore_ascii_case("true")
    }

    /// Whether it is one of an installation's, of whatever Proxy (PC-43, PC-54).
    pub fn is_of(&self, installation: &InstallationId) -> bool {
        !self.installation.is_empty() && self.installation.eq_ignore_ascii_case(installation.as_str().trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_ours_by_all_three_labels() {
        let whole = [(MANAGED, "true"), (UID, "u-1"), (INSTALLATION, "inst")];
        let differs = |change: &dyn Fn(&mut BTreeMap<String, String>)| {
            let mut labels: BTreeMap<_, _> = whole.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            change(&mut labels);
            Ownership::of(Some(&labels)).differs(&Uid::new("u-1"), &InstallationId::new("inst"))
        };
        assert_eq!(differs(&|_| {}), None);
        assert_eq!(differs(&|labels| drop(labels.insert(UID.into(), "U-1".into()))), None, "PC-34: case does not count");
        for (key, _) in whole {
            assert_eq!(differs(&|labels| drop(labels.remove(key))), Some(key));
            assert_eq!(differs(&|labels| drop(labels.insert(key.into(), String::new()))), Some(key));
            assert_eq!(differs(&|labels| drop(labels.insert(key.into(), "other".into()))), Some(key));
        }
        let labels = BTreeMap::from([(MANAGED.to_owned(), "true".to_owned()), (INSTALLATION.to_owned(), "inst".to_owned())]);
        assert_eq!(
            Ownership::of(Some(&labels)).differs(&Uid::new(""), &InstallationId::new("inst")),
            Some(UID),
            "an empty UID is a mismatch"
        );
        assert_eq!(Ownership::of(None).differs(&Uid::new("u-1"), &InstallationId::new("inst")), Some(MANAGED));
        assert!(Ownership::of(Some(&labels)).is_of(&InstallationId::new("INST")));
        assert!(!Ownership::of(None).is_of(&InstallationId::new("")), "PC-54: without an installation mark it is foreign");
    }
}
