//! `Proxy`: one forward proxy with an egress of its own (operator.md §3.1).
//!
//! The types carry what one field may hold; rules over several fields, and grammars, are in [`super::rules`], and
//! [`super::crd`] puts both together.

#![allow(unreachable_pub, reason = "the derive macro copies the types into a function")]
#![allow(clippy::duplicated_attributes, reason = "the lint takes the keys of two printer columns for one attribute given twice")]

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::grammar;
use crate::secret::Secret;

/// What the user declares.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "crawl.example.com",
    version = "v1alpha1",
    kind = "Proxy",
    plural = "proxies",
    singular = "proxy",
    shortname = "px",
    namespaced,
    status = "ProxyStatus",
    derive = "PartialEq",
    selectable = ".spec.provider",
    selectable = ".status.phase",
    doc = "One forward proxy with an egress of its own: an instance this operator runs, or an endpoint somebody else runs.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.provider"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "IP", type_ = "string", json_path = ".status.ip"),
    printcolumn(name = "Healthy", type_ = "string", json_path = ".status.conditions[?(@.type==\"Healthy\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Port", type_ = "integer", json_path = ".spec.port", priority = 1),
    printcolumn(name = "Latency", type_ = "integer", json_path = ".status.latencyMillis", priority = 1),
    printcolumn(name = "Provider-ID", type_ = "string", json_path = ".status.providerID", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1)
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxySpec {
    /// Who runs the instance: this operator (`Managed`) or somebody else (`External`). Immutable.
    pub mode: Mode,
    /// Name of a configured provider entry. Required for Managed, refused for External; immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = grammar::DNS_LABEL))]
    pub provider: Option<String>,
    /// Where and on what the instance runs; what the fields mean belongs to the provider. Managed only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
    /// The proxy port.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// User data for the instance. Managed only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInitSpec>,
    /// Where an External proxy listens. Required for External, refused for Managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// What crawlers select on, by exact equality.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub attributes: BTreeMap<String, String>,
    /// How many leases may run at once; 0 drains: visible and probed, never leased.
    #[serde(default = "default_max_leases")]
    #[schemars(range(max = 10000))]
    pub max_leases: u32,
    /// How the proxy is proven.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub health_check: HealthCheck,
    /// How long an instance may take until it reports an address, in seconds.
    #[serde(default = "default_provisioning_timeout")]
    #[schemars(range(min = 60, max = 86400))]
    pub provisioning_timeout_seconds: u32,
}

/// Who runs the instance.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, JsonSchema)]
pub enum Mode {
    /// This operator creates, replaces and deletes it.
    Managed,
    /// Somebody else runs it.
    External,
}

/// Where and on what an instance runs.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Placement {
    /// Region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub region: Option<String>,
    /// Zone, host or node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub zone: Option<String>,
    /// Size of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub machine_type: Option<String>,
    /// Image to boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub image: Option<String>,
}

/// User data: exactly one of the two.
#[derive(Serialize, Deserialize, Clone, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudInitSpec {
    /// The text itself, at most 262144 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub inline: Option<String>,
    /// A Secret of the same namespace with the label `crawl.example.com/cloud-init: "true"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKeyRef>,
}

/// Without the text itself, which is a secret (PC-75).
impl fmt::Debug for CloudInitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inline = self.inline.as_ref().map(|text| Secret::new(text.as_str()));
        f.debug_struct("CloudInitSpec").field("inline", &inline).field("secret_ref", &self.secret_ref).finish()
    }
}

/// A key of a Secret.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretKeyRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::DNS_SUBDOMAIN))]
    pub name: String,
    /// The key in it.
    #[serde(default = "default_secret_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::SECRET_KEY))]
    pub key: String,
}

/// A Secret by name.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretNameRef {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = grammar::DNS_SUBDOMAIN))]
    pub name: String,
}

/// Where an External proxy listens.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Endpoint {
    /// A DNS name, an IPv4, or an IPv6 without brackets: no scheme, port or path.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// A Secret with `username` and `password` and the label `crawl.example.com/proxy-credentials: "true"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretNameRef>,
}

