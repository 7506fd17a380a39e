//! `providers`: all configured providers.
//!
//! Role: starts one child per entry and tells the directory which entries there are (OP-20, PC-59). Supervised by the root;
//! supervises `provider/<entry>`, each retried on its own (SV-2). Receives [`ProvidersMessage`]; sends
//! [`ProxiesMessage::ProviderChanged`] to `proxies`, again every second until it is up. State: the entries. Failure policy:
//! holds nothing that is not in its arguments.

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::message::Message;
use egress_protocol::provider::{self, ProvidersMessage};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Policy, Timer};
use serde_json::json;

use crate::{ProviderActor, ProviderArgs};

/// What a provider's stop takes beside the grace of its traffic.
const STOP_SLACK: Duration = Duration::from_secs(3);
/// How often an announcement that found no directory is repeated.
const REPEAT: Duration = Duration::from_secs(1);

/// One entry of the providers file.
#[derive(Debug, Clone)]
pub struct ProviderEntry {
    /// The type, for lists.
    pub type_: &'static str,
    /// Changes when the entry does, its credential files included.
    pub fingerprint: String,
    /// For its actor.
    pub args: ProviderArgs,
}

/// What the actor is started from.
#[derive(Debug, Clone)]
pub struct ProvidersArgs {
    /// In the order of the file.
    pub entries: Arc<[ProviderEntry]>,
}

impl ProvidersArgs {
    /// This actor as the root's child: a singleton, with time for its children's stops.
    pub fn spec(self) -> ChildSpec<ProvidersActor> {
        let grace = self.entries.iter().map(|entry| entry.args.stop_grace).max().unwrap_or_default();
        let mut spec = ChildSpec::essential(provider::PROVIDERS_ID, self);
        spec.policy.stop_timeout = grace + STOP_SLACK * 2;
        spec
    }
}

/// See the module.
#[derive(Debug)]
pub struct ProvidersActor {
    entries: Arc<[ProviderEntry]>,
    again: Option<Timer>,
}

/// What the actor tells itself.
#[derive(Debug)]
pub enum ProvidersInternal {
    /// Nobody heard the announcement.
    #[doc(hidden)]
    Announce,
}

impl Message for ProvidersInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Announce => "Announce",
        }
    }
}

impl Actor for ProvidersActor {
    type Message = ProvidersMessage;
    type Internal = ProvidersInternal;
    type Args = ProvidersArgs;
    const KIND: &'static str = "providers";

    async fn start(ctx: &Context<Self>, args: ProvidersArgs) -> Result<Self, Failure> {
        for entry in args.entries.iter() {
            let mut spec = ChildSpec::<ProviderActor>::retried(provider::actor_id(&entry.args.name), entry.args.clone());
            spec.policy = Policy { stop_timeout: entry.args.stop_grace + STOP_SLACK, ..spec.policy };
            ctx.start_child(spec);
        }
        let mut actor = Self { entries: args.entries, again: None };
        actor.announce(ctx);
        Ok(actor)
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProvidersMessage) -> Result<(), Failure> {
        match message {
            ProvidersMessage::Announce => self.announce(ctx),
            ProvidersMessage::List { reply_to } => {
                let _ = reply_to.send(self.entries.iter().map(|entry| (Arc::clone(&entry.args.name), entry.type_)).collect());
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: ProvidersInternal) -> Result<(), Failure> {
        match message {
            ProvidersInternal::Announce => self.announce(ctx),
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let entries: Vec<_> = self.entries.iter().map(|entry| json!({ "name": entry.args.name, "type": entry.type_ })).collect();
        json!({ "entries": entries, "announced": self.again.is_none() })
    }
}

impl ProvidersActor {
    fn announce(&mut self, ctx: &Context<Self>) {
        let proxies = ctx.system().address::<ProxiesMessage>(proxies::ACTOR_ID);
        let heard = self.entries.iter().all(|entry| {
            let (name, fingerprint) = (Arc::clone(&entry.args.name), Some(entry.fingerprint.clone()));
            proxies.send(ProxiesMessage::ProviderChanged { name, fingerprint }).is_ok()
        });
        self.again = (!heard).then(|| ctx.after(REPEAT, ProvidersInternal::Announce));
    }
}
