//! What the whole-system tests share: the operator as a process, an HTTP client, origins to fetch, third-party proxies,
//! and the one way to skip.

pub mod bridge;
pub mod cluster;
pub mod documents;
pub mod forwarder;
pub mod http;
pub mod lab;
pub mod node;
pub mod operator;
pub mod origin;
pub mod pods;
pub mod relay;
pub mod switch;
pub mod third_party;
pub mod wire;

use std::io::Write as _;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Whether the long forms were asked for (`tests/run LONG=1`).
pub fn long() -> bool {
    std::env::var_os("EPO_TEST_LONG").is_some()
}

/// `short` rounds, or `long` ones with `LONG=1`.
pub fn rounds(short: usize, long_form: usize) -> usize {
    if long() { long_form } else { short }
}

/// Skips the calling test by name: loudly, and counted by `tests/run`.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
    if let Some(path) = std::env::var_os("EPO_TEST_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = writeln!(file, "{test}: {why}");
    }
}

/// Waits until `check` yields something, asking every 20 ms; panics with `what` after `limit`.
pub async fn eventually<T, F>(what: &str, limit: Duration, mut check: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A port of loopback nothing listens on now. Not one of those that the kernel gives to outgoing connections, so that it
/// stays free while whoever had it restarts; no two are the same in one run.
pub fn free_port() -> u16 {
    static NEXT: std::sync::LazyLock<AtomicU16> = std::sync::LazyLock::new(|| AtomicU16::new(rand::random_range(0..18_000)));
    loop {
        let port = 12_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 20_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
