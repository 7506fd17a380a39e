//! What travels with a call into a backend: how it ends, and how it waits for what may take hours (PC-63, PC-64, PC-100).

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::leadership::Fence;
use egress_protocol::message::Reply;
use egress_protocol::provider::Progress;
use egress_supervision::WeakContext;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::BackendError;
use crate::actor::{ProviderActor, ProviderInternal};
use crate::queue::CallId;

/// A call as its backend sees it. Clones are one call.
#[derive(Clone)]
pub struct Call {
    /// The caller gave up, the time is over or the provider stops.
    pub cancel: CancellationToken,
    /// The latest word on it (PC-98).
    pub progress: Progress,
    /// Checked right before each request is sent; when it is closed the call ends as Transient (SV-4).
    pub fence: Fence,
    time: Arc<watch::Sender<TimeLeft>>,
    slot: Option<Slot>,
}

/// How a call's time runs.
#[derive(Debug, Clone, Copy)]
enum TimeLeft {
    Until(Instant),
    /// It stands still while the call waits outside.
    Paused(Duration),
}

/// The slot that a call of a provider's actor holds.
#[derive(Clone)]
struct Slot {
    actor: WeakContext<ProviderActor>,
    id: CallId,
}

/// How a call came to its end before its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// The caller gave up, or the provider stops.
    Cancelled,
    /// Its time is over.
    Overdue,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("time", &*self.time.borrow()).field("cancelled", &self.cancel.is_cancelled()).finish_non_exhaustive()
    }
}

impl Call {
    /// A call that is answered by `deadline`, whatever is spent on waiting (PC-63); open to be cancelled, behind no fence.
    pub fn until(deadline: Instant) -> Self {
        Self {
            cancel: CancellationToken::new(),
            progress: Progress::default(),
            fence: Fence::open(),
            time: Arc::new(watch::Sender::new(TimeLeft::Until(deadline))),
            slot: None,
        }
    }

    /// The same call, cancelled by that token.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancellationToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// The same call behind that fence.
    #[must_use]
    pub fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = fence;
        self
    }

    /// The same call, which says there how it goes.
    #[must_use]
    pub fn with_progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// The same call with a slot at an actor, which it gives back while it waits outside.
    pub(crate) fn with_slot(mut self, actor: WeakContext<ProviderActor>, id: CallId) -> Self {
        self.slot = Some(Slot { actor, id });
        self
    }

    /// When its time is over, if nothing stops it any more.
    pub fn deadline(&self) -> Instant {
        match *self.time.borrow() {
            TimeLeft::Until(at) => at,
            TimeLeft::Paused(left) => Instant::now() + left,
        }
    }

    /// Ends when the call must: each wait of a backend stands beside this.
    pub async fn ended(&self) -> CallEnd {
        let mut time = self.time.subscribe();
        loop {
            let until = match *time.borrow_and_update() {
                TimeLeft::Until(at) => Some(at),
                TimeLeft::Paused(_) => None,
            };
            let over = async {
                match until {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return CallEnd::Cancelled,
                () = over => return CallEnd::Overdue,
                // `self` holds the sender, so this fails never.
                _ = time.changed() => {}
            }
        }
    }

    /// Waits for what may take hours and is not this call's own work: a base image that is fetched for everybody (PC-100).
    ///
    /// Meanwhile the call keeps its instance's name, gives its slot back, and its time stands still; afterwards it waits for
    /// a slot again and its time goes on. Cancelled out here it ends as Transient at once; what it waited for is dropped,
    /// so what must go on for others runs elsewhere (a task of [`crate::Ground`], or of a host).
    pub async fn outside<T>(&self, future: impl Future<Output = T>) -> Result<T, BackendError> {
        let cancelled = || BackendError::transient("cancelled while it waited for what it needs");
        let paused = Paused::new(&self.time);
        if let Some(slot) = &self.slot {
            slot.tell(ProviderInternal::went_outside(slot.id));
        }
        let value = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(cancelled()),
            value = future => value,
        };
        drop(paused);
        if let Some(slot) = &self.slot {
            let (reply_to, back) = Reply::channel();
            slot.tell(ProviderInternal::wants_back(slot.id, reply_to));
            tokio::select! {
                biased;
                _ = self.ended() => return Err(cancelled()),
                back = back => back.map_err(|_| BackendError::transient("the provider went away while the call waited for a slot"))?,
            }
        }
        Ok(value)
    }
}

impl Slot {
    fn tell(&self, message: ProviderInternal) {
        if let Some(actor) = self.actor.upgrade() {
            actor.tell(message);
        }
    }
}

/// The call's time stands still as long as this lives.
struct Paused<'a>(&'a watch::Sender<TimeLeft>);

impl<'a> Paused<'a> {
    fn new(time: &'a watch::Sender<TimeLeft>) -> Self {
        time.send_modify(|time| {
            if let TimeLeft::Until(at) = *time {
                *time = TimeLeft::Paused(at.saturating_duration_since(Instant::now()));
            }
        });
        Self(time)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|time| {
            if let TimeLeft::Paused(left) = *time {
                *time = TimeLeft::Until(Instant::now() + left);
            }
        });
    }
}
