//! From the file to a [`ProxmoxBlock`], key by key.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::super::gcp::check_endpoint;
use super::super::libvirt::{empty_map, free_map, vendor_data};
use super::{MachineType, ProxmoxBlock, Template, Trust, VmidRange};
use crate::fault::Sink;
use crate::reader::{Keys, Named};
use crate::yaml::Node;

/// The VMIDs that Proxmox VE takes.
const LEAST_VMID: u64 = 100;
const MOST_VMID: u64 = 999_999_999;
/// Seconds.
const REQUEST_TIMEOUT: u64 = 30;

/// `None` when there is nothing to go on with; faults go to the sink.
pub(super) fn block(node: &Node, sink: &mut Sink<'_>) -> Option<ProxmoxBlock> {
    let mut keys = Keys::new(node, "proxmox", sink)?;
    let url = keys.required("url", sink);
    if let Some(Err(reason)) = url.map(check_url) {
        keys.tell("url", reason, sink);
    }
    let token_file = keys.required("tokenFile", sink);
    if token_file.is_some_and(|path| !path.starts_with('/')) {
        keys.tell("tokenFile", "must be an absolute path", sink);
    }
    let trust = trust(&mut keys, sink);
    let nodes = nodes(&mut keys, sink);
    let iso_storage = storage(&mut keys, "isoStorage", sink).unwrap_or_else(|| "local".to_owned());
    let storage = storage(&mut keys, "storage", sink);
    let bridge = bridge(&mut keys, sink);
    let vlan_tag = keys.number("vlanTag", 1..=4094, sink).and_then(|tag| u16::try_from(tag).ok());
    let vmid_range = vmid_range(&mut keys, sink);
    let templates = free_map(&mut keys, "templates", template, sink);
    if templates.is_none() && empty_map(&mut keys, "templates") {
        keys.tell("templates", "must define at least one template", sink);
    }
    for (name, template) in templates.iter().flatten() {
        let Template::PerNode(vmids) = template else { continue };
        for node in nodes.iter().filter(|node| !vmids.contains_key(*node)) {
            keys.tell("templates", format!("{name:?} has no VMID in perNode for node {node}"), sink);
        }
        for node in vmids.keys().filter(|node| !nodes.contains(node)) {
            keys.tell("templates", format!("{name:?} has a VMID in perNode for {node}, which is not one of nodes"), sink);
        }
    }
    let machine_types = free_map(&mut keys, "machineTypes", machine_type, sink);
    if machine_types.is_none() && empty_map(&mut keys, "machineTypes") {
        keys.tell("machineTypes", "must define at least one profile", sink);
    }
    let seconds = keys.number("requestTimeoutSeconds", 0..=600, sink).filter(|n| *n > 0).unwrap_or(REQUEST_TIMEOUT);
    let install_guest_agent = keys.flag("installGuestAgent", sink).unwrap_or(true);
    let vendor_data = vendor_data(&mut keys, install_guest_agent, sink);
    keys.finish(sink);
    Some(ProxmoxBlock {
        url: url?.trim_end_matches('/').to_owned(),
        token_file: PathBuf::from(token_file?),
        trust,
        nodes,
        iso_storage,
        storage,
        bridge,
        vlan_tag,
        vmid_range,
        templates: templates?,
        machine_types: machine_types?,
        request_timeout: Duration::from_secs(seconds),
        vendor_data,
        install_guest_agent,
    })
}

/// A fault shows nothing of the URL: it may have a password in it.
fn check_url(url: &str) -> Result<(), String> {
    if url.contains('@') {
        return Err("must not have a user or password in it: the token is in tokenFile".to_owned());
    }
    check_endpoint(url)
}

/// PX-3.
fn trust(keys: &mut Keys<'_>, sink: &mut Sink<'_>) -> Trust {
    let ca_file = keys.get("caFile").is_some().then(|| keys.required("caFile", sink)).flatten();
    let insecure = keys.flag("insecureSkipTLSVerify", sink).unwrap_or(false);
    match ca_file {
        Some(_) if insecure => {
            keys.tell("caFile", "excludes insecureSkipTLSVerify: nothing would be verified with it", sink);
            Trust::Anyone
        }
        Some(path) => Trust::File(PathBuf::from(path)),
        None if insecure => Trust::Anyone,
        None => Trust::System,
    }
}

