//! The block `kubernetes:` (K8 §1): Squid Pods in the cluster.
//!
//! What must stay true: everything that ends up in Squid's configuration is typed here as what it is (an address range, a
//! number), so that no text of a person's is ever pasted into it.

mod image;
mod quantity;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use egress_protocol::resource::grammar;
use ipnet::{IpNet, Ipv6Net};

use super::{ProviderBlock, Type};
use crate::fault::Sink;
use crate::reader::Keys;
use crate::yaml::{Data, Node};
pub use quantity::Quantity;

/// Every key counts for Pods that are made later: a change restarts the entry.
pub(super) static TYPE: Type =
    Type { name: "kubernetes", block_required: false, live: &[], files: |_| Vec::new(), warnings: |_| Vec::new(), read };

/// What an entry of type `kubernetes` says.
#[derive(Debug, Clone, PartialEq)]
pub struct KubernetesBlock {
    /// `image`: a reference, not looked up.
    pub image: String,
    /// `cloudInitPolicy`: what happens to a Proxy's cloud-init.
    pub cloud_init_policy: CloudInitPolicy,
    /// `resources` of the container.
    pub resources: Resources,
    /// `maxFileDescriptors`: Squid's bound.
    pub max_file_descriptors: u32,
    /// `allowedClients`: empty stands for all.
    pub allowed_clients: Vec<IpNet>,
    /// `allowedDestinations`: exceptions to what an instance refuses to reach.
    pub allowed_destinations: Vec<IpNet>,
    /// `imagePullSecrets`: names of Secrets of the Proxy's namespace.
    pub image_pull_secrets: Vec<String>,
}

/// What happens to cloud-init, which a Pod has no use for (K8-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CloudInitPolicy {
    /// It is not used; a warning tells so.
    #[default]
    Ignore,
    /// A Proxy that has any is refused.
    Reject,
}

/// What the container asks for and may use, by resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    /// `requests`.
    pub requests: BTreeMap<&'static str, Quantity>,
    /// `limits`.
    pub limits: BTreeMap<&'static str, Quantity>,
}

