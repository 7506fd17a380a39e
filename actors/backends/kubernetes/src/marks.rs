//! Whose Pod it is: the marks of PC-52 as labels (K8-5).

use std::collections::BTreeMap;

use egress_protocol::{InstallationId, Uid};

/// `true` on every Pod of ours.
pub(crate) const MANAGED: &str = "proxy-operator-managed";
/// The Proxy's UID.
pub(crate) const UID: &str = "proxy-operator-uid";
/// Which operator's.
pub(crate) const INSTALLATION: &str = "proxy-operator-installation";
/// Of every Pod of ours, for the list.
pub(crate) const SELECTOR: &str = "proxy-operator-managed=true";

/// The marks of one Pod. Absent ones read as empty, which is a mismatch everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Marks<'a> {
    managed: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) installation: &'a str,
}

impl<'a> Marks<'a> {
    pub(crate) fn of(labels: Option<&'a BTreeMap<String, String>>) -> Self {
        let of = |key| labels.and_then(|labels| labels.get(key)).map_or("", |value| value.trim());
        Self { managed: of(MANAGED), uid: of(UID), installation: of(INSTALLATION) }
    }

    /// Which mark keeps the Pod from being that of `uid` under `installation`; `None`: it is (PC-14, PC-26, PC-34).
    pub(crate) fn differs(&self, uid: &Uid, installation: &InstallationId) -> Option<&'static str> {
        if !self.managed.eq_ignore_ascii_case("true") {
            Some(MANAGED)
        } else if uid.as_str().trim().is_empty() || !self.uid.eq_ignore_ascii_case(uid.as_str().trim()) {
            Some(UID)
        } else if !self.is_of(installation) {
            Some(INSTALLATION)
        } else {
            None
        }
    }

    /// Whether it is one of an installation's, of whatever Proxy (PC-43, PC-54).
    pub(crate) fn is_of(&self, installation: &InstallationId) -> bool {
        !self.installation.is_empty() && self.installation.eq_ignore_ascii_case(installation.as_str().trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_ours_by_all_three_marks() {
        let whole = [(MANAGED, "true"), (UID, "u-1"), (INSTALLATION, "inst")];
        let differs = |change: &dyn Fn(&mut BTreeMap<String, String>)| {
            let mut labels: BTreeMap<_, _> = whole.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            change(&mut labels);
            Marks::of(Some(&labels)).differs(&Uid::new("u-1"), &InstallationId::new("inst"))
        };
        assert_eq!(differs(&|_| {}), None);
        assert_eq!(differs(&|labels| drop(labels.insert(UID.into(), "U-1".into()))), None, "PC-34: case does not count");
        for (key, _) in whole {
            assert_eq!(differs(&|labels| drop(labels.remove(key))), Some(key));
            assert_eq!(differs(&|labels| drop(labels.insert(key.into(), String::new()))), Some(key));
            assert_eq!(differs(&|labels| drop(labels.insert(key.into(), "other".into()))), Some(key));
        }
        let labels = BTreeMap::from([(MANAGED.to_owned(), "true".to_owned()), (INSTALLATION.to_owned(), "inst".to_owned())]);
        assert_eq!(Marks::of(Some(&labels)).differs(&Uid::new(""), &InstallationId::new("inst")), Some(UID), "an empty UID is a mismatch");
        assert_eq!(Marks::of(None).differs(&Uid::new("u-1"), &InstallationId::new("inst")), Some(MANAGED));
        assert!(Marks::of(Some(&labels)).is_of(&InstallationId::new("INST")));
        assert!(!Marks::of(None).is_of(&InstallationId::new("")), "PC-54: without an installation mark it is foreign");
    }
}
