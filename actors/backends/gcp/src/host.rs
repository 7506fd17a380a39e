//! `host/<entry>/api`: the link of one entry to Compute Engine.
//!
//! Role: it owns the HTTP client, the token and the table of operations (GC-28); each request is a task of its own.
//! Supervised by `provider/<entry>`; supervises nothing. Receives [`HostMessage`]; sends nothing of its own accord.
//! State: the token, the requests that wait for one, the last operation of each instance. Failure policy: a crash drops the
//! replies of the requests under way, whose callers are told Transient (PC-101); the next life fetches a new token and finds
//! the operations at the backend (GC-11).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use egress_protocol::InstanceName;
use egress_protocol::message::{Message, Reply};
use egress_provider::{Caller, HOST_KIND};
use egress_supervision::{Actor, Context, Failure};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::time::{Duration, Instant};
use tracing::Instrument;

use crate::client::{Answer, Sender, Wire, attempt};
use crate::credentials::{Fetcher, Token};
use crate::error::{CallError, TokenError};
use crate::operations::{Known, Operations};
use crate::request::ApiRequest;
use crate::tokens::{Generation, Tokens};

/// What gives tokens: the credential chain, or what stands in for it in tests.
pub(crate) trait TokenSource: Send + Sync + 'static {
    /// A new token.
    fn fetch(&self) -> BoxFuture<'_, Result<Token, TokenError>>;
}

impl TokenSource for Fetcher {
    fn fetch(&self) -> BoxFuture<'_, Result<Token, TokenError>> {
        Box::pin(Self::fetch(self))
    }
}

/// What the actor is started from.
#[derive(Clone)]
pub(crate) struct HostArgs {
    pub(crate) sender: Sender,
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) tokens: Arc<dyn TokenSource>,
    /// How long fetching a token may take (GC-27).
    pub(crate) token_budget: Duration,
}

impl fmt::Debug for HostArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostArgs").field("sender", &self.sender).finish_non_exhaustive()
    }
}

/// What the backend asks of its link.
#[derive(Debug)]
pub(crate) enum HostMessage {
    /// Send a request, once, or twice where its token was refused.
    Send {
        request: Arc<ApiRequest>,
        caller: Caller,
        /// The answer of a success, or why there is none. Dropped when the actor ends first.
        reply_to: Reply<Result<Answer, CallError>>,
    },
    /// An operation on an instance was accepted: it is its last one from now on.
    Keep { name: InstanceName, known: Known },
    /// The last operation of an instance, if one is known here.
    Known { name: InstanceName, reply_to: Reply<Option<Known>> },
    /// That operation ended and nothing is left to say of it.
    Settled { name: InstanceName, operation: String },
    /// The failure of an operation is about to be told to a caller; answers whether it is the first time (GC-12).
    Report { name: InstanceName, known: Known, reply_to: Reply<bool> },
    /// Who the token speaks for, if known.
    Account { reply_to: Reply<Option<String>> },
}

impl Message for HostMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Send { .. } => "Send",
            Self::Keep { .. } => "Keep",
            Self::Known { .. } => "Known",
            Self::Settled { .. } => "Settled",
            Self::Report { .. } => "Report",
            Self::Account { .. } => "Account",
        }
    }
}

/// What the actor tells itself.
#[derive(Debug)]
pub(crate) enum HostInternal {
    Fetched(Result<Token, TokenError>),
    Answered(u64, Box<Result<Answer, CallError>>),
}

impl Message for HostInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Fetched(_) => "Fetched",
            Self::Answered(..) => "Answered",
        }
    }
}

/// A request that has no answer yet.
struct Asked {
    request: Arc<ApiRequest>,
    caller: Caller,
    reply_to: Reply<Result<Answer, CallError>>,
    /// The token it was sent with; `None`: it waits for one.
    sent_with: Option<Generation>,
    /// It was sent with a refused token before.
    again: bool,
}

/// See the module.
pub(crate) struct Host {
    args: HostArgs,
    tokens: Tokens,
    operations: Operations,
    asked: HashMap<u64, Asked>,
    next: u64,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("asked", &self.asked.len()).finish_non_exhaustive()
    }
}

impl Actor for Host {
    type Message = HostMessage;
    type Internal = HostInternal;
    type Args = HostArgs;
    const KIND: &'static str = HOST_KIND;

