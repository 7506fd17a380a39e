//! Whether the other side is still there.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// How long silence lasts before the other side is asked (LV-81).
pub(crate) const DEFAULT: Duration = Duration::from_secs(15);

/// Counts silence. Bytes from the other side end it; so do bytes of an upload, which may be long on a slow line. That we
/// ask is no sign of life.
pub(crate) struct Keepalive {
    interval: Duration,
    asked: bool,
    /// Made by the first poll, so that a link can be made outside a runtime.
    timer: Option<Pin<Box<Sleep>>>,
}

/// What is to be done.
pub(crate) enum Beat {
    Wait,
    /// Ask it.
    Ask,
    /// It was asked and did not answer for so long.
    Dead(Duration),
}

impl Keepalive {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval: if interval.is_zero() { DEFAULT } else { interval }, asked: false, timer: None }
    }

    /// `heard`: bytes came since the last poll; `uploaded`: bytes of an upload went.
    pub(crate) fn poll(&mut self, heard: bool, uploaded: bool, context: &mut Context<'_>) -> Beat {
        let next = Instant::now() + self.interval;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
        if heard {
            self.asked = false;
        }
        if heard || uploaded {
            timer.as_mut().reset(next);
        }
        if timer.as_mut().poll(context).is_pending() {
            return Beat::Wait;
        }
        if self.asked {
            return Beat::Dead(self.interval);
        }
        self.asked = true;
        timer.as_mut().reset(next);
        // To be woken at the new time.
        let _ = timer.as_mut().poll(context);
        Beat::Ask
    }
}

impl fmt::Debug for Keepalive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keepalive").field("interval", &self.interval).field("asked", &self.asked).finish_non_exhaustive()
    }
}
