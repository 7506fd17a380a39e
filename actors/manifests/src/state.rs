//! The state folder (OP-2): what survives the process, kept so that a crash at any moment loses nothing acknowledged.
//!
//! ```text
//! lock            locked while a process uses the folder; holds its pid
//! installation    the installation id (PC-51)
//! objects/UID.json  one record per object
//! ```
//!
//! Other parts keep folders of their own beside these. What must stay true: the folder is 0700 and its files 0600; a
//! file is replaced by rename only, after its content is on disk; a file that cannot be understood is an error that
//! names it and the way out, never an empty state; contents of Secrets are not in it.

pub(crate) mod disk;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use egress_config::open;
use egress_protocol::{InstallationId, Uid};

use disk::Disk;
pub use record::Record;

const LOCK: &str = "lock";
const INSTALLATION: &str = "installation";
const OBJECTS: &str = "objects";

/// Why the state folder cannot be used. Each names the path and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another process has it.
    #[error("state folder {}: in use by {}; stop it or give another folder with --state", path.display(), holder(*pid))]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The other process, where its lock file tells.
        pid: Option<u32>,
    },
    /// A file is damaged or not ours.
    #[error("state folder: {}: {reason}; {way_out}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        way_out: &'static str,
    },
    /// The file system refused.
    #[error("state folder: cannot {step} {}: {source}", path.display())]
    Io {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// The refusal.
        source: io::Error,
    },
    /// The installation id that was given is none.
    #[error("--installation-id: {0:?} is not a DNS-1123 label (a-z, 0-9 and -, at most 63 characters)")]
    InstallationId(String),
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io { step, path, source }
}

/// A change to make durable.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// The object as it is to be recorded.
    Put(Arc<Record>),
    /// The object is gone.
    Remove(Uid),
}

/// The folder, locked by this process as long as a clone of it lives.
#[derive(Debug, Clone)]
pub struct StateFolder {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    installation: InstallationId,
    disk: Disk,
    /// Counts the readers; only the latest may write, and never while another reads or writes: a task of an earlier
    /// incarnation of the actor may still run when the next one starts.
    reader: Mutex<u64>,
    /// Held, not read: closing it releases the lock.
    _lock: File,
}

impl StateFolder {
    /// Makes the folder or takes the one that is there, and locks it. Without `installation` the id is the stored
    /// one, else made at random and stored; a given id is stored when none is yet.
    pub fn open(path: &Path, installation: Option<&str>) -> Result<Self, StateError> {
        Self::open_on(Disk::default(), path, installation)
    }

    pub(crate) fn open_on(disk: Disk, path: &Path, installation: Option<&str>) -> Result<Self, StateError> {
        let path = std::path::absolute(path).map_err(io_error("find", path))?;
        make_private(&disk, &path)?;
        let lock = lock(&path)?;
        let objects = path.join(OBJECTS);
        if !objects.is_dir() {
            disk.make_dir(&objects).map_err(io_error("make", &objects))?;
            disk.sync_dir(&path).map_err(io_error("sync", &path))?;
        }
        remove_leftovers(&disk, &path)?;
        remove_leftovers(&disk, &objects)?;
        let known = read_objects(&objects)?;
        let installation = settle_installation(&disk, &path, installation, !known.is_empty())?;
        Ok(Self { inner: Arc::new(Inner { path, installation, disk, reader: Mutex::new(0), _lock: lock }) })
    }

    /// The absolute path; other parts may keep folders in it.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Which installation this is.
    pub fn installation(&self) -> &InstallationId {
        &self.inner.installation
    }

    /// Every recorded object, by namespace and name. Blocks on the disk.
    pub fn objects(&self) -> Result<Vec<Record>, StateError> {
        let _quiet = self.inner.reader.lock().unwrap_or_else(PoisonError::into_inner);
        read_objects(&self.inner.path.join(OBJECTS))
    }

    /// Every recorded object for one who will write; whoever read before can no longer write. Blocks on the disk.
    pub(crate) fn take_over(&self) -> Result<(u64, Vec<Record>), StateError> {
        let mut reader = self.inner.reader.lock().unwrap_or_else(PoisonError::into_inner);
        *reader += 1;
        Ok((*reader, read_objects(&self.inner.path.join(OBJECTS))?))
    }

