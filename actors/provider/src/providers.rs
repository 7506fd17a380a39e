//! `providers`: all configured providers.
//!
//! Role: runs one child per entry, follows the providers file, and tells the directory which entries there are (OP-20,
//! OP-26, PC-59, PC-83). Supervised by the root; supervises `provider/<entry>`, each retried on its own (SV-2). Receives
//! [`ProvidersMessage`]; sends [`ProxiesMessage::ProviderChanged`] to `proxies`, again every second until it is up, and
//! [`ProviderMessage::Reconfigure`] to an entry that needs no restart. State: the entries in force, what the looks at the
//! file have shown, and what keeps the file on disk from being the one in force. Failure policy: the entries in force
//! outlive an incarnation in the arguments; a crash takes the children along and restarts them from there.
//!
//! What must stay true: a file with a fault changes nothing; an entry that did not change does not notice that others did.

mod follow;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egress_config::providers::Snapshot;
use egress_protocol::message::Message;
use egress_protocol::provider::{self, ProviderMessage, ProvidersMessage, Settings};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Latest, Policy, Timer};
use serde_json::json;
use tokio::time::Instant;

use crate::{ProviderActor, ProviderArgs};
pub use follow::MakeEntries;
use follow::{Follow, Followed};
use plan::{Change, plan};

/// What a provider's stop takes beside the grace of its traffic.
const STOP_SLACK: Duration = Duration::from_secs(3);
/// How often an announcement that found no directory is repeated.
const REPEAT: Duration = Duration::from_secs(1);
/// Faults that are shown; the log has them all.
const SHOWN: usize = 50;

/// One entry of the providers file.
#[derive(Debug, Clone)]
pub struct ProviderEntry {
    /// The type, for lists.
    pub type_: &'static str,
    /// Changes when the entry does, its credential files included.
    pub fingerprint: String,
    /// Changes when the entry does so in a way that needs a restart.
    pub foundation: String,
    /// For [`crate::Backend::reconfigure`].
    pub settings: Settings,
    /// For its actor.
    pub args: ProviderArgs,
}

/// What the actor is started from.
#[derive(Clone)]
pub struct ProvidersArgs {
    memory: Arc<Latest<Memory>>,
    file: Option<Followed>,
}

/// What outlives a life.
#[derive(Debug, Clone, Default)]
struct Memory {
    /// In the order of the file.
    entries: Vec<ProviderEntry>,
    /// Entries that were there once: the directory is told of them too, should it have missed their end.
    gone: BTreeSet<Arc<str>>,
}

impl std::fmt::Debug for ProvidersArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProvidersArgs").field("file", &self.file.as_ref().map(|file| &file.path)).finish_non_exhaustive()
    }
}

impl ProvidersArgs {
    /// These entries, in the order of the file.
    pub fn new(entries: Vec<ProviderEntry>) -> Self {
        Self { memory: Arc::new(Latest::new(Memory { entries, gone: BTreeSet::new() })), file: None }
    }

    /// Follows the file that the entries came from.
    #[must_use]
    pub fn following(self, path: PathBuf, make: MakeEntries) -> Self {
        Self { file: Some(Followed { path: path.into(), make }), ..self }
    }

    /// This actor as the root's child: a singleton, with time for its children's stops.
    pub fn spec(self) -> ChildSpec<ProvidersActor> {
        let grace = self.memory.look().entries.iter().map(|entry| entry.args.stop_grace).max().unwrap_or_default();
        let mut spec = ChildSpec::essential(provider::PROVIDERS_ID, self);
        spec.policy.stop_timeout = grace + STOP_SLACK * 2;
        spec
    }
}

/// See the module.
#[derive(Debug)]
pub struct ProvidersActor {
    args: ProvidersArgs,
    /// What each child is built from, should it start again.
    built_from: BTreeMap<Arc<str>, Arc<Latest<ProviderEntry>>>,
    follow: Follow,
    faults: Vec<String>,
    look: Option<Timer>,
    again: Option<Timer>,
}

/// What the actor tells itself.
#[derive(Debug)]
pub enum ProvidersInternal {
    /// Nobody heard the announcement.
    #[doc(hidden)]
    Announce,
    /// Look at the file.
    #[doc(hidden)]
    Look,
    /// The look takes long.
    #[doc(hidden)]
    Stalled,
    /// The look ended; `None`: as before.
    #[doc(hidden)]
    Looked(Option<Arc<Snapshot>>),
}

