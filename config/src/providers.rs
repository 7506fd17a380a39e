//! The providers file (PC-77..82): `providers:`, a list of entries with a name, a type and a block of that type.
//!
//! What must stay true: a file is taken whole or not at all, and every fault of it is told at once with the entry's
//! index and name, the path of the key and the reason. The types are those of [`TYPES`]; there is no second list.
//! [`Snapshot`] is the file as it was at one look, for whoever follows it (OP-26).

mod file;
mod kubernetes;
mod local;

use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    pub const fn type_name(&self) -> &'static str {
        match self.block {
            ProviderBlock::Local(_) => local::TYPE.name,
            ProviderBlock::Kubernetes(_) => kubernetes::TYPE.name,
        }
    }

    /// The credential and trust files it names. They are read per dial or request (PC-74), so a change of one needs no
    /// restart; it ends latches all the same (PC-59).
    pub const fn files(&self) -> Vec<PathBuf> {
        match self.block {
            ProviderBlock::Local(_) | ProviderBlock::Kubernetes(_) => Vec::new(),
        }
    }
}

/// The block of an entry, by type.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderBlock {
    /// Proxies inside this process.
    Local(LocalBlock),
    /// Squid Pods in the cluster.
    Kubernetes(KubernetesBlock),
}

/// A type of provider as the file knows it.
#[derive(Debug)]
pub(crate) struct Type {
    /// The value of `type`, and the key of the block.
    pub(crate) name: &'static str,
    /// Whether an entry must have the block (PC-81).
    pub(crate) block_required: bool,
    /// Keys of the block that take effect without a restart of the entry (LO-3).
    pub(crate) live: &'static [&'static str],
    /// Reads the block; `None` stands for an absent one. Faults go to the sink.
    pub(crate) read: fn(Option<&Node>, &mut Sink<'_>) -> Option<ProviderBlock>,
}

/// The registered types. A new one adds its line here and its variant to [`ProviderBlock`], which the composition root
/// matches exhaustively.
pub(crate) static TYPES: [&Type; 2] = [&local::TYPE, &kubernetes::TYPE];

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
                for (i, (_, item)) in keys.items("providers", &mut sink).into_iter().flatten().enumerate() {
                    sink.about(Some(label(i, item)));
                    if let Some(entry) = entry(item, &config.entries, types, &mut sink) {
                        config.entries.push(entry);
                    }
                }
                sink.about(None);
            }
            None if node.get("providers").is_some() => {}
            None => sink.push(node.line, "providers", "is required"),
        }
        keys.finish(&mut sink);
    }
    if sink.len() > 0 {
        return Err(sink.into_faults());
    }
    config.warnings = config.entries.iter().filter_map(insecure).collect();
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

fn entry(item: &Node, before: &[ProviderEntry], types: &[&Type], sink: &mut Sink<'_>) -> Option<ProviderEntry> {
    let mut keys = Keys::new(item, WHOLE, sink)?;
    let name = match keys.text("name", sink) {
        Some(name) if !grammar::is_dns_label(name) => {
            let rule = "must be a DNS-1123 label: at most 63 of a-z, 0-9 and -, beginning and ending with a letter or digit";
            sink.push(keys.line("name"), "name", rule);
            None
        }
        Some(name) if before.iter().any(|entry| &*entry.name == name) => {
            sink.push(keys.line("name"), "name", "is the name of an earlier entry: names must be unique");
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
                let reason = format!("is not a type of this version: known are {}", known.join(", "));
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

/// What an entry opens on purpose (PC-73).
fn insecure(entry: &ProviderEntry) -> Option<String> {
    match &entry.block {
        ProviderBlock::Local(block) => block
            .serves_everybody()
            .then(|| format!("entry {:?}: insecureOpenProxy: its proxies serve everybody who can reach them", entry.name)),
        ProviderBlock::Kubernetes(_) => None,
    }
}

/// The entry without what takes effect at once.
fn lasting(mut entry: serde_json::Value, own: &Type) -> serde_json::Value {
    let Some(entry_keys) = entry.as_object_mut() else { return entry };
    if let Some(block) = entry_keys.get_mut(own.name).and_then(serde_json::Value::as_object_mut) {
        block.retain(|key, _| !own.live.contains(&key.as_str()));
        if block.is_empty() {
            // The same as no block at all.
            entry_keys.remove(own.name);
        }
    }
    entry
}

/// SHA-256 over the entry as JSON, whose maps are in the order of their keys.
fn fingerprint(entry: &serde_json::Value) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(entry.to_string().as_bytes()))
}

#[cfg(test)]
mod tests;
