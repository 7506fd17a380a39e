//! What the state folder remembers of each instance: `marks/<entry>/<instance name>.json`, one file per instance, replaced
//! as a whole and durable before the call that wrote it is answered. Never cloud-init, never anything secret.
//!
//! Without a state folder the same marks live in memory and end with the backend.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use egress_config::open;
use egress_protocol::resource::Placement;
use egress_protocol::{InstallationId, InstanceName, Timestamp, Uid};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The marks of PC-52 and what an instance needs to come back as it was. Marks that are absent read as empty, which is a
/// mismatch everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mark {
    /// Of this format.
    pub version: u32,
    #[serde(rename = "proxy-operator-managed", default)]
    pub managed: String,
    #[serde(rename = "proxy-operator-uid", default)]
    pub uid: String,
    #[serde(rename = "proxy-operator-installation", default)]
    pub installation: String,
    #[serde(rename = "proxy-operator-created-at", default)]
    pub created_at: String,
    pub name: InstanceName,
    pub namespace: String,
    pub proxy_name: String,
    pub listen_address: Ipv4Addr,
    pub port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_address: Option<IpAddr>,
    pub placement_hash: String,
}

/// The format this version writes and reads.
pub(crate) const VERSION: u32 = 1;

impl Mark {
    pub(crate) fn address(&self) -> SocketAddrV4 {
        SocketAddrV4::new(self.listen_address, self.port)
    }

    /// `NAMESPACE/NAME` of the Proxy.
    pub(crate) fn proxy(&self) -> String {
        format!("{}/{}", self.namespace, self.proxy_name)
    }

    /// Which mark keeps the instance from being that of `uid` under `installation`; `None`: it is (PC-14, PC-26, PC-34).
    pub(crate) fn differs(&self, uid: &Uid, installation: &InstallationId) -> Option<&'static str> {
        if !self.is_managed() {
            Some("proxy-operator-managed")
        } else if uid.as_str().trim().is_empty() || !same(&self.uid, uid.as_str()) {
            Some("proxy-operator-uid")
        } else if !self.is_of(installation) {
            Some("proxy-operator-installation")
        } else {
            None
        }
    }

    pub(crate) fn is_managed(&self) -> bool {
        same(&self.managed, "true")
    }

    pub(crate) fn is_of(&self, installation: &InstallationId) -> bool {
        !self.installation.trim().is_empty() && same(&self.installation, installation.as_str())
    }

    pub(crate) fn created_at(&self) -> Option<Timestamp> {
        Timestamp::parse(self.created_at.trim())
    }
}

fn same(a: &str, b: &str) -> bool {
    a.trim().eq_ignore_ascii_case(b.trim())
}

/// RFC 3339, UTC, whole seconds (PC-52).
pub(crate) fn whole_seconds(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// Tells whether an instance was made for this placement.
pub(crate) fn placement_hash(placement: &Placement) -> String {
    let mut hash = Sha256::new();
    for field in [&placement.region, &placement.zone, &placement.machine_type, &placement.image] {
        // Length first, so that no two placements run together; an absent field is not an empty one.
        let text = field.as_deref();
        hash.update(text.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
        hash.update(text.unwrap_or_default());
    }
    data_encoding::HEXLOWER.encode(&hash.finalize())
}

/// Why a mark is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MarkError {
    /// The folder does not answer: nothing can be said.
    #[error("{path}: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// There is something, but no mark of this format.
    #[error("{path}: {reason}")]
    Corrupt { path: PathBuf, reason: String },
}

/// All marks of one entry. Its calls block: run those of a folder beside the runtime.
#[derive(Debug)]
pub(crate) enum Marks {
    Folder(Folder),
    Memory(Mutex<BTreeMap<InstanceName, Mark>>),
}

/// A folder of marks, as one backend uses it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Held while a file changes; `false` after [`Marks::close`].
    open: Mutex<bool>,
}

impl Folder {
    fn change(&self, change: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), MarkError> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = if *open { change(&self.path) } else { Err(io::Error::other("the backend has ended")) };
        changed.map_err(|source| MarkError::Unreadable { path: self.path.clone(), source })
    }
}

impl Marks {
    pub(crate) fn new(state_dir: Option<&Path>, entry: &str) -> Self {
        match state_dir {
            Some(dir) => Self::Folder(Folder { path: dir.join("marks").join(entry), open: Mutex::new(true) }),
            None => Self::Memory(Mutex::default()),
        }
    }

