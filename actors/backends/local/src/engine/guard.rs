//! What a local proxy may reach (LO-1, S4): everything globally reachable, and what the lists open.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egress_protocol::net::{AllowList, embedded_ipv4, is_link_local_or_metadata, special_purpose};
use nix::ifaddrs::getifaddrs;
use tokio::time::Instant;

use crate::config::Interfaces;

/// Mail: only an entry that ends in `:25` opens it.
const SMTP: u16 = 25;

/// Decides on the address that is connected to.
#[derive(Clone)]
pub(crate) struct Guard {
    pub allow: Arc<AllowList>,
    pub own: Arc<OwnAddresses>,
}

impl Guard {
    /// Whether `ip` may be connected to, which was asked for as `host` if that was a name. The refusal says why and names no
    /// address that the client did not give: what a name resolves to inside is not a stranger's business.
    pub(super) fn judge(&self, host: Option<&str>, ip: IpAddr, port: u16) -> Result<(), String> {
        let ip = ip.to_canonical();
        if port == SMTP && !self.allow.names_port(host, ip, port) {
            return Err("port 25 is refused; an entry of allowedTargets that ends in :25 opens it".to_owned());
        }
        let Some(reason) = self.reason(ip) else { return Ok(()) };
        if self.allow.allows(host, ip, port) {
            return Ok(());
        }
        let what = if host.is_some() { "the name resolves to a refused address" } else { "the address is refused" };
        Err(format!("{what}: {reason}"))
    }

    fn reason(&self, ip: IpAddr) -> Option<&'static str> {
        special_purpose(ip).or_else(|| is_link_local_or_metadata(ip).then_some("cloud metadata")).or_else(|| match self.own.holds(ip) {
            Ok(true) => Some("an address of this machine"),
            Ok(false) => None,
            Err(()) => Some("this machine's own addresses could not be read"),
        })
    }
}

/// How old the addresses may be.
const REFRESH: Duration = Duration::from_secs(5);

/// The addresses of this machine's interfaces, read again every few seconds while connections are made.
pub(crate) struct OwnAddresses {
    read: Interfaces,
    known: Mutex<Option<(Instant, Vec<IpAddr>)>>,
}

impl OwnAddresses {
    pub(crate) fn new(read: Interfaces) -> Self {
        Self { read, known: Mutex::new(None) }
    }

    /// Whether `ip`, or an IPv4 address it carries, is one of them. `Err`: they could never be read.
    fn holds(&self, ip: IpAddr) -> Result<bool, ()> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= REFRESH) {
            match (self.read)() {
                Ok(addresses) => *known = Some((Instant::now(), addresses)),
                Err(error) => tracing::warn!(%error, "WARNING: this machine's own addresses cannot be read"),
            }
        }
        let (_, addresses) = known.as_ref().ok_or(())?;
        Ok(addresses.contains(&ip) || embedded_ipv4(ip).any(|v4| addresses.contains(&IpAddr::V4(v4))))
    }
}

