//! What is read of Compute Engine's answers: the fields that are used and no others. The names are those of the discovery
//! document `compute.v1`; 64-bit numbers are strings in JSON there.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// `Instance`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Vm {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) status: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) network_interfaces: Vec<NetworkInterface>,
    /// RFC 3339 with an offset.
    pub(crate) creation_timestamp: Option<String>,
}

/// `NetworkInterface`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkInterface {
    #[serde(rename = "networkIP")]
    pub(crate) network_ip: Option<String>,
    #[serde(default)]
    pub(crate) access_configs: Vec<AccessConfig>,
}

/// `AccessConfig`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct AccessConfig {
    #[serde(rename = "natIP")]
    pub(crate) nat_ip: Option<String>,
}

/// `Operation`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Operation {
    pub(crate) name: String,
    /// `insert`, `delete`, and others' kinds.
    #[serde(default)]
    pub(crate) operation_type: String,
    /// `PENDING`, `RUNNING` or `DONE`.
    #[serde(default)]
    pub(crate) status: String,
    pub(crate) target_link: Option<String>,
    /// RFC 3339 with an offset.
    pub(crate) insert_time: Option<String>,
    pub(crate) error: Option<OperationErrors>,
}

impl Operation {
    pub(crate) fn is_done(&self) -> bool {
        self.status == "DONE"
    }

    /// What it failed of; empty when it did not.
    pub(crate) fn errors(&self) -> &[OperationError] {
        self.error.as_ref().map_or(&[], |error| error.errors.as_slice())
    }
}

/// `Operation.error`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OperationErrors {
    #[serde(default)]
    pub(crate) errors: Vec<OperationError>,
}

/// An item of `Operation.error.errors`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct OperationError {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code.as_str(), self.message.as_str()) {
            ("", "") => f.write_str("an error without code and message"),
            (code, "") => f.write_str(code),
            ("", message) => f.write_str(message),
            (code, message) => write!(f, "{code}: {message}"),
        }
    }
}

/// `OperationList`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct OperationList {
    #[serde(default)]
    pub(crate) items: Vec<Operation>,
}

/// `InstanceAggregatedList`: one page.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VmPage {
    /// By scope: `zones/<zone>`.
    #[serde(default)]
    pub(crate) items: BTreeMap<String, Scope>,
    pub(crate) next_page_token: Option<String>,
    #[serde(default)]
    pub(crate) unreachables: Vec<String>,
}

/// `InstancesScopedList`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Scope {
    #[serde(default)]
    pub(crate) instances: Vec<Vm>,
    pub(crate) warning: Option<Warning>,
}

/// `InstancesScopedList.warning`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Warning {
    #[serde(default)]
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}

/// `Region`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Region {
    #[serde(default)]
    pub(crate) quotas: Vec<Quota>,
}

/// `Quota`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Quota {
    #[serde(default)]
    pub(crate) metric: String,
    #[serde(default)]
    pub(crate) usage: f64,
    #[serde(default)]
    pub(crate) limit: f64,
}

/// The body of an answer that is an error (GC-16).
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorDetail,
}

/// `error` of [`ErrorBody`].
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ErrorDetail {
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) errors: Vec<ErrorReason>,
}

/// An item of `error.errors`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ErrorReason {
    #[serde(default)]
    pub(crate) reason: String,
}