    pub(crate) fn read(&self, name: &InstanceName) -> Result<Option<Mark>, MarkError> {
        match self {
            Self::Folder(folder) => read(&folder.path.join(file_name(name)), name),
            Self::Memory(marks) => Ok(marks.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()),
        }
    }

    /// Durable when it returns. On an error the mark may be there or not.
    pub(crate) fn write(&self, mark: &Mark) -> Result<(), MarkError> {
        match self {
            Self::Folder(folder) => folder.change(|path| write(path, mark)),
            Self::Memory(marks) => {
                marks.lock().unwrap_or_else(PoisonError::into_inner).insert(mark.name.clone(), mark.clone());
                Ok(())
            }
        }
    }

    /// Durable when it returns; an absent mark is fine.
    pub(crate) fn remove(&self, name: &InstanceName) -> Result<(), MarkError> {
        match self {
            Self::Folder(folder) => folder.change(|path| match fs::remove_file(path.join(file_name(name))) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.and_then(|()| File::open(path)?.sync_all()),
            }),
            Self::Memory(marks) => {
                marks.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
                Ok(())
            }
        }
    }

    /// Removes what a crash left half-written.
    pub(crate) fn tidy(&self) -> Result<(), MarkError> {
        let Self::Folder(folder) = self else { return Ok(()) };
        folder.change(|path| {
            let files = match fs::read_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                files => files?,
            };
            for file in files {
                let file = file?.file_name();
                let temporary = file.to_str().and_then(|file| file.strip_prefix('.')?.strip_suffix(".tmp"));
                if temporary.and_then(instance_name).is_some() {
                    fs::remove_file(path.join(&file))?;
                }
            }
            Ok(())
        })
    }

    /// Nothing changes a file any more when this returns: a change that was under way when its backend ended must not undo
    /// what the next backend does.
    pub(crate) fn close(&self) {
        if let Self::Folder(folder) = self {
            *folder.open.lock().unwrap_or_else(PoisonError::into_inner) = false;
        }
    }

    /// Every mark that can be read, and what cannot (PC-45). An unreadable folder is an error; one that does not exist is empty.
    pub(crate) fn list(&self) -> Result<(Vec<Mark>, Vec<MarkError>), MarkError> {
        let folder = match self {
            Self::Folder(folder) => &folder.path,
            Self::Memory(marks) => {
                let marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
                return Ok((marks.values().cloned().collect(), Vec::new()));
            }
        };
        let unreadable = |source| MarkError::Unreadable { path: folder.clone(), source };
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
            entries => entries.map_err(unreadable)?,
        };
        let (mut marks, mut failed) = (Vec::new(), Vec::new());
        for entry in entries {
            let file = entry.map_err(unreadable)?.file_name();
            let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".json")).and_then(instance_name) else { continue };
            match read(&folder.join(&file), &name) {
                Ok(mark) => marks.extend(mark),
                Err(error) => failed.push(error),
            }
        }
        marks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((marks, failed))
    }
}

/// The text as an instance name, if it has that form (PC-10, PC-49).
pub(crate) fn instance_name(text: &str) -> Option<InstanceName> {
    let key = text.strip_prefix("proxy-")?;
    let fits = key.len() == 16 && key.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'));
    if !fits {
        return None;
    }
    // The only way to a name that was not derived here: as its text.
    serde_json::from_value(serde_json::Value::String(text.to_owned())).ok()
}

fn file_name(name: &InstanceName) -> String {
    format!("{name}.json")
}

fn read(path: &Path, name: &InstanceName) -> Result<Option<Mark>, MarkError> {
    let bytes = match open::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(|source| MarkError::Unreadable { path: path.to_owned(), source })?,
    };
    let corrupt = |reason: String| MarkError::Corrupt { path: path.to_owned(), reason };
    let mark: Mark = serde_json::from_slice(&bytes).map_err(|error| corrupt(format!("not a mark: {error}")))?;
    if mark.version != VERSION {
        return Err(corrupt(format!("a mark of version {}, this program reads {VERSION}", mark.version)));
    }
    if mark.name != *name {
        return Err(corrupt(format!("the mark of {}", mark.name)));
    }
    Ok(Some(mark))
}

