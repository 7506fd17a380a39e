//! How a runner is woken: one flag, one waker.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use futures::task::AtomicWaker;

/// Shared by a runner, its parent (which may ask it to stop) and its mailbox (which wakes it). Only the runner's task
/// waits on it, so one waker is enough and nothing is allocated for a wait.
#[derive(Default)]
pub(crate) struct Signal {
    stop: AtomicBool,
    waker: AtomicWaker,
}

impl Signal {
    /// Asks for an orderly stop; never taken back.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// To be called before what is waited for is looked at for the last time.
    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    async fn stopped(&self) {
        poll_fn(|cx| {
            self.register(cx.waker());
            if self.is_stopped() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What the future gives, or `None` when the stop comes first.
    pub(crate) async fn unless_stopped<F: Future>(&self, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.stopped() => None,
            output = future => Some(output),
        }
    }
}
