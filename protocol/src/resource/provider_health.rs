//! `ProviderHealth`: can this provider's backend be reached and used right now (provider-health.md §2).

#![allow(unreachable_pub, reason = "the derive macro copies the types into a function")]
#![allow(clippy::duplicated_attributes, reason = "the lint takes the keys of two printer columns for one attribute given twice")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

/// The kind has no spec: an object is named after its provider and carries status only.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[kube(
    group = "crawl.example.com",
    version = "v1alpha1",
    kind = "ProviderHealth",
    plural = "providerhealths",
    singular = "providerhealth",
    shortname = "ph",
    no_spec,
    status = "ProviderHealthStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Whether a provider's backend can be reached and used right now; named after its provider, status only.",
    printcolumn(name = "Type", type_ = "string", json_path = ".status.type"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Targets", type_ = "string", json_path = ".status.targetsReady"),
    printcolumn(name = "Last Check", type_ = "date", json_path = ".status.lastCheckTime"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ProviderHealthFields {}

/// The result of the last round.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProviderHealthStatus {
    /// The provider's type: gcp, kubernetes, kvm, kvm2, local or proxmox.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// `Ready` (PH-19).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// What can fail independently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub targets: Vec<TargetStatus>,
    /// `<ready>/<total>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets_ready: Option<String>,
    /// When the check finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_check_time: Option<Time>,
}

/// One target of a provider.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TargetStatus {
    /// Its name, unique in the provider.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Whether it passed.
    pub ready: bool,
    /// When `ready` last flipped.
    pub last_transition_time: Time,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Why (PH-31).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// How long the check took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_millis: Option<i64>,
    /// Facts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 256}))]
    pub details: BTreeMap<String, String>,
}

impl ProviderHealthStatus {
    /// Takes over the transition times of an earlier status wherever what they are about has not flipped since (PH-17,
    /// PH-19, PH-21).
    pub fn keep_times(&mut self, earlier: &Self) {
        for condition in &mut self.conditions {
            let before = earlier.conditions.iter().find(|before| before.type_ == condition.type_);
            if let Some(before) = before.filter(|before| before.status == condition.status) {
                condition.last_transition_time = before.last_transition_time.clone();
            }
        }
        for target in &mut self.targets {
            let before = earlier.targets.iter().find(|before| before.name == target.name);
            if let Some(before) = before.filter(|before| before.ready == target.ready) {
                target.last_transition_time = before.last_transition_time.clone();
            }
        }
    }
}