/// Every address of every interface.
pub(crate) fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    Ok(getifaddrs()?
        .filter_map(|interface| interface.address)
        .filter_map(|address| {
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(allow: &[&str]) -> Guard {
        let own = OwnAddresses::new(Arc::new(|| Ok(vec!["8.8.4.4".parse().unwrap(), "2600::77".parse().unwrap()])));
        Guard { allow: Arc::new(AllowList::parse(allow).unwrap()), own: Arc::new(own) }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Issue 3, "Egress guard"; S4.
    const REFUSED: &[&str] = &[
        "169.254.169.254",
        "127.0.0.1",
        "127.8.8.8",
        "::1",
        "10.0.0.1",
        "10.255.255.254",
        "100.64.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "0.0.0.0",
        "::",
        "fd00::1",
        "fdff::1",
        "fe80::1",
        "::ffff:10.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::1",
        "2001:0:808:808:0:0:f5ff:fffe",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
        "168.63.129.16",
        "8.8.4.4",
        "2600::77",
        "::ffff:8.8.4.4",
        "64:ff9b::808:404",
        "2002:808:404::1",
    ];

    #[test]
    fn what_is_not_globally_reachable_or_is_this_machine_is_refused_by_default_and_opened_by_the_list() {
        for address in REFUSED {
            let ip = ip(address);
            for host in [None, Some("rebound.example")] {
                assert!(guard(&[]).judge(host, ip, 443).is_err(), "{address} as {host:?}");
            }
            assert_eq!(guard(&[address]).judge(None, ip, 443), Ok(()), "{address} opened by itself");
            let with_port = if ip.is_ipv6() { format!("[{address}]:443") } else { format!("{address}:443") };
            assert_eq!(guard(&[&with_port]).judge(None, ip, 443), Ok(()), "{with_port}");
            assert!(guard(&[&with_port]).judge(None, ip, 444).is_err(), "{with_port}");
        }
    }

    #[test]
    fn what_the_world_can_reach_is_open() {
        for address in ["8.8.8.8", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:1.1.1.1"] {
            assert_eq!(guard(&[]).judge(None, ip(address), 443), Ok(()), "{address}");
        }
    }

    #[test]
    fn a_name_on_the_list_opens_what_it_resolves_to_but_for_link_local_and_metadata() {
        let guard = guard(&["api.internal", ".corp.internal:443"]);
        assert_eq!(guard.judge(Some("api.internal"), ip("10.0.0.1"), 80), Ok(()));
        assert_eq!(guard.judge(Some("a.corp.internal"), ip("10.0.0.1"), 443), Ok(()));
        assert!(guard.judge(Some("a.corp.internal"), ip("10.0.0.1"), 80).is_err());
        assert!(guard.judge(Some("other.internal"), ip("10.0.0.1"), 80).is_err());
        for metadata in ["169.254.169.254", "fd00:ec2::254", "fe80::1", "100.100.100.200", "168.63.129.16"] {
            assert!(guard.judge(Some("api.internal"), ip(metadata), 80).is_err(), "{metadata}");
        }
    }

    #[test]
    fn port_25_is_opened_by_an_entry_that_ends_in_it_only() {
        assert!(guard(&[]).judge(None, ip("8.8.8.8"), 25).is_err());
        assert!(guard(&["0.0.0.0/0", "mail.example"]).judge(Some("mail.example"), ip("8.8.8.8"), 25).is_err());
        assert_eq!(guard(&["mail.example:25"]).judge(Some("mail.example"), ip("8.8.8.8"), 25), Ok(()));
        assert_eq!(guard(&["8.8.8.8:25"]).judge(None, ip("8.8.8.8"), 25), Ok(()));
        assert_eq!(guard(&[]).judge(None, ip("8.8.8.8"), 587), Ok(()));
    }

    #[test]
    fn without_knowledge_of_its_own_addresses_nothing_is_reached() {
        let own = OwnAddresses::new(Arc::new(|| Err(io::Error::other("no"))));
        let guard = Guard { allow: Arc::default(), own: Arc::new(own) };
        assert!(guard.judge(None, ip("8.8.8.8"), 443).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_this_machine_gets_later_is_refused_within_seconds() {
        let later = Arc::new(Mutex::new(Vec::new()));
        let read = Arc::clone(&later);
        let own = OwnAddresses::new(Arc::new(move || Ok(read.lock().unwrap().clone())));
        let guard = Guard { allow: Arc::default(), own: Arc::new(own) };
        assert_eq!(guard.judge(None, ip("8.8.8.8"), 443), Ok(()));
        later.lock().unwrap().push(ip("8.8.8.8"));
        tokio::time::advance(REFRESH).await;
        assert!(guard.judge(None, ip("8.8.8.8"), 443).is_err());
    }

    #[test]
    fn the_interfaces_of_this_machine_include_loopback() {
        assert!(interface_addresses().unwrap().contains(&ip("127.0.0.1")));
    }
}
