//! Who asks: what a token may see and change (operator.md §6).

use std::sync::Arc;

/// The holder of a token, as the HTTP layer recognised it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The token's name; leases belong to it. Empty for an anonymous caller.
    pub token_name: Arc<str>,
    /// Sees every lease and may cordon: the lone token, the name `admin`, and everybody while no token is configured
    /// (who may not cordon all the same: LS-22).
    pub all: bool,
    /// The only namespaces whose proxies it sees; `None` is every one.
    pub namespaces: Option<Arc<[Arc<str>]>>,
    /// No token is configured: nobody gets credentials, and nobody may cordon (LS-22).
    pub anonymous: bool,
}

impl Caller {
    /// Everybody, while no token is configured.
    pub fn anonymous() -> Self {
        Self { token_name: "".into(), all: true, namespaces: None, anonymous: true }
    }

    /// A token that may do all.
    pub fn admin(name: impl Into<Arc<str>>) -> Self {
        Self { token_name: name.into(), all: true, namespaces: None, anonymous: false }
    }

    /// A token that sees its own leases, and the proxies of some namespaces (`None`: of all).
    pub fn named(name: impl Into<Arc<str>>, namespaces: Option<Arc<[Arc<str>]>>) -> Self {
        Self { token_name: name.into(), all: false, namespaces, anonymous: false }
    }

    /// Whether it sees proxies of that namespace.
    pub fn sees_namespace(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|seen| seen.iter().any(|n| **n == *namespace))
    }

    /// Whether a lease of that token's name is its own.
    pub fn owns(&self, token_name: &str) -> bool {
        self.all || *self.token_name == *token_name
    }
}
