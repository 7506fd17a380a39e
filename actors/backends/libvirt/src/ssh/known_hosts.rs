//! A known_hosts file: which keys are trusted for a host (LV-86). Pure.
//!
//! The reader of lines is `ssh-key`'s. Matching is our own: russh's helper ignores markers and wildcards, and takes a host
//! with an old and a new key for a changed one.

use hmac::{Hmac, KeyInit as _, Mac as _};
use russh::keys::HashAlg;
use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, Marker};
use russh::keys::ssh_key::{Algorithm, PublicKey};
use sha1::Sha1;

/// The lines of a file that count.
#[derive(Debug, Clone, Default)]
pub struct KnownHosts {
    entries: Vec<Entry>,
    authorities: usize,
    unreadable: Vec<usize>,
}

/// What a file says about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The host may have this key.
    Trusted,
    /// The file has no key of this host.
    Unknown,
    /// It has others.
    Changed,
    /// It says that this key must not be used any more.
    Revoked,
}

/// A line that revokes a key and cannot be read: to skip it would be to trust the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} revokes a key and cannot be read")]
pub struct UnreadableRevocation {
    /// Counted from 1.
    pub line: usize,
}

/// The name under which a file lists a host: with its port in brackets unless it is 22.
pub fn lookup_name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == 22 { host } else { format!("[{host}]:{port}") }
}

impl KnownHosts {
    /// Reads a file. A line that does not parse is skipped, see [`remarks`](Self::remarks); one that revokes a key is not.
    pub fn parse(text: &str) -> Result<Self, UnreadableRevocation> {
        let mut known = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            // OpenSSH takes tabs and runs of blanks, the reader one blank.
            let line = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match line.parse::<Entry>() {
                Ok(entry) if entry.marker() == Some(&Marker::CertAuthority) => known.authorities += 1,
                Ok(entry) => known.entries.push(entry),
                Err(_) if line.starts_with(Marker::Revoked.as_str()) => return Err(UnreadableRevocation { line: number }),
                Err(_) if line.starts_with(Marker::CertAuthority.as_str()) => known.authorities += 1,
                Err(_) => known.unreadable.push(number),
            }
        }
        Ok(known)
    }

    /// What a person should hear about the file. It quotes nothing of it.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.authorities > 0 {
            remarks.push(format!("{} @cert-authority lines are ignored: host certificates are not supported", self.authorities));
        }
        if let Some(first) = self.unreadable.first() {
            remarks.push(format!("{} lines cannot be read and are skipped, the first is line {first}", self.unreadable.len()));
        }
        remarks
    }

    /// The algorithms of the keys that a host may have, for the host to choose from: else it would offer one that is not
    /// listed. Empty if there is none.
    pub fn algorithms(&self, name: &str) -> Vec<Algorithm> {
        let mut algorithms = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.marker().is_none() && matches(entry.host_patterns(), name)) {
            let offered = match entry.public_key().algorithm() {
                Algorithm::Rsa { .. } => {
                    vec![Algorithm::Rsa { hash: Some(HashAlg::Sha512) }, Algorithm::Rsa { hash: Some(HashAlg::Sha256) }]
                }
                other => vec![other],
            };
            algorithms.extend(offered);
        }
        algorithms.sort_unstable_by_key(preference);
        algorithms.dedup();
        algorithms
    }

    /// What the file says about a host's key.
    pub fn judge(&self, name: &str, key: &PublicKey) -> Verdict {
        let mut verdict = Verdict::Unknown;
        for entry in self.entries.iter().filter(|entry| matches(entry.host_patterns(), name)) {
            // Equality of keys would count their comments.
            let same = entry.public_key().key_data() == key.key_data();
            match (entry.marker(), same) {
                (Some(Marker::Revoked), true) => return Verdict::Revoked,
                (Some(_), _) => {}
                (None, true) => verdict = Verdict::Trusted,
                (None, false) if verdict == Verdict::Unknown => verdict = Verdict::Changed,
                (None, false) => {}
            }
        }
        verdict
    }
}

fn preference(algorithm: &Algorithm) -> (u8, String) {
    let rank = match algorithm {
        Algorithm::Ed25519 => 0,
        Algorithm::Ecdsa { .. } => 1,
        Algorithm::Rsa { hash: Some(HashAlg::Sha512) } => 2,
        Algorithm::Rsa { .. } => 3,
        _ => 4,
    };
    (rank, algorithm.to_string())
}

fn matches(patterns: &HostPatterns, name: &str) -> bool {
    match patterns {
        HostPatterns::HashedName { salt, hash } => {
            // HMAC takes a key of any length.
            Hmac::<Sha1>::new_from_slice(salt).is_ok_and(|hmac| hmac.chain_update(name).verify_slice(hash).is_ok())
        }
        HostPatterns::Patterns(patterns) => {
            let mut hit = false;
            for pattern in patterns {
                match pattern.strip_prefix('!') {
                    Some(but) if glob(but.as_bytes(), name.as_bytes()) => return false,
                    Some(_) => {}
                    None => hit |= glob(pattern.as_bytes(), name.as_bytes()),
                }
            }
            hit
        }
    }
}

/// `*` stands for anything, `?` for one character. Each `*` is tried again at most once for each character of the name.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut again = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                again = Some((p + 1, n));
                p += 1;
            }
            Some(wanted) if *wanted == b'?' || wanted.eq_ignore_ascii_case(&name[n]) => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((after, tried)) = again else { return false };
                again = Some((after, tried + 1));
                p = after;
                n = tried + 1;
            }
        }
    }
    pattern[p..].iter().all(|rest| *rest == b'*')
}

#[cfg(test)]
mod tests;
