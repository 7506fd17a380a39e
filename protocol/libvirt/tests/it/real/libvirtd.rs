//! A libvirtd of a test's own, in namespaces of its own: nobody else on the machine notices.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use egress_libvirt::{Client, Options, connect};
use tokio::net::UnixStream;
use tokio::time::Instant;

/// Skips the calling test by name: loudly, and counted by `tests/run`.
fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
    if let Some(path) = std::env::var_os("EPO_TEST_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = std::io::Write::write_fmt(&mut file, format_args!("{test}: {why}\n"));
    }
}

fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(program).is_file())
}

pub struct Libvirtd {
    namespaces: Child,
    folder: tempfile::TempDir,
}

impl Libvirtd {
    /// None where there cannot be one; the test is then skipped by name.
    pub async fn start(test: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            skip(test, "not root");
            return None;
        }
        if let Some(missing) = ["libvirtd", "virsh", "qemu-system-x86_64", "unshare", "ip"].iter().find(|program| !have(program)) {
            skip(test, &format!("no {missing}"));
            return None;
        }
        let alone = Command::new("unshare").args(["--mount", "--net", "--pid", "--fork", "true"]).stderr(Stdio::null()).status();
        if !alone.is_ok_and(|status| status.success()) {
            skip(test, "namespaces cannot be made here");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // QEMU's user walks through.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(folder.path().join("pool")).unwrap();
        let log = std::fs::File::create(folder.path().join("init.log")).unwrap();
        let namespaces = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
            .args(["bash", "-c", include_str!("libvirtd.sh"), "init"])
            .arg(folder.path())
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let libvirtd = Self { namespaces, folder };
        let deadline = Instant::now() + Duration::from_secs(60);
        while UnixStream::connect(libvirtd.socket()).await.is_err() {
            let said = || std::fs::read_to_string(libvirtd.folder.path().join("init.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "libvirtd does not listen: {}", said());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Some(libvirtd)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("sock/libvirt-sock")
    }

    /// A link that is open.
    pub async fn link(&self) -> Client {
        let io = UnixStream::connect(self.socket()).await.unwrap();
        let (client, connection) = connect(io, &Options::default());
        tokio::spawn(connection);
        client.open("qemu:///system", super::soon()).await.unwrap();
        client
    }

    /// libvirt's own client, against the same libvirtd.
    pub fn virsh(&self, arguments: &[&str]) -> String {
        let uri = format!("qemu+unix:///system?socket={}", self.socket().display());
        let output = Command::new("virsh").args(["-c", &uri, "-q"]).args(arguments).env("LC_ALL", "C").output().unwrap();
        assert!(output.status.success(), "virsh {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A pool `default` of a folder.
    pub fn with_pool(self) -> Self {
        self.virsh(&["pool-create-as", "default", "dir", "--target", self.folder.path().join("pool").to_str().unwrap()]);
        self
    }

    /// The contents of a volume's file.
    pub fn file(&self, volume: &str) -> Vec<u8> {
        std::fs::read(self.folder.path().join("pool").join(volume)).unwrap()
    }

    /// Stops libvirtd from answering, or lets it go on.
    pub fn signal(&self, signal: &str) {
        // Its number is that of its own namespace.
        let pid = std::fs::read_to_string(self.folder.path().join("libvirtd.pid")).unwrap();
        let init = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.namespaces.id())).unwrap();
        let status = Command::new("nsenter").args(["-t", init.trim(), "-p", "kill", signal, pid.trim()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Libvirtd {
    fn drop(&mut self) {
        let _ = self.namespaces.kill();
        let _ = self.namespaces.wait();
    }
}
