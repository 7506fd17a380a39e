//! What lies between hosts and between entries: two of them must not mean different things by one file (LV-24, LV-27).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::{ProviderBlock, Read};
use super::{Format, Host, of};
use crate::fault::Sink;

/// A storage pool, as far as an address can tell.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pool {
    host: String,
    port: u16,
    socket: String,
    pool: String,
}

impl Pool {
    fn of(host: &Host) -> Self {
        Self { host: host.host.to_ascii_lowercase(), port: host.port, socket: host.socket.clone(), pool: host.pool.clone() }
    }
}

/// A key of an entry, to tell it.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    read: &'a Read<'a>,
    /// The index of a host.
    host: usize,
}

impl Place<'_> {
    fn path(&self) -> String {
        format!("{}.hosts[{}]", self.read.type_name(), self.host)
    }

    /// How a fault elsewhere names it.
    fn named(&self, from: &Read<'_>) -> String {
        let path = self.path();
        if self.read.index == from.index { path } else { format!("{} of {}", path, self.read.label()) }
    }
}

/// Tells each fault at the later of its two places, naming the other.
pub(in super::super) fn between(reads: &[Read<'_>], sink: &mut Sink<'_>) {
    let mut owners: HashMap<(Option<usize>, Pool), Place<'_>> = HashMap::new();
    let mut bases: HashMap<(Pool, String), (Place<'_>, &str)> = HashMap::new();
    for read in reads {
        let Some((block, shares)) = read.block().and_then(|block| Some((of(block)?.1, matches!(block, ProviderBlock::Kvm(_))))) else {
            continue;
        };
        let mut told: Vec<&str> = Vec::new();
        for (index, host) in block.hosts.iter().enumerate() {
            let (here, pool) = (Place { read, host: index }, Pool::of(host));
            // The bases of a `kvm2` entry have its name in theirs, so other entries may use its pools; its own hosts may not.
            match owners.entry(((!shares).then_some(read.index), pool.clone())) {
                Entry::Vacant(free) => drop(free.insert(here)),
                Entry::Occupied(taken) => {
                    tell(read, sink, &here.path(), format!("has the address, socket and pool of {}", taken.get().named(read)));
                    continue;
                }
            }
            for (key, image) in &block.images {
                let base = base(read, shares, key, image.format);
                match bases.entry((pool.clone(), base)) {
                    Entry::Vacant(free) => drop(free.insert((here, key))),
                    Entry::Occupied(taken) => {
                        let (other, other_key) = taken.get();
                        if !told.contains(&key.as_str()) {
                            told.push(key);
                            let reason = format!(
                                "has the base volume {} in common with image {other_key:?} of {}, on the pool of {}: rename one of the two keys",
                                taken.key().1,
                                other.read.label(),
                                other.named(read),
                            );
                            let images = format!("{}.images", read.type_name());
                            tell(read, sink, &egress_protocol::resource::validate::join(&images, key), reason);
                        }
                    }
                }
            }
        }
    }
    sink.about(None);
}

fn tell(read: &Read<'_>, sink: &mut Sink<'_>, path: &str, reason: String) {
    sink.about(Some(read.label()));
    sink.push(read.item.line_of("", &format!(".{path}")), path, reason);
}

/// The name of an image's base volume (LV §1).
fn base(read: &Read<'_>, shared: bool, key: &str, format: Format) -> String {
    let format = format.as_str();
    if shared { format!("base-{key}.{format}") } else { format!("base-{}-{key}.{format}", read.name().unwrap_or_default()) }
}
