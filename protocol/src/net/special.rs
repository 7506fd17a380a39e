//! The classes of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block: base address, prefix length, what it is; `None` where the registry calls it globally reachable.
type Block4 = (Ipv4Addr, u8, Option<&'static str>);
type Block6 = (Ipv6Addr, u8, Option<&'static str>);

const fn v4(a: u8, b: u8, c: u8, d: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}

/// From the first four groups; the rest is zero.
const fn v6(a: u16, b: u16, c: u16, d: u16) -> Ipv6Addr {
    Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)
}

/// IANA IPv4 Special-Purpose Address Registry; a narrower block stands before the one that holds it.
const SPECIAL_V4: &[Block4] = &[
    (v4(0, 0, 0, 0), 8, Some("this network (RFC 791)")),
    (v4(10, 0, 0, 0), 8, Some("private (RFC 1918)")),
    (v4(100, 64, 0, 0), 10, Some("shared address space (RFC 6598)")),
    (v4(127, 0, 0, 0), 8, Some("loopback (RFC 1122)")),
    (v4(169, 254, 0, 0), 16, Some("link-local (RFC 3927)")),
    (v4(172, 16, 0, 0), 12, Some("private (RFC 1918)")),
    (v4(192, 0, 0, 9), 32, None),  // port control protocol anycast (RFC 7723)
    (v4(192, 0, 0, 10), 32, None), // TURN anycast (RFC 8155)
    (v4(192, 0, 0, 0), 24, Some("IETF protocol assignments (RFC 6890)")),
    (v4(192, 0, 2, 0), 24, Some("documentation (RFC 5737)")),
    (v4(192, 88, 99, 0), 24, Some("6to4 relay anycast (RFC 7526)")),
    (v4(192, 168, 0, 0), 16, Some("private (RFC 1918)")),
    (v4(198, 18, 0, 0), 15, Some("benchmarking (RFC 2544)")),
    (v4(198, 51, 100, 0), 24, Some("documentation (RFC 5737)")),
    (v4(203, 0, 113, 0), 24, Some("documentation (RFC 5737)")),
    (v4(224, 0, 0, 0), 4, Some("multicast (RFC 5771)")),
    (v4(255, 255, 255, 255), 32, Some("limited broadcast (RFC 919)")),
    (v4(240, 0, 0, 0), 4, Some("reserved (RFC 1112)")),
];

/// IANA IPv6 Special-Purpose Address Registry, without the blocks that carry an IPv4 address (see [`embedded`]); a
/// narrower block stands before the one that holds it. The last entry: 2000::/3 is all the unicast space that IANA hands
/// out (RFC 4291), so that what no row names and is not in it is refused.
const SPECIAL_V6: &[Block6] = &[
    (Ipv6Addr::UNSPECIFIED, 128, Some("unspecified (RFC 4291)")),
    (Ipv6Addr::LOCALHOST, 128, Some("loopback (RFC 4291)")),
    (v6(0x64, 0xff9b, 1, 0), 48, Some("local-use translation (RFC 8215)")),
    (v6(0x100, 0, 0, 0), 64, Some("discard-only (RFC 6666)")),
    (v6(0x100, 0, 0, 1), 64, Some("dummy prefix (RFC 9780)")),
    (Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 1), 128, None), // port control protocol anycast (RFC 7723)
    (Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 2), 128, None), // TURN anycast (RFC 8155)
    (Ipv6Addr::new(0x2001, 1, 0, 0, 0, 0, 0, 3), 128, None), // DNS-SD service registration anycast (RFC 9665)
    (v6(0x2001, 2, 0, 0), 48, Some("benchmarking (RFC 5180)")),
    (v6(0x2001, 3, 0, 0), 32, None),     // AMT (RFC 7450)
    (v6(0x2001, 4, 0x112, 0), 48, None), // AS112-v6 (RFC 7535)
    (v6(0x2001, 0x10, 0, 0), 28, Some("ORCHID (RFC 4843)")),
    (v6(0x2001, 0x20, 0, 0), 28, None), // ORCHIDv2 (RFC 7343)
    (v6(0x2001, 0x30, 0, 0), 28, None), // drone remote identification (RFC 9374)
    (v6(0x2001, 0, 0, 0), 23, Some("IETF protocol assignments (RFC 2928)")),
    (v6(0x2001, 0xdb8, 0, 0), 32, Some("documentation (RFC 3849)")),
    (v6(0x3fff, 0, 0, 0), 20, Some("documentation (RFC 9637)")),
    (v6(0x5f00, 0, 0, 0), 16, Some("segment routing identifiers (RFC 9602)")),
    (v6(0xfc00, 0, 0, 0), 7, Some("unique local (RFC 4193)")),
    (v6(0xfe80, 0, 0, 0), 10, Some("link-local (RFC 4291)")),
    (v6(0xfec0, 0, 0, 0), 10, Some("site-local (RFC 3879)")),
    (v6(0xff00, 0, 0, 0), 8, Some("multicast (RFC 4291)")),
    (v6(0x2000, 0, 0, 0), 3, None),
    (Ipv6Addr::UNSPECIFIED, 0, Some("not allocated (RFC 4291)")),
];