fn write(folder: &Path, mark: &Mark) -> io::Result<()> {
    if !folder.is_dir() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        for parent in folder.ancestors().skip(1).take(2) {
            File::open(parent)?.sync_all()?;
        }
    }
    let temporary = folder.join(format!(".{}.tmp", mark.name));
    let mut file = open::with(OpenOptions::new().write(true).create(true).truncate(true).mode(0o600), &temporary)?;
    let mut text = serde_json::to_vec_pretty(mark)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, folder.join(file_name(&mark.name)))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mark(uid: &str) -> Mark {
        Mark {
            version: VERSION,
            managed: "true".into(),
            uid: uid.into(),
            installation: "inst".into(),
            created_at: whole_seconds(Timestamp::from_millis(1_767_323_045_678)),
            name: InstanceName::of(&Uid::new(uid)),
            namespace: "default".into(),
            proxy_name: "px-1".into(),
            listen_address: Ipv4Addr::LOCALHOST,
            port: 3128,
            source_address: None,
            placement_hash: placement_hash(&Placement::default()),
        }
    }

    #[test]
    fn a_mark_comes_back_as_it_was_and_is_the_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let marks = Marks::new(Some(dir.path()), "lab");
        let mark = mark("u-1");
        assert_eq!(marks.list().unwrap().0, []);
        assert!(marks.read(&mark.name).unwrap().is_none());
        marks.write(&mark).unwrap();
        assert_eq!(marks.read(&mark.name).unwrap().unwrap(), mark);
        assert_eq!(marks.list().unwrap().0, std::slice::from_ref(&mark));
        let path = dir.path().join("marks/lab").join(file_name(&mark.name));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        let text = fs::read_to_string(&path).unwrap();
        for part in ["\"proxy-operator-managed\": \"true\"", "\"proxy-operator-created-at\": \"2026-01-02T03:04:05Z\""] {
            assert!(text.contains(part), "PC-52: {text}");
        }
        marks.remove(&mark.name).unwrap();
        marks.remove(&mark.name).unwrap();
        assert_eq!(marks.list().unwrap().0, []);
    }

    #[test]
    fn what_is_torn_foreign_or_newer_is_corrupt_and_spares_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let marks = Marks::new(Some(dir.path()), "lab");
        let (good, bad) = (mark("u-1"), mark("u-2"));
        marks.write(&good).unwrap();
        marks.write(&bad).unwrap();
        let path = dir.path().join("marks/lab").join(file_name(&bad.name));
        let text = fs::read_to_string(&path).unwrap();
        for broken in [
            &text[..text.len() / 2],
            &text.replace("\"version\": 1", "\"version\": 2"),
            &text.replace(bad.name.as_str(), good.name.as_str()),
            "",
        ] {
            fs::write(&path, broken).unwrap();
            assert!(matches!(marks.read(&bad.name), Err(MarkError::Corrupt { .. })), "{broken}");
            let (listed, failed) = marks.list().unwrap();
            assert_eq!((listed, failed.len()), (vec![good.clone()], 1));
        }
        fs::write(dir.path().join("marks/lab/.x.tmp"), "half").unwrap();
        fs::write(dir.path().join("marks/lab/notes.json"), "{}").unwrap();
        assert_eq!(marks.list().unwrap().1.len(), 1, "neither is an instance's file");
    }

    #[test]
    fn ownership_is_decided_by_trimmed_lower_case_marks() {
        let (uid, installation) = (Uid::new("u-1"), InstallationId::new("inst"));
        let with = |change: fn(&mut Mark)| {
            let mut mark = mark("u-1");
            change(&mut mark);
            mark.differs(&uid, &installation)
        };
        assert_eq!(with(|_| ()), None);
        assert_eq!(with(|m| m.uid = " U-1\n".into()), None, "PC-34");
        assert_eq!(with(|m| m.uid = String::new()), Some("proxy-operator-uid"));
        assert_eq!(with(|m| m.uid = "u-2".into()), Some("proxy-operator-uid"));
        assert_eq!(with(|m| m.managed = String::new()), Some("proxy-operator-managed"));
        assert_eq!(with(|m| m.installation = "other".into()), Some("proxy-operator-installation"));
        assert_eq!(mark("u-1").differs(&Uid::new(""), &installation), Some("proxy-operator-uid"), "PC-14: an empty UID is a mismatch");
    }

    #[test]
    fn placements_hash_apart() {
        let of = |region: Option<&str>, zone: Option<&str>| {
            placement_hash(&Placement { region: region.map(Into::into), zone: zone.map(Into::into), ..Placement::default() })
        };
        assert_ne!(of(None, None), of(Some(""), None));
        assert_ne!(of(Some("ab"), Some("c")), of(Some("a"), Some("bc")));
        assert_eq!(of(Some("a"), None), of(Some("a"), None));
    }
}
