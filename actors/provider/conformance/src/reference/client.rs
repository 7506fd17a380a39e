//! The seam: one method per backend call. Each has a span under its operation's, one line, a budget of its own, ends
//! with its caller, and does not begin behind a closed fence (PC-65, PC-86 to PC-88, SV-4). What the cloud says about a
//! failure is cut down to its code before anybody sees it (PC-75).

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use egress_protocol::Timestamp;
use egress_protocol::provider::ErrorClass;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::Mutation;
use super::cloud::{At, Cloud, Machine, Marks, Raw, State, Volume, ZONES};
use super::zone::{Errand, Zone, ZoneMessage};
use egress_provider::{BackendError, Call, Caller, Ground, Host, HostError};

/// Of one call.
const BUDGET: Duration = Duration::from_secs(20);

/// A failed call: the cloud's code, and its text only where a mutation lets it through.
#[derive(Debug, Clone)]
pub(super) struct CloudError {
    pub code: &'static str,
    text: String,
}

impl fmt::Display for CloudError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CloudError {}

impl CloudError {
    pub(super) fn panicked() -> Self {
        Self { code: "Panicked", text: "the client panicked".to_owned() }
    }
}

impl From<HostError> for CloudError {
    fn from(error: HostError) -> Self {
        Self { code: "HostDied", text: error.to_string() }
    }
}

/// The one classification (PC-57): what is not known is Transient.
pub(super) fn classify(code: &str, mutation: Option<Mutation>) -> ErrorClass {
    match code {
        "NoSuchMachine" => ErrorClass::NotFound,
        "QuotaExceeded" if mutation == Some(Mutation::QuotaIsTransient) => ErrorClass::Transient,
        "QuotaExceeded" => ErrorClass::QuotaExceeded,
        "Locked" if mutation == Some(Mutation::LockedIsPermanent) => ErrorClass::Permanent,
        "Locked" if mutation == Some(Mutation::LockedIsGone) => ErrorClass::NotFound,
        "Unreachable" if mutation == Some(Mutation::UnreachableIsGone) => ErrorClass::NotFound,
        "Unauthorised" if mutation == Some(Mutation::UnauthorisedIsGone) => ErrorClass::NotFound,
        "Fenced" if mutation == Some(Mutation::FencedIsPermanent) => ErrorClass::Permanent,
        "HostDied" if mutation == Some(Mutation::HostDeathIsPermanent) => ErrorClass::Permanent,
        "Unauthorised" | "Unsupported" => ErrorClass::Permanent,
        _ => ErrorClass::Transient,
    }
}

/// What the calls need, shared with the zones' hosts.
pub(super) struct Core {
    cloud: Cloud,
    pub(super) mutation: Option<Mutation>,
    /// Read by the constructor; used by a mutation only.
    cached: Option<String>,
    jammed: AtomicBool,
    poisoned: AtomicBool,
}

/// The calls, each over its zone's link.
pub(super) struct Client {
    core: Arc<Core>,
    zones: HashMap<&'static str, Host<ZoneMessage>>,
}

impl Deref for Client {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

macro_rules! seam_span {
    ($client:expr, $name:literal, $zone:expr) => {
        match $client.mutation {
            Some(Mutation::UnspannedCall) if $name == "reference.find" => Span::none(),
            Some(Mutation::DetachedSpans) => tracing::info_span!(parent: None, $name, location = $zone),
            _ => tracing::info_span!($name, location = $zone),
        }
    };
}

/// Notices that a call was dropped or panicked.
struct Watch<'a> {
    client: &'a Core,
    done: bool,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && self.client.is(Mutation::PoisonedByPanic) {
            self.client.poisoned.store(true, Ordering::Relaxed);
        } else if !self.done && self.client.is(Mutation::AbortJamsLink) {
            self.client.jammed.store(true, Ordering::Relaxed);
        }
    }
}

impl Core {
    fn new(cloud: Cloud, mutation: Option<Mutation>) -> Self {
        let cached = cloud.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self { cloud, mutation, cached, jammed: AtomicBool::new(false), poisoned: AtomicBool::new(false) }
    }