    /// Makes changes durable, many at the cost of a few; one answer each, in order. Blocks on the disk.
    pub(crate) fn write(&self, as_reader: u64, changes: &[Change]) -> Vec<Result<(), String>> {
        let reader = self.inner.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if *reader != as_reader {
            return changes.iter().map(|_| Err("another writer has taken over".to_owned())).collect();
        }
        let disk = &self.inner.disk;
        let folder = self.inner.path.join(OBJECTS);
        let say = |step: &'static str, path: &Path, error: &io::Error| format!("cannot {step} {}: {error}", path.display());
        let mut results: Vec<Result<(), String>> = changes.iter().map(|_| Ok(())).collect();

        let mut staged: Vec<(usize, PathBuf, PathBuf)> = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            if let Change::Put(record) = change {
                let (temporary, path) = (folder.join(format!(".{}.tmp", record.uid)), object_path(&folder, &record.uid));
                let written = record
                    .encode()
                    .and_then(|content| disk.write_new(&temporary, &content).map_err(|error| say("write", &temporary, &error)));
                match written {
                    Ok(()) => staged.push((index, temporary, path)),
                    Err(error) => fail(&mut results, index, error),
                }
            }
        }
        let synced = disk.sync_files(&staged.iter().map(|(_, temporary, _)| temporary.as_path()).collect::<Vec<_>>());
        for ((index, temporary, path), synced) in staged.into_iter().zip(synced) {
            if let Err(error) = synced.and_then(|()| disk.rename(&temporary, &path)) {
                fail(&mut results, index, say("write", &path, &error));
            }
        }
        for (index, change) in changes.iter().enumerate() {
            if let Change::Remove(uid) = change {
                let path = object_path(&folder, uid);
                if let Err(error) = disk.remove(&path) {
                    fail(&mut results, index, say("remove", &path, &error));
                }
            }
        }
        if let Err(error) = disk.sync_dir(&folder) {
            let error = say("sync", &folder, &error);
            results.iter_mut().filter(|result| result.is_ok()).for_each(|result| *result = Err(error.clone()));
        }
        results
    }
}

fn fail(results: &mut [Result<(), String>], index: usize, error: String) {
    if let Some(result) = results.get_mut(index) {
        *result = Err(error);
    }
}

fn object_path(folder: &Path, uid: &Uid) -> PathBuf {
    folder.join(format!("{uid}.json"))
}

/// What a state folder holds, read without locking it.
#[derive(Debug)]
pub struct Inspection {
    /// The id, when one was made.
    pub installation: Option<InstallationId>,
    /// The pid in the lock file: of the process that has it, or had it last.
    pub pid: Option<u32>,
    /// Every recorded object, by namespace and name.
    pub objects: Vec<Record>,
}

/// Reads a state folder without locking or changing it; also while a process uses it. Blocks on the disk.
pub fn inspect(path: &Path) -> Result<Inspection, StateError> {
    let objects = path.join(OBJECTS);
    Ok(Inspection {
        installation: read_installation(path)?,
        pid: read_pid(&path.join(LOCK)),
        objects: if objects.is_dir() { read_objects(&objects)? } else { Vec::new() },
    })
}

/// The folder, entered by its owner only. One that others can enter is closed to them when it is ours or empty.
fn make_private(disk: &Disk, path: &Path) -> Result<(), StateError> {
    let Ok(found) = fs::metadata(path) else {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(io_error("make", parent))?;
        }
        disk.make_dir(path).map_err(io_error("make", path))?;
        return path.parent().map_or(Ok(()), |parent| disk.sync_dir(parent).map_err(io_error("sync", parent)));
    };
    let foreign = |reason: &str| StateError::Foreign {
        path: path.to_owned(),
        reason: reason.to_owned(),
        way_out: "give a folder of its own with --state",
    };
    if !found.is_dir() {
        return Err(foreign("it is not a folder"));
    }
    if found.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    let mut entries = fs::read_dir(path).map_err(io_error("read", path))?;
    if !path.join(INSTALLATION).is_file() && entries.next().is_some() {
        return Err(foreign("it is open to others and holds files that are not ours"));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(io_error("make private", path))
}

