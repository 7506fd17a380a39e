//! The operator as people run it: the built binary as a process of its own, on free ports, in a folder of its own.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::http::Client;
use super::{eventually, free_port};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_egress-proxies-operator");

/// A folder with `manifests/` and `state/`, and the flags of a standalone run in it. Survives restarts of the process.
#[derive(Debug)]
pub struct Site {
    pub dir: TempDir,
    pub discovery: u16,
    pub debug: u16,
    pub metrics: u16,
    pub health: u16,
    /// Further flags.
    pub flags: Vec<String>,
    /// Further environment.
    pub env: Vec<(String, String)>,
}

impl Site {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("manifests")).unwrap();
        Self {
            dir,
            discovery: free_port(),
            debug: free_port(),
            metrics: free_port(),
            health: free_port(),
            flags: vec!["--log-format".to_owned(), "json".to_owned()],
            env: Vec::new(),
        }
    }

    pub fn flag(mut self, name: &str, value: impl Into<String>) -> Self {
        self.flags.extend([name.to_owned(), value.into()]);
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn manifests(&self) -> PathBuf {
        self.path("manifests")
    }

    /// Writes a manifest as a careful editor does: whole, then renamed into place.
    pub fn write(&self, name: &str, text: &str) {
        let temporary = self.manifests().join(format!(".{name}.new"));
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, self.manifests().join(name)).unwrap();
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.manifests().join(name)).unwrap();
    }

    /// Standalone with the manifests folder.
    pub fn start(&self) -> Operator {
        let manifests = self.manifests();
        self.start_with(&["--manifests", manifests.to_str().unwrap()])
    }

    /// Standalone with exactly these arguments besides addresses, state folder and `flags`.
    pub fn start_with(&self, args: &[&str]) -> Operator {
        let mut command = Command::new(BINARY);
        command
            .arg("standalone")
            .args(["--state", self.path("state").to_str().unwrap()])
            .args(["--discovery-bind-address", &format!("127.0.0.1:{}", self.discovery)])
            .args(["--debug-bind-address", &format!("127.0.0.1:{}", self.debug)])
            .args(["--metrics-bind-address", &format!("127.0.0.1:{}", self.metrics)])
            .args(["--health-probe-bind-address", &format!("127.0.0.1:{}", self.health)])
            .args(args)
            .args(&self.flags)
            .env_remove("DISCOVERY_TOKEN")
            .envs(self.env.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the operator starts");
        let (stdout, stderr) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        Operator {
            child,
            stdout,
            stderr,
            api: Client::new(format!("127.0.0.1:{}", self.discovery)),
            debug: Client::new(format!("127.0.0.1:{}", self.debug)),
            metrics: Client::new(format!("127.0.0.1:{}", self.metrics)),
            health: Client::new(format!("127.0.0.1:{}", self.health)),
        }
    }
}

/// The lines of a stream, as they come.
pub fn lines(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// A running operator; killed when dropped.
#[derive(Debug)]
pub struct Operator {
    pub child: Child,
    pub stdout: Receiver<String>,
    pub stderr: Receiver<String>,
    pub api: Client,
    pub debug: Client,
    pub metrics: Client,
    pub health: Client,
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Operator {
    /// `kill -9`, and waits for the process to be gone. Answers all that it logged and nobody has read yet.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.stderr.iter().collect()
    }

    /// SIGTERM, and waits for the exit.
    pub async fn terminate(&mut self) -> ExitStatus {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id().cast_signed()), nix::sys::signal::Signal::SIGTERM).unwrap();
        self.exit().await
    }

    /// Waits for the process to end by itself.
    pub async fn exit(&mut self) -> ExitStatus {
        let child = std::cell::RefCell::new(&mut self.child);
        eventually("the process ends", Duration::from_secs(30), || async { child.borrow_mut().try_wait().unwrap() }).await
    }

    /// Waits until the discovery API answers.
    pub async fn up(self) -> Self {
        let api = self.api.clone();
        eventually("the discovery API answers", Duration::from_secs(20), || {
            let api = api.clone();
            async move { api.try_send(http::Method::GET, "/readyz", None).await.ok().filter(|a| a.status == 200) }
        })
        .await;
        self
    }

    /// The proxy item, once it has that phase.
    pub async fn wait_phase(&self, key: &str, phase: &str) -> Value {
        eventually(&format!("{key} is {phase}"), Duration::from_secs(30), || async {
            let answer = self.api.try_send(http::Method::GET, &format!("/v1/proxies/{key}"), None).await.ok()?;
            (answer.status == 200).then(|| answer.json()).filter(|item| item["phase"] == phase)
        })
        .await
    }

    /// Waits until the API no longer knows the proxy.
    pub async fn wait_gone(&self, key: &str) {
        eventually(&format!("{key} is gone"), Duration::from_secs(30), || async {
            let answer = self.api.try_send(http::Method::GET, &format!("/v1/proxies/{key}"), None).await.ok()?;
            (answer.status == 404).then_some(())
        })
        .await;
    }

    /// Where this process listens, read from the kernel, each with the inode of its socket: a listener that was closed and
    /// opened again has another one.
    pub fn sockets(&self) -> BTreeMap<SocketAddrV4, u64> {
        sockets_of(self.child.id())
    }

    /// Resident memory in KiB: now and at its highest.
    pub fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok()).unwrap();
        (of("VmRSS:"), of("VmHWM:"))
    }

    /// How many files the process has open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

/// Where a process listens on IPv4, with the inodes of the sockets.
pub fn sockets_of(pid: u32) -> BTreeMap<SocketAddrV4, u64> {
    let inodes: HashSet<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let socket = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let inode = *words.get(9)?;
        if *words.get(3)? != "0A" || !inodes.contains(inode) {
            return None;
        }
        let (ip, port) = words[1].split_once(':')?;
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_le_bytes());
        Some((SocketAddrV4::new(ip, u16::from_str_radix(port, 16).ok()?), inode.parse().ok()?))
    };
    std::fs::read_to_string("/proc/net/tcp").unwrap().lines().skip(1).filter_map(socket).collect()
}

/// Every file below a folder, with its content; for what must or must not be on disk.
pub fn files_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if let Ok(content) = std::fs::read(&path) {
            found.push((path, content));
        }
    }
    found
}