    async fn start(_: &Context<Self>, args: HostArgs) -> Result<Self, Failure> {
        Ok(Self { args, tokens: Tokens::default(), operations: Operations::default(), asked: HashMap::new(), next: 0 })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: HostMessage) -> Result<(), Failure> {
        match message {
            HostMessage::Send { request, caller, reply_to } => {
                let id = self.next;
                self.next += 1;
                self.asked.insert(id, Asked { request, caller, reply_to, sent_with: None, again: false });
                self.send(ctx, id);
            }
            HostMessage::Keep { name, known } => self.operations.keep(Instant::now(), name, known),
            HostMessage::Known { name, reply_to } => {
                let _ = reply_to.send(self.operations.of(Instant::now(), &name).cloned());
            }
            HostMessage::Settled { name, operation } => self.operations.settled(&name, &operation),
            HostMessage::Report { name, known, reply_to } => {
                let _ = reply_to.send(self.operations.report(Instant::now(), name, known));
            }
            HostMessage::Account { reply_to } => {
                let _ = reply_to.send(self.tokens.account().map(str::to_owned));
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: HostInternal) -> Result<(), Failure> {
        match message {
            HostInternal::Fetched(result) => self.fetched(ctx, result),
            HostInternal::Answered(id, result) => self.answered(ctx, id, *result),
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        json!({
            "requestsInFlight": self.asked.values().filter(|asked| asked.sent_with.is_some()).count(),
            "waitingForToken": self.asked.values().filter(|asked| asked.sent_with.is_none()).count(),
            "operations": self.operations.len(),
            "account": self.tokens.account(),
        })
    }
}

impl Host {
    /// Sends a request, or has it wait for the token that is fetched for all who wait.
    fn send(&mut self, ctx: &Context<Self>, id: u64) {
        let Some(asked) = self.asked.get_mut(&id) else { return };
        let Some((generation, token)) = self.tokens.good(Instant::now()) else {
            self.fetch(ctx);
            return;
        };
        asked.sent_with = Some(generation);
        let (sender, wire) = (self.args.sender.clone(), Arc::clone(&self.args.wire));
        let (request, call) = (Arc::clone(&asked.request), asked.caller.call.clone());
        let work = async move { HostInternal::Answered(id, Box::new(attempt(&sender, wire.as_ref(), &request, &token, &call).await)) };
        let panicked =
            move |panic| HostInternal::Answered(id, Box::new(Err(CallError::HostWentAway(format!("the client panicked: {panic}")))));
        ctx.spawn_catching(work.instrument(asked.caller.span.clone()), panicked).keep();
    }

    fn fetch(&mut self, ctx: &Context<Self>) {
        if !self.tokens.must_fetch() {
            return;
        }
        let (source, budget, entry) = (Arc::clone(&self.args.tokens), self.args.token_budget, Arc::clone(&self.args.sender.entry));
        let work = async move {
            let started = Instant::now();
            let late = || TokenError::Refused(format!("no answer within {budget:?}"));
            let result = tokio::time::timeout(budget, source.fetch()).await.unwrap_or_else(|_| Err(late()));
            let (duration, error) = (started.elapsed().as_secs_f64(), result.as_ref().err().map(tracing::field::display));
            tracing::debug!(provider = %entry, duration, error, "token fetched");
            HostInternal::Fetched(result)
        };
        let panicked = |panic| HostInternal::Fetched(Err(TokenError::Refused(format!("fetching it panicked: {panic}"))));
        ctx.spawn_catching(work, panicked).keep();
    }

    fn fetched(&mut self, ctx: &Context<Self>, result: Result<Token, TokenError>) {
        let waiting: Vec<u64> = self.asked.iter().filter(|(_, asked)| asked.sent_with.is_none()).map(|(id, _)| *id).collect();
        match result {
            Ok(token) => {
                self.tokens.fetched(Instant::now(), Arc::new(token));
                for id in waiting {
                    self.send(ctx, id);
                }
            }
            Err(error) => {
                self.tokens.failed();
                for id in waiting {
                    self.reply(id, Err(error.clone().into()));
                }
            }
        }
    }

    /// GC-17: a refused token is dropped, and the request sent once more, as it was.
    fn answered(&mut self, ctx: &Context<Self>, id: u64, result: Result<Answer, CallError>) {
        if let Err(error) = &result
            && error.http_status() == Some(401)
            && let Some(asked) = self.asked.get_mut(&id)
            && let Some(generation) = asked.sent_with.take()
            && !std::mem::replace(&mut asked.again, true)
        {
            self.tokens.refused(generation);
            self.send(ctx, id);
            return;
        }
        self.reply(id, result);
    }

    fn reply(&mut self, id: u64, result: Result<Answer, CallError>) {
        if let Some(asked) = self.asked.remove(&id) {
            let _ = asked.reply_to.send(result);
        }
    }
}
