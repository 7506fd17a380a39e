//! `host/<entry>/api`: the link of one entry to the API server (K8-17).
//!
//! Role: it owns the client; each request is a task of its own, so that its death ends them and their callers are told so
//! (PC-101). Supervised by `provider/<entry>`; supervises nothing. Receives [`HostMessage`]; sends nothing of its own
//! accord. State: the client. Failure policy: a crash drops the replies of the requests under way; the next life makes its
//! connections anew.

use std::fmt;

use egress_kube::ApiClient;
use egress_protocol::message::{Message, Reply};
use egress_provider::{Caller, HOST_KIND};
use egress_supervision::{Actor, Context, Failure};
use serde_json::json;
use tracing::Instrument;

use crate::api::{Answer, Ask, CallError, Carrier};

/// What the backend asks of its link.
#[derive(Debug)]
pub(crate) enum HostMessage {
    /// Send that request; the reply is dropped when the actor ends first.
    Ask { ask: Box<Ask>, caller: Caller, reply_to: Reply<Result<Answer, CallError>> },
    /// The API server's URL, `None` while nobody knows it.
    Server { caller: Caller, reply_to: Reply<Option<String>> },
}

impl Message for HostMessage {
    fn kind(&self) -> &'static str {
        match self {
            Self::Ask { .. } => "Ask",
            Self::Server { .. } => "Server",
        }
    }
}

/// What the actor tells itself.
#[derive(Debug)]
pub(crate) enum HostInternal {
    Ended,
}

impl Message for HostInternal {
    fn kind(&self) -> &'static str {
        "Ended"
    }
}

/// What the actor is started from.
#[derive(Debug, Clone)]
pub(crate) struct HostArgs {
    pub(crate) entry: std::sync::Arc<str>,
    /// Its clones share connections, so each life has one of its own.
    pub(crate) client: ApiClient,
}

/// See the module.
pub(crate) struct Host {
    carrier: Carrier,
    under_way: usize,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Actor for Host {
    type Message = HostMessage;
    type Internal = HostInternal;
    type Args = HostArgs;
    const KIND: &'static str = HOST_KIND;

    async fn start(_: &Context<Self>, args: HostArgs) -> Result<Self, Failure> {
        Ok(Self { carrier: Carrier::new(args.entry, args.client.afresh()), under_way: 0 })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: HostMessage) -> Result<(), Failure> {
        self.under_way += 1;
        let carrier = self.carrier.clone();
        let work = async move {
            match message {
                HostMessage::Ask { ask, caller, mut reply_to } => {
                    let asked = async {
                        tokio::select! {
                            biased;
                            answer = carrier.ask(&ask, &caller.call) => Some(answer),
                            // Nobody waits any more: the request is given up.
                            () = reply_to.closed() => None,
                        }
                    };
                    if let Some(answer) = asked.instrument(caller.span).await {
                        let _ = reply_to.send(answer);
                    }
                }
                HostMessage::Server { caller, reply_to } => {
                    let _ = reply_to.send(carrier.server().instrument(caller.span).await);
                }
            }
            HostInternal::Ended
        };
        // A panic of the client is that call's: its reply is dropped (PC-8).
        ctx.spawn_catching(work, |_| HostInternal::Ended).keep();
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, _: HostInternal) -> Result<(), Failure> {
        self.under_way = self.under_way.saturating_sub(1);
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        json!({ "requestsInFlight": self.under_way })
    }
}
