//! Who acts (SV-4): the fence that every backend request and every write to the API checks, and what each replica knows
//! of the leader.
//!
//! What must stay true: a fence is opened by its holder only, up to an instant of the monotonic clock; when that instant
//! has passed nothing needs to run for it to be closed, so that a process that was frozen finds it so when it wakes.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::message::{Message, Reply};

/// The id of the actor that holds the Lease.
pub const ACTOR_ID: &str = "leadership";
/// The id of the branch that only a leader runs.
pub const BRANCH_ID: &str = "leader";
/// Where on the Lease the `HOST:PORT` of its holder's discovery API stands (LS-10).
pub const ADDRESS_ANNOTATION: &str = "crawl.example.com/discovery-address";

const CLOSED: u64 = 0;
const OPEN: u64 = u64::MAX;

/// The instant until which this process may act. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Fence {
    inner: Arc<Inner>,
}

struct Inner {
    base: Instant,
    /// Nanoseconds after `base`; [`CLOSED`] is never, [`OPEN`] always.
    until: AtomicU64,
}

/// Leadership does not hold: nothing may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not hold the leadership now: nothing is sent (SV-4)")]
pub struct Fenced;

impl Fence {
    /// For a process without rivals: standalone, or `run` without leader election.
    pub fn open() -> Self {
        Self::with(OPEN)
    }

    /// Until the first [`Fence::extend`].
    pub fn closed() -> Self {
        Self::with(CLOSED)
    }

    fn with(until: u64) -> Self {
        Self { inner: Arc::new(Inner { base: Instant::now(), until: AtomicU64::new(until) }) }
    }

    /// Whether something may be sent now. Ask right before it is sent.
    pub fn check(&self) -> Result<(), Fenced> {
        match self.inner.until.load(Ordering::Acquire) {
            OPEN => Ok(()),
            until if self.nanos(Instant::now()) < until => Ok(()),
            _ => Err(Fenced),
        }
    }

    /// Whether leadership holds now.
    pub fn holds(&self) -> bool {
        self.check().is_ok()
    }

    /// Leadership holds until that instant, whatever was said before.
    pub fn extend(&self, until: Instant) {
        self.inner.until.store(self.nanos(until).clamp(CLOSED + 1, OPEN - 1), Ordering::Release);
    }

    /// Leadership was lost or given up.
    pub fn close(&self) {
        self.inner.until.store(CLOSED, Ordering::Release);
    }

    /// How long it still holds; `None`: for ever.
    pub fn remaining(&self) -> Option<Duration> {
        match self.inner.until.load(Ordering::Acquire) {
            OPEN => None,
            until => Some(Duration::from_nanos(until.saturating_sub(self.nanos(Instant::now())))),
        }
    }

    /// Ends when leadership does: when its instant passes, and at whatever moment somebody looks after it was given up. So
    /// what is polled behind this is never polled by a process that does not lead.
    pub async fn until_closed(&self) {
        // How long a fence without an end is waited for before it is looked at again.
        const A_DAY: Duration = Duration::from_secs(24 * 3600);
        let left = || self.remaining().unwrap_or(A_DAY);
        let mut timer = pin!(tokio::time::sleep(left()));
        poll_fn(|cx| {
            while self.holds() {
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                // It was extended meanwhile.
                timer.as_mut().reset(Instant::now() + left());
            }
            Poll::Ready(())
        })
        .await;
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.inner.base).as_nanos()).unwrap_or(OPEN - 1)
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::open()
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

/// What this replica is, for those who serve HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The only one: no cluster, or no leader election.
    Alone,
    /// It leads; also while it is only fenced.
    Leader,
    /// Another leads, or nobody does.
    Follower {
        /// Who holds the Lease, as seen last.
        leader: Option<Arc<str>>,
        /// `HOST:PORT` of the leader's discovery API, from the Lease's annotation (LS-10).
        address: Option<Arc<str>>,
    },
}

/// What `leadership` is asked.
#[derive(Debug)]
pub enum LeadershipMessage {
    /// How the election stands, for `/readyz?verbose`; answered at once, whatever the API server does.
    State {
        /// The answer.
        reply_to: Reply<LeadershipState>,
    },
}

impl Message for LeadershipMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::State { .. } => "State",
        }
    }
}

/// How the election stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeadershipState {
    /// The Lease was seen once: it is known who leads, if anybody does. Before that a replica can serve nobody.
    pub settled: bool,
    /// What a person should know, one line each; empty when all is well. None of them makes a replica unready.
    pub faults: Vec<String>,
}

/// The [`Standing`] as it is now: written by `leadership`, read by whoever serves. All clones are one.
#[derive(Clone)]
pub struct StandingCell(Arc<Seat>);

struct Seat {
    standing: ArcSwap<Standing>,
    changed: Notify,
}

impl StandingCell {
    /// Starting as that.
    pub fn new(standing: Standing) -> Self {
        Self(Arc::new(Seat { standing: ArcSwap::from_pointee(standing), changed: Notify::new() }))
    }

    /// As it is now.
    pub fn get(&self) -> Arc<Standing> {
        self.0.standing.load_full()
    }

    /// From now on.
    pub fn set(&self, standing: Standing) {
        self.0.standing.store(Arc::new(standing));
        self.0.changed.notify_waiters();
    }

    /// Resolves when it is another one than that.
    pub async fn other_than(&self, standing: &Standing) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if *self.get() != *standing {
                return;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for StandingCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StandingCell").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fence_closes_by_itself_when_its_instant_has_passed() {
        let fence = Fence::closed();
        assert_eq!(fence.check(), Err(Fenced));
        fence.extend(Instant::now() + Duration::from_secs(2));
        assert!(fence.clone().holds(), "all clones are one");
        tokio::time::advance(Duration::from_millis(1999)).await;
        assert!(fence.holds());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(fence.check(), Err(Fenced), "the instant itself is past it");
        fence.extend(Instant::now() + Duration::from_secs(2));
        assert!(fence.holds(), "a leader that renews after all goes on");
        fence.close();
        assert!(!fence.holds());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_without_rivals_is_never_fenced() {
        let fence = Fence::open();
        tokio::time::advance(Duration::from_secs(1 << 40)).await;
        assert_eq!((fence.check(), fence.remaining()), (Ok(()), None));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_another_standing_is_told_once_there_is_one() {
        let nobody = Standing::Follower { leader: None, address: None };
        let cell = StandingCell::new(nobody.clone());
        let writer = cell.clone();
        let (waited, ()) = tokio::join!(
            async {
                cell.other_than(&nobody).await;
                Instant::now()
            },
            async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                writer.set(nobody.clone());
                tokio::time::sleep(Duration::from_secs(1)).await;
                writer.set(Standing::Leader);
            }
        );
        assert_eq!(waited, Instant::now(), "not by the one that says the same");
        cell.other_than(&nobody).await;
    }
}
