//! From the file to a [`Block`], key by key.

use std::collections::BTreeMap;
use std::path::PathBuf;

use egress_protocol::Secret;
use egress_protocol::resource::grammar;

use super::{Block, Firmware, Format, GIB, Host, Image, MachineType, SeedBus, VirtType};
use crate::fault::Sink;
use crate::reader::{Keys, Named};
use crate::yaml::{Data, Node};

/// Of a machine's disk, in GiB.
const DISK: u64 = 10;
/// The largest disk and the largest reserve, in GiB.
const MOST_GIB: u64 = 16_384;
/// Bytes of `vendorData`.
const VENDOR_DATA_LIMIT: usize = 64 << 10;
/// Bytes of an image's URL.
const URL_LIMIT: usize = 2048;
/// Bytes of the path of a socket, as Linux has it.
const SOCKET_LIMIT: usize = 107;
/// What is a key of images made by the backend itself.
const URL_PREFIX: &str = "url-";
/// What may be asked of a later version.
const UNSUPPORTED: &str = "is not supported by this version";
/// With what cloud-init knows a document by (LV-26). The last two are MIME documents.
const BEGINNINGS: [&str; 7] =
    ["#cloud-config", "#!", "#include", "#cloud-boothook", "## template: jinja", "MIME-Version:", "Content-Type:"];
const MIME: [&str; 2] = ["MIME-Version:", "Content-Type:"];

/// The block of an entry of type `type_`. `None` when there is nothing to go on with; faults go to the sink.
pub(super) fn block(type_: &str, node: &Node, sink: &mut Sink<'_>) -> Option<Block> {
    let mut keys = Keys::new(node, type_, sink)?;
    let ssh_key_file = keys.required("sshKeyFile", sink);
    let insecure = keys.flag("insecureIgnoreHostKey", sink).unwrap_or(false);
    let known_hosts_file = known_hosts(&mut keys, insecure, sink);
    let disk_gib = keys.number("diskSizeGb", 0..=MOST_GIB, sink).filter(|size| *size > 0).unwrap_or(DISK);
    let install_guest_agent = keys.flag("installGuestAgent", sink).unwrap_or(true);
    let vendor_data = vendor_data(&mut keys, install_guest_agent, sink);
    url_images(&mut keys, sink);
    let max_image_gib = keys.number("maxImageGiB", 1..=1024, sink).unwrap_or(32);
    let images = free_map(&mut keys, "images", image, sink);
    let machine_types = free_map(&mut keys, "machineTypes", machine_type, sink);
    if machine_types.is_none() && empty_map(&mut keys, "machineTypes") {
        keys.tell("machineTypes", "must define at least one profile", sink);
    }
    let hosts = hosts(&mut keys, sink);
    keys.finish(sink);
    Some(Block {
        ssh_key_file: PathBuf::from(ssh_key_file?),
        known_hosts_file: known_hosts_file.filter(|_| !insecure).map(PathBuf::from),
        disk_gib,
        vendor_data,
        install_guest_agent,
        max_image_gib,
        images: images.unwrap_or_default(),
        machine_types: machine_types?,
        hosts,
    })
}

fn known_hosts<'a>(keys: &mut Keys<'a>, insecure: bool, sink: &mut Sink<'_>) -> Option<&'a str> {
    if keys.get("knownHostsFile").is_none() {
        if !insecure {
            keys.tell("knownHostsFile", "is required: only insecureIgnoreHostKey: true does without", sink);
        }
        return None;
    }
    keys.required("knownHostsFile", sink)
}

/// LV-26. A fault shows nothing of it.
pub(in crate::providers) fn vendor_data(keys: &mut Keys<'_>, agent: bool, sink: &mut Sink<'_>) -> Secret {
    let text = keys.text("vendorData", sink).unwrap_or_default();
    if text.len() > VENDOR_DATA_LIMIT {
        keys.tell("vendorData", format!("must be at most {VENDOR_DATA_LIMIT} bytes, is {}", text.len()), sink);
    } else if !text.is_empty() && !BEGINNINGS.iter().any(|beginning| text.starts_with(beginning)) {
        keys.tell("vendorData", format!("must begin as cloud-init knows it: {}", BEGINNINGS.join(", ")), sink);
    } else if agent && MIME.iter().any(|beginning| text.starts_with(beginning)) {
        let reason = "is a MIME document, which cannot be nested in the one that installs the guest agent: set installGuestAgent: false";
        keys.tell("vendorData", reason, sink);
    }
    Secret::new(text.to_owned())
}

