//! The bodies as clients write them: for the API's description, and for clients of ours. Reading them strictly is
//! the parent module's.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::ReportResult;

/// A lease request. An empty object leases any proxy.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GrantBody {
    /// Which proxies will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<SelectorBody>,
    /// What it is for: visible ASCII, compared in lower case. Cooldowns are kept by target.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 253, pattern = "^[!-~]{1,253}$", example = "shop.example")]
    pub target: Option<String>,
    /// A human duration from 1s to 24h.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(default = "5m", example = "90s")]
    pub ttl: Option<String>,
    /// Who it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 253)]
    pub owner: Option<String>,
}

/// Which proxies will do: all that is given must hold.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SelectorBody {
    /// Attributes and the value each must have, or a list of values of which it must have one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub attributes: BTreeMap<String, ValueBody>,
    /// The provider entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 253)]
    pub provider: Option<String>,
    /// The namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 253)]
    pub namespace: Option<String>,
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 253)]
    pub name: Option<String>,
    /// Not these, as `NAMESPACE/NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100, required = false)]
    pub exclude: Vec<String>,
}

/// A value, or several of which one will do.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(untagged)]
pub enum ValueBody {
    /// Exactly this.
    One(String),
    /// Any of these.
    Any(Vec<String>),
}

/// A renewal.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewBody {
    /// For how long from now; default: as granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "5m")]
    pub ttl: Option<String>,
}

/// A report.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportBody {
    /// What was seen.
    pub result: ReportResult,
    /// Of which target; default: the lease's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 253, pattern = "^[!-~]{1,253}$")]
    pub target: Option<String>,
    /// How long to cool, 0s to 24h; taken as given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "30m")]
    pub cooldown: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1024)]
    pub message: Option<String>,
}

/// A cordon.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CordonBody {
    /// For which target; default: for every one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 253, pattern = "^[!-~]{1,253}$")]
    pub target: Option<String>,
    /// RFC 3339, in the future; default: until lifted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub until: Option<String>,
    /// For people; not empty.
    #[schema(min_length = 1, max_length = 1024)]
    pub reason: String,
}
