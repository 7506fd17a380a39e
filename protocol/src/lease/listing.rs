//! Lists of proxies (LS-1), the same for the leader's book and for the own watch of a replica without a leader (LS-10).

use std::sync::Arc;

use crate::ids::ObjectKey;
use crate::lease::{Caller, Cursor, ProxyAvailability, ProxyFilter, ProxyItem, ProxyList, Unready};
use crate::object::ProxyObject;
use crate::resource::conditions::{self, Status, kind};
use crate::resource::{Phase, ProxyStatus};

impl ProxyFilter {
    /// Whether all that is asked holds.
    pub fn passes(&self, proxy: &ProxyAvailability) -> bool {
        self.healthy.is_none_or(|healthy| healthy == proxy.healthy)
            && self.mode.is_none_or(|mode| mode == proxy.mode)
            && self.phase.is_none_or(|phase| phase == proxy.phase)
            && self.provider.as_ref().is_none_or(|provider| proxy.provider.as_deref() == Some(&**provider))
            && self.namespace.as_ref().is_none_or(|namespace| **namespace == *proxy.key.namespace)
            && self.attributes.iter().all(|(key, value)| proxy.attributes.get(&**key).is_some_and(|v| **v == **value))
    }
}

/// A page of proxies in the making: they are shown to it one after another, in order, from the one after
/// [`ProxyWalk::after`] on.
#[derive(Debug)]
pub struct ProxyWalk {
    filter: ProxyFilter,
    caller: Caller,
    limit: usize,
    after: Option<ObjectKey>,
    items: Vec<ProxyItem>,
}

impl ProxyWalk {
    /// At most `limit` proxies after `after`.
    pub const fn new(filter: ProxyFilter, after: Option<ObjectKey>, limit: usize, caller: Caller) -> Self {
        Self { filter, caller, limit, after, items: Vec::new() }
    }

    /// The last one that it has seen.
    pub const fn after(&self) -> Option<&ObjectKey> {
        self.after.as_ref()
    }

    /// Looks at the next one, which may have nothing to show yet. The page, when this one would be one too many.
    pub fn look(
        &mut self,
        key: &ObjectKey,
        proxy: Option<&ProxyAvailability>,
        item: impl FnOnce() -> Option<ProxyItem>,
    ) -> Option<ProxyList> {
        if proxy.is_some_and(|proxy| self.filter.passes(proxy)) && self.caller.sees_namespace(&key.namespace) {
            if self.items.len() == self.limit {
                let next_cursor = self.after.take().map(|key| Cursor::Proxy(key).encode());
                return Some(ProxyList { items: std::mem::take(&mut self.items), next_cursor });
            }
            self.items.extend(item());
        }
        self.after = Some(key.clone());
        None
    }

    /// There are no more: the last page.
    pub fn end(&mut self) -> ProxyList {
        ProxyList { items: std::mem::take(&mut self.items), next_cursor: None }
    }
}

impl ProxyItem {
    /// What is known of a proxy without the book: nothing of leases, cooldowns and cordons.
    pub fn of(proxy: &ProxyAvailability) -> Self {
        Self {
            namespace: Arc::clone(&proxy.key.namespace),
            name: Arc::clone(&proxy.key.name),
            mode: proxy.mode,
            provider: proxy.provider.clone(),
            phase: proxy.phase,
            healthy: proxy.healthy,
            reason: proxy.unready.as_ref().map(|unready| Arc::clone(&unready.reason)),
            message: proxy.unready.as_ref().filter(|unready| !unready.message.is_empty()).map(|unready| Arc::clone(&unready.message)),
            check_url_suspect: proxy.check_url_suspect,
            host: proxy.host.clone(),
            ip: proxy.ip.clone(),
            egress_ip: proxy.egress_ip.clone(),
            port: proxy.port,
            url: proxy.url(),
            attributes: Arc::clone(&proxy.attributes),
            max_leases: proxy.max_leases,
            active_leases: None,
            latency_millis: proxy.latency_millis,
            checked_at: proxy.checked_at,
            cooling_down: None,
            cooling_down_count: None,
            drain_by: None,
            cordons: None,
        }
    }
}

