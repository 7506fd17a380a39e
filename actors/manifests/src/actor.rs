//! The source of objects, standalone: `source`.
//!
//! - Role: follows the manifest folders, keeps every object's record in the state folder, tells the directory.
//! - Supervised by the process's root as essential: its spent budget ends the process (SV-2). Supervises nothing.
//! - Receives: `SourceMessage` from proxies' actors, the directory and the readiness page.
//! - Sends: `Apply`, `Gone` and `Synced` to `proxies`.
//! - States: unsynced until every file it found may be believed (or one kept changing for too long), synced afterwards.
//!   At most one look at the folders and one batch of writes are under way, each as a task.
//! - Failure policy: a folder or file that cannot be read and a write that fails are faults that are shown and tried
//!   again. A crash starts over from the state folder; what the task of the dead incarnation may still do is harmless:
//!   the state folder takes writes from its latest reader only.

mod args;
mod telling;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::message::{Message, Reply};
use egress_protocol::proxies::{self, ProxiesMessage};
use egress_protocol::source::{SourceError, SourceMessage};
use egress_protocol::{Clock, ObjectKey, Timestamp, Uid};
use egress_supervision::{Actor, Address, Context, Failure, Task, Timer};
use tokio::task::spawn_blocking;

use crate::folder::Snapshot;
use crate::folder::decide::{Decision, KnownProxy, KnownSecret, decide};
use crate::folder::tracker::Tracker;
use crate::ledger::{Ledger, Taken, Written};
use crate::scan::Scanner;
use crate::state::Record;

pub use args::{ManifestsArgs, Pace, spec};

/// A look at the folders that takes longer is a fault.
const SLOW_LOOK: Duration = Duration::from_secs(10);
/// Files that do not stand still for longer are a fault, for nothing is deleted meanwhile.
const RESTLESS: Duration = Duration::from_secs(60);
/// Between tries of writes that failed.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Who waits for a write.
#[derive(Debug)]
enum Waiter {
    Status(Reply<Result<i64, SourceError>>),
    Finalizer(Reply<Result<(), SourceError>>),
}

impl Waiter {
    /// A caller that gave up hears nothing.
    fn answer(self, result: Result<i64, SourceError>) {
        let _gave_up = match self {
            Self::Status(reply_to) => reply_to.send(result).is_err(),
            Self::Finalizer(reply_to) => reply_to.send(result.map(|_| ())).is_err(),
        };
    }
}

/// What the actor tells itself.
#[doc(hidden)]
#[derive(Debug)]
pub enum Internal {
    /// Time for a look at the folders.
    Look,
    /// The look ended; without a snapshot its task broke down.
    Looked(Result<Box<(Looker, Seen)>, String>),
    /// A batch ended, with one result per change.
    Written(Vec<Result<(), String>>),
    /// Time to try failed writes again.
    Rewrite,
}

/// The scanner on its way through a task.
#[doc(hidden)]
#[derive(Debug)]
pub struct Looker(Scanner);

/// What it saw.
#[doc(hidden)]
#[derive(Debug)]
pub struct Seen(Snapshot);

impl Message for Internal {
    fn kind(&self) -> &'static str {
        match self {
            Self::Look => "Look",
            Self::Looked(_) => "Looked",
            Self::Written(_) => "Written",
            Self::Rewrite => "Rewrite",
        }
    }
}

/// The actor. See the module's documentation.
#[derive(Debug)]
pub struct ManifestsActor {
    args: ManifestsArgs,
    reader: u64,
    ledger: Ledger<Waiter>,
    secrets: BTreeMap<ObjectKey, KnownSecret>,
    tracker: Tracker,
    /// Here between looks.
    scanner: Option<Scanner>,
    look_began: Timestamp,
    /// What is known may differ from what was last decided.
    undecided: bool,
    synced: bool,
    /// Something could not be told: the directory was down.
    untold: bool,
    faults: Vec<String>,
    write_fault: Option<String>,
    retry_after: Duration,
    proxies: Address<ProxiesMessage>,
    look: Option<Task>,
    batch: Option<Task>,
    next_look: Option<Timer>,
    retry: Option<Timer>,
}

impl Actor for ManifestsActor {
    type Message = SourceMessage;
    type Internal = Internal;
    type Args = ManifestsArgs;
    const KIND: &'static str = "source";

    async fn start(ctx: &Context<Self>, args: ManifestsArgs) -> Result<Self, Failure> {
        let state = args.state.clone();
        let (reader, records) = spawn_blocking(move || state.take_over()).await.map_err(Failure::new)?.map_err(Failure::new)?;
        ctx.tell(Internal::Look);
        Ok(Self {
            reader,
            ledger: Ledger::new(records),
            secrets: BTreeMap::new(),
            tracker: Tracker::new(args.pace.still),
            scanner: Some(Scanner::new(&args.folders, args.parse)),
            look_began: ctx.now(),
            undecided: true,
            synced: false,
            untold: false,
            faults: Vec::new(),
            write_fault: None,
            retry_after: RETRY.0,
            proxies: ctx.system().address(proxies::ACTOR_ID),
            look: None,
            batch: None,
            next_look: None,
            retry: None,
            args,
        })
    }

