//! `metrics-reviewer`: may the bearer of a token do that? (OB-1 with `--metrics-secure`)
//!
//! - Role: has the API server review tokens (TokenReview), then what their bearers may do (SubjectAccessReview), and keeps
//!   each verdict for a moment, so that a scrape is seldom two calls.
//! - Supervised by whoever starts it, on every replica; given up after a spent budget and tried again (SV-2): scrapes are
//!   answered 503 meanwhile, nothing else depends on it. Supervises nothing.
//! - Receives [`ReviewMessage`]; sends to nobody; asks the API server under its own rules (IN-5: `create` of both kinds).
//! - States: one. What is under review is asked for once, whoever else asks waits for that answer. Reviews at a time are
//!   bounded, and strangers' leave room for those of tokens that were allowed before.
//! - Failure policy: an API server that cannot be asked is an answer, told in the log once. A crash forgets all verdicts.
//!
//! What must stay true: a token is kept and compared as a salted hash only, and is part of no text; an answer of the API
//! server is never printed, it repeats the token.

mod asking;
#[cfg(test)]
mod tests;
mod verdicts;

use std::collections::HashMap;
use std::sync::Arc;

use egress_kube::ApiClient;
use egress_protocol::Secret;
use egress_protocol::message::{Message, Reply};
use egress_protocol::review::{ACTOR_ID, ReviewMessage, Verdict};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Task};
use serde_json::json;
use tokio::time::Instant;

use verdicts::{Key, Salt, Verdicts};

/// Reviews at a time for tokens that never were allowed.
const STRANGERS: usize = 16;
/// Reviews at a time for all.
const ALL: usize = 32;
/// Longer ones are no tokens. The API server's own limit for a whole head is 1 MiB; tokens of large identity providers
/// have a few KiB.
const LONGEST_TOKEN: usize = 16 * 1024;

/// What the actor is started from.
#[derive(Debug, Clone)]
pub struct ReviewerArgs {
    /// Its own client.
    pub client: ApiClient,
}

/// The reviewer as a child.
pub fn spec(client: ApiClient) -> ChildSpec<Reviewer> {
    ChildSpec::retried(ACTOR_ID, ReviewerArgs { client })
}

/// See the module.
#[derive(Debug)]
pub struct Reviewer {
    client: ApiClient,
    salt: Salt,
    verdicts: Verdicts,
    under_review: HashMap<Key, Review>,
    /// Why the API server cannot be asked; told once, not at every scrape.
    complaint: Option<Arc<str>>,
}

/// A token that the API server is asked about.
#[derive(Debug)]
struct Review {
    waiting: Vec<Reply<Verdict>>,
    _task: Task,
}

/// What its tasks tell it.
#[derive(Debug)]
pub enum Internal {
    /// A review ended.
    #[doc(hidden)]
    Reviewed(ReviewId, Verdict),
}

/// Which review it was.
#[derive(Debug)]
#[doc(hidden)]
pub struct ReviewId(Key);

impl Message for Internal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Reviewed(..) => "Reviewed",
        }
    }
}

impl Actor for Reviewer {
    type Message = ReviewMessage;
    type Internal = Internal;
    type Args = ReviewerArgs;
    const KIND: &'static str = "reviewer";

    async fn start(_: &Context<Self>, args: ReviewerArgs) -> Result<Self, Failure> {
        Ok(Self { client: args.client, salt: Salt::random(), verdicts: Verdicts::default(), under_review: HashMap::new(), complaint: None })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ReviewMessage) -> Result<(), Failure> {
        match message {
            ReviewMessage::Review { token, verb, path, reply_to } => self.review(ctx, token, verb, path, reply_to),
        }
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Internal) -> Result<(), Failure> {
        let Internal::Reviewed(ReviewId(key), verdict) = message;
        self.tell_changes(&verdict);
        self.verdicts.put(key, &verdict, Instant::now());
        for reply_to in self.under_review.remove(&key).into_iter().flat_map(|review| review.waiting) {
            answer(reply_to, verdict.clone());
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let (allowed, refused) = self.verdicts.counts();
        let mut state = json!({ "allowed": allowed, "refused": refused, "underReview": self.under_review.len() });
        if let Some(reason) = &self.complaint {
            state["unavailable"] = json!(reason);
        }
        state
    }
}

impl Reviewer {
    fn review(&mut self, ctx: &Context<Self>, token: Secret, verb: &'static str, path: &'static str, reply_to: Reply<Verdict>) {
        if reply_to.is_closed() {
            return;
        }
        if !may_be_a_token(token.expose()) {
            return answer(reply_to, Verdict::Unknown);
        }
        let key = self.salt.key(&token, verb, path);
        if let Some(verdict) = self.verdicts.get(&key, Instant::now()) {
            return answer(reply_to, verdict);
        }
        if let Some(review) = self.under_review.get_mut(&key) {
            return review.waiting.push(reply_to);
        }
        let room = if self.verdicts.was_allowed(&key) { ALL } else { STRANGERS };
        if self.under_review.len() >= room {
            let reason = "too many tokens are under review".into();
            return answer(reply_to, Verdict::Unavailable { reason });
        }
        let client = self.client.clone();
        let task = ctx.spawn(async move { Internal::Reviewed(ReviewId(key), asking::review(&client, &token, verb, path).await) });
        self.under_review.insert(key, Review { waiting: vec![reply_to], _task: task });
    }

    fn tell_changes(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Unavailable { reason } => {
                if self.complaint.is_none() {
                    tracing::warn!(%reason, "WARNING: the API server does not review tokens, scrapes are answered 503");
                }
                self.complaint = Some(Arc::clone(reason));
                return;
            }
            Verdict::Forbidden { user } => tracing::debug!(%user, "scrape refused"),
            Verdict::Allowed { .. } | Verdict::Unknown => {}
        }
        if self.complaint.take().is_some() {
            tracing::info!("the API server reviews tokens again");
        }
    }
}

/// Whether the API server has to be asked: an empty one would be a fault of ours to it, and others cannot have been sent
/// in a header.
fn may_be_a_token(text: &str) -> bool {
    (1..=LONGEST_TOKEN).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn answer(reply_to: Reply<Verdict>, verdict: Verdict) {
    let _gave_up = reply_to.send(verdict).is_err();
}