    pub(super) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn error(&self, raw: Raw) -> CloudError {
        let text = if self.is(Mutation::EchoesBackendText) { raw.text } else { format!("the cloud answers {}", raw.code) };
        CloudError { code: raw.code, text }
    }

    pub(super) fn backend_error(&self, step: &str, error: CloudError) -> BackendError {
        let told = BackendError::new(classify(error.code, self.mutation), format!("{step}: {error}"));
        if self.is(Mutation::DropsCause) { told } else { told.caused_by(error) }
    }

    /// Asked right before each call (SV-4).
    fn is_fenced(&self, asked: &Call, call: &str) -> bool {
        let asks = match self.mutation {
            Some(Mutation::IgnoresFence) => false,
            // With what each operation begins with.
            Some(Mutation::AsksFenceOnce) => matches!(call, "dial" | "find" | "page" | "ping"),
            _ => true,
        };
        asks && !asked.fence.holds()
    }

    /// The file, read for each dial (PC-74); one that is missing may still land.
    fn credential(&self) -> Result<String, CloudError> {
        let file = self.cloud.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let token = if self.is(Mutation::CachesCredentials) { self.cached.clone() } else { file };
        token.ok_or(CloudError { code: "NoCredential", text: "the credential file is missing".to_owned() })
    }

    async fn measured<T>(
        &self,
        span: Span,
        call: &'static str,
        zone: &str,
        link: Option<u64>,
        asked: &Call,
        effect: impl FnOnce(&mut State) -> Result<T, Raw>,
    ) -> Result<T, CloudError> {
        let deaf = CancellationToken::new();
        let cancel = if self.is(Mutation::IgnoresCancellation) { &deaf } else { &asked.cancel };
        let work = async {
            let started = Instant::now();
            let mut watch = Watch { client: self, done: false };
            let broken = self.jammed.load(Ordering::Relaxed) || self.poisoned.load(Ordering::Relaxed);
            let result = tokio::select! {
                biased;
                () = std::future::ready(()), if broken => Err(Raw::new("LinkDown")),
                () = std::future::ready(()), if self.is_fenced(asked, call) => Err(Raw::new("Fenced")),
                result = self.cloud.call(call, zone, link, cancel, effect) => result,
                () = cancel.cancelled() => Err(Raw::new("Cancelled")),
                () = tokio::time::sleep(BUDGET) => Err(Raw::new("Timeout")),
            };
            watch.done = true;
            let code = result.as_ref().err().map(|raw| raw.code);
            if !(self.is(Mutation::UnloggedCall) && call == "find") {
                tracing::debug!(call, location = zone, duration = started.elapsed().as_secs_f64(), code, "reference call");
            }
            result.map_err(|raw| self.error(raw))
        };
        work.instrument(span).await
    }

    /// A new link to a zone.
    pub(super) async fn dial(&self, zone: &'static str, asked: &Call) -> Result<u64, CloudError> {
        let token = self.credential()?;
        self.measured(seam_span!(self, "reference.dial", zone), "dial", zone, None, asked, |state| state.dial(&token)).await
    }

    /// Nothing goes over that link any more.
    pub(super) fn close(&self, link: u64) {
        self.cloud.state().close(link);
    }
}

impl Client {
    pub(super) fn new(cloud: Cloud, mutation: Option<Mutation>, ground: &Ground) -> Self {
        let core = Arc::new(Core::new(cloud, mutation));
        let zones = ZONES.iter().map(|zone| (*zone, ground.start_host::<Zone>(zone, (Arc::clone(&core), *zone)))).collect();
        Self { core, zones }
    }

