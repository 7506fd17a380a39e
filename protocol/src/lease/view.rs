//! A lease as the book hands it over: shared parts and a few numbers, cheap to clone, turned into JSON by whoever
//! answers. [`LeaseView::write_json`] writes what serde would write for [`LeaseView::to_lease`] (a test holds them equal).

use std::sync::Arc;

use crate::lease::answer::{Lease, LeaseCredentials, LeaseProxy, LeaseState};
use crate::lease::journal::{Ending, LeaseRecord};
use crate::lease::{ProxyAvailability, json};
use crate::object::Credentials;
use crate::time::Timestamp;

/// A proxy as leases show it, with its JSON ready. Made once for each change of the proxy. Holds no credentials.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyFragment {
    proxy: LeaseProxy,
    /// The object without its closing brace.
    json: Box<[u8]>,
}

impl ProxyFragment {
    /// From the proxy as leases show it; credentials in it are left out.
    pub fn new(proxy: LeaseProxy) -> Self {
        let proxy = LeaseProxy { credentials: None, ..proxy };
        let mut json = serde_json::to_vec(&proxy).unwrap_or_default();
        json.pop();
        Self { proxy, json: json.into() }
    }

    /// From what the proxy's actor published.
    pub fn of(proxy: &ProxyAvailability) -> Self {
        Self::new(LeaseProxy {
            namespace: Arc::clone(&proxy.key.namespace),
            name: Arc::clone(&proxy.key.name),
            host: proxy.host.clone(),
            ip: proxy.ip.clone(),
            egress_ip: proxy.egress_ip.clone(),
            port: proxy.port,
            url: proxy.url(),
            attributes: Arc::clone(&proxy.attributes),
            credentials: None,
        })
    }

    /// The proxy as leases show it.
    pub const fn proxy(&self) -> &LeaseProxy {
        &self.proxy
    }
}

/// A lease at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseView {
    /// What never changes.
    pub record: Arc<LeaseRecord>,
    /// The proxy as it is now, or was last.
    pub proxy: Arc<ProxyFragment>,
    /// When it ends or was to end.
    pub expires_at: Timestamp,
    /// Counted from the moment of the answer, rounded down; 0 after the end.
    pub expires_in_seconds: u64,
    /// Likewise.
    pub renew_after_seconds: u64,
    /// The proxy is not healthy, or on its way out.
    pub proxy_unhealthy: bool,
    /// It is not the proxies' fault (LS-7).
    pub target_suspect: bool,
    /// Most proxies fail at its check URL (HE-9).
    pub check_url_suspect: bool,
    /// The proxy waits for its leases; those that still run are revoked then (LS-16).
    pub drain_by: Option<Timestamp>,
    /// `None` while it runs.
    pub ending: Option<Ending>,
    /// In a grant only, and never for an anonymous caller (LS-22).
    pub credentials: Option<Arc<Credentials>>,
}

impl LeaseView {
    /// Running, or how it ended.
    pub fn state(&self) -> LeaseState {
        self.ending.map_or(LeaseState::Active, |ending| ending.state)
    }

    /// The answer as a value.
    pub fn to_lease(&self) -> Lease {
        let credentials =
            self.credentials.as_ref().map(|c| LeaseCredentials { username: c.username.clone(), password: c.password.clone() });
        Lease {
            id: self.record.id,
            fence: self.record.fence,
            state: self.state(),
            owner: self.record.owner.clone(),
            target: self.record.target.clone(),
            session: None,
            proxy: LeaseProxy { credentials, ..self.proxy.proxy.clone() },
            granted_at: self.record.granted_at,
            expires_at: self.expires_at,
            expires_in_seconds: self.expires_in_seconds,
            renew_after_seconds: self.renew_after_seconds,
            proxy_unhealthy: self.proxy_unhealthy,
            target_suspect: self.target_suspect,
            check_url_suspect: self.check_url_suspect,
            draining: self.drain_by.is_some(),
            drain_by: self.drain_by,
            moved_from: None,
            ended_at: self.ending.map(|ending| ending.at),
            reason: self.ending.map(|ending| ending.reason.to_owned()),
        }
    }