impl ProxyAvailability {
    /// An object as its leader wrote it last, without credentials.
    pub fn as_written(object: &ProxyObject) -> Self {
        let ProxyStatus { phase, ip, egress_ip, latency_millis, conditions, .. } = &*object.status;
        let phase = if object.deleting { Phase::Deleting } else { phase.unwrap_or(Phase::Pending) };
        let shared = |text: &str| -> Arc<str> { text.into() };
        let ip = ip.as_deref().map(shared);
        Self {
            key: object.key.clone(),
            uid: object.uid.clone(),
            mode: object.spec.mode,
            provider: object.spec.provider.as_deref().map(shared),
            phase,
            // One that is given up, paused or on its way out is in another phase (OP-6).
            healthy: phase == Phase::Ready && conditions::status(conditions, kind::HEALTHY) == Status::True,
            awaited: false,
            unready: conditions::find(conditions, kind::READY)
                .and_then(|ready| Unready::of(conditions::status(conditions, kind::READY), &ready.reason, &ready.message)),
            check_url_suspect: false,
            draining: object.deleting || object.suspended,
            drain_by: None,
            host: object.spec.endpoint.as_ref().map(|endpoint| shared(&endpoint.host)).or_else(|| ip.clone()),
            ip,
            egress_ip: egress_ip.as_deref().map(shared),
            port: object.spec.port,
            attributes: Arc::new(object.spec.attributes.clone()),
            max_leases: object.spec.max_leases,
            latency_millis: *latency_millis,
            checked_at: None,
            credentials: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Uid;
    use crate::object::{Annotations, CloudInit, CredentialsState};

    fn object(spec: serde_json::Value, status: serde_json::Value) -> ProxyObject {
        ProxyObject {
            key: ObjectKey::new("default", "px"),
            uid: Uid::new("u-1"),
            generation: 1,
            spec: Arc::new(serde_json::from_value(spec).unwrap()),
            status: Arc::new(serde_json::from_value(status).unwrap()),
            annotations: Annotations::default(),
            deleting: false,
            finalizer: true,
            suspended: false,
            cloud_init: CloudInit::None,
            credentials: CredentialsState::NotNeeded,
        }
    }

    fn condition(kind: &str, status: &str) -> serde_json::Value {
        serde_json::json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"})
    }

    #[test]
    fn an_object_as_it_was_written_shows_what_its_leader_showed_but_for_what_only_the_book_knows() {
        let spec = serde_json::json!({"mode": "Managed", "provider": "lab", "port": 8080, "maxLeases": 3, "attributes": {"geo": "de"}});
        let status = serde_json::json!({"phase": "Ready", "ip": "192.0.2.7", "egressIP": "198.51.100.7", "latencyMillis": 12,
            "conditions": [condition("Healthy", "True")]});
        let ready = object(spec.clone(), status.clone());
        assert_eq!(
            serde_json::to_value(ProxyItem::of(&ProxyAvailability::as_written(&ready))).unwrap(),
            serde_json::json!({"namespace": "default", "name": "px", "mode": "Managed", "provider": "lab", "phase": "Ready", "healthy": true,
                "host": "192.0.2.7", "ip": "192.0.2.7", "egressIP": "198.51.100.7", "port": 8080, "url": "http://192.0.2.7:8080",
                "attributes": {"geo": "de"}, "maxLeases": 3, "latencyMillis": 12})
        );
        let mut down = status.clone();
        down["phase"] = "Unhealthy".into();
        down["conditions"] = serde_json::json!([{"type": "Ready", "status": "False", "reason": "ProbeFailed", "message": "ConnectFailed: refused",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]);
        let down = serde_json::to_value(ProxyItem::of(&ProxyAvailability::as_written(&object(spec.clone(), down)))).unwrap();
        assert_eq!((&down["reason"], &down["message"]), (&"ProbeFailed".into(), &"ConnectFailed: refused".into()), "issue 10, 20");
        let mut paused = status.clone();
        paused["phase"] = "Unhealthy".into();
        assert!(!ProxyAvailability::as_written(&object(spec.clone(), paused)).healthy, "whatever its last probe said");
        let going = ProxyObject { deleting: true, ..ready };
        let going = ProxyAvailability::as_written(&going);
        assert_eq!((going.phase, going.healthy, going.draining), (Phase::Deleting, false, true));
        let new = ProxyAvailability::as_written(&object(spec, serde_json::json!({})));
        assert_eq!((new.phase, new.healthy, new.host), (Phase::Pending, false, None));
    }

    #[test]
    fn the_host_of_an_external_proxy_stays_a_name() {
        let spec = serde_json::json!({"mode": "External", "endpoint": {"host": "proxy.example"}});
        let external = ProxyAvailability::as_written(&object(spec, serde_json::json!({"phase": "Unhealthy"})));
        assert_eq!((external.host.as_deref(), external.ip, external.provider), (Some("proxy.example"), None, None));
    }
}
