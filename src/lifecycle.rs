//! Where the process stands between its start and its end; read by readiness and by every lease call (OP-5).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const STARTED: u8 = 1;
const STOPPING: u8 = 2;

/// Moves one way only. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle(Arc<AtomicU8>);

impl Lifecycle {
    /// Every part runs.
    pub fn set_started(&self) {
        self.0.fetch_max(STARTED, Ordering::Relaxed);
    }

    /// The end has begun: not ready, and no lease call is served.
    pub fn set_stopping(&self) {
        self.0.fetch_max(STOPPING, Ordering::Relaxed);
    }

    /// Whether every part has run.
    pub fn started(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= STARTED
    }

    /// Whether the end has begun.
    pub fn stopping(&self) -> bool {
        self.0.load(Ordering::Relaxed) == STOPPING
    }
}
