//! What no user may make us, or a proxy on our behalf, connect to (HE-10).
//!
//! For an endpoint that a user typed the decision is made on each address right before it is connected to. A check URL is
//! fetched by the proxy, so for it we judge a literal address and what its name resolves to here; a name unknown here
//! passes, and the proxy's own guard decides.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use egress_protocol::net::{AllowList, is_link_local_or_metadata};
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use crate::resolve::Resolver;

/// How long what a check URL's host resolves to is remembered.
const REMEMBER: Duration = Duration::from_secs(60);
/// How long a look-up of a check URL's host may hold up a probe; a slower name counts as unknown here.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is refused and which exceptions there are.
#[derive(Debug, Clone, Default)]
pub struct GuardPolicy {
    /// Loopback is refused: in a cluster, where it is the operator's own Pod.
    pub refuse_loopback: bool,
    /// Refused as well: in a cluster, the API server's addresses.
    pub refused_addresses: Vec<IpAddr>,
    /// `--endpoint-allow`.
    pub endpoint_allow: AllowList,
    /// `--check-url-allow`.
    pub check_url_allow: AllowList,
}

/// Judges addresses by a [`GuardPolicy`]; shared by all probers.
#[derive(Debug)]
pub struct Guard {
    policy: GuardPolicy,
    names: Names,
}

impl Guard {
    /// A guard with an empty memory of names.
    pub fn new(policy: GuardPolicy) -> Self {
        Self { policy, names: Names::default() }
    }

    /// Whether an endpoint asked for as `host` may be connected to at `ip`; else what that address is.
    pub fn endpoint(&self, host: &str, ip: IpAddr, port: u16) -> Result<(), &'static str> {
        self.policy.judge(&self.policy.endpoint_allow, host, ip, port)
    }

    /// Whether a proxy may be asked to fetch from `host`; else what is refused, in words.
    pub async fn check_url(&self, resolver: &Resolver, host: &str, port: u16) -> Result<(), String> {
        let judge = |ip| self.policy.judge(&self.policy.check_url_allow, host, ip, port);
        if let Ok(ip) = host.parse::<IpAddr>() {
            return judge(ip).map_err(|what| format!("the check URL's host {ip} is {what}"));
        }
        for ip in self.names.resolve(resolver, host, port).await.iter() {
            judge(*ip).map_err(|what| format!("the check URL's host {host} resolves to {ip}, {what}"))?;
        }
        Ok(())
    }
}

impl GuardPolicy {
    fn judge(&self, allow: &AllowList, host: &str, ip: IpAddr, port: u16) -> Result<(), &'static str> {
        let ip = ip.to_canonical();
        let name = host.parse::<IpAddr>().is_err().then_some(host);
        if allow.allows(name, ip, port) {
            Ok(())
        } else if is_link_local_or_metadata(ip) {
            Err("a link-local or cloud-metadata address")
        } else if self.refuse_loopback && (ip.is_loopback() || ip.is_unspecified()) {
            Err("a loopback address")
        } else if self.refused_addresses.iter().any(|refused| refused.to_canonical() == ip) {
            Err("the address of the API server")
        } else {
            Ok(())
        }
    }
}

/// What the hosts of check URLs resolve to, looked up once a minute however many proxies share them. Readers take a
/// snapshot; a new name is a new map.
#[derive(Debug, Default)]
struct Names(ArcSwap<HashMap<Arc<str>, Arc<Remembered>>>);

#[derive(Debug)]
struct Remembered {
    until: Instant,
    /// Empty: unknown here. Filled by whoever asks first, while others wait for it.
    addresses: OnceCell<Arc<[IpAddr]>>,
}

impl Names {
    async fn resolve(&self, resolver: &Resolver, host: &str, port: u16) -> Arc<[IpAddr]> {
        let entry = self.entry(host);
        let lookup = async {
            match timeout(PATIENCE, resolver.lookup(host, port)).await {
                Ok(Ok(addresses)) => addresses.iter().map(|address| address.ip()).collect(),
                Ok(Err(_)) | Err(_) => Arc::from([]),
            }
        };
        Arc::clone(entry.addresses.get_or_init(|| lookup).await)
    }

