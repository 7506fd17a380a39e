//! When a connection last moved a byte, and what waits on purpose meanwhile.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Shared by both sides of one client's connection.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    last_millis: AtomicU64,
    /// Waits that have a limit of their own: connecting, an answer's head, injected latency.
    waits: AtomicUsize,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner { start: Instant::now(), last_millis: AtomicU64::new(0), waits: AtomicUsize::new(0) }))
    }

    /// A byte moved.
    pub(super) fn touch(&self) {
        let millis = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_millis.store(millis, Ordering::Relaxed);
    }

    /// Runs a wait that has a limit of its own: the connection does not count as idle meanwhile.
    pub(super) async fn waiting<T>(&self, wait: impl Future<Output = T>) -> T {
        struct Guard<'a>(&'a Activity);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.touch();
                self.0.0.waits.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.0.waits.fetch_add(1, Ordering::Relaxed);
        let _guard = Guard(self);
        wait.await
    }

    /// Whether a byte moved within the last `span`.
    pub(super) fn moved_within(&self, span: Duration) -> bool {
        (self.0.start + Duration::from_millis(self.0.last_millis.load(Ordering::Relaxed))).elapsed() < span
    }

    /// Resolves when nothing moved for `limit`.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            let last = self.0.start + Duration::from_millis(self.0.last_millis.load(Ordering::Relaxed));
            if self.0.waits.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(limit).await;
            } else if last.elapsed() >= limit {
                return;
            } else {
                tokio::time::sleep_until(last + limit).await;
            }
        }
    }
}