impl Message for ProvidersInternal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Announce => "Announce",
            Self::Look => "Look",
            Self::Stalled => "Stalled",
            Self::Looked(_) => "Looked",
        }
    }
}

impl Actor for ProvidersActor {
    type Message = ProvidersMessage;
    type Internal = ProvidersInternal;
    type Args = ProvidersArgs;
    const KIND: &'static str = "providers";

    async fn start(ctx: &Context<Self>, args: ProvidersArgs) -> Result<Self, Failure> {
        let look = args.file.is_some().then(|| ctx.after(follow::LOOK, ProvidersInternal::Look));
        let entries = args.memory.look().entries.clone();
        let (built_from, follow) = (BTreeMap::new(), Follow::default());
        let mut actor = Self { args, built_from, follow, faults: Vec::new(), look, again: None };
        for entry in entries {
            actor.start_entry(ctx, entry);
        }
        actor.announce(ctx);
        Ok(actor)
    }

    fn handle(&mut self, ctx: &Context<Self>, message: ProvidersMessage) -> Result<(), Failure> {
        match message {
            ProvidersMessage::Announce => self.announce(ctx),
            ProvidersMessage::List { reply_to } => {
                let entries = self.args.memory.look().entries.iter().map(|entry| (Arc::clone(&entry.args.name), entry.type_)).collect();
                let _ = reply_to.send(entries);
            }
            ProvidersMessage::Faults { reply_to } => {
                let _ = reply_to.send(self.faults.clone());
            }
        }
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: ProvidersInternal) -> Result<(), Failure> {
        match message {
            ProvidersInternal::Announce => self.announce(ctx),
            ProvidersInternal::Look => self.look(ctx),
            ProvidersInternal::Stalled => {
                tracing::warn!("WARNING: the providers file does not answer, the last good one stays");
                self.refused(ctx, vec!["the file does not answer".to_owned()]);
            }
            ProvidersInternal::Looked(seen) => {
                self.look = Some(ctx.after(follow::LOOK, ProvidersInternal::Look));
                if let Some(snapshot) = self.follow.looked(Instant::now(), seen) {
                    self.take(ctx, &snapshot);
                }
            }
        }
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let memory = self.args.memory.look();
        let entries: Vec<_> = memory.entries.iter().map(|entry| json!({ "name": entry.args.name, "type": entry.type_ })).collect();
        let file = self.args.file.as_ref().map(|file| file.path.display().to_string());
        json!({ "entries": entries, "announced": self.again.is_none(), "file": file, "refused": self.faults })
    }
}

impl ProvidersActor {
    fn start_entry(&mut self, ctx: &Context<Self>, entry: ProviderEntry) {
        let (name, args) = (Arc::clone(&entry.args.name), entry.args.clone());
        let current = Arc::new(Latest::new(entry));
        self.built_from.insert(Arc::clone(&name), Arc::clone(&current));
        let policy_grace = args.stop_grace;
        // A later incarnation is built from what the entry says then.
        let args = ProviderArgs { build: Arc::new(move |ground| (current.look().args.build)(ground)), ..args };
        let mut spec = ChildSpec::<ProviderActor>::retried(provider::actor_id(&name), args);
        spec.policy = Policy { stop_timeout: policy_grace + STOP_SLACK, ..spec.policy };
        ctx.start_child(spec);
    }

    fn stop_entry(&mut self, ctx: &Context<Self>, name: &str) {
        self.built_from.remove(name);
        ctx.stop_child(&provider::actor_id(name));
    }

    fn look(&mut self, ctx: &Context<Self>) {
        let Some(file) = &self.args.file else { return };
        let (path, last, me) = (Arc::clone(&file.path), self.follow.last(), ctx.clone());
        let looking = async move {
            let mut look = tokio::task::spawn_blocking(move || follow::look(&path, last.as_deref()));
            let seen = match tokio::time::timeout(follow::PATIENCE, &mut look).await {
                Ok(seen) => seen,
                Err(_) => {
                    me.tell(ProvidersInternal::Stalled);
                    look.await
                }
            };
            // A look that panicked saw nothing.
            ProvidersInternal::Looked(seen.unwrap_or_default())
        };
        ctx.spawn(looking).keep();
    }

