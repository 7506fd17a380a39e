//! What the election is told and what it says.

use std::sync::Arc;
use std::time::Duration;

/// A holder that gives the Lease up leaves it without a name and for this long; only then nobody waits.
pub(crate) const RELEASED: Duration = Duration::from_secs(1);

/// Who we are, and the flags.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Our identity.
    pub(crate) me: Arc<str>,
    /// How long a Lease lasts; in whole seconds, as it is written.
    pub(crate) lease: Duration,
    /// How long a leader that could not renew goes on; less than `lease`.
    pub(crate) renew_deadline: Duration,
    /// Between two renewals; less than `renew_deadline`.
    pub(crate) retry: Duration,
}

impl Terms {
    /// A follower looks this often: a Lease given up is taken within it.
    pub(super) fn look(&self) -> Duration {
        self.retry / 2
    }

    /// A leader whose renewal failed tries again after this.
    pub(super) fn again(&self) -> Duration {
        self.retry / 4
    }
}

/// Both clocks, read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Now {
    /// Monotonic, since whatever instant.
    pub(crate) mono: Duration,
    /// The wall's, in microseconds: written into the Lease.
    pub(crate) wall: i64,
}

/// What of a Lease matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// `resourceVersion`.
    pub(crate) version: Arc<str>,
    /// `holderIdentity`; empty is none.
    pub(crate) holder: Option<Arc<str>>,
    /// `leaseDurationSeconds`.
    pub(crate) lasts: Option<Duration>,
    /// `renewTime`, in microseconds; compared for equality only.
    pub(crate) renewed: Option<i64>,
    /// `leaseTransitions`.
    pub(crate) transitions: i32,
    /// The annotation of LS-10.
    pub(crate) address: Option<Arc<str>>,
}

/// What happened.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// Time passed.
    Tick,
    /// The answer to [`Effect::Look`].
    Looked(Result<Option<Record>, String>),
    /// The answer to [`Effect::Write`].
    Wrote {
        /// When the request was about to be sent.
        sent: Duration,
        /// What came of it.
        outcome: Outcome,
    },
    /// Nothing is left of the branch that the last leadership had started.
    Cleared,
}

/// What came of a write.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// The Lease as it is now.
    Done(Record),
    /// Somebody else wrote first.
    Conflict,
    /// There is no such Lease any more.
    Gone,
    /// Refused, or nobody knows: it may still be carried out.
    Failed(String),
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Read the Lease.
    Look,
    /// Write it.
    Write(Write),
    /// Leadership holds until then.
    Extend(Duration),
    /// We lead: start the branch.
    Lead,
    /// Could not renew in time; what the branch sends stops at its own doors.
    Fenced,
    /// Renewed after all.
    Renewed,
    /// The Lease we hold was deleted or cleared; it is written again.
    Disowned,
    /// Close the fence and stop the branch; [`Input::Cleared`] when nothing of it is left.
    Lose,
    /// Another leads, or nobody does.
    Follow {
        /// Who.
        leader: Option<Arc<str>>,
        /// Where its API is.
        address: Option<Arc<str>>,
    },
    /// Calls began to fail.
    Trouble(String),
    /// Calls succeed again.
    Well,
}

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    /// Over this version; without one the Lease is created.
    pub(crate) base: Option<Arc<str>>,
    /// `renewTime`.
    pub(crate) stamp: i64,
    /// The holder changes with it.
    pub(crate) takes: bool,
}
