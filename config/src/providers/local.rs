//! The block `local:` (LO-3): proxies inside this process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use egress_protocol::net::AllowList;
use egress_protocol::provider::ErrorClass;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{ProviderBlock, Type};
use crate::fault::Sink;
use crate::reader::Keys;
use crate::yaml::Node;

pub(super) static TYPE: Type = Type { name: "local", block_required: false, live: &LIVE, files: |_| Vec::new(), warnings, read };

/// Everything but where instances listen and leave from, which they keep.
const LIVE: [&str; 8] = [
    "allowedClients",
    "insecureOpenProxy",
    "allowedTargets",
    "maxConnections",
    "maxHeaderBytes",
    "connectTimeout",
    "idleTimeout",
    "faults",
];

/// What an entry of type `local` says.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalBlock {
    /// `listenAddresses`: an instance takes the first address on which its port is free. Not empty; each /16 or smaller.
    pub listen_addresses: Vec<Ipv4Net>,
    /// `sourceAddresses`: empty leaves the choice to the system.
    pub source_addresses: Vec<IpAddr>,
    /// `allowedClients`.
    pub allowed_clients: Vec<IpNet>,
    /// `allowedTargets`: exceptions to what an instance refuses to reach.
    pub allowed_targets: AllowList,
    /// `maxConnections`, per instance.
    pub max_connections: u32,
    /// `maxHeaderBytes`, per instance.
    pub max_header_bytes: u32,
    /// `connectTimeout`.
    pub connect_timeout: Duration,
    /// `idleTimeout`.
    pub idle_timeout: Duration,
    /// `faults`: the first whose pattern names a proxy counts.
    pub faults: Vec<FaultKnobs>,
}

impl LocalBlock {
    /// `insecureOpenProxy` is made use of.
    pub fn serves_everybody(&self) -> bool {
        self.allowed_clients.iter().any(|net| net.prefix_len() == 0)
    }
}

impl FaultKnobs {
    /// Whether a pattern names the proxy `NAMESPACE/NAME`; `*` stands for any number of characters.
    pub fn names(&self, proxy: &str) -> bool {
        self.proxies.iter().any(|pattern| matches(pattern.as_bytes(), proxy.as_bytes()))
    }
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

impl Default for LocalBlock {
    fn default() -> Self {
        let loopback = Ipv4Net::new(Ipv4Addr::new(127, 0, 0, 0), 8).map(IpNet::V4);
        Self {
            listen_addresses: vec![Ipv4Net::from(Ipv4Addr::LOCALHOST)],
            source_addresses: Vec::new(),
            allowed_clients: loopback.into_iter().chain([IpNet::V6(Ipv6Net::from(Ipv6Addr::LOCALHOST))]).collect(),
            allowed_targets: AllowList::default(),
            max_connections: 1024,
            max_header_bytes: 16_384,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            faults: Vec::new(),
        }
    }
}

/// Fault knobs for rehearsals (LO-1), for the proxies that a pattern names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FaultKnobs {
    /// `proxies`: `NAMESPACE/NAME` patterns in which `*` stands for any characters. Not empty.
    pub proxies: Vec<String>,
    /// `latency`: added before every request.
    pub latency: Option<Duration>,
    /// `refuseAfter`: requests served before the rest are refused.
    pub refuse_after: Option<u64>,
    /// `proxyAuth`: every request is answered 407.
    pub proxy_auth: bool,
    /// `resetRatio`: share of connections that are reset.
    pub reset_ratio: f64,
    /// `failRatio`: share of requests that fail.
    pub fail_ratio: f64,
    /// `createError`: creates fail with this class.
    pub create_error: Option<ErrorClass>,
}

fn warnings(block: &ProviderBlock) -> Vec<String> {
    let open = matches!(block, ProviderBlock::Local(block) if block.serves_everybody());
    open.then(|| "insecureOpenProxy: its proxies serve everybody who can reach them".to_owned()).into_iter().collect()
}

const SECOND: Duration = Duration::from_secs(1);

fn read(node: Option<&Node>, sink: &mut Sink<'_>) -> Option<ProviderBlock> {
    let mut block = LocalBlock::default();
    let Some(node) = node else { return Some(ProviderBlock::Local(block)) };
    let mut keys = Keys::new(node, TYPE.name, sink)?;
    if let Some(found) = keys.list("listenAddresses", sink, listen_address) {
        if keys.items("listenAddresses", sink).is_some_and(|items| items.is_empty()) {
            sink.push(keys.line("listenAddresses"), keys.path("listenAddresses"), "must name at least one address");
        }
        block.listen_addresses = found;
    }
    if let Some(found) = keys.list("sourceAddresses", sink, source_address) {
        block.source_addresses = found;
        tell_repeated(&keys, "sourceAddresses", &block.source_addresses, sink);
    }
    let open = keys.flag("insecureOpenProxy", sink).unwrap_or(false);
    if let Some(found) = keys.list("allowedClients", sink, |text| client(text, open)) {
        block.allowed_clients = found;
    }
    if let Some(items) = keys.list("allowedTargets", sink, |text| Ok(text.to_owned())) {
        match AllowList::parse(&items) {
            Ok(list) => block.allowed_targets = list,
            Err(reasons) => {
                for reason in reasons {
                    sink.push(keys.line("allowedTargets"), keys.path("allowedTargets"), reason);
                }
            }
        }
    }
    block.max_connections = small(keys.number("maxConnections", 1..=65_536, sink), block.max_connections);
    block.max_header_bytes = small(keys.number("maxHeaderBytes", 1024..=65_536, sink), block.max_header_bytes);
    if let Some(found) = keys.duration("connectTimeout", SECOND..=SECOND * 300, sink) {
        block.connect_timeout = found;
    }
    if let Some(found) = keys.duration("idleTimeout", SECOND..=SECOND * 3600, sink) {
        block.idle_timeout = found;
    }
    for (path, item) in keys.items("faults", sink).into_iter().flatten() {
        block.faults.extend(knobs(item, &path, sink));
    }
    keys.finish(sink);
    Some(ProviderBlock::Local(block))
}

