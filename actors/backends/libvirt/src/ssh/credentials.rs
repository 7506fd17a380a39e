//! Key and known_hosts, read on every dial, so that a rotation needs no restart (LV-84, LV-85).

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egress_config::open;
use russh::keys::{PrivateKey, decode_secret_key};

use super::fault::CredentialFault;
use super::known_hosts::KnownHosts;

/// Where they are.
#[derive(Debug, Clone)]
pub struct Files {
    /// The private key.
    pub key: PathBuf,
    /// Which host keys are trusted; `None` trusts any (`insecureIgnoreHostKey`).
    pub known_hosts: Option<PathBuf>,
}

/// What a dial needs. `Debug` prints nothing of the key.
pub struct Credentials {
    pub(super) key: Arc<PrivateKey>,
    /// `None` trusts any host key.
    pub(super) known_hosts: Option<KnownHosts>,
}

impl Credentials {
    /// Reads and parses both. No error repeats anything of what is in them.
    pub async fn read(files: &Files) -> Result<Self, CredentialFault> {
        let key = read(&files.key, "ssh key file").await?;
        let key = parse_key(&key).map_err(|what| CredentialFault::Unparsable {
            what: "ssh key file",
            path: files.key.clone(),
            fault: what.to_owned(),
        })?;
        let known_hosts = match &files.known_hosts {
            Some(path) => {
                let text = read(path, "known_hosts file").await?;
                let known = KnownHosts::parse(&String::from_utf8_lossy(&text));
                Some(known.map_err(|fault| CredentialFault::Unparsable {
                    what: "known_hosts file",
                    path: path.clone(),
                    fault: fault.to_string(),
                })?)
            }
            None => None,
        };
        Ok(Self { key: Arc::new(key), known_hosts })
    }

    /// What a person should hear about the known_hosts file.
    pub fn remarks(&self) -> Vec<String> {
        self.known_hosts.as_ref().map(KnownHosts::remarks).unwrap_or_default()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("host_keys", &self.known_hosts.is_some()).finish_non_exhaustive()
    }
}

async fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, CredentialFault> {
    let at = path.to_owned();
    let read = tokio::task::spawn_blocking(move || open::read(&at)).await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
    read.map_err(|error| CredentialFault::Unreadable { what, path: path.to_owned(), fault: error.to_string() })
}

/// The words are our own: a parser's might quote what it read.
fn parse_key(bytes: &[u8]) -> Result<PrivateKey, &'static str> {
    const NOT_ONE: &str = "it is no private key in OpenSSH's format, PKCS#8 or PKCS#1";
    let text = std::str::from_utf8(bytes).map_err(|_| NOT_ONE)?;
    match decode_secret_key(text, None) {
        Ok(key) if key.is_encrypted() => Err("it is encrypted: use a key without a passphrase"),
        Ok(key) => Ok(key),
        Err(russh::keys::Error::KeyIsEncrypted) => Err("it is encrypted: use a key without a passphrase"),
        Err(_) if text.contains("PUBLIC KEY") || text.starts_with("ssh-") => Err("it is a public key, and the private one is needed"),
        Err(_) if text.contains("ENCRYPTED") => Err("it is encrypted: use a key without a passphrase"),
        Err(_) => Err(NOT_ONE),
    }
}

#[cfg(test)]
mod tests;
