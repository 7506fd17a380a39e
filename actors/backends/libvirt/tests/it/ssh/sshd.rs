//! Debian's sshd on loopback, with its own configuration, port and keys.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use egress_backend_libvirt::ssh::{Fault, HostKeyFault, Stage};
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ssh::support::{Dialler, Libvirt, ed25519, libvirt, pem, program, public, rsa, skip};

struct Sshd {
    process: Child,
    dialler: Dialler,
    tasks: JoinSet<()>,
}

impl Sshd {
    /// None where there cannot be one; the test is then skipped by name. `more` goes into its configuration.
    async fn start(test: &str, more: &str) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            skip(test, "not root");
            return None;
        }
        let (Some(sshd), Some(_)) = (program("sshd"), program("ssh-keygen")) else {
            skip(test, "no sshd or no ssh-keygen");
            return None;
        };
        std::fs::create_dir_all("/run/sshd").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut dialler = Dialler::trusting(port, &ed25519(9));
        let folder = dialler.folder.path().to_owned();
        write_key(&folder.join("host_ed25519"), &pem(&ed25519(9)));
        write_key(&folder.join("host_rsa"), &pem(&rsa().unwrap()));
        std::fs::write(folder.join("authorized_keys"), public(&ed25519(1)) + "\n").unwrap();
        let at = folder.display();
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {at}/host_ed25519\nHostKey {at}/host_rsa\nPidFile none\nAuthorizedKeysFile {at}/authorized_keys\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n{more}\n"
        );
        std::fs::write(folder.join("sshd_config"), config).unwrap();
        let process = Command::new(sshd)
            .args(["-D", "-f"])
            .arg(folder.join("sshd_config"))
            .arg("-E")
            .arg(folder.join("log"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        dialler.target.socket = folder.join("libvirt-sock").to_str().unwrap().to_owned();
        let sshd = Self { process, dialler, tasks: JoinSet::new() };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(Instant::now() < deadline, "sshd does not listen: {}", sshd.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Some(sshd)
    }

    /// A libvirt at the socket.
    fn with_libvirt(mut self) -> Self {
        let listener = UnixListener::bind(&self.dialler.target.socket).unwrap();
        self.tasks.spawn(async move {
            let mut links = JoinSet::new();
            while let Ok((io, _)) = listener.accept().await {
                links.spawn(libvirt(io, Libvirt::Serves));
            }
        });
        self
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dialler.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn write_key(path: &Path, pem: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path).unwrap();
    std::io::Write::write_all(&mut file, pem.as_bytes()).unwrap();
}

#[tokio::test]
async fn a_link_goes_through_debians_sshd_lv_11() {
    let Some(sshd) = Sshd::start("a_link_goes_through_debians_sshd_lv_11", "").await else { return };
    let sshd = sshd.with_libvirt();
    sshd.dialler.works().await;
}

#[tokio::test]
async fn names_that_ssh_keygen_has_hashed_are_found_lv_86() {
    let Some(sshd) = Sshd::start("names_that_ssh_keygen_has_hashed_are_found_lv_86", "").await else { return };
    let sshd = sshd.with_libvirt();
    let file = sshd.dialler.files.known_hosts.clone().unwrap();
    let hashed = Command::new("ssh-keygen").args(["-q", "-H", "-f"]).arg(&file).output().unwrap();
    assert!(hashed.status.success() && std::fs::read_to_string(&file).unwrap().starts_with("|1|"));
    sshd.dialler.works().await;
    let other = format!("{}@revoked * {}\n", std::fs::read_to_string(&file).unwrap(), public(&ed25519(9)));
    sshd.dialler.known_hosts(&other);
    assert!(matches!(sshd.dialler.fails().await.fault, Fault::HostKey { fault: HostKeyFault::Revoked, .. }));
}

#[tokio::test]
async fn rsa_will_do_for_host_and_user_lv_86() {
    let Some(sshd) = Sshd::start("rsa_will_do_for_host_and_user_lv_86", "").await else { return };
    let sshd = sshd.with_libvirt();
    let folder = sshd.dialler.folder.path();
    let host = russh::keys::load_secret_key(folder.join("host_rsa"), None).unwrap();
    sshd.dialler.known_hosts(&sshd.dialler.line(&host));
    sshd.dialler.works().await;
    let user = rsa().unwrap();
    std::fs::write(folder.join("authorized_keys"), public(&user)).unwrap();
    sshd.dialler.key(&pem(&user));
    sshd.dialler.works().await;
}

#[tokio::test]
async fn a_key_that_is_not_in_authorized_keys_is_refused_lv_87() {
    let Some(sshd) = Sshd::start("a_key_that_is_not_in_authorized_keys_is_refused_lv_87", "").await else { return };
    sshd.dialler.key(&pem(&ed25519(2)));
    let refused = sshd.dialler.fails().await;
    assert!(matches!(&refused.fault, Fault::Refused { methods } if methods == "publickey"), "{refused:?}\n{}", sshd.log());
}

/// sshd answers the same for a socket that is not there, one that nobody listens at, and one that it must not open.
#[tokio::test]
async fn sshd_does_not_say_why_a_socket_does_not_open_so_the_message_names_every_cause_ht_16() {
    const NAME: &str = "sshd_does_not_say_why_a_socket_does_not_open_so_the_message_names_every_cause_ht_16";
    let mut said = Vec::new();
    for (more, listens) in
        [("", None), ("", Some(false)), ("AllowStreamLocalForwarding no", Some(true)), ("DisableForwarding yes", Some(true))]
    {
        let Some(mut sshd) = Sshd::start(NAME, more).await else { return };
        match listens {
            Some(true) => sshd = sshd.with_libvirt(),
            // A socket whose process has ended.
            Some(false) => drop(std::os::unix::net::UnixListener::bind(&sshd.dialler.target.socket).unwrap()),
            None => {}
        }
        let refused = sshd.dialler.fails().await;
        assert_eq!(refused.stage, Stage::Socket, "{refused:?}\n{}", sshd.log());
        assert!(matches!(refused.fault, Fault::Unconnected(_)), "{more}: {refused:?}");
        let text = refused.to_string();
        for cause in ["libvirtd runs", "hosts[].socket", "group libvirt", "AllowStreamLocalForwarding"] {
            assert!(text.contains(cause), "{cause} in {text}");
        }
        said.push(format!("{:?}", refused.fault));
    }
    assert!(said.iter().all(|fault| *fault == said[0]), "if sshd told them apart, so could we: {said:?}");
}
