//! The few operations on files that the state folder is made of. Tests look at, and fail, every one of them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use egress_config::open;

/// How many files are synced side by side: the file system then commits them together.
const SYNC_THREADS: usize = 16;

/// Called before each operation with its name and path; an error is the operation's.
#[cfg(test)]
pub(crate) type Hook = std::sync::Arc<dyn Fn(&'static str, &Path) -> io::Result<()> + Send + Sync>;

/// Access to the disk.
#[derive(Default, Clone)]
pub(crate) struct Disk {
    #[cfg(test)]
    pub(crate) before: Option<Hook>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

impl Disk {
    #[cfg(test)]
    fn step(&self, what: &'static str, path: &Path) -> io::Result<()> {
        self.before.as_ref().map_or(Ok(()), |hook| hook(what, path))
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the same shape as in tests, where it can fail")]
    const fn step(&self, _what: &'static str, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    /// A folder that only its owner may enter.
    pub(crate) fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.step("make folder", path)?;
        DirBuilder::new().mode(0o700).create(path)
    }

    /// A file that only its owner may read, with this content and not yet durable.
    pub(crate) fn write_new(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.step("create", path)?;
        let mut file = open::with(OpenOptions::new().write(true).create(true).truncate(true).mode(0o600), path)?;
        let (head, tail) = content.split_at(content.len() / 2);
        file.write_all(head)?;
        self.step("write", path)?;
        file.write_all(tail)
    }

    /// Makes contents durable, many at once; one result each.
    pub(crate) fn sync_files(&self, paths: &[&Path]) -> Vec<io::Result<()>> {
        let sync = |path: &&Path| {
            self.step("sync", path)?;
            File::open(path)?.sync_all()
        };
        if paths.len() < 4 {
            return paths.iter().map(sync).collect();
        }
        let share = paths.len().div_ceil(SYNC_THREADS);
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                paths.chunks(share).map(|some| (some.len(), scope.spawn(move || some.iter().map(sync).collect::<Vec<_>>()))).collect();
            threads
                .into_iter()
                .flat_map(|(count, thread)| {
                    thread.join().unwrap_or_else(|_| (0..count).map(|_| Err(io::Error::other("the sync thread panicked"))).collect())
                })
                .collect()
        })
    }

    /// Puts a file in the place of another, in one step.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step("rename", to)?;
        fs::rename(from, to)
    }

    /// Removes a file; one that is not there is removed.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        self.step("remove", path)?;
        match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Makes renames and removals in a folder durable.
    pub(crate) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step("sync folder", path)?;
        File::open(path)?.sync_all()
    }
}
