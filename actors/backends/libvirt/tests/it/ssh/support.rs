//! Keys, files and a libvirt of few words.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use egress_backend_libvirt::ssh::{DialError, Driver, Files, Link, Target, Timing, dial};
use egress_libvirt::procedures::ConnectGetHostname;
use egress_libvirt::wire::{self, Header, RemoteError};
use egress_libvirt::xdr;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

/// Skips the calling test by name: loudly, and counted by `tests/run`.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
    if let Some(path) = std::env::var_os("EPO_TEST_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = std::io::Write::write_fmt(&mut file, format_args!("{test}: {why}\n"));
    }
}

/// Where a program is.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A key that is always the same.
pub fn ed25519(seed: u8) -> PrivateKey {
    PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]))
}

/// An RSA key, by ssh-keygen.
pub fn rsa() -> Option<PrivateKey> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("id");
    let made = Command::new(program("ssh-keygen")?).args(["-q", "-t", "rsa", "-b", "2048", "-N", "", "-f"]).arg(&file).status().unwrap();
    assert!(made.success());
    Some(russh::keys::load_secret_key(file, None).unwrap())
}

pub fn pem(key: &PrivateKey) -> String {
    key.to_openssh(LineEnding::LF).unwrap().to_string()
}

pub fn public(key: &PrivateKey) -> String {
    key.public_key().to_openssh().unwrap()
}

/// A client: its files and whom it dials.
pub struct Dialler {
    pub folder: tempfile::TempDir,
    pub files: Files,
    pub target: Target,
    pub timing: Timing,
}

impl Dialler {
    /// With user key 1, for a host on loopback, and an empty known_hosts.
    pub fn new(port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Files { key: folder.path().join("id"), known_hosts: Some(folder.path().join("known_hosts")) };
        let target = Target { host: "127.0.0.1".into(), port, user: "root".into(), socket: "/run/libvirt/libvirt-sock".into() };
        let dialler = Self { folder, files, target, timing: Timing::default() };
        dialler.key(&pem(&ed25519(1)));
        dialler.known_hosts("");
        dialler
    }

    /// Which trusts this key of the host.
    pub fn trusting(port: u16, host: &PrivateKey) -> Self {
        let dialler = Self::new(port);
        dialler.known_hosts(&dialler.line(host));
        dialler
    }

    pub fn line(&self, host: &PrivateKey) -> String {
        format!("[127.0.0.1]:{} {}\n", self.target.port, public(host))
    }

    pub fn key(&self, text: &str) {
        std::fs::write(&self.files.key, text).unwrap();
    }

    pub fn known_hosts(&self, text: &str) {
        std::fs::write(self.files.known_hosts.as_ref().unwrap(), text).unwrap();
    }

    pub async fn dial(&self) -> Result<(Link, Driver), DialError> {
        dial(&self.target, &self.files, self.timing).await
    }

    /// A dial that must fail.
    pub async fn fails(&self) -> DialError {
        self.dial().await.map(drop).unwrap_err()
    }

    /// A dial that must work, up to an answer of libvirt.
    pub async fn works(&self) -> Link {
        let (link, driver) = self.dial().await.unwrap_or_else(|error| panic!("{error}"));
        tokio::spawn(driver);
        assert_eq!(link.client().call(ConnectGetHostname {}, soon()).await.unwrap(), "host-a");
        link
    }
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// How a libvirt behaves.
#[derive(Debug, Clone, Copy)]
pub enum Libvirt {
    Serves,
    /// It refuses authentication by polkit with this code.
    Denies(i32),
    /// It offers only what the client cannot.
    Sasl,
    /// It says this instead, and closes.
    Says(&'static str),
    /// It never answers.
    Silent,
}

/// Plays a libvirt at one end of a stream.
pub async fn libvirt(mut io: impl AsyncRead + AsyncWrite + Unpin, behaves: Libvirt) {
    if let Libvirt::Says(text) = behaves {
        let _ = io.write_all(text.as_bytes()).await;
        let _ = io.shutdown().await;
        return;
    }
    while let Ok(length) = io.read_u32().await {
        let mut call = vec![0; length as usize - 4];
        if io.read_exact(&mut call).await.is_err() || matches!(behaves, Libvirt::Silent) {
            let _ = io.read_to_end(&mut Vec::new()).await;
            return;
        }
        let mut header: Header = xdr::from_bytes(&call[..24]).unwrap();
        header.kind = wire::kind::REPLY;
        let payload = match (header.procedure, behaves) {
            (66, Libvirt::Denies(_)) => xdr::to_bytes(&vec![2_u32]),
            (66, Libvirt::Sasl) => xdr::to_bytes(&vec![1_u32]),
            (66, _) => xdr::to_bytes(&vec![0_u32]),
            (70, Libvirt::Denies(code)) => {
                header.status = wire::status::ERROR;
                xdr::to_bytes(&denial(code))
            }
            (59, _) => xdr::to_bytes(&"host-a".to_owned()),
            _ => Vec::new(),
        };
        if io.write_all(&header.message(&payload)).await.is_err() {
            return;
        }
    }
}

fn denial(code: i32) -> RemoteError {
    let message = Some("authentication unavailable: no polkit agent available".to_owned());
    RemoteError { code, domain: 60, message, level: 2, of: None, str1: None, str2: None, str3: None, int1: 0, int2: 0, network: None }
}
