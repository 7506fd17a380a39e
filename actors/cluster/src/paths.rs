//! Where things are at the API server.

use std::sync::Arc;

use egress_kube::segment;
use egress_protocol::ObjectKey;
use egress_protocol::resource::{GROUP, VERSION};

/// Which objects an operator is about (OP-25).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Of every namespace.
    All,
    /// Of this one.
    Namespace(Arc<str>),
}

impl Scope {
    fn of(&self, base: &str, plural: &str) -> String {
        match self {
            Self::All => format!("{base}/{plural}"),
            Self::Namespace(namespace) => format!("{base}/namespaces/{}/{plural}", segment(namespace)),
        }
    }

    pub(crate) fn proxies(&self) -> String {
        self.of(&format!("/apis/{GROUP}/{VERSION}"), PROXIES)
    }

    pub(crate) fn secrets(&self) -> String {
        self.of("/api/v1", SECRETS)
    }
}

/// The kinds as spans, queries and people name them.
pub(crate) const PROXIES: &str = "proxies";
pub(crate) const SECRETS: &str = "secrets";
pub(crate) const PROVIDER_HEALTHS: &str = "providerhealths";

/// One Proxy.
pub(crate) fn proxy_path(key: &ObjectKey) -> String {
    format!("{}/{}", Scope::Namespace(Arc::clone(&key.namespace)).proxies(), segment(&key.name))
}

/// One ProviderHealth; all of them when the name is empty.
pub(crate) fn health_path(name: &str) -> String {
    let all = format!("/apis/{GROUP}/{VERSION}/{PROVIDER_HEALTHS}");
    if name.is_empty() { all } else { format!("{all}/{}", segment(name)) }
}
