//! What the tests share.

pub mod admin;
pub mod bed;
pub mod double;
pub mod heard;
pub mod kit;
pub mod relay;

use std::future::Future;
use std::io::Write as _;
use std::sync::OnceLock;

/// The runtime of everything that is not under test: doubles, the admin's client. Its time is real, whatever a test's is.
pub fn outer() -> &'static tokio::runtime::Handle {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let made = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    RUNTIME.get_or_init(made).handle()
}

/// Runs something there, and blocks this thread until it ended.
pub fn outside<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    outer().spawn(async move {
        let _ = sender.send(future.await);
    });
    receiver.recv().expect("it did not panic")
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