/// Images by URL in a placement: not built yet, so whoever asks for them is told.
fn url_images(keys: &mut Keys<'_>, sink: &mut Sink<'_>) {
    if keys.flag("allowURLImages", sink) == Some(true) {
        keys.tell("allowURLImages", format!("true {UNSUPPORTED}: name each image in images"), sink);
    }
    let hosts = keys.list("urlImageHosts", sink, |host| match grammar::is_host(host) {
        true => Ok(()),
        false => Err("must be a host name".to_owned()),
    });
    if hosts.is_some_and(|hosts| !hosts.is_empty()) {
        keys.tell("urlImageHosts", format!("{UNSUPPORTED}: it goes with allowURLImages"), sink);
    }
}

/// LV-22.
fn is_identifier(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

const IDENTIFIER: &str = "must be at most 63 of A-Z, a-z, 0-9, _, . and -, beginning with a letter or digit";

/// A map whose keys are the user's names. `None` when it has no entry that could be read.
pub(in crate::providers) fn free_map<T>(
    keys: &mut Keys<'_>,
    key: &'static str,
    read: fn(&Named<'_>, &mut Sink<'_>) -> Option<T>,
    sink: &mut Sink<'_>,
) -> Option<BTreeMap<String, T>> {
    let named = keys.named(key, sink)?;
    let found: BTreeMap<_, _> = named.iter().filter_map(|item| Some((item.name.to_owned(), read(item, sink)?))).collect();
    (!found.is_empty()).then_some(found)
}

pub(in crate::providers) fn empty_map(keys: &mut Keys<'_>, key: &'static str) -> bool {
    keys.get(key).is_none_or(|node| node.entries().is_some_and(<[_]>::is_empty))
}

fn image(item: &Named<'_>, sink: &mut Sink<'_>) -> Option<Image> {
    if !is_identifier(item.name) {
        sink.push(item.node.line, &item.path, format!("{IDENTIFIER}: the key becomes part of the cached base volume's name"));
    } else if item.name.starts_with(URL_PREFIX) {
        sink.push(item.node.line, &item.path, format!("must not begin with {URL_PREFIX}: those keys are images by URL"));
    }
    let mut keys = Keys::new(item.node, &item.path, sink)?;
    let url = keys.required("url", sink).filter(|url| match check_url(url) {
        Ok(()) => true,
        Err(reason) => {
            keys.tell("url", reason, sink);
            false
        }
    });
    let given = keys.get("sha256").is_some();
    let sha256 = keys.text("sha256", sink);
    if sha256.is_some_and(|digest| digest.len() != 64 || !digest.bytes().all(|b| b.is_ascii_hexdigit())) {
        keys.tell("sha256", "must be 64 hexadecimal digits", sink);
    } else if !given && url.is_some_and(|url| url.starts_with("http://")) {
        keys.tell("sha256", "is required for a url of http://: nothing else says that the image is the one that is meant", sink);
    }
    let format = keys.word("format", &[("qcow2", Format::Qcow2), ("raw", Format::Raw)], sink);
    let firmware = keys.word("firmware", &[("uefi", Firmware::Uefi), ("bios", Firmware::Bios)], sink);
    let buses = [("scsi", SeedBus::Scsi), ("virtio", SeedBus::Virtio), ("sata", SeedBus::Sata)];
    let seed_bus = keys.word("seedBus", &buses, sink);
    keys.finish(sink);
    Some(Image { url: url?.to_owned(), sha256: sha256.map(str::to_ascii_lowercase), format, firmware, seed_bus })
}

/// A fault shows nothing of the URL: it may have a token in it (LV-112).
fn check_url(url: &str) -> Result<(), String> {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest).split(['/', '?', '#']).next().unwrap_or_default();
    if url.len() > URL_LIMIT {
        Err(format!("must be at most {URL_LIMIT} characters, is {}", url.len()))
    } else if authority.contains('@') {
        Err("must not have a user or password in it".to_owned())
    } else if grammar::URL_GRAMMAR.matches(url) {
        Ok(())
    } else {
        Err("must be a URL of http:// or https:// with a host and no fragment".to_owned())
    }
}

