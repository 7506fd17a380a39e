//! The lease journal, memory store (LS-9): what the broker must not forget, kept by an actor that outlives it.
//!
//! - *supervised by* the root, irreplaceable: what it keeps cannot be rebuilt, so its first crash ends the process;
//!   *supervises* nothing
//! - *receives* `Append` (from the broker, before an answer leaves) and `Load` (the broker starts); *sends* nothing
//! - *states*: one; while it keeps leases that ended, it looks each second which of them to forget
//! - *failure policy*: none is expected; an end of the process forgets everything, which `/readyz?verbose` says
//!   (`durable: false`)
//!
//! What must stay true: entries are folded in the order they were sent, so that `Load` answers with everything that was
//! appended before it.

mod kept;

use std::time::Duration;

use egress_protocol::lease::JournalMessage;
use egress_protocol::message::Message;
use egress_supervision::{Actor, Context, Failure, Timer};
use serde_json::json;

pub use kept::Kept;

const FORGET_EVERY: Duration = Duration::from_secs(1);
/// How many leases one message forgets.
const BITE: usize = 1024;

/// What the journal needs to know.
#[derive(Debug, Clone, Copy)]
pub struct JournalArgs {
    /// How long an ended lease is kept: as long as the book remembers it.
    pub remember: Duration,
    /// How many bytes of ended leases are kept at most.
    pub remember_bytes: usize,
}

impl From<&crate::BookSettings> for JournalArgs {
    fn from(settings: &crate::BookSettings) -> Self {
        Self { remember: settings.remember, remember_bytes: settings.remember_bytes }
    }
}

/// The actor `lease-journal`. See the module's documentation.
#[derive(Debug)]
pub struct JournalActor {
    kept: Kept,
    forget: Option<Timer>,
}

/// What the journal tells itself.
#[derive(Debug, Clone, Copy)]
pub enum JournalInternal {
    /// Time passed, or the last bite left something.
    Forget,
}

impl Message for JournalInternal {
    fn kind(&self) -> &'static str {
        "Forget"
    }
}

impl Actor for JournalActor {
    type Message = JournalMessage;
    type Internal = JournalInternal;
    type Args = JournalArgs;
    const KIND: &'static str = "leaseJournal";

    async fn start(_ctx: &Context<Self>, args: JournalArgs) -> Result<Self, Failure> {
        Ok(Self { kept: Kept::new(args), forget: None })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: JournalMessage) -> Result<(), Failure> {
        match message {
            JournalMessage::Append { entries } => {
                for entry in entries {
                    self.kept.fold(entry);
                }
                self.wind(ctx);
            }
            // A broker that gave up asks again when it starts again.
            JournalMessage::Load { reply_to } => drop(reply_to.send(Box::new(self.kept.snapshot()))),
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: JournalInternal) -> Result<(), Failure> {
        match message {
            JournalInternal::Forget => self.forget = None,
        }
        if self.kept.forget(ctx.now(), BITE) {
            ctx.tell(JournalInternal::Forget)
        } else {
            self.wind(ctx)
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        json!({"store": "memory", "durable": false, "leases": self.kept.leases(), "cooldowns": self.kept.cooldowns()})
    }
}

impl JournalActor {
    /// Leases are forgotten by time, whether or not anything is appended (LS-7).
    fn wind(&mut self, ctx: &Context<Self>) {
        if self.forget.is_none() && self.kept.remembers() {
            self.forget = Some(ctx.after(FORGET_EVERY, JournalInternal::Forget));
        }
    }
}
