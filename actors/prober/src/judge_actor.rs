//! The judge's actor.
//!
//! - role: collects every probe's result, finds check URLs that are at fault (HE-9) and proxies that share an egress
//!   address (HE-7)
//! - id `judge`; supervises nobody
//! - receives [`JudgeMessage`] from probers, and from the lease broker what lease holders report; sends `CheckUrl` to the proxies of a URL and to their probers
//! - state: [`Judge`] and [`Egress`], rebuilt from the results that come in; nothing is read at start
//! - failure policy: a crash forgets suspicions, which the next failures raise again; holds stay until the next pass, or
//!   their own end

use std::net::IpAddr;
use std::sync::Arc;

use egress_protocol::judge::{ACTOR_ID, JudgeMessage, Suspicion};
use egress_protocol::message::Never;
use egress_protocol::metrics::{Host, ProviderLabel};
use egress_protocol::prober::{ProbeOutcome, ProberMessage, actor_id};
use egress_protocol::proxy::ProxyMessage;
use egress_protocol::{ObjectKey, Uid};
use egress_supervision::{Actor, ChildSpec, Context, Failure};
use http::Uri;

use crate::judge::egress::{Change, Egress};
use crate::judge::hold::Ended;
use crate::judge::{Effect, Evidence, Judge, Observation};

/// Runs [`Judge`] and [`Egress`].
#[derive(Debug, Default)]
pub struct JudgeActor {
    judge: Judge,
    egress: Egress,
}

/// The judge as a child: one per process, where the probers run.
pub fn spec() -> ChildSpec<JudgeActor> {
    ChildSpec::retried(ACTOR_ID, ())
}

impl Actor for JudgeActor {
    type Message = JudgeMessage;
    type Internal = Never;
    type Args = ();
    const KIND: &'static str = "judge";

    async fn start(_ctx: &Context<Self>, (): ()) -> Result<Self, Failure> {
        Ok(Self::default())
    }

    fn handle(&mut self, ctx: &Context<Self>, message: JudgeMessage) -> Result<(), Failure> {
        match message {
            JudgeMessage::Observed { key, uid, url, provider, was_healthy, is_healthy, started_at, ended_at, interval, outcome } => {
                let evidence = Evidence::from(&outcome);
                if let (Some(provider), ProbeOutcome::Passed { egress_ip, .. }) = (&provider, &outcome) {
                    self.see_egress(ctx, &key, provider, *egress_ip);
                }
                let seen = Observation { key, uid, url, was_healthy, is_healthy, started_at, ended_at, interval, evidence };
                let effects = self.judge.observe(&seen);
                self.perform(ctx, effects);
            }
            JudgeMessage::Reported { key, uid, failed } => {
                let effects = self.judge.report(&key, &uid, failed, ctx.now());
                self.perform(ctx, effects);
            }
            JudgeMessage::Forget { key, uid } => self.forget(ctx, &key, &uid),
        }
        Ok(())
    }

    fn handle_internal(&mut self, _ctx: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        let mut suspects: Vec<_> = self.judge.suspects().map(|url| host(url)).collect();
        suspects.sort_unstable();
        serde_json::json!({ "urls": self.judge.urls(), "suspectHosts": suspects })
    }
}

impl JudgeActor {
    fn forget(&mut self, ctx: &Context<Self>, key: &ObjectKey, uid: &Uid) {
        if !self.judge.knows(key, uid) {
            return;
        }
        let change = self.egress.forget(key);
        self.publish(ctx, &change);
        let effects = self.judge.forget(key, uid);
        self.perform(ctx, effects);
    }

    fn see_egress(&mut self, ctx: &Context<Self>, key: &ObjectKey, provider: &Arc<str>, address: Option<IpAddr>) {
        let change = self.egress.observe(key, provider, address);
        if let (Some(other), Some(address)) = (&change.shares_with, address) {
            tracing::warn!(
                proxy = %key, other = %other, provider = %provider, egress_ip = %address,
                "WARNING: two proxies of one provider share an egress address"
            );
            let proxy = ctx.system().address::<ProxyMessage>(&key.actor_id());
            let _ = proxy.send(ProxyMessage::EgressShared { other: other.clone(), address });
        }
        self.publish(ctx, &change);
    }

    fn publish(&self, ctx: &Context<Self>, change: &Change) {
        for provider in &change.providers {
            let label = ProviderLabel { provider: provider.to_string() };
            let _ = ctx.metrics().egress_shared.get_or_create(&label).set(self.egress.sharing(provider).unwrap_or(0));
        }
    }

    fn perform(&self, ctx: &Context<Self>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Tell { key, suspicion } => tell(ctx, &key, suspicion),
                Effect::Suspected { url, failing, healthy } => {
                    let host = host(&url);
                    tracing::warn!(
                        host,
                        failing,
                        healthy,
                        "WARNING: a check URL fails through most healthy proxies; their verdicts are held for a while"
                    );
                    let _ = ctx.metrics().check_url_suspect.get_or_create(&Host { host }).set(1);
                }
                Effect::HoldEnded { url, why } => {
                    let host = host(&url);
                    let why = match why {
                        Ended::Time => "no probe of it passed for too long",
                        Ended::Reports => "lease holders report failures of most proxies too",
                    };
                    tracing::warn!(host, why, "WARNING: a check URL is still suspect, but its failures count again");
                }
                Effect::Cleared { url } => {
                    let gone = host(&url);
                    tracing::info!(host = gone, "the check URL is no longer suspect");
                    if !self.judge.suspects().any(|other| host(other) == gone) {
                        ctx.metrics().check_url_suspect.remove(&Host { host: gone });
                    }
                }
            }
        }
    }
}

/// Whoever is down learns of it with its next failing probe.
fn tell(ctx: &Context<JudgeActor>, key: &ObjectKey, suspicion: Suspicion) {
    let _ = ctx.system().address::<ProberMessage>(&actor_id(key)).send(ProberMessage::CheckUrl { suspicion: suspicion.clone() });
    let _ = ctx.system().address::<ProxyMessage>(&key.actor_id()).send(ProxyMessage::CheckUrl { suspicion });
}

/// What metrics and logs name of a URL: its query may hold a key.
fn host(url: &str) -> String {
    url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default()
}
