//! Squid's configuration (K8-6): pure text, in the order in which Squid decides.
//!
//! What must stay true: `max_filedescriptors` is always there. Squid sizes tables by the descriptor limit, container
//! runtimes set that to about 2^30, and an unbounded Squid takes hundreds of MB and is killed.

use std::fmt::Write;

use ipnet::IpNet;

/// Destinations inside the cluster, the node and this Pod: loopback, link-local (where clouds serve metadata), private,
/// shared, unique-local, unspecified, multicast. No rule names `::ffff:0:0/96`: Squid takes a mapped address as its IPv4, so
/// the IPv4 rules cover it, and that rule would refuse every IPv4 destination.
const DENIED: [&str; 13] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "224.0.0.0/4",
    "::/128",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
    "ff00::/8",
];

/// What does not depend on the request.
const REST: &str = "\
via off
forwarded_for delete
cache deny all
cache_mem 8 MB
access_log none
cache_log stdio:/dev/stderr
logfile_rotate 0
netdb_filename none
pid_filename none
pinger_enable off
shutdown_lifetime 1 second
coredump_dir none
";

/// The whole file.
pub(crate) fn config(port: u16, max_file_descriptors: u32, clients: &[IpNet], destinations: &[IpNet]) -> String {
    let mut text = format!("http_port {port}\n");
    // Squid answers questions about itself, its clients and their URLs to whoever may use it: they are nobody's.
    text.push_str("http_access deny manager\n");
    text.push_str("acl mail port 25\nhttp_access deny mail\n");
    let who = if clients.is_empty() {
        "all"
    } else {
        list(&mut text, "acl clients src", apart(clients).iter());
        "clients"
    };
    if !destinations.is_empty() {
        list(&mut text, "acl allowed dst", apart(destinations).iter());
        let _ = writeln!(text, "http_access allow {who} allowed");
    }
    list(&mut text, "acl inside dst", DENIED.iter());
    text.push_str("http_access deny inside\n");
    let _ = writeln!(text, "http_access allow {who}");
    text.push_str("http_access deny all\n");
    let _ = writeln!(text, "max_filedescriptors {max_file_descriptors}");
    text.push_str(REST);
    text
}

/// Ranges of which none is part of another: of two that are, Squid drops the larger one. It takes `0.0.0.0/0` for all
/// addresses, IPv6 included.
fn apart(ranges: &[IpNet]) -> Vec<IpNet> {
    let halves = |net: IpNet| match net {
        IpNet::V4(all) if all.prefix_len() == 0 => all.subnets(1).into_iter().flatten().map(IpNet::V4).collect(),
        IpNet::V4(_) | IpNet::V6(_) => vec![net],
    };
    IpNet::aggregate(&ranges.to_vec()).into_iter().flat_map(halves).collect()
}

/// One line per value: a list of any length stays below the length of a line that Squid reads.
fn list<T: std::fmt::Display>(text: &mut String, acl: &str, values: impl Iterator<Item = T>) {
    for value in values {
        let _ = writeln!(text, "{acl} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K8-6, as a whole.
    #[test]
    fn the_configuration_by_default() {
        let expected = "\
http_port 3128
http_access deny manager
acl mail port 25
http_access deny mail
acl inside dst 0.0.0.0/8
acl inside dst 10.0.0.0/8
acl inside dst 100.64.0.0/10
acl inside dst 127.0.0.0/8
acl inside dst 169.254.0.0/16
acl inside dst 172.16.0.0/12
acl inside dst 192.168.0.0/16
acl inside dst 224.0.0.0/4
acl inside dst ::/128
acl inside dst ::1/128
acl inside dst fc00::/7
acl inside dst fe80::/10
acl inside dst ff00::/8
http_access deny inside
http_access allow all
http_access deny all
max_filedescriptors 16384
via off
forwarded_for delete
cache deny all
cache_mem 8 MB
access_log none
cache_log stdio:/dev/stderr
logfile_rotate 0
netdb_filename none
pid_filename none
pinger_enable off
shutdown_lifetime 1 second
coredump_dir none
";
        assert_eq!(config(3128, 16_384, &[], &[]), expected);
    }

    /// K8-6: exceptions are for the clients alone, and come before the denials but behind port 25.
    #[test]
    fn clients_and_exceptions_are_in_their_order() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpNet>>();
        let text = config(80, 1024, &nets(&["10.0.0.0/8", "2001:db8::/32"]), &nets(&["10.1.2.0/24", "fd00::/64"]));
        let rules: Vec<_> = text.lines().filter(|line| line.starts_with("http_access")).collect();
        assert_eq!(
            rules,
            [
                "http_access deny manager",
                "http_access deny mail",
                "http_access allow clients allowed",
                "http_access deny inside",
                "http_access allow clients",
                "http_access deny all",
            ]
        );
        for line in ["http_port 80", "acl clients src 2001:db8::/32", "acl allowed dst fd00::/64", "max_filedescriptors 1024"] {
            assert!(text.lines().any(|there| there == line), "{line}\n{text}");
        }
        // Squid drops the larger of two ranges that overlap.
        let text = config(
            80,
            1024,
            &nets(&["10.1.2.0/24", "10.0.0.0/8", "10.0.0.0/8", "11.0.0.0/8", "0.0.0.0/0", "2000::/3", "2001:db8::/32"]),
            &[],
        );
        let acl: Vec<_> = text.lines().filter(|line| line.starts_with("acl clients")).collect();
        assert_eq!(acl, ["acl clients src 0.0.0.0/1", "acl clients src 128.0.0.0/1", "acl clients src 2000::/3"]);
        assert!(config(80, 1024, &[], &nets(&["10.1.2.0/24"])).contains("\nhttp_access allow all allowed\n"));
    }
}
