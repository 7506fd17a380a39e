//! The providers file as it was at one look (OP-26). A mounted ConfigMap changes by a link further up its path and a
//! Secret by a file that an entry names, so a look compares contents, never times or inodes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{CredentialFile, ProvidersConfig, parse};
use crate::fault::{Fault, Sink, WHOLE};
use crate::open;

/// Reads the content of a file, which is how its faults name it.
type Parse = fn(file: &str, bytes: &[u8]) -> Result<ProvidersConfig, Vec<Fault>>;

/// What a look found.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The entries, or every fault.
    pub config: Result<ProvidersConfig, Vec<Fault>>,
    digest: String,
    /// What the entries name.
    files: Vec<PathBuf>,
}

impl Snapshot {
    /// Looks at the file and at the files that its entries name.
    pub fn read(path: &Path) -> Self {
        Self::of(path, &open::read(path))
    }

    /// Looks again; `None`: everything is as it was.
    pub fn again(&self, path: &Path) -> Option<Self> {
        let content = open::read(path);
        (digest(&content, &self.files) != self.digest).then(|| Self::of(path, &content))
    }

    fn of(path: &Path, content: &std::io::Result<Vec<u8>>) -> Self {
        Self::parsed_by(parse, path, content)
    }

    pub(super) fn parsed_by(parse: Parse, path: &Path, content: &std::io::Result<Vec<u8>>) -> Self {
        let file = path.display().to_string();
        let whole = |reason: String| {
            let mut sink = Sink::new(&file, 0);
            sink.push(None, WHOLE, reason);
            Err(sink.into_faults())
        };
        let mut config = match content {
            // No content may take down whoever follows the file, nor be tried again at each look.
            Ok(bytes) => catch_unwind(AssertUnwindSafe(|| parse(&file, bytes)))
                .unwrap_or_else(|_| whole("cannot be parsed: the parser gave up on it".to_owned())),
            Err(error) => whole(format!("cannot be read: {error}")),
        };
        let (mut files, mut missing) = (Vec::new(), Vec::new());
        for entry in config.iter_mut().flat_map(|config| &mut config.entries) {
            let named = entry.files();
            let paths: Vec<PathBuf> = named.iter().map(|file| file.path.clone()).collect();
            if !paths.is_empty() {
                entry.fingerprint = with_files(&entry.fingerprint, &paths);
            }
            missing.extend(named.iter().filter_map(|file| warn_unreadable(&entry.name, file)));
            files.extend(paths);
        }
        if let Ok(config) = &mut config {
            config.warnings.extend(missing);
        }
        let digest = digest(content, &files);
        Self { config, digest, files }
    }
}

/// A credential or trust file that is not there, or cannot be read: it may still land (PC-57, PC-73).
fn warn_unreadable(entry: &str, file: &CredentialFile) -> Option<String> {
    let error = open::read(&file.path).err()?;
    Some(format!("entry {entry:?}: {}: {} cannot be read: {error}; calls fail until it is there", file.key, file.path.display()))
}

/// A fingerprint that follows the content of files too; a missing one is a content of its own.
fn with_files(fingerprint: &str, files: &[PathBuf]) -> String {
    let mut hash = Sha256::new();
    hash.update(fingerprint);
    for file in files {
        add(&mut hash, &open::read(file));
    }
    data_encoding::HEXLOWER.encode(&hash.finalize())
}

fn digest(content: &std::io::Result<Vec<u8>>, files: &[PathBuf]) -> String {
    let mut hash = Sha256::new();
    add(&mut hash, content);
    data_encoding::HEXLOWER.encode(&hash.finalize()) + &with_files("", files)
}

