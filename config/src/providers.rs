//! The providers file (PC-77..82): `providers:`, a list of entries with a name, a type and a block of that type.
//!
//! What must stay true: a file is taken whole or not at all, and every fault of it is told at once with the entry's
//! index and name, the path of the key and the reason. The types are those of [`TYPES`]; there is no second list.
//! [`Snapshot`] is the file as it was at one look, for whoever follows it (OP-26).

mod file;
pub mod gcp;
mod kubernetes;
pub mod libvirt;
mod local;
pub mod proxmox;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use egress_protocol::resource::conditions::cut;
use egress_protocol::resource::grammar;
use sha2::{Digest, Sha256};

use crate::fault::{Fault, Sink, WHOLE};
use crate::reader::Keys;
use crate::yaml::{self, Node};
pub use file::Snapshot;
pub use kubernetes::{CloudInitPolicy, KubernetesBlock, Quantity, Resources};
pub use local::{FaultKnobs, LocalBlock};

/// How many creates an entry runs at once per location unless it says otherwise (OP-23).
pub const DEFAULT_MAX_CONCURRENT_CREATES: u32 = 4;

/// The content of a providers file.
#[derive(Debug, Clone, PartialEq)]
pub struct ProvidersConfig {
    /// The entries in the file's order; their names are unique.
    pub entries: Vec<ProviderEntry>,
    /// What a person should look at though it is no fault.
    pub warnings: Vec<String>,
}

/// One configured provider.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderEntry {
    /// The name that `spec.provider` gives.
    pub name: Arc<str>,
    /// How many creates run at once per location.
    pub max_concurrent_creates: u32,
    /// The block of its type.
    pub block: ProviderBlock,
    /// Changes when the entry does (PC-59): a hash over all of its keys and the content of the files it names.
    pub fingerprint: String,
    /// Changes when the entry does so in a way that needs a restart: a hash over the keys that are not read anew (LO-3).
    pub foundation: String,
}

impl ProviderEntry {
    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        self.type_().name
    }

    /// The credential and trust files it names. They are read per dial or request (PC-74), so a change of one needs no
    /// restart; it ends latches all the same (PC-59).
    pub fn files(&self) -> Vec<CredentialFile> {
        (self.type_().files)(&self.block)
    }

    fn type_(&self) -> &'static Type {
        match self.block {
            ProviderBlock::Local(_) => &local::TYPE,
            ProviderBlock::Kubernetes(_) => &kubernetes::TYPE,
            ProviderBlock::Gcp(_) => &gcp::TYPE,
            ProviderBlock::Kvm(_) => &libvirt::KVM,
            ProviderBlock::Kvm2(_) => &libvirt::KVM2,
            ProviderBlock::Proxmox(_) => &proxmox::TYPE,
        }
    }
}

/// A file that an entry names and that is not part of the providers file: a key, a token, a certificate of trust.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CredentialFile {
    /// The key that names it, below the entry: `kvm.sshKeyFile`.
    pub key: String,
    /// Where it is.
    pub path: PathBuf,
}

/// The block of an entry, by type.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderBlock {
    /// Proxies inside this process.
    Local(LocalBlock),
    /// Squid Pods in the cluster.
    Kubernetes(KubernetesBlock),
    /// Virtual machines on Google Compute Engine.
    Gcp(gcp::GcpBlock),
    /// Virtual machines on libvirt hosts; entries on one pool share their base volumes. Not registered yet.
    Kvm(libvirt::Block),
    /// Virtual machines on libvirt hosts; each entry has base volumes of its own. Not registered yet.
    Kvm2(libvirt::Block),
    /// Virtual machines cloned on Proxmox VE. Not registered yet.
    Proxmox(proxmox::ProxmoxBlock),
}

/// A type of provider as the file knows it.
#[derive(Debug)]
pub(crate) struct Type {
    /// The value of `type`, and the key of the block.
    pub(crate) name: &'static str,
    /// Whether an entry must have the block (PC-81).
    pub(crate) block_required: bool,
    /// Keys of the block that take effect without a restart of the entry (PC-104). `*` stands for each item of a list and each
    /// key of a map: `hosts.*.note`.
    pub(crate) live: &'static [&'static str],
    /// The credential and trust files that the block names.
    pub(crate) files: fn(&ProviderBlock) -> Vec<CredentialFile>,
    /// What the block opens on purpose, for people to look at (PC-73): `insecureOpenProxy: …`.
    pub(crate) warnings: fn(&ProviderBlock) -> Vec<String>,
    /// Reads the block; `None` stands for an absent one. Faults go to the sink.
    pub(crate) read: fn(Option<&Node>, &mut Sink<'_>) -> Option<ProviderBlock>,
}