/// How the proxy is proven: what is fetched through it, how often, and what counts.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// Fetched through the proxy.
    #[serde(default = "default_url")]
    #[schemars(length(max = 2048))]
    pub url: String,
    /// The only status that passes.
    #[serde(default = "default_expected_status")]
    #[schemars(range(min = 200, max = 599))]
    pub expected_status: u16,
    /// Seconds between probes.
    #[serde(default = "default_interval")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: u32,
    /// Seconds one probe may take, at most the interval.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 1, max = 60))]
    pub timeout_seconds: u32,
    /// Consecutive failures that make it unhealthy.
    #[serde(default = "default_failure_threshold")]
    #[schemars(range(min = 1, max = 10))]
    pub failure_threshold: u32,
    /// Consecutive passes that make it healthy again.
    #[serde(default = "default_success_threshold")]
    #[schemars(range(min = 1, max = 10))]
    pub success_threshold: u32,
    /// The URL answers with the caller's address, which becomes `status.egressIP` (HE-7).
    #[serde(default)]
    pub reports_address: bool,
    /// Seconds of being unhealthy after which a Managed proxy is replaced; 0 = never (OP-33).
    #[serde(default)]
    #[schemars(range(max = 86400))]
    pub replace_after_seconds: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            url: default_url(),
            expected_status: default_expected_status(),
            interval_seconds: default_interval(),
            timeout_seconds: default_timeout(),
            failure_threshold: default_failure_threshold(),
            success_threshold: default_success_threshold(),
            reports_address: false,
            replace_after_seconds: 0,
        }
    }
}

const fn default_port() -> u16 {
    3128
}
const fn default_max_leases() -> u32 {
    1
}
const fn default_provisioning_timeout() -> u32 {
    1800
}
fn default_secret_key() -> String {
    "user-data".to_owned()
}
fn default_url() -> String {
    "https://www.gstatic.com/generate_204".to_owned()
}
const fn default_expected_status() -> u16 {
    204
}
const fn default_interval() -> u32 {
    30
}
const fn default_timeout() -> u32 {
    5
}
const fn default_failure_threshold() -> u32 {
    3
}
const fn default_success_threshold() -> u32 {
    1
}

/// What the operator reports. Written by the object's own actor only (and by its supervisor, SV-2).
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProxyStatus {
    /// Which installation owns the object (OP-34).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installation: Option<String>,
    /// Where the object stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The provider's id of the instance.
    #[serde(default, rename = "providerID", skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The instance's address; for External the endpoint's host if it is an address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The address targets see (HE-7).
    #[serde(default, rename = "egressIP", skip_serializing_if = "Option::is_none")]
    pub egress_ip: Option<String>,
    /// Hash of what the instance was made from: `v1:<hex>` (OP-16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,
    /// The generation this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How long the last written probe took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_millis: Option<i64>,
    /// Time of the probe that caused the last health transition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_health_check_time: Option<Time>,
    /// `Provisioned` (Managed only), `Healthy`, `Ready` (OP-7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Where an object stands; the first that applies, in this order (OP-6).
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, JsonSchema)]
pub enum Phase {
    /// The object is being deleted.
    Deleting,
    /// Latched, or given up by its supervisor.
    Failed,
    /// No instance, and none asked for yet; External: not yet probed.
    Pending,
    /// No usable instance yet.
    Provisioning,
    /// Address known, not yet probed.
    Running,
    /// Address known and healthy.
    Ready,
    /// Address known and unhealthy, or paused.
    Unhealthy,
}

impl Phase {
    /// Every phase, in the order of OP-6.
    pub const ALL: [Self; 7] =
        [Self::Deleting, Self::Failed, Self::Pending, Self::Provisioning, Self::Running, Self::Ready, Self::Unhealthy];

    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleting => "Deleting",
            Self::Failed => "Failed",
            Self::Pending => "Pending",
            Self::Provisioning => "Provisioning",
            Self::Running => "Running",
            Self::Ready => "Ready",
            Self::Unhealthy => "Unhealthy",
        }
    }
}