fn small(found: Option<u64>, default: u32) -> u32 {
    found.and_then(|n| u32::try_from(n).ok()).unwrap_or(default)
}

fn listen_address(text: &str) -> Result<Ipv4Net, String> {
    let net = text.parse::<Ipv4Net>().or_else(|_| text.parse::<Ipv4Addr>().map(Ipv4Net::from));
    let net = net.map_err(|_| "must be an IPv4 address or CIDR, such as 127.0.0.1 or 127.1.0.0/16".to_owned())?;
    if net.prefix_len() < 16 {
        return Err(format!("must be a /16 or smaller, is a /{}", net.prefix_len()));
    }
    if net.addr().is_multicast() || net.addr().is_unspecified() || net.addr().is_broadcast() {
        return Err("must be addresses of this machine that a client can be told".to_owned());
    }
    Ok(net.trunc())
}

fn source_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| "must be an address, such as 192.0.2.7 or 2001:db8::7".to_owned())?;
    if address.is_unspecified() || address.is_multicast() {
        return Err("must be an address of this machine".to_owned());
    }
    Ok(address)
}

fn client(text: &str, open: bool) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let net = net.map_err(|_| "must be a CIDR, such as 10.0.0.0/8 or ::1/128".to_owned())?;
    if net.prefix_len() == 0 && !open {
        return Err("opens the proxies to everybody: that takes insecureOpenProxy: true".to_owned());
    }
    Ok(net.trunc())
}

fn tell_repeated(keys: &Keys<'_>, key: &str, found: &[IpAddr], sink: &mut Sink<'_>) {
    for (i, address) in found.iter().enumerate() {
        if found.iter().take(i).any(|before| before == address) {
            sink.push(keys.line(key), keys.path(key), format!("{address} is there more than once"));
        }
    }
}

/// One item of `faults`.
fn knobs(node: &Node, path: &str, sink: &mut Sink<'_>) -> Option<FaultKnobs> {
    let mut keys = Keys::new(node, path, sink)?;
    let mut knobs = FaultKnobs::default();
    // One pattern may stand without a list around it.
    match keys.get("proxies") {
        Some(one) if one.text().is_some() => {
            let found = one.text().map(pattern);
            match found {
                Some(Ok(found)) => knobs.proxies.push(found),
                Some(Err(reason)) => sink.push(one.line, keys.path("proxies"), reason),
                None => {}
            }
        }
        Some(_) => {
            knobs.proxies = keys.list("proxies", sink, pattern).unwrap_or_default();
            if keys.items("proxies", &mut Sink::new("", 0)).is_some_and(|items| items.is_empty()) {
                sink.push(keys.line("proxies"), keys.path("proxies"), "must name at least one pattern");
            }
        }
        None => sink.push(node.line, keys.path("proxies"), "is required: NAMESPACE/NAME, * allowed"),
    }
    knobs.latency = keys.duration("latency", Duration::ZERO..=SECOND * 300, sink);
    knobs.refuse_after = keys.number("refuseAfter", 0..=1_000_000_000, sink);
    knobs.proxy_auth = keys.flag("proxyAuth", sink).unwrap_or(false);
    knobs.reset_ratio = keys.ratio("resetRatio", sink).unwrap_or(0.0);
    knobs.fail_ratio = keys.ratio("failRatio", sink).unwrap_or(0.0);
    if let Some(class) = keys.text("createError", sink) {
        knobs.create_error = class_of(class);
        if knobs.create_error.is_none() {
            let reason = "must be a class: QuotaExceeded, Transient or Permanent";
            sink.push(keys.line("createError"), keys.path("createError"), reason);
        }
    }
    keys.finish(sink);
    Some(knobs)
}

fn pattern(text: &str) -> Result<String, String> {
    let fits = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-./*".contains(c));
    if text == "*" || (fits && text.split('/').count() == 2 && !text.split('/').any(str::is_empty)) {
        Ok(text.to_owned())
    } else {
        Err("must be NAMESPACE/NAME, with * for any characters".to_owned())
    }
}

/// A create cannot find that nothing is there: NotFound is none of its classes.
fn class_of(text: &str) -> Option<ErrorClass> {
    match text {
        "QuotaExceeded" => Some(ErrorClass::QuotaExceeded),
        "Transient" => Some(ErrorClass::Transient),
        "Permanent" => Some(ErrorClass::Permanent),
        _ => None,
    }
}
