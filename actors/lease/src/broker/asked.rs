//! Requests that may have to wait: a new selector is looked at in bites, between the messages of others.

use egress_protocol::Reply;
use egress_protocol::lease::{Caller, Explain, GrantRequest, LeaseError, LeaseView};
use egress_supervision::{Context, Failure};

use super::{BrokerActor, BrokerInternal};
use crate::book::Prepared;

/// A request, and who waits for its answer.
#[derive(Debug)]
pub(super) enum Asked {
    /// LS-2.
    Grant(Box<GrantRequest>, Caller, Reply<Result<LeaseView, LeaseError>>),
    /// LS-17.
    Explain(Box<GrantRequest>, Caller, Reply<Explain>),
}

impl Asked {
    fn request(&self) -> (&GrantRequest, &Caller) {
        match self {
            Self::Grant(request, caller, _) | Self::Explain(request, caller, _) => (request, caller),
        }
    }

    fn is_abandoned(&self) -> bool {
        match self {
            Self::Grant(.., reply_to) => reply_to.is_closed(),
            Self::Explain(.., reply_to) => reply_to.is_closed(),
        }
    }
}

impl BrokerActor {
    /// Answers now, or when it is known what the selector names.
    pub(super) fn decide(&mut self, ctx: &Context<Self>, asked: Asked) -> Result<(), Failure> {
        let (request, caller) = asked.request();
        match self.book.prepare(request, caller, ctx.now()) {
            Prepared::Ready => self.answer_asked(ctx, asked),
            Prepared::Busy => {
                // An explanation has no form for it: whoever asked sees that the broker let go.
                if let Asked::Grant(.., reply_to) = asked {
                    let _gone = reply_to.send(Err(LeaseError::Busy));
                }
                self.settle(ctx)
            }
            Prepared::Waits(work) => {
                if self.waiting.is_empty() {
                    ctx.tell(BrokerInternal::Work);
                }
                self.waiting.entry(work).or_default().push(asked);
                self.settle(ctx)
            }
        }
    }

    fn answer_asked(&mut self, ctx: &Context<Self>, asked: Asked) -> Result<(), Failure> {
        match asked {
            Asked::Grant(request, caller, reply_to) => self.grant(ctx, &request, &caller, reply_to),
            Asked::Explain(request, caller, reply_to) => {
                let _gone = reply_to.send(self.book.explain_prepared(&request, &caller, ctx.now()));
                self.settle(ctx)
            }
        }
    }

    /// One bite; the next comes after what others sent meanwhile.
    pub(super) fn work(&mut self, ctx: &Context<Self>) -> Result<(), Failure> {
        let Some(next) = self.book.next_work() else { return Ok(()) };
        let waiting = self.waiting.entry(next).or_default();
        waiting.retain(|asked| !asked.is_abandoned());
        let mut done = Vec::new();
        if waiting.is_empty() {
            self.waiting.remove(&next);
            self.book.abandon_work();
        } else if let Some(finished) = self.book.work(ctx.now()).finished {
            done = self.waiting.remove(&finished).unwrap_or_default();
        }
        if !self.waiting.is_empty() {
            ctx.tell(BrokerInternal::Work);
        }
        for asked in done {
            self.answer_asked(ctx, asked)?;
        }
        Ok(())
    }
}
