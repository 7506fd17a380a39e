//! What people are told of leases' proxies: a log line (OB-2) and an Event (OP-9) each.

use egress_protocol::resource::conditions::cut_bytes;
use egress_protocol::source::{self, EventReason, ProxyEvent, SourceMessage};
use egress_protocol::{ObjectKey, Uid};
use egress_supervision::Context;

use super::BrokerActor;
use crate::book::{CordonChange, CordonTurn, DrainBegun};

/// The most bytes of an Event's note.
const NOTE: usize = 1024;

/// The log line and the Event of a cordon (LS-16, OB-2, OP-9).
pub(super) fn cordon(ctx: &Context<BrokerActor>, change: CordonChange) {
    let (proxy, target) = (&change.key, change.target.as_deref());
    let for_whom = target.map(|target| format!(" for {target}")).unwrap_or_default();
    let (reason, note) = match &change.what {
        CordonTurn::Placed(cordon) => {
            let (by, until) = (&*cordon.by, cordon.until.map(|until| until.to_string()));
            tracing::info!(%proxy, cordoned_target = target, until, reason = &*cordon.reason, by, "proxy cordoned");
            let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
            (EventReason::Cordoned, format!("by {by}{for_whom}{until}: {}", cordon.reason))
        }
        CordonTurn::Lifted(by) => {
            tracing::info!(%proxy, cordoned_target = target, by = &**by, "cordon lifted");
            (EventReason::Uncordoned, format!("by {by}{for_whom}"))
        }
        CordonTurn::Over => {
            tracing::info!(%proxy, cordoned_target = target, "cordon over");
            (EventReason::Uncordoned, format!("its time is over{for_whom}"))
        }
    };
    publish(ctx, change.key, change.uid, reason, &note);
}

/// Of a proxy that waits for its leases (LS-16).
pub(super) fn drain(ctx: &Context<BrokerActor>, drain: DrainBegun) {
    let DrainBegun { key, uid, leases, by } = drain;
    tracing::info!(proxy = %key, leases, by = %by, "proxy draining");
    let note = format!("{leases} leases run; they are waited for until {by} at the latest");
    publish(ctx, key, uid, EventReason::Draining, &note);
}

/// Best effort, as every Event is.
fn publish(ctx: &Context<BrokerActor>, key: ObjectKey, uid: Uid, reason: EventReason, note: &str) {
    let event = ProxyEvent { key, uid, reason, note: cut_bytes(note, NOTE).to_owned(), at: ctx.now() };
    let _ = ctx.system().address::<SourceMessage>(source::ACTOR_ID).send(SourceMessage::Publish { event });
}
