//! What the manifest folders say, and when they may be believed (OP-30). Pure: snapshots in, decisions out.
//!
//! - this file: what a snapshot is made of
//! - [`tracker`]: which contents stood still long enough to count
//! - [`claims`]: which document counts for which name
//! - [`decide`]: what follows for the objects, and for the Secrets, that are known
//!
//! What must stay true: a content counts once its file stood still for a second, and until its successor does; a
//! document is believed removed only when all files stood still for a second and nothing that could hold it is
//! missing or unreadable.

pub(crate) mod claims;
pub(crate) mod decide;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
pub(crate) mod tracker;

use std::sync::Arc;

use egress_protocol::object::Annotations;
use egress_protocol::resource::ProxySpec;
use egress_protocol::resource::secrets::SecretContent;
use egress_protocol::{ObjectKey, Timestamp};

/// Where a document was last seen. Ordered by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// The folder's absolute path, or `demonstration`.
    pub folder: Arc<str>,
    /// The file's name in it.
    pub file: Arc<str>,
}

impl Home {
    /// A home from its two parts.
    pub fn new(folder: impl Into<Arc<str>>, file: impl Into<Arc<str>>) -> Self {
        Self { folder: folder.into(), file: file.into() }
    }
}

impl std::fmt::Display for Home {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.file.is_empty() { f.write_str(&self.folder) } else { write!(f, "{}/{}", self.folder.trim_end_matches('/'), self.file) }
    }
}

/// The kinds that are read; any other is a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Proxy,
    Secret,
}

/// Kind, namespace and name: what a document declares.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.kind, self.key)
    }
}

/// A valid `Proxy` document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeclaredProxy {
    pub(crate) spec: Arc<ProxySpec>,
    pub(crate) annotations: Annotations,
}

/// One document of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Declared {
    Proxy(DeclaredProxy),
    Secret(Arc<SecretContent>),
    /// Declares the name but is not valid: the last accepted document stays.
    Refused,
}

/// What a document declares, the line it begins on where that is known, and the declaration.
pub(crate) type Document = (Name, Option<usize>, Declared);

/// A file's content, read and understood as far as it could be.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Content {
    /// The documents whose name is known, in order.
    pub(crate) documents: Vec<Document>,
    /// There are documents whose name could not be told: they may be any that the file held before.
    pub(crate) nameless: bool,
    /// Everything that is wrong with it, for people.
    pub(crate) faults: Vec<String>,
    /// It could not be read or parsed.
    pub(crate) unreadable: Option<Unreadable>,
}

/// What little is known of a file that could not be read or parsed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Unreadable {
    /// Its bytes, where there are any: a name that stands in them may be declared there.
    pub(crate) text: Option<Arc<str>>,
}

/// Differs whenever a file was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Print(pub(crate) u128);

impl Print {
    /// Of documents that are not files: they never change and count at once.
    pub(crate) const FIXED: Self = Self(u128::MAX);
}

/// All folders as they were found between two moments.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
    pub(crate) folders: Vec<FolderSeen>,
}

/// One of them.
#[derive(Debug, Clone)]
pub(crate) struct FolderSeen {
    pub(crate) folder: Arc<str>,
    /// Which folder it is, whatever its name: another one may have taken its place.
    pub(crate) identity: Print,
    /// Its manifests, or why it counts as missing.
    pub(crate) files: Result<Vec<FileSeen>, String>,
}

/// A manifest.
#[derive(Debug, Clone)]
pub(crate) struct FileSeen {
    pub(crate) file: Arc<str>,
    pub(crate) print: Print,
    pub(crate) content: Arc<Content>,
}
