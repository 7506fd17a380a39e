//! The pool's ports: picked once, kept in the state folder, picked anew when taken.

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use egress_config::open;
use serde::{Deserialize, Serialize};

use super::LOOPBACK;

const FILE: &str = "demonstration.json";

/// What is kept.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    endpoint_port: u16,
    proxy_ports: Vec<u16>,
}

/// What is used.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) endpoint: TcpListener,
    pub(super) proxies: Vec<u16>,
}

pub(super) fn settle(state: &Path, proxies: usize) -> io::Result<Ports> {
    let path = state.join(FILE);
    // What cannot be read is picked anew: it is only ports.
    let kept: Kept = open::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let endpoint = free(Some(kept.endpoint_port))?;
    let held = (0..proxies).map(|at| free(kept.proxy_ports.get(at).copied())).collect::<io::Result<Vec<_>>>()?;
    let ports = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    let now = Kept { endpoint_port: ports(&endpoint)?, proxy_ports: held.iter().map(ports).collect::<io::Result<_>>()? };
    if now != kept {
        write(&path, &now)?;
    }
    Ok(Ports { endpoint, proxies: now.proxy_ports })
}

/// A listener on the wanted port, or on any when that is taken.
fn free(wanted: Option<u16>) -> io::Result<TcpListener> {
    let wanted = wanted.unwrap_or(0);
    TcpListener::bind((LOOPBACK, wanted)).or_else(|error| match wanted {
        0 => Err(error),
        _ => TcpListener::bind((LOOPBACK, 0)),
    })
}

fn write(path: &Path, kept: &Kept) -> io::Result<()> {
    let temporary = path.with_extension("json.new");
    let mut file = open::with(fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600), &temporary)?;
    file.write_all(&serde_json::to_vec_pretty(kept)?)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn ports_are_kept_and_a_taken_one_is_picked_anew_op_2() {
        let state = tempfile::tempdir().unwrap();
        let first = settle(state.path(), 5).unwrap();
        let endpoint = first.endpoint.local_addr().unwrap();
        let ports = first.proxies.clone();
        assert_eq!(ports.len(), 5);
        drop(first);
        let taken = TcpListener::bind((LOOPBACK, ports[2])).unwrap();
        let second = settle(state.path(), 5).unwrap();
        assert_eq!(second.endpoint.local_addr().unwrap(), endpoint);
        for at in [0, 1, 3, 4] {
            assert_eq!(second.proxies[at], ports[at]);
        }
        assert_ne!(second.proxies[2], ports[2]);
        let moved = second.proxies.clone();
        drop((second, taken));
        assert_eq!(settle(state.path(), 5).unwrap().proxies, moved, "what was picked anew is kept");
        let mode = fs::metadata(state.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_broken_file_is_picked_anew() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join(FILE), b"{").unwrap();
        assert_eq!(settle(state.path(), 5).unwrap().proxies.len(), 5);
    }
}
