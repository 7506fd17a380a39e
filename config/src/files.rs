//! What the command `validate` says about files: manifests and providers files, told apart by their content (OP-3).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use egress_protocol::resource::LABEL_CREDENTIALS;
use egress_protocol::resource::secrets::{CREDENTIAL_KEYS, credential_fault};

use crate::fault::{Fault, Sink, WHOLE};
use crate::manifest::{Document, SecretDocument};
use crate::yaml::{self, Node};
use crate::{manifest, providers};

/// The outcome of `validate`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Everything that is wrong, in the order of the files.
    pub faults: Vec<Fault>,
    /// What a person should look at though it is no fault.
    pub warnings: Vec<String>,
    /// Some file could not be read at all.
    pub unreadable: bool,
    /// How many files were looked at.
    pub files: usize,
    /// How many objects and provider entries are in order.
    pub valid: usize,
}

impl Report {
    /// OP-4: 0 all in order, 1 a fault was found, 2 a file could not be read.
    pub fn exit_code(&self) -> u8 {
        match (self.unreadable, self.faults.is_empty()) {
            (true, _) => 2,
            (false, false) => 1,
            (false, true) => 0,
        }
    }
}

/// One line each, and a last one that counts.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        for fault in &self.faults {
            writeln!(f, "{fault}")?;
        }
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        write!(f, "{}, {} valid, {}", count(self.files, "file"), count(self.valid, "object"), count(self.faults.len(), "fault"))
    }
}

/// Judges files; a folder stands for the manifests in it, as `standalone` reads them.
pub fn validate_files<P: AsRef<Path>>(paths: &[P]) -> Report {
    let mut judge = Judge::default();
    for path in paths {
        judge.path(path.as_ref());
    }
    judge.report
}

#[derive(Debug, Default)]
struct Judge {
    report: Report,
    /// Where an object was seen first.
    seen: BTreeMap<String, String>,
}

