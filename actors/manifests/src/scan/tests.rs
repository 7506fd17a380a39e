//! Real folders: what is read, what is not, and when it is read again.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// Keeps the text as the only fault, so that tests see what was read.
fn as_text(_file: &str, bytes: &[u8]) -> Content {
    let text = String::from_utf8_lossy(bytes).into_owned();
    assert_ne!(text, "poison", "the parser gives up");
    Content { faults: vec![text], ..Content::default() }
}

struct Bed {
    temp: tempfile::TempDir,
    clock: Clock,
    scanner: Scanner,
}

impl Bed {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("m")).unwrap();
        let folders = ManifestFolders::open(&[temp.path().join("m")], &[]).unwrap();
        Self { temp, clock: Clock::starting_at(Timestamp::from_millis(0)), scanner: Scanner::new(&folders, as_text) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join("m").join(name)
    }

    fn seen(&mut self) -> Result<Vec<(String, Arc<Content>)>, String> {
        let files = self.scanner.scan(&self.clock).folders.remove(0).files?;
        let mut seen: Vec<_> = files.into_iter().map(|file| (file.file.to_string(), file.content)).collect();
        seen.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(seen)
    }

    fn texts(&mut self) -> Vec<(String, String)> {
        self.seen().unwrap().into_iter().map(|(file, content)| (file, content.faults.concat())).collect()
    }
}

fn texts(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn manifests_are_read_and_nothing_else_op_30() {
    let mut bed = Bed::new();
    for name in ["a.yaml", "b.yml", "c.json", ".hidden.yaml", "d.txt", "e.yaml~", "f.YAML", "g.yaml.swp"] {
        fs::write(bed.path(name), name).unwrap();
    }
    fs::create_dir(bed.path("folder.yaml")).unwrap();
    fs::write(bed.path("folder.yaml/inner.yaml"), "inner").unwrap();
    assert_eq!(bed.texts(), texts(&[("a.yaml", "a.yaml"), ("b.yml", "b.yml"), ("c.json", "c.json")]));
}

#[test]
fn links_are_followed_and_a_link_that_is_moved_is_a_change() {
    let mut bed = Bed::new();
    for (rev, text) in [("1", "one"), ("2", "two")] {
        fs::create_dir(bed.temp.path().join(rev)).unwrap();
        fs::write(bed.temp.path().join(rev).join("a.yaml"), text).unwrap();
    }
    symlink(bed.temp.path().join("1"), bed.temp.path().join("current")).unwrap();
    symlink(bed.temp.path().join("current/a.yaml"), bed.path("a.yaml")).unwrap();
    assert_eq!(bed.texts(), texts(&[("a.yaml", "one")]));
    symlink(bed.temp.path().join("2"), bed.temp.path().join("next")).unwrap();
    fs::rename(bed.temp.path().join("next"), bed.temp.path().join("current")).unwrap();
    assert_eq!(bed.texts(), texts(&[("a.yaml", "two")]));
    fs::remove_file(bed.temp.path().join("2/a.yaml")).unwrap();
    let seen = bed.seen().unwrap();
    assert!(seen[0].1.unreadable.is_some(), "a link that leads nowhere is a file that cannot be read");
}

#[test]
fn a_file_that_cannot_be_read_is_seen_as_such() {
    let mut bed = Bed::new();
    nix_mkfifo(&bed.path("pipe.yaml"));
    fs::write(bed.path("poison.yaml"), "poison").unwrap();
    let seen = bed.seen().unwrap();
    assert_eq!(seen.len(), 2);
    for (file, content) in seen {
        assert!(content.unreadable.is_some(), "{file}");
        assert!(content.faults[0].contains(&file), "{:?}", content.faults);
    }
}

fn nix_mkfifo(path: &Path) {
    assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn a_missing_folder_is_told_from_an_empty_one() {
    let mut bed = Bed::new();
    assert_eq!(bed.texts(), []);
    fs::remove_dir(bed.temp.path().join("m")).unwrap();
    assert!(bed.seen().is_err());
}

#[test]
fn a_file_of_one_size_and_time_written_twice_is_seen_while_it_is_recent_and_not_parsed_twice_otherwise() {
    let mut bed = Bed::new();
    fs::write(bed.path("a.yaml"), "one").unwrap();
    let first = bed.seen().unwrap();
    assert!(Arc::ptr_eq(&first[0].1, &bed.seen().unwrap()[0].1), "parsed once");
    fs::write(bed.path("a.yaml"), "two").unwrap();
    assert_eq!(bed.texts(), texts(&[("a.yaml", "two")]));
}

#[tokio::test(start_paused = true)]
async fn an_old_file_is_not_read_again_until_it_is_touched() {
    let mut bed = Bed::new();
    fs::write(bed.path("a.yaml"), "one").unwrap();
    let first = bed.seen().unwrap();
    tokio::time::advance(Duration::from_secs(3)).await;
    fs::set_permissions(bed.path("a.yaml"), fs::Permissions::from_mode(0o600)).unwrap();
    bed.seen().unwrap();
    tokio::time::advance(Duration::from_secs(3)).await;
    let again = bed.seen().unwrap();
    assert_eq!(*first[0].1, *again[0].1);
    let prints = |bed: &mut Bed| bed.scanner.scan(&bed.clock).folders.remove(0).files.unwrap()[0].print;
    assert_eq!(prints(&mut bed), prints(&mut bed));
    let reads = bed.scanner.read.values().next().unwrap().changed;
    assert_eq!(reads, Timestamp::from_millis(3000), "a touched file counts as changed");
}

#[test]
fn the_demonstration_counts_as_a_folder() {
    let key = egress_protocol::ObjectKey::new("default", "demo-1");
    let spec = serde_json::from_str(r#"{"mode": "External", "endpoint": {"host": "192.0.2.1"}}"#).unwrap();
    let folders = ManifestFolders::demonstration([(key, spec)]);
    assert!(folders.contain(DEMONSTRATION) && !folders.contain("/m"));
    let seen = Scanner::new(&folders, as_text).scan(&Clock::starting_at(Timestamp::from_millis(0)));
    assert_eq!(seen.folders.len(), 1);
    assert_eq!(seen.folders[0].files.as_ref().unwrap()[0].content.documents.len(), 1);
}
