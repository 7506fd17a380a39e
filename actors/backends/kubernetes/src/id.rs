//! providerIDs: `<namespace>/<name>` (K8-8).

use std::fmt;

use egress_protocol::InstanceId;
use egress_protocol::resource::grammar;
use egress_provider::BackendError;

/// Where a Pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodRef {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl PodRef {
    /// Only what can be the path of a Pod.
    pub(crate) fn new(namespace: &str, name: &str) -> Result<Self, BackendError> {
        if grammar::is_dns_label(namespace) && grammar::is_object_name(name) {
            Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
        } else {
            Err(BackendError::permanent(format!("{namespace:?} and {name:?} are no namespace and name of a Pod")))
        }
    }

    /// Strictly (PC-10).
    pub(crate) fn parse(id: &InstanceId) -> Result<Self, BackendError> {
        let parts = id.as_str().split_once('/').and_then(|(namespace, name)| Self::new(namespace, name).ok());
        let malformed = || BackendError::permanent(format!("malformed id {:?}, expected NAMESPACE/NAME", id.as_str())).about(id.clone());
        parts.ok_or_else(malformed)
    }

    pub(crate) fn id(&self) -> InstanceId {
        InstanceId::new(self.to_string())
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use egress_protocol::provider::ErrorClass;

    use super::*;

    /// K8-8.
    #[test]
    fn an_id_is_a_namespace_and_a_name_and_nothing_else() {
        let name = "proxy-ck4to7f6pzojj2fh";
        let good = PodRef::parse(&InstanceId::new(format!("team-a/{name}"))).unwrap();
        assert_eq!((good.namespace.as_str(), good.name.as_str()), ("team-a", name));
        assert_eq!(good.id().as_str(), format!("team-a/{name}"));
        for text in [
            "",
            "/",
            name,
            "team-a/",
            &format!("/{name}"),
            &format!("team-a//{name}"),
            &format!("team-a/{name}/x"),
            &format!("a/b/{name}"),
            &format!("Team/{name}"),
            &format!("team.a/{name}"),
            &format!(" team-a/{name}"),
            &format!("team-a/{name}\n"),
            "team-a/Proxy",
            "team-a/..",
            "team-a/proxy_1",
            "-a/x",
            &format!("{}/x", "a".repeat(64)),
            &format!("a/{}", "x".repeat(254)),
            "a/x?y=z",
            "a/%2e",
        ] {
            let error = PodRef::parse(&InstanceId::new(text)).unwrap_err();
            assert_eq!(error.class, ErrorClass::Permanent, "{text:?}");
            assert_eq!(error.id.as_ref().map(InstanceId::as_str), Some(text));
        }
    }
}