    fn handle(&mut self, ctx: &Context<Self>, message: SourceMessage) -> Result<(), Failure> {
        match message {
            SourceMessage::WriteStatus { key, uid, status, reply_to, .. } => {
                self.request(&key, &uid, Waiter::Status(reply_to), |record| {
                    record.status = status;
                    Ok(())
                });
            }
            SourceMessage::AddFinalizer { key, uid, reply_to, .. } => {
                self.request(&key, &uid, Waiter::Finalizer(reply_to), |record| {
                    if record.deleting && !record.finalizer {
                        return Err(SourceError::Gone);
                    }
                    record.finalizer = true;
                    Ok(())
                });
            }
            SourceMessage::RemoveFinalizer { key, uid, reply_to, .. } => {
                self.request(&key, &uid, Waiter::Finalizer(reply_to), |record| {
                    record.finalizer = false;
                    Ok(())
                });
            }
            SourceMessage::Publish { event } => {
                tracing::debug!(proxy = %event.key, uid = %event.uid, reason = event.reason.as_str(), note = event.note, "event");
            }
            SourceMessage::Resend => self.resend(),
            SourceMessage::LiveUids { reply_to } => {
                let _gave_up = reply_to.send(Ok(self.live(ctx.now()))).is_err();
            }
            SourceMessage::List { reply_to } => {
                let _gave_up = reply_to.send(self.objects()).is_err();
            }
            SourceMessage::Faults { reply_to } => {
                let _gave_up = reply_to.send(self.all_faults(ctx.now())).is_err();
            }
        }
        self.write(ctx);
        Ok(())
    }

    fn handle_internal(&mut self, ctx: &Context<Self>, message: Internal) -> Result<(), Failure> {
        match message {
            Internal::Look => self.look(ctx),
            Internal::Looked(Ok(looked)) => {
                let (Looker(scanner), Seen(snapshot)) = *looked;
                self.scanner = Some(scanner);
                self.undecided |= self.tracker.observe(snapshot);
                self.decide_and_tell(ctx);
                let pause = if self.tracker.quiet() { self.args.pace.idle } else { self.args.pace.active };
                self.next_look = Some(ctx.after(pause, Internal::Look));
            }
            Internal::Looked(Err(reason)) => return Err(Failure(reason)),
            Internal::Written(results) => {
                self.batch = None;
                self.written(ctx, results);
                self.decide_and_tell(ctx);
            }
            Internal::Rewrite => self.retry = None,
        }
        self.write(ctx);
        Ok(())
    }

    fn describe(&self) -> serde_json::Value {
        let suspended = self.ledger.recorded().filter(|record| !self.args.folders.contain(&record.home.folder)).count();
        serde_json::json!({
            "objects": self.ledger.recorded().count(),
            "suspended": suspended,
            "secrets": self.secrets.len(),
            "synced": self.synced,
            "filesStandStill": self.tracker.quiet(),
            "unwritten": self.ledger.has_unwritten(),
            "faults": self.faults.len(),
        })
    }

    /// What still waits is written, if the disk lets us: nobody is told, and nothing breaks without it.
    async fn stopping(&mut self, _ctx: &Context<Self>) {
        drop(self.ledger.finish_batch(Vec::new()));
        if let Some(batch) = self.ledger.take_batch() {
            let (state, reader) = (self.args.state.clone(), self.reader);
            if spawn_blocking(move || state.write(reader, &batch)).await.is_err() {
                tracing::debug!("the last writes did not end");
            }
        }
    }
}

impl ManifestsActor {
    fn look(&mut self, ctx: &Context<Self>) {
        let Some(mut scanner) = self.scanner.take() else { return };
        if self.untold && self.proxies.is_up() {
            self.resend();
        }
        self.look_began = ctx.now();
        let clock: Clock = ctx.system().clock();
        let look = move || {
            let seen = scanner.scan(&clock);
            Box::new((Looker(scanner), Seen(seen)))
        };
        self.look = Some(ctx.spawn(async move { Internal::Looked(spawn_blocking(look).await.map_err(|error| error.to_string())) }));
    }

    fn request(&mut self, key: &ObjectKey, uid: &Uid, waiter: Waiter, change: impl FnOnce(&mut Record) -> Result<(), SourceError>) {
        match self.ledger.request(key, uid, waiter, change) {
            Taken::Already(waiter, generation) => waiter.answer(Ok(generation)),
            Taken::Gone(waiter) => waiter.answer(Err(SourceError::Gone)),
            Taken::Waits => {}
        }
    }