/// Kind and length first, so that no two contents run together.
fn add(hash: &mut Sha256, content: &std::io::Result<Vec<u8>>) {
    match content {
        Ok(bytes) => {
            hash.update([1]);
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(bytes);
        }
        Err(error) => {
            hash.update([0]);
            hash.update(error.kind().to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(snapshot: &Snapshot) -> Vec<String> {
        snapshot.config.iter().flat_map(|config| &config.entries).map(|entry| entry.name.to_string()).collect()
    }

    /// OP-26: as the kubelet does it, by a link to another folder.
    #[test]
    fn a_link_that_is_swapped_further_up_the_path_is_noticed_and_a_touched_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (version, name) in [("..1", "a"), ("..2", "b")] {
            fs::create_dir(root.join(version)).unwrap();
            fs::write(root.join(version).join("providers.yaml"), format!("providers: [{{name: {name}, type: local}}]")).unwrap();
        }
        symlink("..1", root.join("..data")).unwrap();
        symlink("..data/providers.yaml", root.join("providers.yaml")).unwrap();
        let path = root.join("providers.yaml");
        let first = Snapshot::read(&path);
        assert_eq!(names(&first), ["a"]);
        let text = fs::read(&path).unwrap();
        fs::write(&path, text).unwrap();
        assert_eq!(first.again(&path), None);
        symlink("..2", root.join("..data.new")).unwrap();
        fs::rename(root.join("..data.new"), root.join("..data")).unwrap();
        let second = first.again(&path).unwrap();
        assert_eq!(names(&second), ["b"]);
        fs::remove_file(root.join("..data")).unwrap();
        let third = second.again(&path).unwrap();
        assert!(third.config.as_ref().unwrap_err()[0].to_string().contains("cannot be read"));
        assert_eq!(third.again(&path), None);
    }

    /// Issue 10, 3: a parser that panics is a fault of the content, told once, and gone with that content.
    #[test]
    fn a_content_that_makes_the_parser_panic_is_a_fault_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("providers.yaml");
        fs::write(&path, "providers: [{name: a, type: local}]").unwrap();
        let snapshot = Snapshot::parsed_by(|_, _| panic!("a fault of the parser"), &path, &fs::read(&path));
        let fault = snapshot.config.as_ref().unwrap_err()[0].to_string();
        assert_eq!(fault, format!("{}: cannot be parsed: the parser gave up on it", path.display()));
        assert_eq!(snapshot.again(&path), None, "the same content is not tried again");
        fs::write(&path, "providers: [{name: b, type: local}]").unwrap();
        assert_eq!(names(&snapshot.again(&path).unwrap()), ["b"]);
    }

    /// Issue 10, 3: as it was found, through the whole file.
    #[test]
    fn a_duration_beyond_all_bounds_is_a_fault_of_its_field() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("providers.yaml");
        fs::write(&path, "providers: [{name: a, type: local, local: {idleTimeout: 18446744073709551615s1000000000ns}}]").unwrap();
        let fault = Snapshot::read(&path).config.unwrap_err()[0].brief();
        assert_eq!(fault, "providers[0] \"a\": local.idleTimeout must be a duration such as 90s or 5m, 1s to 1h: it is too long");
    }

    /// PC-73: one line, with the entry and the key that names the file.
    #[test]
    fn a_credential_file_that_is_missing_is_a_warning_and_one_that_is_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = CredentialFile { key: "x.keyFile".to_owned(), path: dir.path().join("key") };
        let warning = warn_unreadable("lab", &file).unwrap();
        assert!(warning.starts_with("entry \"lab\": x.keyFile: ") && warning.contains("No such file"), "{warning}");
        fs::write(&file.path, "key").unwrap();
        assert_eq!(warn_unreadable("lab", &file), None);
    }

    /// PC-59: the fingerprint follows the files that an entry names.
    #[test]
    fn a_fingerprint_follows_the_content_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let missing = with_files("f", std::slice::from_ref(&file));
        fs::write(&file, "").unwrap();
        let empty = with_files("f", std::slice::from_ref(&file));
        fs::write(&file, "key").unwrap();
        let full = with_files("f", std::slice::from_ref(&file));
        assert!(missing != empty && empty != full && full != with_files("g", std::slice::from_ref(&file)));
        assert_eq!(full, with_files("f", &[file]));
    }
}
