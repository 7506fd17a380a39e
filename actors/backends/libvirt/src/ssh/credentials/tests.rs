use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;

use super::{Credentials, Files};
use crate::ssh::CredentialFault;

fn key() -> String {
    PrivateKey::from(Ed25519Keypair::from_seed(&[1; 32])).to_openssh(LineEnding::LF).unwrap().to_string()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn files(&self) -> Files {
        Files { key: self.0.path().join("id"), known_hosts: Some(self.0.path().join("known_hosts")) }
    }

    fn write(&self, key: &str, known_hosts: &str) -> Files {
        let files = self.files();
        std::fs::write(&files.key, key).unwrap();
        std::fs::write(files.known_hosts.as_ref().unwrap(), known_hosts).unwrap();
        files
    }
}

#[tokio::test]
async fn what_is_missing_is_named_and_heals_by_itself_lv_85() {
    let folder = Folder::new();
    let missing = Credentials::read(&folder.files()).await.unwrap_err();
    assert!(missing.to_string().starts_with(&format!("reading ssh key file {}: No such file", folder.files().key.display())), "{missing}");
    std::fs::write(folder.files().key, key()).unwrap();
    let missing = Credentials::read(&folder.files()).await.unwrap_err();
    assert!(matches!(&missing, CredentialFault::Unreadable { what: "known_hosts file", .. }), "{missing}");
    folder.write(&key(), "");
    Credentials::read(&folder.files()).await.unwrap();
}

/// Issue 10, 9: reading a FIFO would wait for somebody who writes to it.
#[tokio::test]
async fn what_is_no_regular_file_is_refused_at_once_lv_85() {
    let folder = Folder::new();
    let files = folder.files();
    nix::unistd::mkfifo(&files.key, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let read = tokio::time::timeout(std::time::Duration::from_secs(5), Credentials::read(&files));
    let refused = read.await.expect("it does not wait").unwrap_err();
    assert!(refused.to_string().contains("it is a FIFO, not a regular file"), "{refused}");
}

#[tokio::test]
async fn without_verification_known_hosts_is_not_looked_at_lv_87() {
    let folder = Folder::new();
    let files = Files { known_hosts: None, ..folder.write(&key(), "") };
    assert!(Credentials::read(&files).await.unwrap().known_hosts.is_none());
}

#[tokio::test]
async fn a_file_that_is_no_private_key_is_refused_in_words_that_repeat_nothing_of_it_lv_85() {
    const SENTINEL: &str = "c2VudGluZWwtNzc";
    let encrypted = format!("-----BEGIN ENCRYPTED PRIVATE KEY-----\n{SENTINEL}\n-----END ENCRYPTED PRIVATE KEY-----\n");
    let garbage = format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{SENTINEL}\n-----END OPENSSH PRIVATE KEY-----\n");
    let public = format!("ssh-ed25519 {SENTINEL} operator\n");
    for (text, says) in [
        ("", "no private key"),
        (SENTINEL, "no private key"),
        (&garbage, "no private key"),
        (&garbage.replace("OPENSSH PRIVATE", "PRIVATE"), "no private key"),
        (&garbage.replace("OPENSSH PRIVATE", "RSA PRIVATE"), "no private key"),
        (&key()[..200], "no private key"),
        (&encrypted, "encrypted"),
        (&public, "public key"),
    ] {
        let folder = Folder::new();
        let refused = Credentials::read(&folder.write(text, "")).await.unwrap_err();
        let said = format!("{refused} {refused:?}");
        assert!(matches!(refused, CredentialFault::Unparsable { .. }), "{said}");
        assert!(said.contains("parsing ssh key file") && said.contains(says), "{said}");
        assert!(!said.contains(SENTINEL) && !said.contains("sentinel-77"), "{said}");
    }
}

#[tokio::test]
async fn a_known_hosts_file_that_cannot_be_read_safely_is_refused_without_repeating_it_lv_85_lv_86() {
    let folder = Folder::new();
    let files = folder.write(&key(), "@revoked * ssh-ed25519 c2VudGluZWwtNzc\n");
    let said = Credentials::read(&files).await.unwrap_err().to_string();
    assert!(said.starts_with("parsing known_hosts file") && said.ends_with("line 1 revokes a key and cannot be read"), "{said}");
    let files = folder.write(&key(), "\u{fffd}\n@cert-authority * ssh-ed25519 AAAA\n");
    let credentials = Credentials::read(&files).await.unwrap();
    assert_eq!(credentials.remarks().len(), 2);
    assert!(!format!("{credentials:?}").contains("AAAA"));
}