    fn write(&mut self, ctx: &Context<Self>) {
        if self.retry.is_some() && !self.ledger.is_awaited() {
            return;
        }
        let Some(batch) = self.ledger.take_batch() else { return };
        let (state, reader, count) = (self.args.state.clone(), self.reader, batch.len());
        self.batch = Some(ctx.spawn(async move {
            let write = move || state.write(reader, &batch);
            Internal::Written(spawn_blocking(write).await.unwrap_or_else(|error| vec![Err(error.to_string()); count]))
        }));
    }

    fn written(&mut self, ctx: &Context<Self>, results: Vec<Result<(), String>>) {
        let mut fault = None;
        for Written { key, uid, result, removed, waiters } in self.ledger.finish_batch(results) {
            match &result {
                Err(error) => fault = Some(error.to_string()),
                Ok(_) if removed => {
                    // Its successor may be waiting.
                    self.undecided = true;
                    tracing::debug!(proxy = %key, uid = %uid, "object gone");
                    self.send(ProxiesMessage::Gone { key, uid });
                }
                Ok(_) => self.tell(&key),
            }
            waiters.into_iter().for_each(|waiter| waiter.answer(result.clone()));
        }
        match &fault {
            Some(reason) => {
                if self.write_fault.is_none() {
                    tracing::warn!(reason, "WARNING: the state folder does not take writes");
                }
                self.retry = Some(ctx.after(self.retry_after, Internal::Rewrite));
                self.retry_after = (self.retry_after * 2).min(RETRY.1);
            }
            None => (self.retry, self.retry_after) = (None, RETRY.0),
        }
        self.write_fault = fault;
    }

    /// Decides if there may be something to decide, and tells everything at the first time.
    fn decide_and_tell(&mut self, ctx: &Context<Self>) {
        if self.undecided && self.tracker.ready(ctx.now()) {
            self.undecided = false;
            self.decide();
            if !self.synced {
                self.synced = true;
                self.warn_of_suspended();
                self.resend();
            }
        }
    }

    fn decide(&mut self) {
        let known = |(record, removing): (&Record, bool)| {
            let known = KnownProxy {
                home: record.home.clone(),
                spec: Arc::clone(&record.spec),
                annotations: record.annotations.clone(),
                deleting: record.deleting || removing,
            };
            (record.key.clone(), known)
        };
        let objects: BTreeMap<ObjectKey, KnownProxy> = self.ledger.decided().map(known).collect();
        let folders = &self.args.folders;
        let decisions = decide(&self.tracker, &objects, &mut self.secrets, &|folder| folders.contain(folder));
        for decision in decisions.objects {
            self.carry_out(decision);
        }
        self.tell_of_secrets(&decisions.secrets);
        for fault in decisions.faults.iter().filter(|fault| !self.faults.contains(fault)) {
            tracing::warn!(fault, "WARNING: the manifests are not in order");
        }
        self.faults = decisions.faults;
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Create { key, home, declared } => {
                let uid = random_uid();
                tracing::debug!(proxy = %key, uid = %uid, home = %home, "object declared");
                self.ledger.create(Record {
                    key,
                    uid,
                    generation: 1,
                    spec: declared.spec,
                    status: Arc::default(),
                    annotations: declared.annotations,
                    deleting: false,
                    finalizer: false,
                    home,
                });
            }
            Decision::Update { key, home, declared, spec_changed } => {
                tracing::debug!(proxy = %key, home = %home, spec_changed, "object changed");
                self.ledger.change(&key, |record| {
                    record.generation += i64::from(spec_changed);
                    (record.spec, record.annotations, record.home) = (declared.spec, declared.annotations, home);
                });
            }
            Decision::Move { key, home } => self.ledger.change(&key, |record| record.home = home),
            Decision::Delete { key } => {
                tracing::debug!(proxy = %key, "object removed");
                self.ledger.change(&key, |record| record.deleting = true);
            }
        }
    }

    fn all_faults(&self, now: Timestamp) -> Vec<String> {
        let slow = self.scanner.is_none() && now.since(self.look_began) >= SLOW_LOOK;
        let restless = self.tracker.restless_for(now) >= RESTLESS;
        let slow = slow.then(|| "the manifest folders do not answer".to_owned());
        let restless = restless.then(|| "the files have not stood still for a minute; what was removed stays until they do".to_owned());
        let write = self.write_fault.iter().map(|reason| format!("the state folder does not take writes: {reason}"));
        write.chain(slow).chain(restless).chain(self.faults.iter().cloned()).collect()
    }
}

/// A version 4 UUID.
fn random_uid() -> Uid {
    let mut bytes: [u8; 16] = rand::random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = data_encoding::HEXLOWER.encode(&bytes);
    Uid::new([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}
