//! A network (and a `/dev/shm`) of its own, with addresses that look like the outside and the inside of a cluster, and servers there.

use std::future::Future;
use std::process::Command;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::skip;

/// Nothing that is refused.
pub const OUTSIDE: &str = "203.0.113.7";
/// Private.
pub const INSIDE: &str = "10.1.2.3";

/// See the module. Of the thread that it is made on; everything that this thread opens and starts is in it.
pub struct Place(());

impl Place {
    /// `None`: the calling test is skipped.
    pub fn find(test: &str) -> Option<Self> {
        if !super::process::there(test, super::process::SQUID) {
            return None;
        }
        if !nix::unistd::geteuid().is_root() {
            skip(test, "a network namespace takes root");
            return None;
        }
        Some(Self(()))
    }

    /// Runs a test inside, on a thread of its own: a thread that left its network cannot come back.
    pub fn run<F: Future<Output = ()>>(self, test: impl FnOnce(Inside) -> F + Send + 'static) {
        let inside = move || {
            use nix::sched::{CloneFlags, unshare};
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("namespaces of its own");
            for command in [
                "ip link set lo up",
                "ip addr add 203.0.113.7/32 dev lo",
                "ip addr add 10.1.2.3/32 dev lo",
                "ip addr add 169.254.169.254/32 dev lo",
                // Every Squid would find the others' shared memory.
                "mount --make-rprivate /",
                "mount -t tmpfs tmpfs /dev/shm",
            ] {
                let mut words = command.split(' ');
                let done = Command::new(words.next().unwrap()).args(words).status().unwrap();
                assert!(done.success(), "{command}");
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(test(Inside(())));
        };
        if let Err(panic) = std::thread::spawn(inside).join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Proof that one is inside.
pub struct Inside(());

/// A server that answers a GET and echoes everything else.
pub struct Origin {
    seen: Arc<Mutex<Vec<String>>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Origin {
    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// What came last.
    pub fn last(&self) -> String {
        self.seen.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

impl Inside {
    pub async fn origin(&self, host: &str, port: u16) -> Origin {
        let listener = TcpListener::bind(super::address(host, port)).await.unwrap();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                noted.lock().unwrap().push(String::new());
                let noted = Arc::clone(&noted);
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                        let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
                        let http = text.starts_with("GET ");
                        noted.lock().unwrap().push(text);
                        let answer: &[u8] =
                            if http { b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok" } else { &buffer[..n] };
                        if stream.write_all(answer).await.is_err() || http {
                            break;
                        }
                    }
                });
            }
        });
        Origin { seen, accepting }
    }
}