impl Judge {
    fn path(&mut self, path: &Path) {
        match fs::metadata(path).and_then(|found| if found.is_dir() { manifests_in(path) } else { Ok(vec![path.to_owned()]) }) {
            Ok(files) => files.iter().for_each(|file| self.file(file)),
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn unreadable(&mut self, path: &Path, error: &std::io::Error) {
        let file = path.display().to_string();
        let mut sink = Sink::new(&file, 0);
        sink.push(None, WHOLE, format!("cannot be read: {error}"));
        self.report.faults.append(&mut sink.into_faults());
        self.report.unreadable = true;
    }

    fn file(&mut self, path: &Path) {
        self.report.files += 1;
        // Not `open`: what another program writes may be judged (`validate <(kustomize build)`), and a person waits for it.
        match fs::read(path) {
            Ok(bytes) => self.bytes(&path.display().to_string(), &bytes),
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn bytes(&mut self, file: &str, bytes: &[u8]) {
        match yaml::documents(bytes) {
            Ok(nodes) if nodes.iter().any(providers::is_one) => self.providers(file, &nodes),
            Ok(nodes) => self.manifest(file, manifest::parse_nodes(file, &nodes)),
            Err(_) => self.manifest(file, manifest::parse(file, bytes)),
        }
    }

    fn providers(&mut self, file: &str, nodes: &[Node]) {
        match providers::parse_nodes(file, nodes, &providers::TYPES) {
            Ok(mut config) => {
                self.report.valid += config.entries.len();
                self.report.warnings.append(&mut config.warnings);
            }
            Err(mut faults) => self.report.faults.append(&mut faults),
        }
    }

    fn manifest(&mut self, file: &str, mut manifest: manifest::Manifest) {
        for located in &manifest.documents {
            let label = located.value.label();
            if let Document::Secret(secret) = &located.value {
                let mut sink = Sink::new(file, located.document);
                sink.about(Some(label.clone()));
                credentials(secret, located.line, &mut sink);
                manifest.faults.append(&mut sink.into_faults());
            }
            let here = match located.line {
                Some(line) => format!("{file}:{line}"),
                None => file.to_owned(),
            };
            match self.seen.get(&label) {
                None => {
                    self.seen.insert(label, here);
                    self.report.valid += 1;
                }
                Some(first) => {
                    let mut sink = Sink::new(file, located.document);
                    sink.about(Some(label));
                    sink.push(located.line, "metadata.name", format!("is declared at {first} already"));
                    manifest.faults.append(&mut sink.into_faults());
                }
            }
        }
        manifest.faults.sort_by_key(|fault| (fault.document, fault.line));
        self.report.faults.append(&mut manifest.faults);
    }
}

/// What of a Secret for credentials no proxy can take. An API server would not mind.
fn credentials(secret: &SecretDocument, line: Option<usize>, sink: &mut Sink<'_>) {
    if secret.labels.get(LABEL_CREDENTIALS).is_none_or(|value| value != "true") {
        return;
    }
    for key in CREDENTIAL_KEYS {
        let field = if secret.plain.contains(key) { "stringData" } else { "data" };
        let fault = match secret.data.get(key) {
            None => Some("is required in a Secret with the label of credentials"),
            Some(value) => credential_fault(key, value.expose()),
        };
        if let Some(reason) = fault {
            sink.push(line, format!("{field}.{key}"), reason);
        }
    }
}

/// The files of a folder that `standalone` would read (OP-30), in path order.
fn manifests_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let fits = [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end));
        if fits && !name.starts_with('.') && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    const PROXY: &str = "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: a}\nspec: {mode: Managed, provider: lab}\n";

    #[test]
    fn manifests_and_providers_files_are_told_apart() {
        let folder = folder(&[("a.yaml", PROXY), ("p.yaml", "providers: [{name: lab, type: local}]"), (".b.yaml", "7"), ("c.txt", "7")]);
        let report = validate_files(&[folder.path()]);
        assert_eq!((report.exit_code(), report.files, report.valid), (0, 2, 2));
        assert_eq!(report.to_string(), "2 files, 2 objects valid, 0 faults");
    }

    #[test]
    fn faults_of_all_files_and_names_used_twice_are_told() {
        let bad = PROXY.replace("lab", "lab, port: 0").replace("name: a", "name: b");
        let folder = folder(&[("1.yaml", PROXY), ("2.yaml", &format!("{bad}---\n{PROXY}")), ("p.yaml", "providers: [{type: x}]")]);
        let files = ["1.yaml", "2.yaml", "p.yaml"].map(|name| folder.path().join(name));
        let report = validate_files(&files);
        assert_eq!(report.exit_code(), 1);
        let root = format!("{}/", folder.path().display());
        let shown: Vec<_> = report.faults.iter().map(|fault| fault.to_string().replace(&root, "")).collect();
        assert_eq!(
            shown,
            [
                "2.yaml:4: document 1, Proxy default/b, spec.port: must be at least 1, is 0",
                "2.yaml:6: document 2, Proxy default/a, metadata.name: is declared at 1.yaml:1 already",
                "p.yaml:1: providers[0], name: is required",
                "p.yaml:1: providers[0], type: \"x\" is not a type of this version: known are local, kubernetes, gcp",
            ]
        );
    }

    /// OP-4: a file that cannot be read is exit 2, and the others are still judged.
    #[test]
    fn a_file_that_cannot_be_read_is_exit_2() {
        let folder = folder(&[("a.yaml", "7")]);
        let report = validate_files(&[folder.path().join("missing.yaml"), folder.path().join("a.yaml")]);
        assert_eq!((report.exit_code(), report.faults.len()), (2, 2));
        assert!(report.faults[0].to_string().contains("missing.yaml: cannot be read: "));
    }

    #[test]
    fn a_file_that_is_no_yaml_is_a_fault() {
        let folder = folder(&[("a.yaml", "a: [1")]);
        let report = validate_files(&[folder.path()]);
        assert_eq!((report.exit_code(), report.faults.len()), (1, 1));
    }

    /// Issue 10, 24: an API server takes such a Secret, a proxy does not.
    #[test]
    fn credentials_that_no_proxy_takes_are_named_by_key_and_place() {
        let secret = |name: &str, label: &str, rest: &str| {
            format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, labels: {{{label}: 'true'}}}}\n{rest}\n---\n")
        };
        let mine = "crawl.example.com/proxy-credentials";
        let text = [
            secret("a", mine, "stringData: {username: 'u:x', password: \"hunter2\\n\"}"),
            secret("b", mine, "data: {username: dQ==}"),
            secret("c", mine, "stringData: {username: u, password: 'a:b'}"),
            secret("d", "other", "stringData: {username: 'u:x'}"),
        ]
        .concat();
        let folder = folder(&[("s.yaml", &text)]);
        let report = validate_files(&[folder.path()]);
        let shown: Vec<_> = report.faults.iter().map(|fault| fault.to_string().split_once("s.yaml:").unwrap().1.to_owned()).collect();
        assert_eq!(report.exit_code(), 1);
        assert_eq!(
            shown,
            [
                "1: document 1, Secret default/a, stringData.username: has a colon in it: a proxy reads what follows as the password",
                "1: document 1, Secret default/a, stringData.password: ends with a line break: write it without one, as kubectl create secret --from-literal and printf do",
                "6: document 2, Secret default/b, data.password: is required in a Secret with the label of credentials",
            ]
        );
    }
}
