//! Identities: what an object, an instance and an installation are called.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes the text as it is.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

string_id!(
    /// `metadata.uid` of an object, exactly as the source gives it.
    Uid
);
string_id!(
    /// The providerID: opaque to everyone but its provider (PC-9).
    InstanceId
);
string_id!(
    /// Which operator owns an instance or an object (PC-51, OP-34).
    InstallationId
);

/// The first 10 bytes of SHA-256 as lower-case Base32 without padding: 16 characters of `a-z2-7` (PC-49).
fn short_hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    data_encoding::BASE32_NOPAD.encode(&digest[..10]).to_ascii_lowercase()
}

impl InstallationId {
    /// The default in a cluster: derived from the `kube-system` namespace's UID and the operator's namespace (PC-51).
    pub fn derived(kube_system_uid: &str, operator_namespace: &str) -> Self {
        Self::new(short_hash(&format!("{kube_system_uid}/{operator_namespace}")))
    }

    /// The first 8 characters of the PC-49 encoding: the tag of secondary resources (PC-55).
    pub fn tag(&self) -> String {
        let mut tag = short_hash(self.as_str());
        tag.truncate(8);
        tag
    }
}

/// The deterministic name of the instance made for a UID: `proxy-` and 16 characters (PC-49).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceName(Arc<str>);

impl InstanceName {
    /// The name that belongs to a UID.
    pub fn of(uid: &Uid) -> Self {
        Self(format!("proxy-{}", short_hash(uid.as_str())).into())
    }

    /// Reads a name of that form; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let hash = text.strip_prefix("proxy-")?;
        (hash.len() == 16 && hash.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'))).then(|| Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Namespace and name of an object; ordered by namespace, then name. Prints as `NAMESPACE/NAME`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace, `default` where the document gave none.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Reads `NAMESPACE/NAME`; `None` when it has not exactly that form.
    pub fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains('/')).then(|| Self::new(namespace, name))
    }

    /// The id of the object's actor in the tree.
    pub fn actor_id(&self) -> String {
        format!("proxy/{self}")
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_names_match_the_vectors_of_pc_49() {
        for (uid, name) in [
            ("00000000-0000-0000-0000-000000000000", "proxy-ck4to7f6pzojj2fh"),
            ("3f1c2a9e-0000-4000-8000-000000000001", "proxy-qbhtrucak6szambe"),
            ("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "proxy-4wcv75ehthcszhgp"),
            ("a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d", "proxy-kpgi7vzj2uz6yiak"),
        ] {
            assert_eq!(InstanceName::of(&Uid::new(uid)).as_str(), name);
        }
    }

    #[test]
    fn only_a_name_of_that_form_is_read_as_an_instance_name() {
        let name = InstanceName::of(&Uid::new("u-1"));
        assert_eq!(InstanceName::parse(name.as_str()), Some(name.clone()));
        for text in ["", "proxy-", "web-1", &name.as_str()[..21], &format!("{name}a"), "proxy-CK4TO7F6PZOJJ2FH", "proxy-ck4to7f6pzojj2f1"] {
            assert_eq!(InstanceName::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_installation_id_matches_the_vector_of_pc_51() {
        let id = InstallationId::derived("11111111-2222-4333-8444-555555555555", "egress-proxies-operator-system");
        assert_eq!(id.as_str(), "yg2pw4flqbe3n2ig");
    }
}
