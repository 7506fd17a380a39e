//! Where documents come from, settled before the tree starts: the folders that were given, or the demonstration.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egress_protocol::ObjectKey;
use egress_protocol::object::Annotations;
use egress_protocol::resource::ProxySpec;

use crate::folder::{Content, Declared, DeclaredProxy, Kind, Name};
use crate::state::Record;

/// What the demonstration pool's objects have as their folder.
pub const DEMONSTRATION: &str = "demonstration";

/// The sources of documents of this process.
#[derive(Debug, Clone, Default)]
pub struct ManifestFolders {
    pub(crate) folders: Vec<Given>,
    pub(crate) demonstration: Option<Arc<Content>>,
}

/// A folder that was given.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) path: PathBuf,
    /// The path as text: what its objects have as their folder.
    pub(crate) name: Arc<str>,
}

/// Why the process may not start with a folder (exit 2).
#[derive(Debug, thiserror::Error)]
#[error("--manifests {}: the folder is missing ({source}), and no object of it is known", path.display())]
pub struct StartError {
    /// As it was given.
    pub path: PathBuf,
    /// Why it cannot be read.
    pub source: io::Error,
}

impl ManifestFolders {
    /// The given folders. One that cannot be listed is an error unless objects of it are known (OP-30). One that is
    /// given twice is taken once.
    pub fn open(given: &[PathBuf], known: &[Record]) -> Result<Self, StartError> {
        let mut folders: Vec<Given> = Vec::new();
        for path in given {
            let failed = |source| StartError { path: path.clone(), source };
            // Without `.` and a slash at the end, so that one folder has one name; links stay, for they may be moved.
            let absolute: PathBuf = std::path::absolute(path).map_err(failed)?.components().collect();
            let name: Arc<str> = absolute.to_string_lossy().into();
            if let Err(error) = fs::read_dir(&absolute)
                && !known.iter().any(|record| record.home.folder == name)
            {
                return Err(failed(error));
            }
            let same = |other: &Given| other.path == absolute || same_folder(&other.path, &absolute);
            if !folders.iter().any(same) {
                folders.push(Given { path: absolute, name });
            }
        }
        Ok(Self { folders, demonstration: None })
    }

    /// The demonstration: documents that are in no file.
    pub fn demonstration(documents: impl IntoIterator<Item = (ObjectKey, ProxySpec)>) -> Self {
        let document = |(key, spec)| {
            let declared = DeclaredProxy { spec: Arc::new(spec), annotations: Annotations::default() };
            (Name { kind: Kind::Proxy, key }, None, Declared::Proxy(declared))
        };
        let documents = documents.into_iter().map(document).collect();
        Self { folders: Vec::new(), demonstration: Some(Arc::new(Content { documents, ..Content::default() })) }
    }

    /// Whether an object's folder is among them; if not, the object is suspended.
    pub(crate) fn contain(&self, folder: &str) -> bool {
        self.folders.iter().any(|given| *given.name == *folder) || (self.demonstration.is_some() && folder == DEMONSTRATION)
    }
}

fn same_folder(a: &Path, b: &Path) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Home;

    fn record(folder: &Path) -> Record {
        Record {
            key: ObjectKey::new("default", "px-1"),
            uid: egress_protocol::Uid::new("uid-1"),
            generation: 1,
            spec: Arc::new(serde_json::from_str(r#"{"mode": "Managed", "provider": "lab"}"#).unwrap()),
            status: Arc::default(),
            annotations: Annotations::default(),
            deleting: false,
            finalizer: true,
            home: Home::new(folder.to_string_lossy(), "a.yaml"),
        }
    }

    #[test]
    fn a_folder_that_is_missing_at_start_is_an_error_unless_objects_of_it_are_known_op_30() {
        let temp = tempfile::tempdir().unwrap();
        let missing = temp.path().join("m");
        let error = ManifestFolders::open(std::slice::from_ref(&missing), &[record(temp.path())]).unwrap_err().to_string();
        assert!(error.contains("--manifests") && error.contains(&*missing.to_string_lossy()), "{error}");
        let open = ManifestFolders::open(std::slice::from_ref(&missing), &[record(&missing)]).unwrap();
        assert!(open.contain(&missing.to_string_lossy()));
        let file = temp.path().join("file.yaml");
        fs::write(&file, "").unwrap();
        assert!(ManifestFolders::open(&[file], &[]).is_err(), "a file is no folder");
    }

    #[test]
    fn a_folder_given_twice_in_any_spelling_is_taken_once() {
        let temp = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(temp.path(), temp.path().join("link")).unwrap();
        let given = [temp.path().to_owned(), temp.path().join("./"), temp.path().join("link")];
        let open = ManifestFolders::open(&given, &[]).unwrap();
        assert_eq!(open.folders.len(), 1);
        assert_eq!(*open.folders[0].name, *temp.path().to_string_lossy());
    }
}
