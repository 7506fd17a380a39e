//! The lease journal, memory store (LS-9): what the broker must not forget, kept by an actor that outlives it.
//!
//! - *supervised by* the root, irreplaceable: what it keeps cannot be rebuilt, so its first crash ends the process;
//!   *supervises* nothing
//! - *receives* `Append` (from the broker, before an answer leaves) and `Load` (the broker starts); *sends* nothing
//! - *states*: one
//! - *failure policy*: none is expected; an end of the process forgets everything, which `/readyz?verbose` says
//!   (`durable: false`)
//!
//! What must stay true: entries are folded in the order they were sent, so that `Load` answers with everything that was
//! appended before it.

mod kept;

use std::time::Duration;

use egress_protocol::lease::JournalMessage;
use egress_protocol::message::Never;
use egress_supervision::{Actor, Context, Failure};
use serde_json::json;

pub use kept::Kept;

/// What the journal needs to know.
#[derive(Debug, Clone, Copy)]
pub struct JournalArgs {
    /// How long an ended lease is kept: as long as the book remembers it.
    pub remember: Duration,
    /// How many ended leases are kept at most.
    pub remember_at_most: usize,
}

impl From<&crate::BookSettings> for JournalArgs {
    fn from(settings: &crate::BookSettings) -> Self {
        Self { remember: settings.remember, remember_at_most: settings.remember_at_most }
    }
}

/// The actor `lease-journal`. See the module's documentation.
#[derive(Debug)]
pub struct JournalActor {
    kept: Kept,
}

impl Actor for JournalActor {
    type Message = JournalMessage;
    type Internal = Never;
    type Args = JournalArgs;
    const KIND: &'static str = "leaseJournal";

    async fn start(_ctx: &Context<Self>, args: JournalArgs) -> Result<Self, Failure> {
        Ok(Self { kept: Kept::new(args) })
    }

    fn handle(&mut self, _ctx: &Context<Self>, message: JournalMessage) -> Result<(), Failure> {
        match message {
            JournalMessage::Append { entries } => {
                for entry in entries {
                    self.kept.fold(entry);
                }
            }
            // A broker that gave up asks again when it starts again.
            JournalMessage::Load { reply_to } => drop(reply_to.send(Box::new(self.kept.snapshot()))),
        }
        Ok(())
    }

    fn handle_internal(&mut self, _ctx: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        json!({"store": "memory", "durable": false, "leases": self.kept.leases(), "cooldowns": self.kept.cooldowns()})
    }
}
