//! Which contents stood still long enough to count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::Timestamp;

use super::{Content, FolderSeen, Home, Print, Snapshot};

/// What was seen of the folders so far.
#[derive(Debug)]
pub(crate) struct Tracker {
    still: Duration,
    folders: BTreeMap<Arc<str>, Folder>,
    first: Option<Timestamp>,
    /// When anything last changed.
    changed: Timestamp,
    /// Everything stood still at the last look.
    quiet: bool,
    /// Since when that was not so.
    restless: Timestamp,
}

#[derive(Debug, Default)]
struct Folder {
    identity: Print,
    missing: Option<String>,
    /// It held a file since it was first seen, came back or was exchanged. Until then an empty folder may be one
    /// whose content is not there yet, such as a mount point.
    held_files: bool,
    files: BTreeMap<Arc<str>, File>,
}

#[derive(Debug)]
struct File {
    print: Print,
    since: Timestamp,
    /// It was there at the last look. One that went counts until everything stood still.
    present: bool,
    latest: Arc<Content>,
    /// What counts.
    settled: Option<Arc<Content>>,
}

/// A content that counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settled<'a> {
    pub(crate) content: &'a Content,
    /// The file is there.
    pub(crate) present: bool,
    /// The file is there and says this now; else it changed less than a while ago, and this only holds its names.
    pub(crate) current: bool,
}

impl File {
    fn counts(&self) -> Option<Settled<'_>> {
        let content = self.settled.as_ref()?;
        let current = self.present && (Arc::ptr_eq(content, &self.latest) || **content == *self.latest);
        Some(Settled { content, present: self.present, current })
    }
}

impl Tracker {
    /// Knows nothing yet; `still` is how long a file must stand still.
    pub(crate) const fn new(still: Duration) -> Self {
        Self {
            still,
            folders: BTreeMap::new(),
            first: None,
            changed: Timestamp::from_millis(0),
            quiet: false,
            restless: Timestamp::from_millis(0),
        }
    }

    /// Takes a look; tells whether what counts may differ from before.
    pub(crate) fn observe(&mut self, seen: Snapshot) -> bool {
        let (began, ended) = (seen.began, seen.ended);
        let mut changed = self.first.is_none();
        let mut news = false;
        if self.quiet || self.first.is_none() {
            self.restless = began;
        }
        self.first.get_or_insert(began);
        for folder in seen.folders {
            let (moved, settled) = self.observe_folder(folder, began, ended);
            changed |= moved;
            news |= settled;
        }
        if changed {
            self.changed = ended;
        }
        let quiet = began.since(self.changed) >= self.still;
        if quiet && !self.quiet {
            news = true;
            for folder in self.folders.values_mut() {
                folder.files.retain(|_, file| file.present);
            }
        }
        self.quiet = quiet;
        news
    }

    fn observe_folder(&mut self, seen: FolderSeen, began: Timestamp, ended: Timestamp) -> (bool, bool) {
        let (mut changed, mut news) = (false, false);
        let folder = self.folders.entry(seen.folder).or_default();
        if folder.identity != seen.identity {
            changed = true;
            folder.identity = seen.identity;
            folder.held_files = false;
        }
        let files = match seen.files {
            Ok(files) => {
                changed |= folder.missing.take().is_some();
                files
            }
            Err(reason) => {
                changed |= folder.missing.is_none();
                news |= folder.missing.as_ref() != Some(&reason);
                folder.missing = Some(reason);
                folder.held_files = false;
                Vec::new()
            }
        };
        folder.held_files |= !files.is_empty();
        let mut gone: BTreeSet<Arc<str>> = folder.files.iter().filter(|(_, file)| file.present).map(|(name, _)| Arc::clone(name)).collect();
        for seen in files {
            gone.remove(&seen.file);
            let file = folder.files.entry(seen.file).or_insert_with(|| {
                changed = true;
                File { print: seen.print, since: ended, present: true, latest: Arc::clone(&seen.content), settled: None }
            });
            if file.print != seen.print || !file.present {
                changed = true;
                (file.print, file.since, file.present) = (seen.print, ended, true);
            }
            file.latest = seen.content;
            let counts = seen.print == Print::FIXED || began.since(file.since) >= self.still;
            if counts && file.settled.as_ref() != Some(&file.latest) {
                news = true;
                file.settled = Some(Arc::clone(&file.latest));
            }
        }
        for name in gone {
            changed = true;
            if let Some(file) = folder.files.get_mut(&name) {
                file.present = false;
            }
        }
        (changed, news)
    }

    /// Everything stood still: what is not there is gone.
    pub(crate) const fn quiet(&self) -> bool {
        self.quiet
    }

    /// Every file counts as it is, or one has kept changing for so long that waiting for it helps nobody.
    pub(crate) fn ready(&self, now: Timestamp) -> bool {
        let Some(first) = self.first else { return false };
        let settled = self.folders.values().flat_map(|folder| folder.files.values()).all(|file| !file.present || file.settled.is_some());
        settled || now.since(first) >= self.still * 3
    }

    /// For how long the files have not stood still.
    pub(crate) fn restless_for(&self, now: Timestamp) -> Duration {
        if self.quiet { Duration::ZERO } else { now.since(self.restless) }
    }

    /// Nothing of this folder may be believed removed: it is missing, or holds no file and did not since it was seen.
    pub(crate) fn is_missing(&self, folder: &str) -> bool {
        self.folders.get(folder).is_some_and(|folder| folder.missing.is_some() || !folder.held_files)
    }

    /// The folders that are missing, with the reason; those that hold no file and never did have none.
    pub(crate) fn missing(&self) -> impl Iterator<Item = (&Arc<str>, Option<&str>)> {
        self.folders
            .iter()
            .filter(|(_, folder)| folder.missing.is_some() || !folder.held_files)
            .map(|(name, folder)| (name, folder.missing.as_deref()))
    }

    /// What counts of one file.
    pub(crate) fn settled_at(&self, home: &Home) -> Option<Settled<'_>> {
        self.folders.get(&home.folder)?.files.get(&home.file)?.counts()
    }

    /// All that counts, in path order.
    pub(crate) fn settled(&self) -> Vec<(Home, Settled<'_>)> {
        let mut all: Vec<(PathBuf, Home, Settled<'_>)> = Vec::new();
        for (folder, state) in &self.folders {
            for (name, file) in &state.files {
                if let Some(settled) = file.counts() {
                    let home = Home { folder: Arc::clone(folder), file: Arc::clone(name) };
                    all.push((PathBuf::from(&**folder).join(&**name), home, settled));
                }
            }
        }
        all.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        all.into_iter().map(|(_, home, settled)| (home, settled)).collect()
    }
}
