//! Proxies as the API lists them (LS-1, operator.md §12).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::resource::{Mode, Phase};
use crate::time::Timestamp;

/// One proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyItem {
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Arc<str>,
    /// Its name.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// `Managed` or `External`.
    #[schema(value_type = String)]
    pub mode: Mode,
    /// The provider entry; none for External.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub provider: Option<Arc<str>>,
    /// Where it stands.
    #[schema(value_type = String)]
    pub phase: Phase,
    /// Condition `Healthy` is True, neither given up nor paused.
    pub healthy: bool,
    /// The reason of condition `Ready` while that is not True, such as `ProbeFailed` or `QuotaExceeded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reason: Option<Arc<str>>,
    /// Its message: why the proxy is not ready. Of one that is unhealthy, what the last probe met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub message: Option<Arc<str>>,
    /// `true`: most proxies fail at the check URL of this one at once, so its health is in doubt. Else absent.
    #[serde(default, rename = "checkURLSuspect", skip_serializing_if = "is_false")]
    pub check_url_suspect: bool,
    /// What `url` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub host: Option<Arc<str>>,
    /// The address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ip: Option<Arc<str>>,
    /// The address targets see.
    #[serde(default, rename = "egressIP", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub egress_ip: Option<Arc<str>>,
    /// The proxy port.
    pub port: u16,
    /// What a client is configured with; without credentials, absent until a host is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What crawlers select on.
    #[schema(value_type = BTreeMap<String, String>)]
    pub attributes: Arc<BTreeMap<String, String>>,
    /// How many leases may run at once.
    pub max_leases: u32,
    /// How many run. Absent, as are `coolingDown` and `cordons`, in an answer with the header `Egress-Stale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_leases: Option<u32>,
    /// It waits for its leases before it is removed; what still runs then is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub drain_by: Option<Timestamp>,
    /// Of the last probe that passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_millis: Option<i64>,
    /// End of the last probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub checked_at: Option<Timestamp>,
    /// Targets it is not granted for at the moment, the general one first (it has no target), then by target; at most 100
    /// of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooling_down: Option<Vec<CoolingItem>>,
    /// How many there are; absent when `coolingDown` lists them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooling_down_count: Option<u32>,
    /// Taken out by hand; an entry without a target is general.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordons: Option<Vec<CordonItem>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(super) const fn is_false(value: &bool) -> bool {
    !*value
}

/// A cooldown of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoolingItem {
    /// For which target; absent = for every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub target: Option<Arc<str>>,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
    /// The result that was reported: `blocked`, `captcha`, `rateLimited`, …
    pub reason: String,
}

/// A cordon of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CordonItem {
    /// For which target; absent = for every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub target: Option<Arc<str>>,
    /// When it ends; absent = when it is lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
    /// As given.
    pub reason: String,
    /// The name of the token that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// One page of proxies, ordered by namespace and name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyList {
    /// The page.
    pub items: Vec<ProxyItem>,
    /// For the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What an HTTP client is given: no credentials in it (LS-22), brackets round an IPv6 address.
pub fn proxy_url(host: &str, port: u16) -> String {
    if host.contains(':') { format!("http://[{host}]:{port}") } else { format!("http://{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_host_has_brackets_in_the_url() {
        assert_eq!(proxy_url("192.0.2.7", 3128), "http://192.0.2.7:3128");
        assert_eq!(proxy_url("2001:db8::7", 8080), "http://[2001:db8::7]:8080");
    }

    #[test]
    fn a_proxy_item_has_the_shape_of_section_12() {
        let json = serde_json::json!({"namespace": "default", "name": "px-1",
            "mode": "Managed", "provider": "lab", "phase": "Ready", "healthy": true,
            "reason": "ProbeFailed", "message": "ConnectFailed: connection refused", "checkURLSuspect": true,
            "host": "192.0.2.7", "ip": "192.0.2.7", "egressIP": "198.51.100.7",
            "port": 3128, "url": "http://192.0.2.7:3128", "attributes": {"geo": "de"},
            "maxLeases": 2, "activeLeases": 1, "latencyMillis": 12, "checkedAt": "2026-01-02T03:04:05.000Z",
            "coolingDown": [{"target": "shop.example", "until": "2026-01-02T03:14:05.000Z", "reason": "blocked"}],
            "cordons": [{"target": "shop.example", "until": "2026-01-02T04:00:00.000Z", "reason": "by hand"}]});
        let item: ProxyItem = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&item).unwrap(), json);
    }
}
