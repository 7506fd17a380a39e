//! Lists of exceptions, as `--egress-allow` and `allowedTargets` take them.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::special::is_link_local_or_metadata;

/// Exceptions: CIDRs, addresses, host names and `.suffixes`, each with an optional port (`10.0.0.0/8:443`,
/// `[fd00::/8]:443`, `.internal.example:8080`). An entry without a port opens every port; where a port is special (25),
/// [`AllowList::names_port`] tells whether an entry asked for exactly that one. The default list is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    nets: Vec<(IpNet, Option<u16>)>,
    names: Vec<(Name, Option<u16>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    /// This host.
    Exact(String),
    /// With its leading dot: every host below it, not itself.
    Suffix(String),
}

impl AllowList {
    /// Reads a list; every fault at once, each naming its entry.
    pub fn parse<S: AsRef<str>>(items: &[S]) -> Result<Self, Vec<String>> {
        let mut list = Self::default();
        let mut faults = Vec::new();
        for item in items {
            if let Err(fault) = list.add(item.as_ref().trim()) {
                faults.push(fault);
            }
        }
        if faults.is_empty() { Ok(list) } else { Err(faults) }
    }

    /// This list and another.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.nets.extend(other.nets.iter().copied());
        self.names.extend(other.names.iter().cloned());
        self
    }

    /// Nothing is allowed.
    pub fn is_empty(&self) -> bool {
        self.nets.is_empty() && self.names.is_empty()
    }

    /// Whether a CIDR or address of the list covers `ip`. Without a port only entries without one count.
    pub fn allows_addr(&self, ip: IpAddr, port: Option<u16>) -> bool {
        self.covers_addr(ip, |entry| entry.is_none() || entry == port)
    }

    /// Whether a name or suffix of the list covers `host`, whatever its case. An address is not a name. Without a port only
    /// entries without one count. Never enough by itself: see [`AllowList::allows`].
    pub fn allows_name(&self, host: &str, port: Option<u16>) -> bool {
        self.covers_name(host, |entry| entry.is_none() || entry == port)
    }

    /// The decision on a connection to `ip`, which was asked for as `host` if that was a name: names never open link-local
    /// or metadata addresses.
    pub fn allows(&self, host: Option<&str>, ip: IpAddr, port: u16) -> bool {
        self.allows_addr(ip, Some(port)) || (!is_link_local_or_metadata(ip) && host.is_some_and(|host| self.allows_name(host, Some(port))))
    }

    /// As [`AllowList::allows`], but only entries that end in this very port count.
    pub fn names_port(&self, host: Option<&str>, ip: IpAddr, port: u16) -> bool {
        self.covers_addr(ip, |entry| entry == Some(port))
            || (!is_link_local_or_metadata(ip) && host.is_some_and(|host| self.covers_name(host, |entry| entry == Some(port))))
    }

    fn covers_addr(&self, ip: IpAddr, port_fits: impl Fn(Option<u16>) -> bool) -> bool {
        let ip = ip.to_canonical();
        self.nets.iter().any(|(net, port)| port_fits(*port) && net.contains(&ip))
    }

    fn covers_name(&self, host: &str, port_fits: impl Fn(Option<u16>) -> bool) -> bool {
        let host = normalised(host);
        self.names.iter().any(|(name, port)| {
            port_fits(*port)
                && match name {
                    Name::Exact(name) => host == *name,
                    Name::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
                }
        })
    }

    fn add(&mut self, item: &str) -> Result<(), String> {
        if item.is_empty() {
            return Err("an empty entry allows nothing".to_owned());
        }
        if let Some(rest) = item.strip_prefix('[') {
            let (inside, after) = rest.split_once(']').ok_or_else(|| format!("{item}: the bracket is not closed"))?;
            let port = match after.strip_prefix(':') {
                Some(port) => Some(parse_port(item, port)?),
                None if after.is_empty() => None,
                None => return Err(format!("{item}: after the bracket comes a port, such as [fd00::/8]:443")),
            };
            return match parse_net(inside) {
                Some(net) if inside.contains(':') => {
                    self.nets.push((net, port));
                    Ok(())
                }
                _ => Err(format!("{item}: brackets hold an IPv6 address or CIDR")),
            };
        }
        if let Some(net) = parse_net(item) {
            self.nets.push((net, None));
            return Ok(());
        }
        let (head, port) = match item.rsplit_once(':') {
            Some((head, _)) if head.contains(':') => {
                return Err(format!("{item} is no IPv6 address or CIDR (with a port it is written [fd00::/8]:443)"));
            }
            Some((head, port)) => (head, Some(parse_port(item, port)?)),
            None => (item, None),
        };
        if let Some(net) = parse_net(head) {
            self.nets.push((net, port));
        } else {
            self.names.push((parse_name(item, head)?, port));
        }
        Ok(())
    }
}

