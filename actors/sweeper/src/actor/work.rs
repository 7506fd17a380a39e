//! What a round asks of others, as tasks beside the mailbox.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::provider::{self, CallContext, DeleteOutcome, InstanceKey, Op, ProviderError, ProviderMessage};
use egress_protocol::resource::Placement;
use egress_protocol::source::{self, SourceMessage};
use egress_protocol::{Clock, InstallationId};
use egress_supervision::{Address, AddressError, System};
use futures::StreamExt;
use tokio::time::Instant;
use tracing::Instrument;

use crate::sweep::{Chosen, Survey};

/// A provider answers in time by itself; this is for one that does not.
const SLACK: Duration = Duration::from_secs(2);
/// The live set: in a cluster several pages (OP-29).
const LIVE: Duration = Duration::from_secs(60);
/// So many deletes are asked for at once; the provider bounds what runs.
const AT_ONCE: usize = 16;

/// The label of what would have been deleted.
pub(super) const DRY_RUN: &str = "dry_run";

/// What became of one orphan.
#[derive(Debug)]
pub struct Outcome {
    /// The value of the label `result`.
    pub(super) result: &'static str,
    /// Why it is still there.
    pub(super) failed: Option<String>,
}

impl Outcome {
    pub(super) const fn dry() -> Self {
        Self { result: DRY_RUN, failed: None }
    }

    fn of(answer: Result<Result<DeleteOutcome, ProviderError>, AddressError>) -> Self {
        match answer {
            Ok(Ok(DeleteOutcome::Gone)) => Self { result: "ok", failed: None },
            Ok(Ok(DeleteOutcome::InProgress)) => Self { result: "in_progress", failed: None },
            Ok(Err(error)) => Self { result: error.class.result_label(), failed: Some(error.to_string()) },
            Err(error) => Self { result: "transient", failed: Some(format!("the provider is {error}")) },
        }
    }
}

/// Whom a provider's round speaks to.
pub(super) struct Peers {
    provider: Address<ProviderMessage>,
    source: Address<SourceMessage>,
    clock: Clock,
    cancel: tokio_util::sync::CancellationToken,
}

impl Peers {
    pub(super) fn of(system: &System, entry: &str, cancel: tokio_util::sync::CancellationToken) -> Self {
        Self {
            provider: system.address(&provider::actor_id(entry)),
            source: system.address(source::ACTOR_ID),
            clock: system.clock(),
            cancel,
        }
    }

    /// First the list, then the live set, so that what was created in between is in the latter (OG-3).
    pub(super) async fn survey(&self, due: Instant) -> Result<Box<Survey>, String> {
        let call = self.call(Op::List, due);
        let answer = self.provider.call(call.deadline + SLACK, |reply_to| ProviderMessage::List { call, reply_to }).await;
        let list = answer.map_err(|error| format!("list: the provider is {error}"))?.map_err(|error| error.to_string())?;
        let listed_at = self.clock.now();
        let answer = self.source.call(LIVE, |reply_to| SourceMessage::LiveUids { reply_to }).await;
        let answer = answer.map_err(|error| format!("{}: {error}", source::ACTOR_ID))?;
        let live = answer.map_err(|error| format!("{}: {error}", source::ACTOR_ID))?;
        Ok(Box::new(Survey { list, listed_at, live }))
    }

    /// Asks for every deletion, whatever becomes of the others.
    pub(super) async fn delete(&self, chosen: Vec<Chosen>, installation: InstallationId, due: Instant) -> Vec<(Chosen, Outcome)> {
        let deletes = chosen.into_iter().map(|chosen| {
            let key = InstanceKey {
                id: chosen.orphan.id.clone(),
                name: chosen.orphan.name.clone(),
                uid: chosen.orphan.uid.clone(),
                installation: installation.clone(),
                // Only hints, and whose instance it was is no longer known.
                namespace: Arc::from(""),
                placement: Placement::default(),
            };
            async move {
                let call = self.call(Op::Delete, due);
                let answer = self.provider.call(call.deadline + SLACK, |reply_to| ProviderMessage::Delete { key, call, reply_to }).await;
                (chosen, Outcome::of(answer))
            }
            .in_current_span()
        });
        futures::stream::iter(deletes).buffer_unordered(AT_ONCE).collect().await
    }

    /// Until the round is due.
    fn call(&self, op: Op, due: Instant) -> CallContext {
        let left = due.saturating_duration_since(Instant::now());
        CallContext { deadline: left.min(op.deadline()), ..CallContext::new(op, self.cancel.child_token()) }
    }
}
