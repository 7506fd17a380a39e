//! Images that the node runs: the operator as it was built for this test, and Squids that do not do well.

use std::path::{Path, PathBuf};

use tokio::process::Command;
use tokio::sync::OnceCell;

use super::{Node, ROOT, said, script};
use crate::support::operator::BINARY;

/// The name that the chart asks for when nobody says otherwise, as containerd writes it.
fn default_name() -> String {
    let chart = std::fs::read_to_string(Path::new(ROOT).join("charts/egress-proxies-operator/Chart.yaml")).unwrap();
    let version = chart.lines().find_map(|line| line.strip_prefix("appVersion:")).unwrap().trim().trim_matches('"');
    format!("docker.io/library/egress-proxies-operator:{version}")
}

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("node");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

async fn make(out: &Path, name: &str, files: &[String]) {
    let mut command = Command::new(script("image"));
    let output = command.arg("file").arg(out).arg(name).args(files).output().await.unwrap();
    said(&format!("image {name}"), &output);
}

/// The built binary without what only a debugger reads: a fifth of it.
async fn stripped() -> &'static Path {
    static STRIPPED: OnceCell<PathBuf> = OnceCell::const_new();
    STRIPPED
        .get_or_init(|| async {
            let path = folder().join("egress-proxies-operator");
            let output = Command::new("strip").arg("-o").arg(&path).arg(BINARY).output().await.unwrap();
            said("strip", &output);
            path
        })
        .await
}

/// The operator with the system's roots and these beside.
async fn operator(name: &str, roots: &str) -> PathBuf {
    let (archive, bundle) = (folder().join(format!("{name}.tar")), folder().join(format!("{name}.pem")));
    let system = std::fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
    std::fs::write(&bundle, format!("{system}\n{roots}")).unwrap();
    let files = [
        format!("{}=/egress-proxies-operator", stripped().await.display()),
        format!("{}=/etc/ssl/certs/ca-certificates.crt", bundle.display()),
    ];
    make(&archive, &default_name(), &files).await;
    archive
}

impl Node {
    /// Loads the operator under the chart's default name.
    pub async fn load_operator(&self) {
        static ARCHIVE: OnceCell<PathBuf> = OnceCell::const_new();
        let archive = ARCHIVE.get_or_init(|| operator("operator", "")).await;
        self.bed("load", &[archive.to_str().unwrap()]).await;
    }

    /// The same with the bed's authority among the roots of its image.
    pub async fn load_trusting_operator(&self) {
        let archive = operator("trusting-operator", &self.authority()).await;
        self.bed("load", &[archive.to_str().unwrap()]).await;
    }

    /// Loads an image whose `squid` does what `command` says to the bed's tool (`exit 1`, `print 3`, …).
    pub async fn load_stand_in(&self, name: &str, command: &str) {
        let folder = tempfile::tempdir_in(folder()).unwrap();
        let (archive, file) = (folder.path().join("squid.tar"), folder.path().join("command"));
        std::fs::write(&file, command).unwrap();
        let tool = self.state().join("bin/tool");
        make(&archive, name, &[format!("{}=/usr/bin/squid", tool.display()), format!("{}=/squid", file.display())]).await;
        self.bed("load", &[archive.to_str().unwrap()]).await;
    }
}
