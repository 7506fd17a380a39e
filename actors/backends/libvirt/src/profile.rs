//! What tells the two types apart (§1). No other code branches on the type.

/// One of the two types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Profile {
    /// The type: key of the block in the providers file, target of log lines, prefix of spans.
    pub block: &'static str,
    /// The namespace of the mark.
    pub namespace: &'static str,
    bases: Bases,
    verdicts: Verdicts,
}

/// Whether entries share base volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Bases {
    ByKey,
    ByEntryAndKey,
}

/// How health verdicts are named and reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Verdicts {
    ByStage,
    ByCause,
}

/// The type `kvm`.
pub const KVM: Profile = Profile {
    block: "kvm",
    namespace: "https://egress-proxies-operator.example.com/kvm",
    bases: Bases::ByKey,
    verdicts: Verdicts::ByStage,
};

/// The type `kvm2`.
pub const KVM2: Profile = Profile {
    block: "kvm2",
    namespace: "https://egress-proxies-operator.example.com/kvm2",
    bases: Bases::ByEntryAndKey,
    verdicts: Verdicts::ByCause,
};

impl Profile {
    /// What the base of an image is called, without the extension.
    pub(crate) fn base(self, entry: &str, key: &str) -> String {
        match self.bases {
            Bases::ByKey => format!("base-{key}"),
            Bases::ByEntryAndKey => format!("base-{entry}-{key}"),
        }
    }

    /// The name of a failed dial in a health verdict (§13).
    pub fn reason(self, reasons: crate::ssh::HealthReasons) -> &'static str {
        match self.verdicts {
            Verdicts::ByStage => reasons.kvm,
            Verdicts::ByCause => reasons.kvm2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KVM, KVM2};
    use crate::ssh::HealthReasons;

    #[test]
    fn the_types_share_neither_marks_nor_bases_nor_reasons_lv_2() {
        assert_ne!(KVM.namespace, KVM2.namespace);
        assert_eq!((KVM.base("e", "k"), KVM2.base("e", "k")), ("base-k".to_owned(), "base-e-k".to_owned()));
        let reasons = HealthReasons { kvm: "SSHHandshakeFailed", kvm2: "Unauthorized" };
        assert_eq!((KVM.reason(reasons), KVM2.reason(reasons)), ("SSHHandshakeFailed", "Unauthorized"));
    }
}