fn nodes(keys: &mut Keys<'_>, sink: &mut Sink<'_>) -> Vec<String> {
    let items = keys.items("nodes", sink);
    if keys.get("nodes").is_none() || items.as_ref().is_some_and(Vec::is_empty) {
        keys.tell("nodes", "must list at least one node", sink);
    }
    let mut found: Vec<String> = Vec::new();
    for (path, item) in items.into_iter().flatten() {
        match item.text() {
            Some(node) if found.iter().any(|before| before == node) => {
                sink.push(item.line, path, format!("{node} is there more than once"))
            }
            Some(node) if is_node(node) => found.push(node.to_owned()),
            _ => sink.push(item.line, path, "must be a node's name: a-z, 0-9 and -, not beginning with -"),
        }
    }
    found
}

fn is_node(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn storage(keys: &mut Keys<'_>, key: &'static str, sink: &mut Sink<'_>) -> Option<String> {
    let text = keys.text(key, sink)?;
    let fits =
        text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
    if !fits {
        keys.tell(key, "must be a storage's id: A-Z, a-z, 0-9, _, . and -, beginning with a letter", sink);
    }
    Some(text.to_owned())
}

/// PX-2.
fn bridge(keys: &mut Keys<'_>, sink: &mut Sink<'_>) -> Option<String> {
    let text = keys.text("bridge", sink)?;
    let fits = text.len() <= 15
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    if text.contains('.') {
        let reason = "must not have a dot: a VLAN interface of the host (vmbr0.40) is no bridge: set bridge: vmbr0 and vlanTag: 40";
        keys.tell("bridge", reason, sink);
    } else if !fits {
        keys.tell("bridge", "must be 1-15 of A-Z, a-z, 0-9, _ and -, beginning with a letter", sink);
    }
    Some(text.to_owned())
}

fn vmid(keys: &mut Keys<'_>, key: &'static str, sink: &mut Sink<'_>) -> Option<u32> {
    keys.number(key, LEAST_VMID..=MOST_VMID, sink).and_then(|n| u32::try_from(n).ok())
}

fn vmid_range(keys: &mut Keys<'_>, sink: &mut Sink<'_>) -> VmidRange {
    let default = VmidRange::default();
    let Some(node) = keys.get("vmidRange") else { return default };
    let Some(mut ends) = Keys::new(node, &keys.path("vmidRange"), sink) else { return default };
    let min = vmid(&mut ends, "min", sink).unwrap_or(default.min);
    let max = vmid(&mut ends, "max", sink).unwrap_or(default.max);
    ends.finish(sink);
    if min >= max {
        keys.tell("vmidRange", format!("must have min below max, has {min} and {max}"), sink);
    }
    VmidRange { min, max }
}

fn template(item: &Named<'_>, sink: &mut Sink<'_>) -> Option<Template> {
    let mut keys = Keys::new(item.node, &item.path, sink)?;
    let shared = vmid(&mut keys, "vmid", sink);
    let per_node = keys.named("perNode", sink);
    if keys.get("vmid").is_some() == keys.get("perNode").is_some() {
        sink.push(item.node.line, &item.path, "must have either vmid or perNode");
    }
    keys.finish(sink);
    let Some(per_node) = per_node else { return shared.map(Template::Shared) };
    let mut vmids = BTreeMap::new();
    for node in per_node {
        let range = LEAST_VMID..=MOST_VMID;
        let found = node.node.to_json("", &mut |_, _| {}).as_u64().filter(|n| range.contains(n)).and_then(|n| u32::try_from(n).ok());
        match found {
            Some(vmid) => drop(vmids.insert(node.name.to_owned(), vmid)),
            None => sink.push(node.node.line, node.path, format!("must be a whole number, {LEAST_VMID} to {MOST_VMID}")),
        }
    }
    Some(Template::PerNode(vmids))
}

fn machine_type(item: &Named<'_>, sink: &mut Sink<'_>) -> Option<MachineType> {
    let mut keys = Keys::new(item.node, &item.path, sink)?;
    for key in ["cores", "memoryMiB"] {
        if keys.get(key).is_none() {
            keys.tell(key, "is required", sink);
        }
    }
    let cores = keys.number("cores", 1..=512, sink).and_then(|n| u32::try_from(n).ok());
    let memory_mib = keys.number("memoryMiB", 128..=4_194_304, sink);
    let disk_gib = keys.number("diskGiB", 0..=65_536, sink).unwrap_or_default();
    keys.finish(sink);
    Some(MachineType { cores: cores?, memory_mib: memory_mib?, disk_gib })
}