/// Where clouds serve metadata and credentials outside the link-local ranges.
const METADATA_V4: &[Block4] = &[
    (v4(100, 100, 100, 200), 32, Some("Alibaba Cloud")),
    (v4(168, 63, 129, 16), 32, Some("Azure")),
    (v4(192, 0, 0, 192), 32, Some("Oracle Cloud")),
];
const METADATA_V6: &[Block6] = &[
    (v6(0xfd00, 0xec2, 0, 0), 32, Some("AWS")),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Some("Google Cloud")),
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128, Some("Oracle Cloud")),
    (Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128, Some("Scaleway")),
];

fn in_v4(ip: Ipv4Addr, base: Ipv4Addr, prefix: u8) -> bool {
    let shift = 32 - u32::from(prefix);
    (ip.to_bits() ^ base.to_bits()).checked_shr(shift).unwrap_or(0) == 0
}

fn in_v6(ip: Ipv6Addr, base: Ipv6Addr, prefix: u8) -> bool {
    let shift = 128 - u32::from(prefix);
    (ip.to_bits() ^ base.to_bits()).checked_shr(shift).unwrap_or(0) == 0
}

fn low32(bits: u128) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::try_from(bits & 0xffff_ffff).unwrap_or(0))
}

/// The IPv4 addresses that an IPv6 address carries: of a mapped one (RFC 4291), a translated one (RFC 6052; for RFC 8215
/// the layout is a local matter and its registry entry refuses it anyway, the last four bytes are looked at all the
/// same), 6to4 (RFC 3056) and Teredo (RFC 4380: the server, and the client with its bits inverted).
fn embedded(ip: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let bits = ip.to_bits();
    if ip.to_ipv4_mapped().is_some() || in_v6(ip, v6(0x64, 0xff9b, 0, 0), 96) || in_v6(ip, v6(0x64, 0xff9b, 1, 0), 48) {
        [Some(low32(bits)), None]
    } else if in_v6(ip, v6(0x2002, 0, 0, 0), 16) {
        [Some(low32(bits >> 80)), None]
    } else if in_v6(ip, v6(0x2001, 0, 0, 0), 32) {
        [Some(low32(bits >> 64)), Some(low32(!bits))]
    } else {
        [None, None]
    }
}

/// The IPv4 addresses that `ip` carries, if it is one of those forms: whoever connects to it may end up there.
pub fn embedded_ipv4(ip: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    match ip {
        IpAddr::V4(_) => [None, None],
        IpAddr::V6(ip) => embedded(ip),
    }
    .into_iter()
    .flatten()
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    SPECIAL_V4.iter().find(|(base, prefix, _)| in_v4(ip, *base, *prefix)).and_then(|(_, _, name)| *name)
}

/// What keeps an address from being globally reachable, for messages: `private (RFC 1918)`. `None`: it is reachable.
pub fn special_purpose(ip: IpAddr) -> Option<&'static str> {
    let ip = match ip {
        IpAddr::V4(ip) => return special_v4(ip),
        IpAddr::V6(ip) => ip,
    };
    let local_use = in_v6(ip, v6(0x64, 0xff9b, 1, 0), 48);
    match embedded(ip) {
        [Some(first), second] if !local_use => special_v4(first).or_else(|| second.and_then(special_v4)),
        _ => SPECIAL_V6.iter().find(|(base, prefix, _)| in_v6(ip, *base, *prefix)).and_then(|(_, _, name)| *name),
    }
}

/// Whether the special-purpose registries leave this a globally reachable unicast address.
pub fn globally_reachable(ip: IpAddr) -> bool {
    special_purpose(ip).is_none()
}