fn lock(folder: &Path) -> Result<File, StateError> {
    let path = folder.join(LOCK);
    let mut file = open::with(OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600), &path)
        .map_err(io_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(StateError::Locked { path: folder.to_owned(), pid: read_pid(&path) }),
        Err(TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
    }
    // Of constant length and never truncated: whoever reads meanwhile sees a whole number.
    let write = |file: &mut File| {
        file.rewind()?;
        file.write_all(format!("{:>10}\n", std::process::id()).as_bytes())
    };
    write(&mut file).map_err(io_error("write", &path))?;
    Ok(file)
}

fn read_pid(path: &Path) -> Option<u32> {
    open::text(path).ok()?.trim().parse().ok()
}

/// What a crash left behind before its rename.
fn remove_leftovers(disk: &Disk, folder: &Path) -> Result<(), StateError> {
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let path = entry.map_err(io_error("read", folder))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with('.') && name.ends_with(".tmp") {
            disk.remove(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(())
}

fn read_objects(folder: &Path) -> Result<Vec<Record>, StateError> {
    const WAY_OUT: &str = "restore it from a backup, or move it out of the folder to go on without it: its object is then \
                           made anew, and an instance it had stays behind";
    let mut found: BTreeMap<_, (Record, PathBuf)> = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let path = entry.map_err(io_error("read", folder))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with('.') {
            continue;
        }
        let foreign = |reason: String| StateError::Foreign { path: path.clone(), reason, way_out: WAY_OUT };
        let Some(stem) = name.strip_suffix(".json") else {
            return Err(foreign("it is not ours".to_owned()));
        };
        let bytes = match open::read(&path) {
            // Removed since it was listed, by the process that uses the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(io_error("read", &path))?,
        };
        let record = Record::decode(&bytes).map_err(foreign)?;
        if record.uid.as_str() != stem {
            return Err(foreign(format!("it holds the object {} under another name", record.uid)));
        }
        if let Some((_, other)) = found.get(&record.key) {
            return Err(foreign(format!("it holds {}, as {} does", record.key, other.display())));
        }
        found.insert(record.key.clone(), (record, path));
    }
    Ok(found.into_values().map(|(record, _)| record).collect())
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len()) && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn read_installation(folder: &Path) -> Result<Option<InstallationId>, StateError> {
    let path = folder.join(INSTALLATION);
    let text = match open::text(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(io_error("read", &path))?,
    };
    let id = text.trim_end();
    if !is_label(id) {
        return Err(StateError::Foreign {
            path,
            reason: "it does not hold an installation id".to_owned(),
            way_out: "restore it, or write the id that the instances carry into it",
        });
    }
    Ok(Some(InstallationId::new(id)))
}

fn settle_installation(disk: &Disk, folder: &Path, given: Option<&str>, used: bool) -> Result<InstallationId, StateError> {
    if let Some(id) = given
        && !is_label(id)
    {
        return Err(StateError::InstallationId(id.to_owned()));
    }
    let path = folder.join(INSTALLATION);
    if let Some(stored) = read_installation(folder)? {
        let Some(id) = given else { return Ok(stored) };
        if id != stored.as_str() {
            tracing::warn!(given = id, stored = %stored, "WARNING: the installation id is not the stored one; instances of the stored one are left alone");
        }
        return Ok(InstallationId::new(id));
    }
    if given.is_none() && used {
        return Err(StateError::Foreign {
            path,
            reason: "it is missing although objects are recorded".to_owned(),
            way_out: "restore it, or give the id that their instances carry with --installation-id",
        });
    }
    let id = given.map_or_else(random_id, str::to_owned);
    let temporary = folder.join(format!(".{INSTALLATION}.tmp"));
    let store = || {
        disk.write_new(&temporary, format!("{id}\n").as_bytes())?;
        disk.sync_files(&[&temporary]).into_iter().collect::<io::Result<()>>()?;
        disk.rename(&temporary, &path)?;
        disk.sync_dir(folder)
    };
    store().map_err(io_error("write", &path))?;
    Ok(InstallationId::new(id))
}

/// 16 characters of `a-z2-7`, as the derived ids of a cluster have.
fn random_id() -> String {
    data_encoding::BASE32_NOPAD.encode(&rand::random::<[u8; 10]>()).to_ascii_lowercase()
}