    /// Appends the answer as JSON. The bytes hold the credentials of a grant: they go to the client and nowhere else.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.reserve(self.proxy.json.len() + 448);
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(&self.record.id.encode());
        out.extend_from_slice(b"\",\"fence\":");
        json::write_u64(self.record.fence, out);
        out.extend_from_slice(b",\"state\":\"");
        out.extend_from_slice(self.state().as_str().as_bytes());
        out.push(b'"');
        if let Some(owner) = &self.record.owner {
            out.extend_from_slice(b",\"owner\":");
            json::write_str(owner, out);
        }
        if let Some(target) = &self.record.target {
            out.extend_from_slice(b",\"target\":");
            json::write_str(target, out);
        }
        out.extend_from_slice(b",\"proxy\":");
        out.extend_from_slice(&self.proxy.json);
        if let Some(credentials) = &self.credentials {
            out.extend_from_slice(b",\"credentials\":{\"username\":");
            json::write_str(credentials.username.expose(), out);
            out.extend_from_slice(b",\"password\":");
            json::write_str(credentials.password.expose(), out);
            out.push(b'}');
        }
        out.extend_from_slice(b"},\"grantedAt\":");
        json::write_time(self.record.granted_at, out);
        out.extend_from_slice(b",\"expiresAt\":");
        json::write_time(self.expires_at, out);
        out.extend_from_slice(b",\"expiresInSeconds\":");
        json::write_u64(self.expires_in_seconds, out);
        out.extend_from_slice(b",\"renewAfterSeconds\":");
        json::write_u64(self.renew_after_seconds, out);
        out.extend_from_slice(b",\"proxyUnhealthy\":");
        json::write_bool(self.proxy_unhealthy, out);
        out.extend_from_slice(b",\"targetSuspect\":");
        json::write_bool(self.target_suspect, out);
        if self.check_url_suspect {
            out.extend_from_slice(b",\"checkURLSuspect\":true");
        }
        out.extend_from_slice(b",\"draining\":");
        json::write_bool(self.drain_by.is_some(), out);
        if let Some(by) = self.drain_by {
            out.extend_from_slice(b",\"drainBy\":");
            json::write_time(by, out);
        }
        if let Some(ending) = &self.ending {
            out.extend_from_slice(b",\"endedAt\":");
            json::write_time(ending.at, out);
            out.extend_from_slice(b",\"reason\":");
            json::write_str(ending.reason, out);
        }
        out.push(b'}');
    }
}

/// Appends `{"items": [...], "nextCursor"?}` (LS-21).
pub fn write_list(items: &[LeaseView], next_cursor: Option<&str>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"items\":[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        item.write_json(out);
    }
    out.push(b']');
    if let Some(cursor) = next_cursor {
        out.extend_from_slice(b",\"nextCursor\":");
        json::write_str(cursor, out);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::ids::Uid;
    use crate::lease::item::proxy_url;
    use crate::lease::{LeaseId, LeaseList};
    use crate::secret::Secret;

    fn text() -> impl Strategy<Value = Option<Arc<str>>> {
        proptest::option::of(proptest::string::string_regex("[ -~\n\u{e9}\u{1f600}]{0,12}").unwrap().prop_map(|s| s.into()))
    }

    prop_compose! {
        fn views()(
            id: [u8; 16], fence in 0u64..(1 << 53), owner in text(), target in text(), host in text(), ip in text(), egress in text(),
            attributes in proptest::collection::btree_map("[a-z/\"]{1,5}", "[ -~]{0,5}", 0..4),
            times in (0i64..4_000_000_000_000, 0u64..90_000_000), flags: (bool, bool, bool), user in text(), ended in 0usize..4, port: u16,
        ) -> LeaseView {
            let attributes: Arc<BTreeMap<String, String>> = Arc::new(attributes);
            let proxy = Arc::new(ProxyFragment::new(LeaseProxy {
                namespace: "default".into(), name: "px-1".into(), url: host.as_ref().map(|h| proxy_url(h, port)), host, ip,
                egress_ip: egress, port, attributes, credentials: None,
            }));
            let granted_at = Timestamp::from_millis(times.0);
            let ttl = Duration::from_millis(times.1);
            let end = |state, reason| Some(Ending { state, reason, at: granted_at + ttl });
            LeaseView {
                record: Arc::new(LeaseRecord {
                    id: LeaseId::from_bytes(id), fence, token: "t".into(), owner, target, uid: Uid::new("u"), proxy: Arc::clone(&proxy), granted_at, ttl,
                }),
                proxy, expires_at: granted_at + ttl, expires_in_seconds: ttl.as_secs(), renew_after_seconds: ttl.as_secs() / 3,
                proxy_unhealthy: flags.0, target_suspect: flags.1, check_url_suspect: flags.2, drain_by: (flags.0 != flags.1).then_some(granted_at + ttl),
                ending: [None, end(LeaseState::Expired, "expired"), end(LeaseState::Released, "released"), end(LeaseState::Revoked, "deleted")][ended],
                credentials: user.map(|u| Arc::new(Credentials { username: Secret::new(u.to_string()), password: Secret::new("p\"w".to_owned()) })),
            }
        }
    }

    proptest! {
        #[test]
        fn a_lease_is_written_as_serde_writes_it(view in views()) {
            let mut out = Vec::new();
            view.write_json(&mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&view.to_lease()).unwrap());
        }

        #[test]
        fn a_list_is_written_as_serde_writes_it(items in proptest::collection::vec(views(), 0..3), cursor in proptest::option::of("[a-z]{1,9}")) {
            let mut out = Vec::new();
            write_list(&items, cursor.as_deref(), &mut out);
            let list = LeaseList { items: items.iter().map(LeaseView::to_lease).collect(), next_cursor: cursor };
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&list).unwrap());
        }
    }
}