fn normalised(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn parse_port(item: &str, port: &str) -> Result<u16, String> {
    match port.parse() {
        Ok(parsed) if parsed > 0 && port.bytes().all(|b| b.is_ascii_digit()) => Ok(parsed),
        _ => Err(format!("{item}: {port} is not a port from 1 to 65535")),
    }
}

/// A CIDR or an address. A mapped IPv4 address or block is the IPv4 one: that is where a connection to it goes.
fn parse_net(text: &str) -> Option<IpNet> {
    let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?.trunc();
    Some(match net {
        IpNet::V6(v6) => match (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(96)) {
            (Some(v4), Some(prefix)) => Ipv4Net::new(v4, prefix).map_or(net, IpNet::V4),
            _ => net,
        },
        IpNet::V4(_) => net,
    })
}

fn parse_name(item: &str, text: &str) -> Result<Name, String> {
    let name = normalised(text);
    let labels = name.strip_prefix('.').unwrap_or(&name);
    let fine = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if labels.len() > 253 || !labels.split('.').all(fine) {
        let hint = if text.contains('*') { "; everything below a domain is written .example.com" } else { "" };
        return Err(format!("{item} is no CIDR, address, host name or .suffix{hint}"));
    }
    if labels.rsplit('.').next().is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!("{item} looks like an address but is none"));
    }
    Ok(if name.starts_with('.') { Name::Suffix(name) } else { Name::Exact(name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[&str]) -> AllowList {
        AllowList::parse(items).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_and_cidrs_open_what_they_cover() {
        for (entry, address, port, allowed) in [
            ("10.0.0.0/8", "10.1.2.3", Some(80), true),
            ("10.0.0.0/8", "10.1.2.3", None, true),
            ("10.0.0.0/8", "11.1.2.3", Some(80), false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", Some(80), true),
            ("10.0.0.0/8", "64:ff9b::a01:203", Some(80), false),
            ("10.0.0.7", "10.0.0.7", Some(80), true),
            ("10.0.0.7", "10.0.0.8", Some(80), false),
            ("10.0.0.0/8:443", "10.1.2.3", Some(443), true),
            ("10.0.0.0/8:443", "10.1.2.3", Some(80), false),
            ("10.0.0.0/8:443", "10.1.2.3", None, false),
            ("127.0.0.1:8080", "127.0.0.1", Some(8080), true),
            ("127.0.0.1:8080", "127.0.0.1", Some(8081), false),
            ("fd00::/8", "fd00::1", Some(80), true),
            ("[fd00::/8]:443", "fd00::1", Some(443), true),
            ("[fd00::/8]:443", "fd00::1", Some(80), false),
            ("[::1]:443", "::1", Some(443), true),
            ("[::1]", "::1", Some(9), true),
            ("::ffff:10.0.0.0/104", "10.9.9.9", Some(80), true),
            ("::/0", "10.9.9.9", Some(80), false),
            ("169.254.169.254", "169.254.169.254", Some(80), true),
        ] {
            assert_eq!(list(&[entry]).allows_addr(ip(address), port), allowed, "{entry} on {address} {port:?}");
            assert_eq!(port.is_some_and(|p| list(&[entry]).allows(None, ip(address), p)), allowed && port.is_some());
        }
    }

    #[test]
    fn names_and_suffixes_open_hosts_whatever_their_case() {
        for (entry, host, port, allowed) in [
            ("localhost", "LOCALHOST", Some(80), true),
            ("shop.example", "shop.example.", Some(80), true),
            ("Shop.Example.", "shop.example", None, true),
            ("shop.example", "www.shop.example", Some(80), false),
            (".shop.example", "www.shop.example", Some(80), true),
            (".shop.example", "a.b.shop.example", Some(80), true),
            (".shop.example", "shop.example", Some(80), false),
            (".shop.example", "badshop.example", Some(80), false),
            ("shop.example:443", "shop.example", Some(443), true),
            ("shop.example:443", "shop.example", Some(80), false),
            ("shop.example:443", "shop.example", None, false),
            ("10.0.0.1", "10.0.0.1", Some(80), false),
        ] {
            assert_eq!(list(&[entry]).allows_name(host, port), allowed, "{entry} on {host} {port:?}");
        }
    }

    /// operator.md, `--egress-allow`: a name or suffix never opens link-local or metadata addresses, only a CIDR does.
    #[test]
    fn a_name_never_opens_link_local_or_metadata_addresses() {
        let names = list(&["metadata.internal", ".internal"]);
        assert!(names.allows(Some("metadata.internal"), ip("10.0.0.1"), 80));
        for metadata in ["169.254.169.254", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254", "100.100.100.200"] {
            assert!(!names.allows(Some("metadata.internal"), ip(metadata), 80), "{metadata}");
            assert!(!names.names_port(Some("metadata.internal"), ip(metadata), 80), "{metadata}");
        }
        assert!(list(&["169.254.0.0/16"]).allows(Some("metadata.internal"), ip("169.254.169.254"), 80));
    }

    /// LO-1: port 25 is opened by an entry that ends in `:25`, and by no other.
    #[test]
    fn only_an_entry_with_the_port_names_it() {
        assert!(!list(&["mail.example", "8.8.8.0/24"]).names_port(Some("mail.example"), ip("8.8.8.8"), 25));
        assert!(list(&["mail.example:25"]).names_port(Some("mail.example"), ip("8.8.8.8"), 25));
        assert!(!list(&["mail.example:25"]).names_port(Some("mail.example"), ip("8.8.8.8"), 80));
        assert!(list(&["0.0.0.0/0:25"]).names_port(None, ip("8.8.8.8"), 25));
    }

    #[test]
    fn every_fault_is_reported_and_names_its_entry() {
        let bad = [
            "",
            "10.0.0.0/33",
            "10.0.0",
            "256.1.1.1",
            "*.example.com",
            "shop.example:0",
            "shop.example:65536",
            "shop.example:http",
            "fd00::zz",
            "[fd00::/8",
            "[fd00::/8]443",
            "[10.0.0.0/8]:443",
            "[shop.example]:443",
            "http://shop.example",
            "a b",
            ".",
            "-a.example",
            "shop..example",
            "shop.example:+80",
            "10.0.0.0/8:",
        ];
        let faults = AllowList::parse(&bad).unwrap_err();
        assert_eq!(faults.len(), bad.len(), "{faults:#?}");
        for (item, fault) in bad.iter().zip(&faults) {
            assert!(fault.contains(item), "{fault}");
        }
    }
}