/// The registered types. A new one adds its line here and its variant to [`ProviderBlock`], which the composition root
/// matches exhaustively.
pub(crate) static TYPES: [&Type; 3] = [&local::TYPE, &kubernetes::TYPE, &gcp::TYPE];

impl ProvidersConfig {
    /// What stands in for a file that was not given (OP-27): one entry `local` of type local, everything by default.
    pub fn built_in() -> Self {
        let block = ProviderBlock::Local(LocalBlock::default());
        let name = Arc::from(local::TYPE.name);
        let entry = ProviderEntry {
            name,
            max_concurrent_creates: DEFAULT_MAX_CONCURRENT_CREATES,
            block,
            fingerprint: fingerprint(&serde_json::Value::Null),
            foundation: fingerprint(&serde_json::Value::Null),
        };
        Self { entries: vec![entry], warnings: Vec::new() }
    }

    /// The entry of that name.
    pub fn entry(&self, name: &str) -> Option<&ProviderEntry> {
        self.entries.iter().find(|entry| &*entry.name == name)
    }
}

/// Reads the file at a path.
pub fn load(path: &Path) -> Result<ProvidersConfig, Vec<Fault>> {
    Snapshot::read(path).config
}

/// Reads a file's bytes. `file` is how faults name it.
pub fn parse(file: &str, bytes: &[u8]) -> Result<ProvidersConfig, Vec<Fault>> {
    match yaml::documents(bytes) {
        Ok(nodes) => parse_nodes(file, &nodes, &TYPES),
        Err(unreadable) => {
            let mut sink = Sink::new(file, 0);
            sink.push(unreadable.line, WHOLE, unreadable.reason);
            Err(sink.into_faults())
        }
    }
}

/// Whether a document is a providers file rather than a manifest.
pub(crate) fn is_one(node: &Node) -> bool {
    node.get("providers").is_some() && node.get("kind").is_none()
}

pub(crate) fn parse_nodes(file: &str, nodes: &[Node], types: &[&Type]) -> Result<ProvidersConfig, Vec<Fault>> {
    let mut sink = Sink::new(file, 0);
    let mut config = ProvidersConfig { entries: Vec::new(), warnings: Vec::new() };
    let [node] = nodes else {
        let reason = if nodes.is_empty() { "is empty: write providers: []" } else { "must be one document" };
        sink.push(nodes.get(1).and_then(|node| node.line), WHOLE, reason);
        return Err(sink.into_faults());
    };
    if let Some(mut keys) = Keys::new(node, WHOLE, &mut sink) {
        match keys.get("providers") {
            Some(_) => {
                let mut reads = Vec::new();
                for (index, (_, item)) in keys.items("providers", &mut sink).into_iter().flatten().enumerate() {
                    sink.about(Some(label(index, item)));
                    reads.push(Read { index, item, entry: entry(item, types, &mut sink) });
                }
                sink.about(None);
                between(&reads, &mut sink);
                config.entries = reads.into_iter().filter_map(|read| read.entry).collect();
            }
            None if node.get("providers").is_some() => {}
            None => sink.push(node.line, "providers", "is required"),
        }
        keys.finish(&mut sink);
    }
    if sink.len() > 0 {
        return Err(sink.into_faults());
    }
    let warnings = |entry: &ProviderEntry| -> Vec<String> {
        (entry.type_().warnings)(&entry.block).into_iter().map(|warning| format!("entry {:?}: {warning}", entry.name)).collect()
    };
    config.warnings = config.entries.iter().flat_map(warnings).collect();
    if config.entries.is_empty() {
        config.warnings.push(format!("{file} configures no provider: Managed proxies wait with ProviderNotConfigured"));
    }
    Ok(config)
}

/// `providers[1] "lab"`.
fn label(index: usize, item: &Node) -> String {
    match item.get("name").and_then(Node::text) {
        Some(name) => format!("providers[{index}] {name:?}"),
        None => format!("providers[{index}]"),
    }
}

/// An item of the list with what was read of it, for what lies between entries.
#[derive(Debug)]
struct Read<'a> {
    index: usize,
    item: &'a Node,
    /// `None`: it has a fault that leaves nothing to compare.
    entry: Option<ProviderEntry>,
}

impl<'a> Read<'a> {
    fn label(&self) -> String {
        label(self.index, self.item)
    }

