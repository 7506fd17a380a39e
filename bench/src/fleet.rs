//! The proxies that leases are granted from, and the requests for them.
//!
//! Attributes are laid out evenly, so that every one of the 50 selectors names 2 % of any fleet and every geo has a
//! proxy that does not cool; one proxy of each fleet has an attribute that no other has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::lease::{ProxyAvailability, ReportRequest, ReportResult};
use egress_protocol::resource::{Mode, Phase};
use egress_protocol::{ObjectKey, Uid};
use serde::{Deserialize, Serialize};

/// For which nine proxies in ten cool.
pub(crate) const TARGET: &str = "shop.example";
/// More than can be leased at once in any benchmark.
const ROOM: u32 = 1_000_000;

/// How large, and in what state.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Shape {
    pub(crate) proxies: u32,
    /// Leases that there is room for, over all proxies.
    pub(crate) places: u32,
    /// Nine in ten cool for [`TARGET`].
    pub(crate) cooling: bool,
}

impl Shape {
    /// Whether that proxy cools for [`TARGET`].
    pub(crate) const fn cools(self, n: u32) -> bool {
        self.cooling && !(n / 10).is_multiple_of(10)
    }

    /// All of them.
    pub(crate) fn fleet(self) -> impl Iterator<Item = Arc<ProxyAvailability>> {
        (0..self.proxies).map(move |n| Arc::new(self.proxy(n)))
    }

    fn proxy(self, n: u32) -> ProxyAvailability {
        let mut attributes = BTreeMap::new();
        let kinds = [("geo", n % 10), ("tier", n / 10 % 5), ("class", n % 7), ("asn", n % 20), ("os", n % 3)];
        for (key, value) in kinds {
            attributes.insert(key.to_owned(), format!("{key}{value}"));
        }
        let only = n == self.proxies / 2;
        if only {
            attributes.insert("only".to_owned(), "one".to_owned());
        }
        ProxyAvailability {
            key: key(n),
            uid: Uid::new(format!("6ba7b810-9dad-11d1-80b4-{n:012}")),
            mode: Mode::Managed,
            provider: Some("lab".into()),
            phase: Phase::Ready,
            healthy: true,
            awaited: false,
            unready: None,
            check_url_suspect: false,
            draining: false,
            drain_by: None,
            host: Some("192.0.2.7".into()),
            ip: Some("192.0.2.7".into()),
            egress_ip: None,
            port: 3128,
            attributes: Arc::new(attributes),
            max_leases: if only { ROOM } else { self.places.div_ceil(self.proxies) },
            latency_millis: Some(12),
            checked_at: None,
            credentials: None,
        }
    }
}

/// What names one proxy.
pub(crate) fn key(n: u32) -> ObjectKey {
    ObjectKey::new("default", format!("px-{n:06}"))
}

/// What makes a proxy cool for a day.
pub(crate) fn blocked() -> ReportRequest {
    let cooldown = Some(Duration::from_secs(24 * 3600));
    ReportRequest { result: ReportResult::Blocked, target: None, cooldown, message: None }
}

/// Asks for that one.
pub(crate) fn by_name(n: u32) -> String {
    format!(r#"{{"selector":{{"name":"{}"}},"target":"{TARGET}","ttl":"1s"}}"#, key(n).name)
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Anything.
    Any,
    /// 50 selectors in turn; each names 2 % of the fleet.
    Fifty,
    /// 10 selectors in turn, for the target that nine proxies in ten cool for.
    Uncooled,
    /// A selector that names one proxy.
    One,
}

impl Wish {
    /// The bodies, to be asked for in turn.
    pub(crate) fn bodies(self, ttl: &str) -> Vec<String> {
        let body = |more: String| format!(r#"{{{more}"ttl":"{ttl}","owner":"worker-17"}}"#);
        let selector = |attributes: String| format!(r#""selector":{{"attributes":{{{attributes}}}}},"#);
        match self {
            Self::Any => vec![body(String::new())],
            Self::Fifty => (0..50).map(|n| body(selector(format!(r#""geo":"geo{}","tier":"tier{}""#, n % 10, n / 10)))).collect(),
            Self::Uncooled => (0..10).map(|n| body(selector(format!(r#""geo":"geo{n}""#)) + &format!(r#""target":"{TARGET}","#))).collect(),
            Self::One => vec![body(selector(r#""only":"one""#.to_owned()))],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egress_protocol::lease::parse_grant;

    #[test]
    fn every_body_is_a_request_and_names_the_share_of_the_fleet_that_it_says() {
        let shape = Shape { proxies: 100, places: 1000, cooling: true };
        let fleet: Vec<_> = shape.fleet().collect();
        for (wish, named) in [(Wish::Any, 100), (Wish::Fifty, 2), (Wish::Uncooled, 10), (Wish::One, 1)] {
            for body in wish.bodies("1s") {
                let request = parse_grant(body.as_bytes()).unwrap();
                let fits = |proxy: &&Arc<ProxyAvailability>| {
                    let wants = |wanted: &egress_protocol::lease::SelectorAttribute| {
                        proxy.attributes.get(&*wanted.key).is_some_and(|has| wanted.values.iter().any(|value| **value == **has))
                    };
                    request.selector.attributes.iter().all(wants)
                };
                assert_eq!(fleet.iter().filter(fits).count(), named, "{body}");
            }
        }
        assert_eq!((0..100).filter(|n| shape.cools(*n)).count(), 90);
        assert!(parse_grant(by_name(7).as_bytes()).is_ok());
    }
}
