//! Squid as a Pod runs it: process 1's command, without privileges; and a client of it.

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};

use crate::support::skip;

pub const SQUID: &str = "/usr/sbin/squid";
/// Debian's `proxy`.
const USER: u32 = 13;
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a program is there; else the calling test is skipped.
pub fn there(test: &str, program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        skip(test, &format!("{program} is not there"));
    }
    there
}

fn folder(text: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("squid.conf");
    std::fs::write(&file, text).unwrap();
    Command::new("chmod").args(["-R", "a+rX"]).arg(dir.path()).status().unwrap();
    (dir, file)
}

fn unprivileged(command: &mut Command) -> &mut Command {
    if nix::unistd::geteuid().is_root() { command.uid(USER).gid(USER) } else { command }
}

/// `squid -k parse`: whether it is taken, and what was said.
pub fn parse(text: &str) -> (bool, String) {
    let (_dir, file) = folder(text);
    let done = unprivileged(Command::new(SQUID).args(["-k", "parse", "-f"]).arg(file)).output().unwrap();
    (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// A library that tells Squid that the limit of descriptors is 2^30, which this machine may not let us have.
pub struct Shim {
    dir: TempDir,
    limit: u64,
}

impl Shim {
    fn library(&self) -> PathBuf {
        self.dir.path().join("limit.so")
    }
}

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
static rlim_t most(void) { return strtoull(getenv("IT_NOFILE"), 0, 10); }
static rlim_t now;
static int get(int what, struct rlimit *limit) {
    if (what == RLIMIT_NOFILE) { limit->rlim_max = most(); limit->rlim_cur = now ? now : most(); return 0; }
    return syscall(SYS_prlimit64, 0, what, 0, limit);
}
static int set(int what, const struct rlimit *limit) {
    if (what == RLIMIT_NOFILE) { now = limit->rlim_cur; return 0; }
    return syscall(SYS_prlimit64, 0, what, limit, 0);
}
int getrlimit(__rlimit_resource_t what, struct rlimit *limit) { return get(what, limit); }
int setrlimit(__rlimit_resource_t what, const struct rlimit *limit) { return set(what, limit); }
int getrlimit64(__rlimit_resource_t what, struct rlimit64 *limit) { return get(what, (struct rlimit *)limit); }
int setrlimit64(__rlimit_resource_t what, const struct rlimit64 *limit) { return set(what, (const struct rlimit *)limit); }
"#;

/// `None`: the calling test is skipped.
pub fn unlimited(test: &str) -> Option<Shim> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("limit.c");
    std::fs::write(&source, SOURCE).unwrap();
    let shim = Shim { dir, limit: 1 << 30 };
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(shim.library()).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        skip(test, "no C compiler, to have Squid see a limit of 2^30");
        return None;
    }
    Command::new("chmod").args(["-R", "a+rX"]).arg(shim.dir.path()).status().unwrap();
    Some(shim)
}

/// The same with another limit.
pub fn limited_to(shim: &Shim, limit: u64) -> Shim {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(shim.library(), dir.path().join("limit.so")).unwrap();
    Command::new("chmod").args(["-R", "a+rX"]).arg(dir.path()).status().unwrap();
    Shim { dir, limit }
}

/// A running one. Killed when it is dropped.
pub struct Squid {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Drop for Squid {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Squid {
    pub async fn start(text: &str, port: u16, shim: Option<&Shim>) -> Self {
        match Self::try_start(text, port, shim, PATIENCE).await {
            Ok(squid) => squid,
            Err(log) => panic!("squid does not listen on {port}:\n{log}"),
        }
    }

    /// The error is its log.
    pub async fn try_start(text: &str, port: u16, shim: Option<&Shim>, patience: Duration) -> Result<Self, String> {
        let (dir, file) = folder(text);
        let log = std::fs::File::create(dir.path().join("stderr")).unwrap();
        let mut command = Command::new(SQUID);
        command.args(["-N", "-f"]).arg(file).current_dir("/").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if let Some(shim) = shim {
            command.env("LD_PRELOAD", shim.library()).env("IT_NOFILE", shim.limit.to_string());
        }
        let child = unprivileged(&mut command).spawn().unwrap();
        let mut squid = Self { child, port, dir };
        let deadline = Instant::now() + patience;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if squid.child.try_wait().unwrap().is_some() || Instant::now() > deadline {
                return Err(squid.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(squid)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr")).unwrap()
    }

    /// The first line with that text.
    pub fn said(&self, text: &str) -> String {
        self.log().lines().find(|line| line.contains(text)).unwrap_or_default().to_owned()
    }

    /// Resident memory now.
    pub fn resident_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }

    /// Files that it has open for writing, its standard error and shared memory aside.
    pub fn written(&self) -> Vec<String> {
        let all = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let targets = all.filter_map(|fd| {
            let fd = fd.unwrap();
            let number = fd.file_name().into_string().unwrap();
            let info = std::fs::read_to_string(format!("/proc/{}/fdinfo/{number}", self.child.id())).ok()?;
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim().to_owned();
            let writes = i64::from_str_radix(&flags, 8).unwrap() & 0b11 != 0;
            let target = std::fs::read_link(fd.path()).ok()?.display().to_string();
            let known = target == "/dev/null" || target.starts_with("/dev/shm/") || target.ends_with("/stderr");
            (writes && target.starts_with('/') && !known).then_some(target)
        });
        targets.collect()
    }

    /// Ended by SIGTERM, as a kubelet does; how long that took.
    pub async fn stop(&mut self) -> Duration {
        let started = Instant::now();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}: {}", self.log());
                return started.elapsed();
            }
            assert!(started.elapsed() < PATIENCE, "it does not end: {}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn open(&self, from: Option<IpAddr>) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(from) = from {
            socket.bind((from, 0).into()).unwrap();
        }
        socket.connect((IpAddr::from([127, 0, 0, 1]), self.port).into()).await.unwrap()
    }

    /// The status of a CONNECT.
    pub async fn connect(&self, target: &str) -> u16 {
        self.connect_from(None, target).await
    }

    pub async fn connect_from(&self, from: Option<IpAddr>, target: &str) -> u16 {
        let mut stream = self.open(from).await;
        connected(&mut stream, target).await
    }

    /// What comes back through a tunnel.
    pub async fn tunnelled(&self, target: &str, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.open(None).await;
        assert_eq!(connected(&mut stream, target).await, 200);
        stream.write_all(bytes).await.unwrap();
        let mut back = vec![0; bytes.len()];
        timeout(PATIENCE, stream.read_exact(&mut back)).await.unwrap().unwrap();
        back
    }

    /// Status and all of the answer of a GET.
    pub async fn fetch(&self, url: &str) -> (u16, String) {
        let mut stream = self.open(None).await;
        let request = format!("GET {url} HTTP/1.1\r\nHost: 198.51.100.9\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        (status(&answer), answer)
    }
}

async fn connected(stream: &mut TcpStream, target: &str) -> u16 {
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match timeout(PATIENCE, stream.read_u8()).await.unwrap() {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    status(&String::from_utf8_lossy(&head))
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
}
