//! Reading the folders: `*.yaml`, `*.yml` and `*.json` that do not start with a dot, links followed, no subfolders.
//!
//! Folders are looked at again and again instead of being watched: a watch does not see a link far up the path that is
//! moved, nor what another machine does to a network folder, and that a file stood still has to be looked up anyway.
//! A file is read again only when its metadata changed, or while that is so recent that two writes may share one time.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use egress_config::open;
use egress_protocol::{Clock, Timestamp};
use sha2::{Digest, Sha256};

use crate::folder::{Content, FileSeen, FolderSeen, Print, Snapshot, Unreadable};
use crate::start::{DEMONSTRATION, Given, ManifestFolders};

/// Turns a file's bytes into its content; `file` is its path, for the faults.
pub(crate) type Parse = fn(file: &str, bytes: &[u8]) -> Content;

/// A file that changed less than this ago is read each time.
const RECENT: Duration = Duration::from_secs(2);

/// Larger ones are not manifests.
const MAX_BYTES: u64 = 64 << 20;

/// What was read so far, so that it is not read again.
#[derive(Debug)]
pub(crate) struct Scanner {
    folders: Vec<Given>,
    demonstration: Option<Arc<Content>>,
    read: HashMap<PathBuf, Known>,
    parse: Parse,
}

#[derive(Debug, Clone)]
struct Known {
    stat: Stat,
    print: Print,
    changed: Timestamp,
    content: Arc<Content>,
}

/// What changes when a file is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat([i64; 7]);

impl Stat {
    fn of(meta: &Metadata) -> Self {
        let as_i64 = |n: u64| i64::from_ne_bytes(n.to_ne_bytes());
        let (dev, ino, size) = (as_i64(meta.dev()), as_i64(meta.ino()), as_i64(meta.size()));
        Self([dev, ino, size, meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()])
    }
}

fn print(stat: Option<Stat>, content: &[u8]) -> Print {
    let mut hash = Sha256::new();
    stat.iter().flat_map(|stat| stat.0).for_each(|part| hash.update(part.to_ne_bytes()));
    hash.update(content);
    let mut half = [0; 16];
    half.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
    Print(u128::from_ne_bytes(half))
}

impl Scanner {
    /// Has read nothing yet.
    pub(crate) fn new(folders: &ManifestFolders, parse: Parse) -> Self {
        Self { folders: folders.folders.clone(), demonstration: folders.demonstration.clone(), read: HashMap::new(), parse }
    }

    /// Takes one look at all folders. Blocks on the disk.
    pub(crate) fn scan(&mut self, clock: &Clock) -> Snapshot {
        let began = clock.now();
        let mut before = std::mem::take(&mut self.read);
        let mut folders: Vec<FolderSeen> = self.folders.clone().iter().map(|given| self.scan_folder(given, &mut before, began)).collect();
        folders.extend(self.demonstration.as_ref().map(|content| FolderSeen {
            folder: DEMONSTRATION.into(),
            identity: Print::FIXED,
            files: Ok(vec![FileSeen { file: "".into(), print: Print::FIXED, content: Arc::clone(content) }]),
        }));
        Snapshot { began, ended: clock.now(), folders }
    }

    fn scan_folder(&mut self, given: &Given, before: &mut HashMap<PathBuf, Known>, now: Timestamp) -> FolderSeen {
        let stat = fs::metadata(&given.path).map(|meta| Print(u128::from(meta.dev()) << 64 | u128::from(meta.ino())));
        let mut list = || {
            let mut files = Vec::new();
            for entry in fs::read_dir(&given.path)? {
                let path = entry?.path();
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                if is_manifest(&name) {
                    files.extend(self.scan_file(&path, name.into(), before.remove(&path), now));
                }
            }
            Ok(files)
        };
        let files = list().map_err(|error: io::Error| error.to_string());
        FolderSeen { folder: Arc::clone(&given.name), identity: stat.unwrap_or_default(), files }
    }

    fn scan_file(&mut self, path: &Path, file: Arc<str>, before: Option<Known>, now: Timestamp) -> Option<FileSeen> {
        let stat = match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => return None,
            Ok(meta) => Ok(Stat::of(&meta)),
            // Removed since it was listed; a link that leads nowhere is a file that cannot be read.
            Err(_) if fs::symlink_metadata(path).is_err() => return None,
            Err(error) => Err(error),
        };
        if let (Ok(stat), Some(known)) = (&stat, &before)
            && *stat == known.stat
            && now.since(known.changed) >= RECENT
        {
            let seen = FileSeen { file, print: known.print, content: Arc::clone(&known.content) };
            self.read.extend(before.map(|known| (path.to_owned(), known)));
            return Some(seen);
        }
        let (stat, bytes) = match stat.and_then(|_| read(path)) {
            Ok(read) => read,
            Err(error) => {
                let reason = format!("{}: cannot be read: {error}", path.display());
                let print = print(None, reason.as_bytes());
                let content = Content { faults: vec![reason], unreadable: Some(Unreadable::default()), ..Content::default() };
                return Some(FileSeen { file, print, content: Arc::new(content) });
            }
        };
        let print = print(Some(stat), &bytes);
        let known = before.filter(|known| known.print == print).unwrap_or_else(|| Known {
            stat,
            print,
            changed: now,
            content: Arc::new(self.parse(&path.to_string_lossy(), &bytes)),
        });
        let seen = FileSeen { file, print, content: Arc::clone(&known.content) };
        self.read.insert(path.to_owned(), known);
        Some(seen)
    }

    /// No file may take the process down.
    fn parse(&self, file: &str, bytes: &[u8]) -> Content {
        catch_unwind(AssertUnwindSafe(|| (self.parse)(file, bytes))).unwrap_or_else(|_| Content {
            faults: vec![format!("{file}: cannot be parsed: the parser gave up on it")],
            unreadable: Some(Unreadable { text: Some(String::from_utf8_lossy(bytes).into()) }),
            ..Content::default()
        })
    }
}

fn is_manifest(name: &str) -> bool {
    !name.starts_with('.') && [".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}

fn read(path: &Path) -> io::Result<(Stat, Vec<u8>)> {
    let file = open::file(path)?;
    let meta = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|read| read > MAX_BYTES) {
        return Err(io::Error::other("it is larger than 64 MiB"));
    }
    // As it was before reading: a write meanwhile shows as a change at the next look.
    Ok((Stat::of(&meta), bytes))
}

#[cfg(test)]
mod tests;
