//! What the composition root fills in from the providers file (K8 §1) and from the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_config::providers::{CloudInitPolicy, KubernetesBlock, Quantity};
use egress_protocol::InstallationId;
use ipnet::IpNet;

/// One entry of type `kubernetes`, validated.
#[derive(Debug, Clone, PartialEq)]
pub struct KubernetesConfig {
    /// The configured name.
    pub entry: Arc<str>,
    /// Whose instances are ours (PC-43).
    pub installation: InstallationId,
    /// `image`.
    pub image: String,
    /// `cloudInitPolicy`.
    pub cloud_init: CloudInitPolicy,
    /// `resources.requests`, by resource.
    pub requests: BTreeMap<String, String>,
    /// `resources.limits`, by resource.
    pub limits: BTreeMap<String, String>,
    /// `maxFileDescriptors`.
    pub max_file_descriptors: u32,
    /// `allowedClients`; empty stands for all.
    pub allowed_clients: Vec<IpNet>,
    /// `allowedDestinations`.
    pub allowed_destinations: Vec<IpNet>,
    /// `imagePullSecrets`.
    pub image_pull_secrets: Vec<String>,
    /// Whether the Proxies are objects of the API server that the Pods are made at. Only then a Pod names its Proxy as its
    /// owner: an owner that the cluster does not know would have its collector delete the Pod at once (K8-7).
    pub owned: bool,
    /// The only namespace that is listed and checked (OP-25); `None`: all.
    pub namespace: Option<Arc<str>>,
    /// How long calls may take, and how much one page holds.
    pub budgets: Budgets,
}

impl KubernetesConfig {
    /// What an entry says, with its defaults (K8 §1), for Proxies of the same API server.
    pub fn of(entry: impl Into<Arc<str>>, installation: InstallationId, block: &KubernetesBlock) -> Self {
        let amounts = |amounts: &BTreeMap<&'static str, Quantity>| {
            amounts.iter().map(|(resource, amount)| ((*resource).to_owned(), amount.as_str().to_owned())).collect()
        };
        Self {
            entry: entry.into(),
            installation,
            image: block.image.clone(),
            cloud_init: block.cloud_init_policy,
            requests: amounts(&block.resources.requests),
            limits: amounts(&block.resources.limits),
            max_file_descriptors: block.max_file_descriptors,
            allowed_clients: block.allowed_clients.clone(),
            allowed_destinations: block.allowed_destinations.clone(),
            image_pull_secrets: block.image_pull_secrets.clone(),
            owned: true,
            namespace: None,
            budgets: Budgets::default(),
        }
    }

    /// The defaults of K8 §1.
    pub fn new(entry: impl Into<Arc<str>>, installation: InstallationId) -> Self {
        Self::of(entry, installation, &KubernetesBlock::default())
    }
}

/// K8-14, in one place so that tests can shrink them (PC-65). Connecting has 5 s, in the client ([`egress_kube::CONNECT`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Of one request, the second try after a refused token included.
    pub request: Duration,
    /// Of one page of a list.
    pub list_page: Duration,
    /// Of the server's version in a check, which is for show.
    pub version: Duration,
    /// Pods on one page.
    pub page_size: u32,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { request: Duration::from_secs(15), list_page: Duration::from_secs(30), version: Duration::from_secs(2), page_size: 500 }
    }
}
