//! Writes and Events on their way: whose turn it is, and what follows from the answers.

use std::sync::Arc;

use egress_kube::REQUEST;
use egress_protocol::source::{ProxyEvent, SourceError};
use egress_protocol::{ObjectKey, Uid};
use egress_supervision::Context;
use tracing::{Instrument, Span};

use super::store::Origin;
use super::writes::{Change, Job, Trouble, Waiter, Writer};
use super::{ClusterSource, EVENTS_WAITING, Internal, Wrote};
use crate::sending::unless_fenced;

impl ClusterSource {
    pub(super) fn write(&mut self, ctx: &Context<Self>, key: ObjectKey, uid: Uid, change: Change, span: Span, waiter: Waiter) {
        self.lanes.push(key, Job { uid, change, span, waiter }, |job| !job.waiter.gave_up());
        self.send_writes(ctx);
    }

    /// Starts the writes whose turn it is. What is known of an object is what it is written by, so only now it is looked up.
    pub(super) fn send_writes(&mut self, ctx: &Context<Self>) {
        while let Some((key, Job { uid, change, span, waiter })) = self.lanes.next() {
            if waiter.gave_up() {
                self.lanes.done(&key);
                continue;
            }
            let known = self.store.get(&key).map(|entry| entry.meta.clone());
            if known.as_ref().is_some_and(|meta| meta.uid != uid) {
                let removal = matches!(change, Change::RemoveFinalizer);
                waiter.answer(if removal { Ok(0) } else { Err(SourceError::Gone) });
                self.lanes.done(&key);
                continue;
            }
            // The watch may tell of it before the answer comes.
            if let (Change::Status(status), Some(entry)) = (&change, self.store.get_mut(&key)) {
                entry.wrote = Some(Arc::clone(status));
            }
            let writer = Writer { client: self.args.client.clone(), fence: self.args.fence.clone(), key: key.clone(), uid };
            let work = async move {
                let done = writer.perform(&change, known).await;
                Internal::Wrote(Box::new(Wrote { key, change, waiter, done }))
            };
            ctx.spawn(work.instrument(span)).keep();
        }
    }

    pub(super) fn wrote(&mut self, ctx: &Context<Self>, Wrote { key, change, waiter, done }: Wrote) {
        self.lanes.done(&key);
        match &done.trouble {
            Some(Trouble::Refused(why)) if self.store.get(&key).is_some() => {
                let news = self.refused.insert(key.clone(), why.clone()).is_none();
                news.then(|| tracing::warn!(proxy = %key, reason = why, "WARNING: the API server refuses what is written to a Proxy"));
            }
            Some(Trouble::Refused(_)) => {}
            Some(Trouble::Away(why)) => self.away.troubled(ctx.now(), why.clone()),
            None if done.result.is_ok() => {
                self.refused.remove(&key);
                self.away.well();
            }
            None => {}
        }
        if let Some(seen) = done.seen {
            let news = self.store.observe(seen, Origin::Answer);
            if let (Change::Status(status), Ok(_), Some(entry)) = (change, &done.result, self.store.get_mut(&key)) {
                entry.wrote = entry.body.as_ref().map(|body| Arc::clone(&body.status)).filter(|kept| *kept == status);
            }
            self.spread(news);
        }
        waiter.answer(done.result);
        self.send_writes(ctx);
    }

    pub(super) fn announce(&mut self, ctx: &Context<Self>, event: &ProxyEvent) {
        let request = self.events.announce(event, &self.args.reporter, rand::random(), ctx.now());
        match request {
            Some(request) if self.announcing.waiting() < EVENTS_WAITING => {
                self.announcing.push(event.key.clone(), request, |_| true);
                self.send_events(ctx);
            }
            _ => tracing::debug!(proxy = %event.key, reason = event.reason.as_str(), "event not sent: there are too many"),
        }
    }

    pub(super) fn send_events(&mut self, ctx: &Context<Self>) {
        while let Some((key, request)) = self.announcing.next() {
            let (client, fence) = (self.args.client.clone(), self.args.fence.clone());
            ctx.spawn(async move {
                if let Err(error) = client.send(REQUEST, || unless_fenced(&fence), &request).await {
                    tracing::debug!(proxy = %key, %error, "event not sent");
                }
                Internal::Announced(key)
            })
            .keep();
        }
    }
}
