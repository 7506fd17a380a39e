//! Answers that leave when the journal has what was done for them.

use egress_protocol::Reply;
use egress_protocol::lease::{Caller, LeaseError, LeaseId, LeaseView, ProxyItem, ReportAnswer};

/// An answer, and who waits for it.
#[derive(Debug)]
pub(super) enum Owed {
    /// A grant: one that nobody waits for any more is taken back.
    Grant(Result<LeaseView, LeaseError>, Caller, Reply<Result<LeaseView, LeaseError>>),
    /// A lease that is asked for or renewed.
    Lease(Result<LeaseView, LeaseError>, Reply<Result<LeaseView, LeaseError>>),
    /// A report.
    Report(Result<ReportAnswer, LeaseError>, Reply<Result<ReportAnswer, LeaseError>>),
    /// A proxy after it was cordoned.
    Item(Box<Result<ProxyItem, LeaseError>>, Reply<Result<ProxyItem, LeaseError>>),
    /// Whatever has no other answer than that it is done.
    Done(Result<(), LeaseError>, Reply<Result<(), LeaseError>>),
}

impl Owed {
    /// Answers, or says that the journal took nothing. A grant that nobody waits for is handed back.
    pub(super) fn pay(self, kept: bool) -> Option<(LeaseId, Caller)> {
        match self {
            Self::Grant(granted, caller, reply_to) => {
                let id = granted.as_ref().ok().filter(|_| kept).map(|view| view.record.id);
                let gone = reply_to.send(if_kept(granted, kept)).is_err();
                return id.filter(|_| gone).map(|id| (id, caller));
            }
            // Whoever asked and left can ask again: all of these may be repeated.
            Self::Lease(answer, reply_to) => drop(reply_to.send(if_kept(answer, kept))),
            Self::Report(answer, reply_to) => drop(reply_to.send(if_kept(answer, kept))),
            Self::Item(answer, reply_to) => drop(reply_to.send(if_kept(*answer, kept))),
            Self::Done(answer, reply_to) => drop(reply_to.send(if_kept(answer, kept))),
        }
        None
    }
}

fn if_kept<T>(answer: Result<T, LeaseError>, kept: bool) -> Result<T, LeaseError> {
    if kept { answer } else { Err(LeaseError::StoreUnavailable) }
}