    /// Its name as it stands there, though it may be a fault.
    fn name(&self) -> Option<&'a str> {
        self.item.entries()?.iter().find(|entry| entry.key == "name")?.value.text()
    }

    fn block(&self) -> Option<&ProviderBlock> {
        self.entry.as_ref().map(|entry| &entry.block)
    }

    fn type_name(&self) -> &'static str {
        self.entry.as_ref().map(ProviderEntry::type_name).unwrap_or_default()
    }
}

/// Faults that no entry has by itself, each told with both places (PC-105).
fn between(reads: &[Read<'_>], sink: &mut Sink<'_>) {
    for (i, read) in reads.iter().enumerate() {
        let Some(name) = read.name() else { continue };
        if let Some(first) = reads.iter().take(i).find(|first| first.name() == Some(name)) {
            sink.about(Some(read.label()));
            let reason = format!("is the name of providers[{}], too: names must be unique", first.index);
            sink.push(read.item.line_of("", ".name"), "name", reason);
        }
    }
    libvirt::between(reads, sink);
    sink.about(None);
}

fn entry(item: &Node, types: &[&Type], sink: &mut Sink<'_>) -> Option<ProviderEntry> {
    let mut keys = Keys::new(item, WHOLE, sink)?;
    let name = match keys.text("name", sink) {
        Some(name) if !grammar::is_dns_label(name) => {
            let rule = "must be a DNS-1123 label: at most 63 of a-z, 0-9 and -, beginning and ending with a letter or digit";
            sink.push(keys.line("name"), "name", rule);
            None
        }
        Some(name) => Some(name),
        None => {
            if keys.get("name").is_none() {
                sink.push(keys.line("name"), "name", "is required");
            }
            None
        }
    };
    let creates = keys.number("maxConcurrentCreates", 1..=64, sink);
    let known: Vec<_> = types.iter().map(|known| known.name).collect();
    let own = match keys.text("type", sink) {
        Some(named) => {
            let own = types.iter().find(|known| known.name == named);
            if own.is_none() {
                let reason = format!("{:?} is not a type of this version: known are {}", cut(named.to_owned(), 60), known.join(", "));
                sink.push(keys.line("type"), "type", reason);
            }
            own
        }
        None => {
            if keys.get("type").is_none() {
                sink.push(keys.line("type"), "type", format!("is required: one of {}", known.join(", ")));
            }
            None
        }
    };
    for other in types.iter().filter(|other| own.is_none_or(|own| own.name != other.name)) {
        if let (Some(_), Some(own)) = (keys.get(other.name), own) {
            let reason = format!("is the block of type {}, but the entry is of type {}", other.name, own.name);
            sink.push(keys.line(other.name), other.name, reason);
        }
    }
    let block = own.and_then(|own| {
        let block = keys.get(own.name);
        if block.is_none() && own.block_required {
            sink.push(item.line, own.name, format!("is required: the block of type {}", own.name));
            return None;
        }
        (own.read)(block, sink)
    });
    keys.finish(sink);
    let json = item.to_json("", &mut |_, _| {});
    Some(ProviderEntry {
        name: Arc::from(name?),
        max_concurrent_creates: creates.and_then(|n| u32::try_from(n).ok()).unwrap_or(DEFAULT_MAX_CONCURRENT_CREATES),
        block: block?,
        fingerprint: fingerprint(&json),
        foundation: fingerprint(&lasting(json, own?)),
    })
}

/// The entry without what takes effect at once.
fn lasting(mut entry: serde_json::Value, own: &Type) -> serde_json::Value {
    let Some(entry_keys) = entry.as_object_mut() else { return entry };
    if let Some(block) = entry_keys.get_mut(own.name) {
        for path in own.live {
            remove(block, &path.split('.').collect::<Vec<_>>());
        }
        if block.as_object().is_some_and(serde_json::Map::is_empty) {
            // The same as no block at all.
            entry_keys.remove(own.name);
        }
    }
    entry
}

/// Takes what a path names out of a value.
fn remove(value: &mut serde_json::Value, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    match value {
        serde_json::Value::Object(map) if rest.is_empty() => map.retain(|key, _| *first != "*" && key != first),
        serde_json::Value::Object(map) => {
            map.iter_mut().filter(|(key, _)| *first == "*" || key == first).for_each(|(_, below)| remove(below, rest));
        }
        serde_json::Value::Array(items) if *first == "*" && rest.is_empty() => items.clear(),
        serde_json::Value::Array(items) if *first == "*" => items.iter_mut().for_each(|item| remove(item, rest)),
        serde_json::Value::Array(_)
        | serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => {}
    }
}

/// SHA-256 over the entry as JSON, whose maps are in the order of their keys.
fn fingerprint(entry: &serde_json::Value) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(entry.to_string().as_bytes()))
}

#[cfg(test)]
mod tests;