impl Default for Resources {
    fn default() -> Self {
        let of = |pairs: &[(&'static str, &str)]| {
            pairs.iter().filter_map(|(key, text)| Some((*key, Quantity::parse(text).ok()?))).collect::<BTreeMap<_, _>>()
        };
        Self { requests: of(&[("cpu", "50m"), ("memory", "64Mi")]), limits: of(&[("memory", "256Mi")]) }
    }
}

impl Default for KubernetesBlock {
    fn default() -> Self {
        Self {
            image: "ubuntu/squid:6.6-24.04_edge".to_owned(),
            cloud_init_policy: CloudInitPolicy::default(),
            resources: Resources::default(),
            max_file_descriptors: 16_384,
            allowed_clients: Vec::new(),
            allowed_destinations: Vec::new(),
            image_pull_secrets: Vec::new(),
        }
    }
}

/// The resources that a container may be given, with what each may be.
const RESOURCES: [(&str, &str, &str); 3] = [("cpu", "1m", "1024"), ("memory", "16Mi", "1Ti"), ("ephemeral-storage", "1Mi", "1Ti")];

fn read(node: Option<&Node>, sink: &mut Sink<'_>) -> Option<ProviderBlock> {
    let mut block = KubernetesBlock::default();
    let Some(node) = node else { return Some(ProviderBlock::Kubernetes(block)) };
    let mut keys = Keys::new(node, TYPE.name, sink)?;
    if let Some(text) = keys.text("image", sink) {
        match image::check(text) {
            Ok(()) => text.clone_into(&mut block.image),
            Err(reason) => sink.push(keys.line("image"), keys.path("image"), reason),
        }
    }
    match keys.text("cloudInitPolicy", sink) {
        None => {}
        Some("Ignore") => block.cloud_init_policy = CloudInitPolicy::Ignore,
        Some("Reject") => block.cloud_init_policy = CloudInitPolicy::Reject,
        Some(_) => sink.push(keys.line("cloudInitPolicy"), keys.path("cloudInitPolicy"), "must be Ignore or Reject"),
    }
    if let Some(node) = keys.get("resources") {
        block.resources = resources(node, &keys.path("resources"), sink).unwrap_or_default();
    }
    if let Some(found) = keys.number("maxFileDescriptors", 1024..=65_536, sink) {
        block.max_file_descriptors = u32::try_from(found).unwrap_or(block.max_file_descriptors);
    }
    if let Some(found) = keys.list("allowedClients", sink, range) {
        block.allowed_clients = found;
    }
    if let Some(found) = keys.list("allowedDestinations", sink, range) {
        block.allowed_destinations = found;
    }
    if let Some(found) = keys.list("imagePullSecrets", sink, object_name) {
        for (i, name) in found.iter().enumerate() {
            if found.iter().take(i).any(|before| before == name) {
                sink.push(keys.line("imagePullSecrets"), keys.path("imagePullSecrets"), format!("{name} is there more than once"));
            }
        }
        block.image_pull_secrets = found;
    }
    keys.finish(sink);
    Some(ProviderBlock::Kubernetes(block))
}

/// A map that is given stands for the whole of it: `limits: {}` is no limit.
fn resources(node: &Node, path: &str, sink: &mut Sink<'_>) -> Option<Resources> {
    let mut keys = Keys::new(node, path, sink)?;
    let mut found = Resources::default();
    if let Some(node) = keys.get("requests") {
        found.requests = amounts(node, &keys.path("requests"), sink).unwrap_or_default();
    }
    if let Some(node) = keys.get("limits") {
        found.limits = amounts(node, &keys.path("limits"), sink).unwrap_or_default();
    }
    for (key, request) in &found.requests {
        if let Some(limit) = found.limits.get(key).filter(|limit| *limit < request) {
            let reason = format!("{request} is more than limits.{key}, {limit}");
            sink.push(node.line, format!("{path}.requests.{key}"), reason);
        }
    }
    keys.finish(sink);
    Some(found)
}

fn amounts(node: &Node, path: &str, sink: &mut Sink<'_>) -> Option<BTreeMap<&'static str, Quantity>> {
    let mut keys = Keys::new(node, path, sink)?;
    let mut found = BTreeMap::new();
    for (key, least, most) in RESOURCES {
        let Some(node) = keys.get(key) else { continue };
        // A bare number is as good as its text, as with the API server.
        let text = match &node.data {
            Data::Text(text) => text.clone(),
            Data::Number(number) => number.to_string(),
            Data::Null | Data::Bool(_) | Data::List(_) | Data::Map(_) => String::new(),
        };
        match Quantity::parse(&text) {
            Ok(quantity) if quantity.is_within(least, most) => drop(found.insert(key, quantity)),
            Ok(quantity) => sink.push(keys.line(key), keys.path(key), format!("must be {least} to {most}, is {quantity}")),
            Err(reason) => sink.push(keys.line(key), keys.path(key), reason),
        }
    }
    keys.finish(sink);
    Some(found)
}

/// A range of addresses as Squid takes it at its word.
fn range(text: &str) -> Result<IpNet, String> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let net = net.map_err(|_| "must be a CIDR, such as 10.0.0.0/8 or 2001:db8::/32".to_owned())?;
    match net {
        IpNet::V6(v6) if touches_mapped(v6) => {
            Err("has IPv4 addresses in their IPv6 form in it, which Squid takes as IPv4: name IPv4 and IPv6 ranges apart (2000::/3 is all of IPv6)".to_owned())
        }
        IpNet::V4(_) | IpNet::V6(_) => Ok(net.trunc()),
    }
}

/// Whether it has a part of `::ffff:0:0/96`. Measured: to Squid 5.7 `::/64` is all of IPv4 too, and so is
/// `::ffff:127.0.0.0/104`, while `::/0` is nothing.
fn touches_mapped(net: Ipv6Net) -> bool {
    let least = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped();
    let most = Ipv4Addr::BROADCAST.to_ipv6_mapped();
    net.network() <= most && least <= net.broadcast()
}

fn object_name(text: &str) -> Result<String, String> {
    if grammar::is_object_name(text) {
        Ok(text.to_owned())
    } else {
        Err("must be the name of a Secret: at most 253 of a-z, 0-9, - and ., beginning and ending with a letter or digit".to_owned())
    }
}
