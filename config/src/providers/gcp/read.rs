//! From the file to a [`GcpBlock`], key by key.

use std::net::IpAddr;

use egress_protocol::resource::grammar;

use super::credentials::Environment;
use super::{AddressMode, ENDPOINT, GcpBlock};
use crate::fault::Sink;
use crate::reader::Keys;
use crate::yaml::Node;

/// GiB of a disk, and where nothing is said.
const DISK: std::ops::RangeInclusive<u64> = 10..=65_536;
const DEFAULT_DISK: u32 = 10;
/// How many regions a check reads the quotas of.
const MOST_REGIONS: usize = 20;
/// Bytes of a resource's path.
const PATH_LIMIT: usize = 512;

/// The block of an entry. `None` when there is nothing to go on with; faults go to the sink.
pub(super) fn block(node: &Node, environment: &Environment, sink: &mut Sink<'_>) -> Option<GcpBlock> {
    let mut keys = Keys::new(node, super::TYPE.name, sink)?;
    let project = keys.required("project", sink).filter(|project| {
        let fits = is_project(project);
        if !fits {
            keys.tell("project", "must be a project's id, such as my-project-123456, or its number", sink);
        }
        fits
    });
    let network = keys.text("network", sink).unwrap_or("global/networks/default");
    if !is_resource(network, &["global", "networks"]) {
        keys.tell("network", "must be global/networks/NAME, or the same below projects/PROJECT/", sink);
    }
    let subnetwork = keys.text("subnetwork", sink);
    if subnetwork.is_some_and(|path| !is_resource(path, &["regions", "*", "subnetworks"])) {
        keys.tell("subnetwork", "must be regions/REGION/subnetworks/NAME, or the same below projects/PROJECT/", sink);
    }
    let network_tag = keys.text("networkTag", sink).unwrap_or("proxy-operator");
    if !is_name(network_tag) {
        keys.tell("networkTag", format!("must be a tag: {NAME_RULE}"), sink);
    }
    let disk_size_gb = keys.number("diskSizeGb", DISK, sink).and_then(|size| u32::try_from(size).ok()).unwrap_or(DEFAULT_DISK);
    let modes = [("External", AddressMode::External), ("Internal", AddressMode::Internal)];
    let address_mode = keys.word("addressMode", &modes, sink);
    let quota_regions = regions(&mut keys, sink);
    let own = keys.text("credentialsFile", sink);
    if own.is_some_and(|path| !path.starts_with('/') || path.chars().any(char::is_control)) {
        keys.tell("credentialsFile", "must be an absolute path, such as /etc/proxy-operator/gcp/credentials.json", sink);
    }
    let endpoint = keys.text("endpoint", sink).unwrap_or(ENDPOINT);
    if let Err(reason) = check_endpoint(endpoint) {
        keys.tell("endpoint", reason, sink);
    }
    keys.finish(sink);
    Some(GcpBlock {
        project: project?.to_owned(),
        network: network.to_owned(),
        subnetwork: subnetwork.map(str::to_owned),
        network_tag: network_tag.to_owned(),
        disk_size_gb,
        address_mode,
        quota_regions,
        credentials: environment.credentials(own),
        endpoint: endpoint.trim_end_matches('/').to_owned(),
    })
}

fn regions(keys: &mut Keys<'_>, sink: &mut Sink<'_>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (path, item) in keys.items("quotaRegions", sink).into_iter().flatten() {
        match item.text() {
            Some(region) if found.iter().any(|before| before == region) => {
                sink.push(item.line, path, format!("{region} is there more than once"));
            }
            Some(region) if is_name(region) => found.push(region.to_owned()),
            _ => sink.push(item.line, path, "must be a region's name, such as europe-west1"),
        }
    }
    if found.len() > MOST_REGIONS {
        keys.tell("quotaRegions", format!("must be at most {MOST_REGIONS}: a check reads each of them"), sink);
    }
    found
}

const NAME_RULE: &str = "at most 63 of a-z, 0-9 and -, beginning with a letter, ending with a letter or digit";

/// A name as Compute Engine has it.
fn is_name(text: &str) -> bool {
    grammar::is_dns_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

/// The pattern of the discovery document: an id or a number, with the domain of old projects before it.
fn is_project(text: &str) -> bool {
    let (domain, id) = text.rsplit_once(':').unwrap_or(("", text));
    let has_domain = text.contains(':');
    let labels: Vec<&str> = domain.split('.').collect();
    let domain_fits = labels.iter().all(|label| !label.is_empty() && label.len() <= 63 && label.bytes().all(is_of_name))
        && labels.last().is_some_and(|last| is_name(last));
    grammar::is_dns_label(id) && (!has_domain || domain_fits)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

/// A path that ends with `kind` and a name; `*` in `kind` is any name. Partial ones begin there, full ones with a project, and
/// those of other documents with the address of an API.
fn is_resource(path: &str, kind: &[&str]) -> bool {
    let path = match path.strip_prefix("https://") {
        Some(rest) => rest.split_once("/compute/v1/").map_or("", |(_, path)| path),
        None => path,
    };
    let segments: Vec<&str> = path.split('/').collect();
    let local = match segments.as_slice() {
        ["projects", project, rest @ ..] if is_project(project) => rest,
        rest => rest,
    };
    let Some((name, kinds)) = local.split_last() else { return false };
    path.len() <= PATH_LIMIT
        && is_name(name)
        && kinds.len() == kind.len()
        && kinds.iter().zip(kind).all(|(found, wanted)| if *wanted == "*" { is_name(found) } else { found == wanted })
}

/// https, or http on loopback: a token is sent there.
pub(in crate::providers) fn check_endpoint(url: &str) -> Result<(), String> {
    let trimmed = url.trim_end_matches('/');
    let rest = trimmed.split_once("://").map_or("", |(_, rest)| rest);
    if !grammar::URL_GRAMMAR.matches(url) || rest.contains('@') {
        return Err("must be a URL of https:// with a host, or of http:// on loopback".to_owned());
    }
    if rest.contains(['/', '?']) {
        return Err("must not have a path or a query: the API's own are added".to_owned());
    }
    let host =
        rest.strip_prefix('[').map_or_else(|| rest.split(':').next().unwrap_or_default(), |v6| v6.split(']').next().unwrap_or_default());
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    if trimmed.starts_with("http://") && !loopback {
        return Err("must be https:// off loopback: a token is sent there".to_owned());
    }
    Ok(())
}
