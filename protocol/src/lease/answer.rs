//! Leases, reports and explanations as the API answers them (operator.md §12).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::lease::id::LeaseId;
use crate::lease::item::is_false;
use crate::secret::Secret;
use crate::time::Timestamp;

/// One lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Unguessable; whoever knows it may use, renew, report and release.
    #[schema(value_type = String, example = "k5v2q7m4n3x6c2b7d4f5g6h7ja")]
    pub id: LeaseId,
    /// Only grows, from grant to grant: for the holder's own stores.
    #[schema(maximum = 9007199254740991i64)]
    pub fence: u64,
    /// Running, or how it ended.
    pub state: LeaseState,
    /// As given in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub owner: Option<Arc<str>>,
    /// As given in the request, in lower case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub target: Option<Arc<str>>,
    /// As given in the request (a later version).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub session: Option<Arc<str>>,
    /// What was leased.
    pub proxy: LeaseProxy,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub granted_at: Timestamp,
    /// Until when.
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// The same, counted from the moment of the answer; rounded down.
    pub expires_in_seconds: u64,
    /// When to renew, counted likewise.
    pub renew_after_seconds: u64,
    /// The proxy is not healthy, or on its way out; the lease stays and can be renewed.
    pub proxy_unhealthy: bool,
    /// Most proxies fail at this target: it is not their fault.
    pub target_suspect: bool,
    /// `true`: most proxies fail at this one's check URL at once, so its health is in doubt. Else absent.
    #[serde(default, rename = "checkURLSuspect", skip_serializing_if = "is_false")]
    pub check_url_suspect: bool,
    /// The proxy is about to be removed, and waits for its leases: end this one, and take another.
    pub draining: bool,
    /// What still runs then is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub drain_by: Option<Timestamp>,
    /// The session had another proxy before (a later version).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<MovedFrom>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// Why it ended: `expired`, `released`, or why it was revoked, such as `deleted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Running, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum LeaseState {
    /// Running.
    Active,
    /// Its time was over.
    Expired,
    /// Given back.
    Released,
    /// Taken away; `reason` says why.
    Revoked,
}

impl LeaseState {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Released => "released",
            Self::Revoked => "revoked",
        }
    }
}

/// The leased proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseProxy {
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Arc<str>,
    /// Its name.
    #[schema(value_type = String)]
    pub name: Arc<str>,
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
    /// What a client is configured with; never holds credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What crawlers select on.
    #[schema(value_type = BTreeMap<String, String>)]
    pub attributes: Arc<BTreeMap<String, String>>,
    /// In the grant only, and never without a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<LeaseCredentials>,
}

/// For `Proxy-Authorization: Basic`. Written into a grant and nowhere else.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, ToSchema)]
pub struct LeaseCredentials {
    /// User name.
    #[serde(serialize_with = "hand_out", deserialize_with = "take_in")]
    #[schema(value_type = String)]
    pub username: Secret,
    /// Password.
    #[serde(serialize_with = "hand_out", deserialize_with = "take_in")]
    #[schema(value_type = String)]
    pub password: Secret,
}

fn hand_out<S: Serializer>(secret: &Secret, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(secret.expose())
}

fn take_in<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Secret, D::Error> {
    String::deserialize(d).map(Secret::new)
}

/// Where a session was before (LS-14; a later version).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MovedFrom {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Why it had to move.
    pub reason: String,
}

/// One page of running leases, ordered by id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseList {
    /// The page.
    pub items: Vec<Lease>,
    /// For the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What a report did (LS-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportAnswer {
    /// Whether it was taken as evidence about the proxy.
    pub counted: bool,
    /// Why not: `targetSuspect`, `proxyGone`, `tooManyCooldowns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The cooldown that holds now because of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cooldown: Option<ReportCooldown>,
}

/// A cooldown that a report caused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportCooldown {
    /// For which target; absent = for every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub target: Option<Arc<str>>,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}

/// What a grant would do, and why each proxy is or is not a candidate (LS-17).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explain {
    /// How many proxies the selector matches, those it excludes by name left out.
    pub matched: u32,
    /// Whether a grant would be made now.
    pub would_grant: bool,
    /// Up to 100, those with a rank first.
    pub candidates: Vec<Candidate>,
    /// There are more than 100.
    pub truncated: bool,
}

/// One proxy that the selector names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Its namespace.
    #[schema(value_type = String)]
    pub namespace: Arc<str>,
    /// Its name.
    #[schema(value_type = String)]
    pub name: Arc<str>,
    /// Its turn, from 1; or `excludedBy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The rule that keeps it out; or `rank`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excluded_by: Option<ExcludedBy>,
    /// How many leases run on it.
    pub active_leases: u32,
    /// How many may.
    pub max_leases: u32,
    /// More about the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Until when the rule holds, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// Why a proxy is not granted (LS-17).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExcludedBy {
    /// `maxLeases` is 0.
    Drained,
    /// Taken out by hand.
    Cordoned,
    /// Being deleted or replaced, or suspended.
    Draining,
    /// It needs credentials, which nobody gets without a token (LS-22).
    CredentialsWithheld,
    /// Not healthy, paused or given up.
    Unhealthy,
    /// Blocked by the target, or in general.
    CoolingDown,
    /// Every place is taken.
    AtCapacity,
    /// The request does not want it.
    Excluded,
    /// The session has another (a later version).
    Session,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_the_shape_of_section_12() {
        let json = serde_json::json!({"id": "k5v2q7m4n3x6c2b7d4f5g6h7ja", "fence": 1_767_323_045_000_123_u64,
            "state": "active", "owner": "crawler-7", "target": "shop.example", "session": "abc",
            "proxy": {"namespace": "default", "name": "px-1", "host": "192.0.2.7", "ip": "192.0.2.7", "egressIP": "198.51.100.7", "port": 3128,
                      "url": "http://192.0.2.7:3128", "attributes": {"geo": "de"}, "credentials": {"username": "u", "password": "p"}},
            "grantedAt": "2026-01-02T03:04:05.000Z", "expiresAt": "2026-01-02T03:09:05.000Z", "expiresInSeconds": 300, "renewAfterSeconds": 100,
            "proxyUnhealthy": false, "targetSuspect": false, "checkURLSuspect": true, "draining": false, "drainBy": "2026-01-02T03:10:05.000Z",
            "movedFrom": {"namespace": "default", "name": "px-0", "reason": "unhealthy"},
            "endedAt": "2026-01-02T03:09:05.000Z", "reason": "expired"});
        let lease: Lease = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&lease).unwrap(), json);
        assert!(!format!("{lease:?}").contains("\"p\""), "LS-22: credentials do not print");
    }

    #[test]
    fn an_explanation_has_the_shape_of_section_12() {
        let json = serde_json::json!({"matched": 12, "wouldGrant": true,
            "candidates": [{"namespace": "default", "name": "px-1", "rank": 1, "activeLeases": 0, "maxLeases": 2},
                           {"namespace": "default", "name": "px-2", "excludedBy": "coolingDown", "activeLeases": 1, "maxLeases": 2,
                            "detail": "blocked for shop.example", "until": "2026-01-02T03:14:05.000Z"}],
            "truncated": false});
        let explain: Explain = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&explain).unwrap(), json);
    }
}