    fn entry(&self, host: &str) -> Arc<Remembered> {
        let now = Instant::now();
        if let Some(entry) = self.0.load().get(host).filter(|entry| entry.until > now) {
            return Arc::clone(entry);
        }
        let fresh = Arc::new(Remembered { until: now + REMEMBER, addresses: OnceCell::new() });
        let mut chosen = Arc::clone(&fresh);
        self.0.rcu(|map| {
            if let Some(entry) = map.get(host).filter(|entry| entry.until > now) {
                chosen = Arc::clone(entry);
                return Arc::clone(map);
            }
            chosen = Arc::clone(&fresh);
            let mut next: HashMap<_, _> = map.iter().filter(|(_, e)| e.until > now).map(|(k, v)| (Arc::clone(k), Arc::clone(v))).collect();
            next.insert(Arc::from(host), Arc::clone(&fresh));
            Arc::new(next)
        });
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn allow(items: &[&str]) -> AllowList {
        AllowList::parse(items).unwrap()
    }

    /// A resolver that answers `addresses` for any name (none: unknown) and counts.
    fn resolver(addresses: &'static [&'static str]) -> (Resolver, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let resolver = Resolver::new(move |_, port| {
            counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                if addresses.is_empty() {
                    return Err(io::Error::other("unknown"));
                }
                Ok(addresses.iter().map(|a| SocketAddr::new(ip(a), port)).collect())
            })
        });
        (resolver, count)
    }

    /// HE-10, S6: refused everywhere, in every spelling.
    #[test]
    fn an_endpoint_on_link_local_or_metadata_is_refused() {
        let guard = Guard::new(GuardPolicy::default());
        for address in ["169.254.169.254", "169.254.0.1", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "100.100.100.200"] {
            assert!(guard.endpoint("metadata.example", ip(address), 80).is_err(), "{address}");
            assert!(guard.endpoint(address, ip(address), 80).is_err(), "{address}");
        }
        for address in ["192.0.2.7", "10.0.0.1", "127.0.0.1", "::1", "fd00::1"] {
            assert!(guard.endpoint(address, ip(address), 3128).is_ok(), "{address}");
        }
    }

    /// HE-10: in a cluster also loopback and the API server.
    #[test]
    fn in_a_cluster_loopback_and_the_api_server_are_refused() {
        let guard = Guard::new(GuardPolicy { refuse_loopback: true, refused_addresses: vec![ip("10.96.0.1")], ..GuardPolicy::default() });
        for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "10.96.0.1", "::ffff:10.96.0.1"] {
            assert!(guard.endpoint("kubernetes.default", ip(address), 443).is_err(), "{address}");
        }
        assert!(guard.endpoint("px.example", ip("10.96.0.2"), 443).is_ok());
    }

    /// OP-27: a name or suffix never opens link-local or metadata addresses, only a CIDR does.
    #[test]
    fn names_open_loopback_but_never_metadata() {
        let guard = Guard::new(GuardPolicy {
            refuse_loopback: true,
            endpoint_allow: allow(&["px.example", ".lab.example", "169.254.7.0/24"]),
            ..GuardPolicy::default()
        });
        assert!(guard.endpoint("px.example", ip("127.0.0.1"), 3128).is_ok());
        assert!(guard.endpoint("a.lab.example", ip("::1"), 3128).is_ok());
        assert!(guard.endpoint("other.example", ip("127.0.0.1"), 3128).is_err());
        assert!(guard.endpoint("px.example", ip("169.254.169.254"), 80).is_err());
        assert!(guard.endpoint("169.254.7.9", ip("169.254.7.9"), 80).is_ok());
    }

    /// HE-10: a literal address, and what a name resolves to here; a name unknown here passes.
    #[tokio::test(start_paused = true)]
    async fn a_check_url_is_judged_by_its_address_or_what_its_name_resolves_to_here() {
        let guard = Guard::new(GuardPolicy::default());
        let (good, _) = resolver(&["192.0.2.1"]);
        assert!(guard.check_url(&good, "169.254.169.254", 80).await.is_err());
        assert!(guard.check_url(&good, "good.example", 80).await.is_ok());
        let (mixed, _) = resolver(&["192.0.2.1", "169.254.169.254"]);
        let refusal = guard.check_url(&mixed, "mixed.example", 80).await.unwrap_err();
        assert!(refusal.contains("169.254.169.254"), "{refusal}");
        let (unknown, _) = resolver(&[]);
        assert!(guard.check_url(&unknown, "nowhere.example", 80).await.is_ok());
    }

    /// HE-10: cached a minute, and looked up once however many ask at the same time.
    #[tokio::test(start_paused = true)]
    async fn a_name_is_looked_up_once_a_minute_for_all_who_ask() {
        let guard = Guard::new(GuardPolicy::default());
        let (resolver, count) = resolver(&["192.0.2.1"]);
        futures::future::join_all((0..50).map(|_| guard.check_url(&resolver, "good.example", 443))).await;
        assert_eq!(count.load(Ordering::Relaxed), 1);
        tokio::time::advance(Duration::from_secs(61)).await;
        guard.check_url(&resolver, "good.example", 443).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }

    /// A name server that does not answer holds a probe up for a second, once a minute, and decides nothing.
    #[tokio::test(start_paused = true)]
    async fn a_silent_name_server_counts_as_an_unknown_name() {
        let guard = Guard::new(GuardPolicy::default());
        let silent = Resolver::new(|_, _| Box::pin(std::future::pending()));
        let before = Instant::now();
        assert!(guard.check_url(&silent, "slow.example", 443).await.is_ok());
        assert!(guard.check_url(&silent, "slow.example", 443).await.is_ok());
        assert_eq!(before.elapsed().as_secs(), 1);
    }
}