fn machine_type(item: &Named<'_>, sink: &mut Sink<'_>) -> Option<MachineType> {
    if !is_identifier(item.name) {
        sink.push(item.node.line, &item.path, IDENTIFIER);
    }
    let mut keys = Keys::new(item.node, &item.path, sink)?;
    for key in ["vcpus", "memoryMiB"] {
        if keys.get(key).is_none() {
            keys.tell(key, "is required", sink);
        }
    }
    let vcpus = keys.number("vcpus", 1..=256, sink).and_then(|n| u32::try_from(n).ok());
    let memory_mib = keys.number("memoryMiB", 64..=4_194_304, sink);
    keys.finish(sink);
    Some(MachineType { vcpus: vcpus?, memory_mib: memory_mib? })
}

fn hosts(keys: &mut Keys<'_>, sink: &mut Sink<'_>) -> Vec<Host> {
    let items = keys.items("hosts", sink);
    if items.as_ref().is_some_and(Vec::is_empty) || keys.get("hosts").is_none() {
        keys.tell("hosts", "must list at least one host", sink);
    }
    let mut hosts = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (path, node) in items.into_iter().flatten() {
        if let Some(name) = node.get("name").and_then(Node::text).filter(|name| !name.is_empty()) {
            if names.contains(&name) {
                sink.push(node.line_of(&path, &format!("{path}.name")), format!("{path}.name"), "is the name of an earlier host");
            }
            names.push(name);
        }
        // A null is no host either: an entry with less than it lists would drop Proxies.
        match node.data {
            Data::Null => sink.push(node.line, path, "must be a map"),
            Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) | Data::Map(_) => hosts.extend(host(node, &path, sink)),
        }
    }
    hosts
}

fn host(node: &Node, path: &str, sink: &mut Sink<'_>) -> Option<Host> {
    let mut keys = Keys::new(node, path, sink)?;
    let name = identifier(&mut keys, "name", sink);
    let address = keys.required("address", sink).and_then(|text| {
        let found = address(text);
        if found.is_none() {
            let reason = "must be host:port, such as kvm-1.example:22 or [2001:db8::7]:22";
            keys.tell("address", reason, sink);
        }
        found
    });
    let user = keys.required("user", sink);
    if user.is_some_and(|user| user.chars().any(|c| c.is_whitespace() || c.is_control())) {
        keys.tell("user", "must not have white space or control characters in it", sink);
    }
    let socket = keys.text("socket", sink).unwrap_or("/var/run/libvirt/libvirt-sock");
    if !socket.starts_with('/') || socket.len() > SOCKET_LIMIT || socket.chars().any(char::is_control) {
        keys.tell("socket", format!("must be an absolute path of at most {SOCKET_LIMIT} characters"), sink);
    }
    let pool = if keys.get("pool").is_some() { identifier(&mut keys, "pool", sink) } else { Some("default") };
    let bridge = keys.required("bridge", sink);
    if bridge.is_some_and(|bridge| bridge.len() > 15 || !bridge.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b))) {
        keys.tell("bridge", "must be 1-15 of A-Z, a-z, 0-9, _, ., : and -", sink);
    }
    let virt_type = keys.word("virtType", &[("kvm", VirtType::Kvm), ("qemu", VirtType::Qemu)], sink);
    let reserve = keys.number("poolReserveGiB", 0..=MOST_GIB, sink).map(|size| size.saturating_mul(GIB));
    if keys.flag("neighbourFallback", sink) == Some(true) {
        keys.tell("neighbourFallback", format!("true {UNSUPPORTED}"), sink);
    }
    keys.finish(sink);
    let (host, port) = address?;
    Some(Host {
        name: name?.to_owned(),
        host,
        port,
        user: user?.to_owned(),
        socket: socket.to_owned(),
        pool: pool?.to_owned(),
        bridge: bridge?.to_owned(),
        virt_type,
        reserve,
    })
}

fn identifier<'a>(keys: &mut Keys<'a>, key: &'static str, sink: &mut Sink<'_>) -> Option<&'a str> {
    let text = keys.required(key, sink)?;
    if !is_identifier(text) {
        keys.tell(key, IDENTIFIER, sink);
    }
    Some(text)
}

/// LV-23: `host:port`, IPv6 in brackets.
fn address(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|host| host.contains(':'))?,
        None => Some(host).filter(|host| !host.contains(':'))?,
    };
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|port| digits && *port > 0)?;
    grammar::is_host(host).then(|| (host.to_owned(), port))
}
