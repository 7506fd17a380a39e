//! `host/<entry>/<zone>`: the link to one zone (PC-69, PC-99).
//!
//! It dials when something is first to be sent, one dial at a time for all who wait, and again after the link died. What
//! goes over the link is a task of the host, so that a host's death ends it and its caller is told (PC-101).

use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use egress_protocol::message::Message;
use egress_provider::{Caller, HOST_KIND};
use egress_supervision::{Actor, Context, Failure};
use futures::FutureExt;
use futures::future::BoxFuture;
use tracing::Instrument;

use super::client::{CloudError, Core};

/// What is to be done over the link, and who is told when there is none.
pub(super) struct Errand {
    pub(super) caller: Caller,
    pub(super) work: Box<dyn FnOnce(u64) -> BoxFuture<'static, Option<u64>> + Send>,
    pub(super) fail: Box<dyn FnOnce(CloudError) + Send>,
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Errand")
    }
}

/// What the client asks of its zone.
#[derive(Debug)]
pub(super) enum ZoneMessage {
    /// Do that over the link.
    Run(Errand),
}

impl Message for ZoneMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Run(_) => "Run",
        }
    }
}

/// What the zone tells itself.
#[derive(Debug)]
pub(super) enum ZoneInternal {
    Dialled(Result<u64, CloudError>, Errand),
    /// An errand ended; the link it found dead, if it did.
    Done(Option<u64>),
}

impl Message for ZoneInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Dialled(..) => "Dialled",
            Self::Done(_) => "Done",
        }
    }
}

/// See the module.
pub(super) struct Zone {
    core: Arc<Core>,
    zone: &'static str,
    link: Option<u64>,
    dialling: bool,
    waiting: VecDeque<Errand>,
}

impl Actor for Zone {
    type Message = ZoneMessage;
    type Internal = ZoneInternal;
    type Args = (Arc<Core>, &'static str);
    const KIND: &'static str = HOST_KIND;

    async fn start(_: &Context<Self>, (core, zone): Self::Args) -> Result<Self, Failure> {
        Ok(Self { core, zone, link: None, dialling: false, waiting: VecDeque::new() })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ZoneMessage) -> Result<(), Failure> {
        let ZoneMessage::Run(errand) = message;
        self.waiting.push_back(errand);
        self.serve(ctx);
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: ZoneInternal) -> Result<(), Failure> {
        match message {
            ZoneInternal::Dialled(Ok(link), errand) => {
                (self.link, self.dialling) = (Some(link), false);
                self.waiting.push_front(errand);
            }
            ZoneInternal::Dialled(Err(error), errand) => {
                self.dialling = false;
                (errand.fail)(error);
            }
            ZoneInternal::Done(dead) => {
                if dead.is_some() && dead == self.link {
                    self.link = None;
                }
            }
        }
        self.serve(ctx);
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::json!({ "linkUp": self.link.is_some(), "waiting": self.waiting.len() })
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        if let Some(link) = self.link {
            self.core.close(link);
        }
    }
}

impl Zone {
    /// All that wait go over the link, or the first of them has it dialled.
    fn serve(&mut self, ctx: &Context<Self>) {
        if self.dialling {
            return;
        }
        let Some(link) = self.link else {
            if let Some(errand) = self.waiting.pop_front() {
                self.dialling = true;
                let (core, zone, span) = (Arc::clone(&self.core), self.zone, errand.caller.span.clone());
                let dial = async move {
                    let dialled = AssertUnwindSafe(core.dial(zone, &errand.caller.call)).catch_unwind().await;
                    ZoneInternal::Dialled(dialled.unwrap_or_else(|_| Err(CloudError::panicked())), errand)
                };
                ctx.spawn(dial.instrument(span)).keep();
            }
            return;
        };
        for errand in self.waiting.drain(..) {
            let span = errand.caller.span;
            let work = (errand.work)(link).map(ZoneInternal::Done);
            ctx.spawn_catching(work.instrument(span), |_| ZoneInternal::Done(None)).keep();
        }
    }
}
