//! The lease journal, memory store (LS-9): what the broker must not forget, kept by an actor that outlives it.
//!
//! - *supervised by* the root, irreplaceable: what it keeps cannot be rebuilt, so its first crash ends the process;
//!   *supervises* nothing
//! - *receives* `Attach` and `Load` (the broker starts), `Fold` (from the broker: entries wait), and the entries themselves through the
//!   channel of `Attach`, before an answer leaves; *sends* nothing
//! - *states*: one; while it keeps leases that ended, it looks each second which of them to forget
//! - *failure policy*: none is expected; an end of the process forgets everything, which `/readyz?verbose` says
//!   (`durable: false`)
//!
//! What must stay true: entries are folded in the order they were sent, so that `Load` answers with everything that was
//! sent before it. The channel outlives the broker, and nobody but this actor reads it.

mod kept;

use std::time::Duration;

use egress_protocol::lease::{Entry, JournalMessage};
use egress_protocol::message::Message;
use egress_supervision::{Actor, Context, Failure, Timer};
use serde_json::json;
use tokio::sync::mpsc;

pub use kept::Kept;

const FORGET_EVERY: Duration = Duration::from_secs(1);
/// How many leases one message forgets.
const BITE: usize = 1024;
/// How many batches of entries one message folds: each is small where they are many.
const BATCHES: usize = 64;

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
    /// None until a broker has begun.
    incoming: Option<mpsc::UnboundedReceiver<Vec<Entry>>>,
    forget: Option<Timer>,
}

/// What the journal tells itself.
#[derive(Debug, Clone, Copy)]
pub enum JournalInternal {
    /// Time passed, or the last bite left something.
    Forget,
    /// More entries wait.
    Fold,
}

impl Message for JournalInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Forget => "Forget",
            Self::Fold => "ContinueFold",
        }
    }
}

impl Actor for JournalActor {
    type Message = JournalMessage;
    type Internal = JournalInternal;
    type Args = JournalArgs;
    const KIND: &'static str = "leaseJournal";

    async fn start(_ctx: &Context<Self>, args: JournalArgs) -> Result<Self, Failure> {
        Ok(Self { kept: Kept::new(args), incoming: None, forget: None })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: JournalMessage) -> Result<(), Failure> {
        match message {
            JournalMessage::Attach { entries } => {
                self.fold(usize::MAX);
                self.incoming = Some(entries);
            }
            JournalMessage::Fold => self.fold_some(ctx),
            // A broker that gave up asks again when it starts again.
            JournalMessage::Load { reply_to } => {
                self.fold(usize::MAX);
                self.wind(ctx);
                drop(reply_to.send(Box::new(self.kept.snapshot())));
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: JournalInternal) -> Result<(), Failure> {
        match message {
            JournalInternal::Fold => {
                self.fold_some(ctx);
                return Ok(());
            }
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
    /// Takes in at most so many batches; whether more may wait.
    fn fold(&mut self, batches: usize) -> bool {
        let Some(incoming) = &mut self.incoming else { return false };
        for _ in 0..batches {
            let Ok(entries) = incoming.try_recv() else { return false };
            for entry in entries {
                self.kept.fold(entry);
            }
        }
        true
    }

    fn fold_some(&mut self, ctx: &Context<Self>) {
        if self.fold(BATCHES) {
            ctx.tell(JournalInternal::Fold);
        }
        self.wind(ctx);
    }

    /// Leases are forgotten by time, whether or not anything is appended (LS-7).
    fn wind(&mut self, ctx: &Context<Self>) {
        if self.forget.is_none() && self.kept.remembers() {
            self.forget = Some(ctx.after(FORGET_EVERY, JournalInternal::Forget));
        }
    }
}