    /// Over the zone's link, as a task of its host. What its caller drops ends there too.
    async fn over_link<T: Send + 'static>(
        &self,
        span: Span,
        call: &'static str,
        zone: &'static str,
        asked: &Call,
        effect: impl FnOnce(&mut State) -> Result<T, Raw> + Send + 'static,
    ) -> Result<T, CloudError> {
        let Some(host) = self.zones.get(zone) else { return Err(CloudError { code: "Unsupported", text: format!("no zone {zone}") }) };
        let (mut answer, answered) = oneshot::channel::<Result<T, CloudError>>();
        let (failed, failure) = oneshot::channel::<CloudError>();
        let (core, caller) = (Arc::clone(&self.core), Caller::here(asked));
        let call_of_it = asked.clone();
        let work = move |link: u64| -> BoxFuture<'static, Option<u64>> {
            Box::pin(async move {
                let result = tokio::select! {
                    biased;
                    result = core.measured(span, call, zone, Some(link), &call_of_it, effect) => result,
                    () = answer.closed() => return None,
                };
                // Marked dead: the next call dials again (PC-68).
                let dead = result.as_ref().is_err_and(|error| error.code == "LinkDown").then_some(link);
                let _ = answer.send(result);
                dead
            })
        };
        let fail = move |error| drop(failed.send(error));
        host.tell(ZoneMessage::Run(Errand { caller, work: Box::new(work), fail: Box::new(fail) }))?;
        let deaf = CancellationToken::new();
        let cancel = if self.is(Mutation::IgnoresCancellation) { &deaf } else { &asked.cancel };
        let gone = || self.host_died(zone);
        tokio::select! {
            biased;
            Ok(error) = failure => Err(error),
            result = answered => result.unwrap_or_else(|_| Err(gone())),
            () = cancel.cancelled() => Err(self.error(Raw::new("Cancelled"))),
        }
    }

    fn host_died(&self, zone: &'static str) -> CloudError {
        if self.is(Mutation::HostDeathFailsOthers) {
            self.jammed.store(true, Ordering::Relaxed);
        }
        CloudError { code: "HostDied", text: format!("the host of {zone} went away before it answered") }
    }

    /// Dials from the constructor, as a mutation does.
    pub(super) fn dial_now(&self) {
        self.cloud.state().calls.push("dial");
    }

    /// A number that grows with every attempt of anybody; used by a mutation only.
    pub(super) fn calls_so_far(&self) -> usize {
        self.cloud.state().calls.len()
    }

    pub(super) async fn find(&self, zone: &'static str, name: &str, asked: &Call) -> Result<Machine, CloudError> {
        let at = at(zone, name);
        self.over_link(seam_span!(self, "reference.find", zone), "find", zone, asked, move |state| state.find(&at)).await
    }

    pub(super) async fn agent_address(
        &self,
        zone: &'static str,
        name: &str,
        asked: &Call,
    ) -> Result<Option<std::net::Ipv4Addr>, CloudError> {
        let at = at(zone, name);
        let span = seam_span!(self, "reference.agent_address", zone);
        self.over_link(span, "agent_address", zone, asked, move |state| Ok(state.find(&at)?).map(|m| (!m.hidden).then_some(m.address)))
            .await
    }

    pub(super) async fn lease_address(
        &self,
        zone: &'static str,
        name: &str,
        asked: &Call,
    ) -> Result<Option<std::net::Ipv4Addr>, CloudError> {
        let at = at(zone, name);
        let span = seam_span!(self, "reference.lease_address", zone);
        // Leases are known a little later than the agent is.
        self.over_link(span, "lease_address", zone, asked, move |state| state.find(&at).map(|_| None)).await
    }

    pub(super) async fn volume(&self, zone: &'static str, name: &str, asked: &Call) -> Result<Option<Volume>, CloudError> {
        let at = at(zone, name);
        let span = seam_span!(self, "reference.volume", zone);
        self.over_link(span, "volume", zone, asked, move |state| Ok(state.volumes.get(&at).cloned())).await
    }

    pub(super) async fn volumes(&self, zone: &'static str, asked: &Call) -> Result<Vec<(String, Volume)>, CloudError> {
        let span = seam_span!(self, "reference.volumes", zone);
        let ours = move |state: &mut State| {
            let there = state.volumes.iter().filter(|((at, _), _)| at == zone);
            Ok(there.map(|((_, name), volume)| (name.clone(), volume.clone())).collect())
        };
        self.over_link(span, "volumes", zone, asked, ours).await
    }

    pub(super) async fn make_disk(&self, zone: &'static str, name: &str, volume: Volume, asked: &Call) -> Result<(), CloudError> {
        let at = at(zone, name);
        let span = seam_span!(self, "reference.make_disk", zone);
        let made = move |state: &mut State| {
            state.volumes.insert(at, volume);
            Ok(())
        };
        self.over_link(span, "make_disk", zone, asked, made).await
    }

    /// Replaces what an interrupted upload may have left (PC-12).
    pub(super) async fn upload_seed(
        &self,
        zone: &'static str,
        name: &str,
        body: &[u8],
        now: Timestamp,
        asked: &Call,
    ) -> Result<(), CloudError> {
        if self.is(Mutation::LogsBodies) {
            tracing::trace!(body = %String::from_utf8_lossy(body), "upload");
        } else {
            tracing::trace!(bytes = body.len(), "upload");
        }
        let (at, size) = (at(zone, name), body.len() as u64);
        let span = seam_span!(self, "reference.upload_seed", zone);
        let made = move |state: &mut State| {
            state.volumes.insert(at, Volume { image: "seed".to_owned(), size, created_at: now });
            Ok(())
        };
        self.over_link(span, "upload_seed", zone, asked, made).await
    }

    /// Absence is fine.
    pub(super) async fn remove_volume(&self, zone: &'static str, name: &str, asked: &Call) -> Result<(), CloudError> {
        let at = at(zone, name);
        let span = seam_span!(self, "reference.remove_volume", zone);
        let removed = move |state: &mut State| {
            state.volumes.remove(&at);
            Ok(())
        };
        self.over_link(span, "remove_volume", zone, asked, removed).await
    }

    pub(super) async fn make_machine(&self, zone: &'static str, name: &str, marks: Marks, asked: &Call) -> Result<(), CloudError> {
        let at = at(zone, name);
        let span = seam_span!(self, "reference.make_machine", zone);
        self.over_link(span, "make_machine", zone, asked, move |state| state.make_machine(at, marks)).await
    }

    /// Used by a mutation only.
    pub(super) async fn set_marks(&self, zone: &'static str, name: &str, marks: Marks, asked: &Call) -> Result<(), CloudError> {
        let at = at(zone, name);
        let span = seam_span!(self, "reference.set_marks", zone);
        let set = move |state: &mut State| {
            let machine = state.machines.get_mut(&at).ok_or_else(|| Raw::new("NoSuchMachine"))?;
            machine.marks.insert(super::TYPE, marks);
            Ok(())
        };
        self.over_link(span, "set_marks", zone, asked, set).await
    }

    /// Begins it, or does it, as the cloud is.
    pub(super) async fn delete_machine(&self, zone: &'static str, name: &str, at_once: bool, asked: &Call) -> Result<(), CloudError> {
        let at = at(zone, name);
        let span = seam_span!(self, "reference.delete_machine", zone);
        let deleted = move |state: &mut State| {
            if at_once {
                state.machines.remove(&at);
            } else if let Some(machine) = state.machines.get_mut(&at) {
                machine.deleting = true;
            }
            Ok(())
        };
        self.over_link(span, "delete_machine", zone, asked, deleted).await
    }

    pub(super) async fn page(
        &self,
        zone: &'static str,
        after: Option<&str>,
        asked: &Call,
    ) -> Result<(Vec<(String, Machine)>, Option<String>), CloudError> {
        let (span, after) = (seam_span!(self, "reference.page", zone), after.map(str::to_owned));
        self.over_link(span, "page", zone, asked, move |state| Ok(state.page(zone, after.as_deref()))).await
    }

    /// Over no link in use (PH-29).
    pub(super) async fn ping(&self, zone: &'static str, asked: &Call) -> Result<(), CloudError> {
        let token = self.credential()?;
        let deaf = asked.clone().with_cancel(CancellationToken::new());
        let asked = if self.is(Mutation::StubbornCheck) { &deaf } else { asked };
        let span = seam_span!(self, "reference.ping", zone);
        let pinged = |state: &mut State| {
            let link = state.dial(&token)?;
            state.close(link);
            Ok(())
        };
        let result = self.measured(span, "ping", zone, None, asked, pinged).await;
        if self.is(Mutation::CheckClosesLinks) {
            self.cloud.close_all();
        }
        result
    }
}

fn at(zone: &str, name: &str) -> At {
    (zone.to_owned(), name.to_owned())
}