    /// The file stood still: it is in force from now on, or refused whole.
    fn take(&mut self, ctx: &Context<Self>, snapshot: &Snapshot) {
        let Some(file) = self.args.file.clone() else { return };
        let path = file.path.display();
        match &snapshot.config {
            Err(faults) => {
                for fault in faults {
                    tracing::warn!(%fault, "WARNING: providers file refused, the last good one stays");
                }
                self.refused(ctx, faults.iter().map(egress_config::Fault::brief).collect());
            }
            Ok(config) => {
                if !std::mem::take(&mut self.faults).is_empty() {
                    tracing::info!(file = %path, "providers file is in force again");
                }
                ctx.metrics().providers_config_valid.set(1);
                let changes = self.change(ctx, (file.make)(config));
                if changes.is_empty() {
                    return;
                }
                for warning in &config.warnings {
                    tracing::warn!(warning, "WARNING: providers file");
                }
                let named = |wanted: &[Change]| {
                    let names: Vec<&str> = changes.iter().filter(|(_, change)| wanted.contains(change)).map(|(name, _)| &**name).collect();
                    (!names.is_empty()).then(|| names.join(", "))
                };
                tracing::info!(
                    file = %path,
                    added = named(&[Change::Added]),
                    changed = named(&[Change::Live]),
                    restarted = named(&[Change::Restarted, Change::Retyped]),
                    removed = named(&[Change::Removed]),
                    "providers file changed"
                );
            }
        }
    }

    fn refused(&mut self, ctx: &Context<Self>, mut faults: Vec<String>) {
        ctx.metrics().providers_config_valid.set(0);
        let more = faults.len().saturating_sub(SHOWN);
        faults.truncate(SHOWN);
        if more > 0 {
            faults.push(format!("and {more} more"));
        }
        self.faults = faults;
    }

    /// Makes the entries those in force.
    fn change(&mut self, ctx: &Context<Self>, new: Vec<ProviderEntry>) -> Vec<(Arc<str>, Change)> {
        let old = self.args.memory.work(|memory| std::mem::replace(&mut memory.entries, new.clone()));
        let changes = plan(&old, &new);
        for (name, change) in &changes {
            let entry = new.iter().find(|entry| entry.args.name == *name);
            match (change, entry) {
                (Change::Removed, _) | (_, None) => {
                    self.stop_entry(ctx, name);
                    self.args.memory.work(|memory| memory.gone.insert(Arc::clone(name)));
                    self.tell(ctx, name, None);
                }
                (Change::Live, Some(entry)) => self.reconfigure(ctx, entry.clone()),
                (Change::Added, Some(entry)) => self.start_entry(ctx, entry.clone()),
                (Change::Restarted | Change::Retyped, Some(entry)) => {
                    self.stop_entry(ctx, name);
                    if *change == Change::Retyped {
                        self.tell(ctx, name, None);
                    }
                    self.start_entry(ctx, entry.clone());
                }
            }
            if let Some(entry) = entry {
                self.args.memory.work(|memory| memory.gone.remove(name));
                self.tell(ctx, name, Some(entry.fingerprint.clone()));
            }
        }
        changes
    }

    fn reconfigure(&mut self, ctx: &Context<Self>, entry: ProviderEntry) {
        let provider = ctx.system().address::<ProviderMessage>(&provider::actor_id(&entry.args.name));
        if let Some(built_from) = self.built_from.get(&entry.args.name) {
            built_from.put(Arc::new(entry.clone()));
        }
        if provider.send(ProviderMessage::Reconfigure { settings: Arc::clone(&entry.settings) }).is_err() {
            // It is down, or about to be up with the old settings: another one takes its place.
            self.stop_entry(ctx, &entry.args.name);
            self.start_entry(ctx, entry);
        }
    }

    /// Of one entry; a directory that is down is told of all of them when it is up.
    fn tell(&mut self, ctx: &Context<Self>, name: &Arc<str>, fingerprint: Option<String>) {
        let proxies = ctx.system().address::<ProxiesMessage>(proxies::ACTOR_ID);
        if proxies.send(ProxiesMessage::ProviderChanged { name: Arc::clone(name), fingerprint }).is_err() && self.again.is_none() {
            self.again = Some(ctx.after(REPEAT, ProvidersInternal::Announce));
        }
    }

    fn announce(&mut self, ctx: &Context<Self>) {
        self.again = None;
        let memory = self.args.memory.look();
        let gone = memory.gone.iter().map(|name| (Arc::clone(name), None));
        let there = memory.entries.iter().map(|entry| (Arc::clone(&entry.args.name), Some(entry.fingerprint.clone())));
        let all: Vec<_> = gone.chain(there).collect();
        for (name, fingerprint) in all {
            self.tell(ctx, &name, fingerprint);
            if self.again.is_some() {
                return;
            }
        }
    }
}