/// Link-local addresses and those where clouds serve metadata and credentials, IPv6 forms that carry one included. No
/// name opens them, only an address or a CIDR does (operator.md, `--egress-allow`).
pub fn is_link_local_or_metadata(ip: IpAddr) -> bool {
    let v4_is = |ip: Ipv4Addr| in_v4(ip, v4(169, 254, 0, 0), 16) || METADATA_V4.iter().any(|(base, prefix, _)| in_v4(ip, *base, *prefix));
    match ip {
        IpAddr::V4(ip) => v4_is(ip),
        IpAddr::V6(ip) => {
            in_v6(ip, v6(0xfe80, 0, 0, 0), 10)
                || METADATA_V6.iter().any(|(base, prefix, _)| in_v6(ip, *base, *prefix))
                || embedded(ip).into_iter().flatten().any(v4_is)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// LO-1, S4: every block at its first and last address and just outside.
    #[test]
    fn the_registries_decide_what_is_globally_reachable() {
        for (text, reachable) in [
            ("0.0.0.0", false),
            ("0.255.255.255", false),
            ("1.0.0.0", true),
            ("8.8.8.8", true),
            ("9.255.255.255", true),
            ("10.0.0.0", false),
            ("10.255.255.255", false),
            ("11.0.0.0", true),
            ("100.63.255.255", true),
            ("100.64.0.1", false),
            ("100.127.255.255", false),
            ("100.128.0.0", true),
            ("126.255.255.255", true),
            ("127.0.0.1", false),
            ("127.255.255.255", false),
            ("128.0.0.0", true),
            ("169.253.255.255", true),
            ("169.254.169.254", false),
            ("169.255.0.0", true),
            ("172.15.255.255", true),
            ("172.16.0.0", false),
            ("172.31.255.255", false),
            ("172.32.0.0", true),
            ("192.0.0.8", false),
            ("192.0.0.9", true),
            ("192.0.0.10", true),
            ("192.0.0.11", false),
            ("192.0.1.0", true),
            ("192.0.2.7", false),
            ("192.31.196.1", true),
            ("192.52.193.1", true),
            ("192.88.99.1", false),
            ("192.167.255.255", true),
            ("192.168.0.1", false),
            ("192.175.48.1", true),
            ("198.17.255.255", true),
            ("198.18.0.0", false),
            ("198.19.255.255", false),
            ("198.51.100.1", false),
            ("203.0.113.1", false),
            ("223.255.255.255", true),
            ("224.0.0.1", false),
            ("239.255.255.255", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::8.8.8.8", false),
            ("64:ff9b:1::808:808", false),
            ("100::1", false),
            ("100:0:0:1::1", false),
            ("200::1", false),
            ("1fff:ffff::", false),
            ("2001:1::1", true),
            ("2001:1::2", true),
            ("2001:1::3", true),
            ("2001:1::4", false),
            ("2001:2::1", false),
            ("2001:3::1", true),
            ("2001:4:112::1", true),
            ("2001:4:113::1", false),
            ("2001:10::1", false),
            ("2001:20::1", true),
            ("2001:30::1", true),
            ("2001:1ff::1", false),
            ("2001:200::1", true),
            ("2001:db8::1", false),
            ("2001:db9::1", true),
            ("2606:4700:4700::1111", true),
            ("2620:4f:8000::1", true),
            ("3ffe::1", true),
            ("3fff::1", false),
            ("3fff:fff:ffff::", false),
            ("3fff:1000::", true),
            ("4000::1", false),
            ("5f00::1", false),
            ("fc00::1", false),
            ("fd00::1", false),
            ("fdff:ffff::1", false),
            ("fe80::1", false),
            ("febf::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
            ("ff0e::1", false),
        ] {
            assert_eq!(globally_reachable(ip(text)), reachable, "{text}: {:?}", special_purpose(ip(text)));
        }
    }

    /// LO-1: mapped, 64:ff9b::/96, 6to4, Teredo.
    #[test]
    fn an_ipv6_form_is_judged_by_the_ipv4_address_it_carries() {
        for (text, reachable) in [
            ("::ffff:10.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:8.8.8.8", true),
            ("64:ff9b::a00:1", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b::808:808", true),
            ("2002:a00:1::1", false),
            ("2002:7f00:1::", false),
            ("2002:808:808::1", true),
            // Teredo: server 8.8.8.8, client inverted: 10.0.0.1, then 8.8.4.4; then a private server.
            ("2001:0:808:808:0:0:f5ff:fffe", false),
            ("2001:0:808:808:0:0:f7f7:fbfb", true),
            ("2001:0:a00:1:0:0:f7f7:fbfb", false),
        ] {
            assert_eq!(globally_reachable(ip(text)), reachable, "{text}: {:?}", special_purpose(ip(text)));
        }
    }

    /// HE-10, S6.
    #[test]
    fn link_local_and_metadata_addresses_are_known_in_every_form() {
        for (text, is) in [
            ("169.254.169.254", true),
            ("169.254.0.1", true),
            ("100.100.100.200", true),
            ("168.63.129.16", true),
            ("192.0.0.192", true),
            ("fe80::1", true),
            ("febf::1", true),
            ("fec0::1", false),
            ("fd00:ec2::254", true),
            ("fd00:ec2::23", true),
            ("fd20:ce::254", true),
            ("fd20:ce::255", false),
            ("fd00:c1::a9fe:a9fe", true),
            ("fd00:42::42", true),
            ("::ffff:169.254.169.254", true),
            ("64:ff9b::a9fe:a9fe", true),
            ("64:ff9b:1::a9fe:a9fe", true),
            ("2002:a9fe:a9fe::", true),
            ("2001:0:808:808:0:0:5601:5601", true),
            ("127.0.0.1", false),
            ("10.0.0.1", false),
            ("100.100.100.201", false),
            ("8.8.8.8", false),
        ] {
            assert_eq!(is_link_local_or_metadata(ip(text)), is, "{text}");
        }
    }
}
