//! The contract over the seam.
//!
//! Create: judge the placement, look the name up (ours: adopt), make the disk, upload the seed, make the machine with its
//! marks in one call. Delete: look up, remove seed and disk, delete the machine last, so that the marks are there until
//! nothing is left. Names of volumes are `<instance>.<tag>.disk` and `.seed` (PC-55).

mod create;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use egress_protocol::provider::{
    CreateRequest, DeleteOutcome, ErrorClass, Instance, InstanceKey, InstanceState, Leftover, ListResult, TargetVerdict,
};
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Timestamp, Uid};
use futures::future::{BoxFuture, join_all};
use tokio::time::Instant;

use super::artefact::Artefact;
use super::client::{Client, CloudError};
use super::cloud::{Cloud, Condition, Machine, Marks, ZONES, named};
use super::{Mutation, TYPE};
use crate::Mark;
use egress_provider::{Backend, BackendError, Call, Ground, Location, Subject};

/// Two ways to meet the contract (PC-71).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Deletes return early, lists leave out what cannot be reached, addresses are discovered.
    Early,
    /// Deletes wait, lists fail as a whole, addresses are known.
    Plain,
}

/// One entry.
#[derive(Debug, Clone)]
pub struct ReferenceConfig {
    /// The configured name.
    pub entry: std::sync::Arc<str>,
    /// Whose instances are ours.
    pub installation: InstallationId,
    /// The process's clock.
    pub clock: Clock,
    /// How it meets the contract.
    pub style: Style,
    /// What is broken.
    pub mutation: Option<Mutation>,
}

/// See the module.
pub struct ReferenceBackend {
    config: ReferenceConfig,
    client: Client,
    artefact: Artefact,
    /// Which attempt this is, for a mutation.
    attempt: AtomicUsize,
    /// For mutations that remember.
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    marks: HashMap<(String, String), Marks>,
    made: HashMap<String, Instant>,
    names: Option<(Instant, BTreeSet<String>)>,
}

impl fmt::Debug for ReferenceBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReferenceBackend").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What the marks of a machine say about it.
enum Owner {
    Ours,
    /// The mark that differs.
    NotOurs(&'static str),
}

impl ReferenceBackend {
    /// Neither dials nor reads (PC-73).
    pub fn new(cloud: Cloud, config: ReferenceConfig, ground: &Ground) -> Self {
        let client = Client::new(cloud.clone(), config.mutation, ground);
        if client.is(Mutation::DialsAtOnce) {
            client.dial_now();
        }
        if client.is(Mutation::NeedsCredentials) {
            let file = cloud.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
            #[expect(clippy::expect_used, reason = "the mutation is that it panics")]
            drop(file.expect("the credential file"));
        }
        let artefact = Artefact::new(cloud, ground.clone());
        Self { config, client, artefact, attempt: AtomicUsize::new(0), memory: Mutex::default() }
    }

    fn is(&self, mutation: Mutation) -> bool {
        self.client.is(mutation)
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fails<'a>(&'a self, step: &'a str) -> impl Fn(CloudError) -> BackendError + 'a {
        move |error| self.client.backend_error(step, error)
    }

    fn backend_name(&self, name: &InstanceName) -> String {
        let text = name.as_str();
        if self.is(Mutation::ShortensNames) { text.chars().take(14).collect() } else { text.to_owned() }
    }

    fn volume_name(&self, name: &str, installation: &InstallationId, kind: &str) -> String {
        let attempt = self.attempt.load(Ordering::Relaxed);
        let tag = installation.tag();
        if self.is(Mutation::NamesPerAttempt) { format!("{name}.{tag}.{kind}-{attempt}") } else { format!("{name}.{tag}.{kind}") }
    }

    /// A machine, or none.
    async fn find(&self, zone: &'static str, name: &str, call: &Call) -> Result<Option<Machine>, BackendError> {
        match self.client.find(zone, name, call).await {
            Ok(machine) => Ok(Some(machine)),
            Err(error) if error.code == "NoSuchMachine" => Ok(None),
            Err(error) => Err(self.fails("looking the machine up")(error)),
        }
    }

    /// The marks that this type wrote. Ones that cannot be read are Transient, corrupt ones Permanent (PC-26).
    fn marks(&self, at: (&str, &str), machine: &Machine) -> Result<Marks, BackendError> {
        match machine.condition {
            Condition::Unreadable if self.is(Mutation::UnreadableIsForeign) => return Ok(Marks::new()),
            Condition::Corrupt if self.is(Mutation::CorruptIsForeign) => return Ok(Marks::new()),
            Condition::Unreadable => return Err(BackendError::transient("the marks cannot be read for now")),
            Condition::Corrupt => return Err(BackendError::permanent("the marks are corrupt")),
            Condition::Whole => {}
        }
        let mut types = machine.marks.iter().filter(|(type_, _)| **type_ == TYPE || self.is(Mutation::ReadsOtherTypes));
        let marks = types.next().map(|(_, marks)| marks.clone()).unwrap_or_default();
        if self.is(Mutation::RemembersMarks) {
            let at = (at.0.to_owned(), at.1.to_owned());
            return Ok(self.memory().marks.entry(at).or_insert(marks).clone());
        }
        Ok(marks)
    }

    fn owner(marks: &Marks, uid: &Uid, installation: &InstallationId) -> Owner {
        let is = |mark: Mark, value: &str| marks.get(mark.key()).is_some_and(|seen| same(seen, value) && !seen.trim().is_empty());
        if !is(Mark::Managed, "true") {
            Owner::NotOurs(Mark::Managed.key())
        } else if !is(Mark::Uid, uid.as_str()) {
            Owner::NotOurs(Mark::Uid.key())
        } else if !is(Mark::Installation, installation.as_str()) {
            Owner::NotOurs(Mark::Installation.key())
        } else {
            Owner::Ours
        }
    }

    fn warn_foreign(&self, name: &str, mark: &str) {
        if !self.is(Mutation::SilentAboutForeign) {
            tracing::warn!(provider = %self.config.entry, instance = name, mark, "WARNING: an instance of that name is not ours, it is left alone");
        }
    }

    fn volumes_of(&self, name: &str, installation: &InstallationId) -> (String, String) {
        (self.volume_name(name, installation, "disk"), self.volume_name(name, installation, "seed"))
    }

    /// A zone of an id, if it is configured.
    fn zone(text: &str) -> Option<&'static str> {
        ZONES.into_iter().find(|zone| *zone == text)
    }

    async fn get(&self, key: &InstanceKey, call: &Call) -> Result<Instance, BackendError> {
        let id = key.id.as_ref().ok_or_else(|| BackendError::permanent("get needs an id"))?;
        let (zone, name) = self.parse(id)?;
        let Some(zone) = Self::zone(&zone) else {
            let text = format!("zone {zone:?} is not configured");
            return Err(if self.is(Mutation::UnknownZoneIsGone) { BackendError::not_found(text) } else { BackendError::permanent(text) });
        };
        let Some(machine) = self.find(zone, &name, call).await? else {
            let text = format!("no machine {name}");
            return Err(if self.is(Mutation::GoneIsTransient) { BackendError::transient(text) } else { BackendError::not_found(text) });
        };
        let young = self.memory().made.get(&name).is_some_and(|at| at.elapsed() < Duration::from_secs(1));
        if (young && self.is(Mutation::SeenLater)) || (machine.deleting && self.is(Mutation::DyingIsGone)) {
            return Err(BackendError::not_found(format!("no machine {name}")));
        }
        let marks = self.marks((zone, &name), &machine)?;
        if let Owner::NotOurs(mark) = Self::owner(&marks, &key.uid, &key.installation)
            && !self.is(Mutation::ReadsAnything)
        {
            self.warn_foreign(&name, mark);
            return Err(BackendError::not_found(format!("instance {name} is not ours: mark {mark} differs")));
        }
        let mut read = self.report(zone, &name, &machine, &marks);
        if read.state == InstanceState::Running {
            read.ip = self.address(zone, &name, &machine, call).await?;
            if read.ip.is_none() && !self.is(Mutation::RunsWithoutAddress) {
                read.state = InstanceState::Provisioning;
                read.state_detail = Some("no address yet from agent and leases".to_owned());
            }
        }
        Ok(read)
    }

    /// From the agent, then from the leases. No source answering is not the same as no address (PC-29).
    async fn address(&self, zone: &'static str, name: &str, machine: &Machine, call: &Call) -> Result<Option<Ipv4Addr>, BackendError> {
        if self.config.style == Style::Plain {
            return Ok((!machine.hidden).then_some(machine.address));
        }
        let lenient = self.is(Mutation::DeadSourcesAreEmpty);
        let agent = self.client.agent_address(zone, name, call).await;
        match agent {
            Ok(Some(ip)) => return Ok(Some(ip)),
            Err(error) if error.code == "LinkDown" && !lenient => return Err(self.fails("asking the agent")(error)),
            Ok(None) | Err(_) => {}
        }
        match (agent, self.client.lease_address(zone, name, call).await) {
            (_, Ok(ip)) => Ok(ip),
            (_, Err(_)) if lenient => Ok(None),
            (Ok(_), Err(error)) if !matches!(error.code, "LinkDown" | "Fenced") => Ok(None),
            // That the machine vanished meanwhile is for the next read to say.
            (_, Err(error)) if error.code == "NoSuchMachine" => Err(BackendError::transient("the machine vanished under the read")),
            (_, Err(error)) => {
                let mut told = self.fails("asking for the address")(error);
                told.class = ErrorClass::Transient;
                Err(told)
            }
        }
    }

    fn report(&self, zone: &str, name: &str, machine: &Machine, marks: &Marks) -> Instance {
        let state = match machine.word.as_str() {
            "prepared" if self.is(Mutation::FreshIsStopped) => InstanceState::Stopped,
            "prepared" => InstanceState::Provisioning,
            "running" => InstanceState::Running,
            "suspended" if self.is(Mutation::PausedIsStopped) => InstanceState::Stopped,
            "suspended" | "io-error" => InstanceState::Paused,
            "destroyed" => InstanceState::Terminated,
            "off" => InstanceState::Stopped,
            _ if self.is(Mutation::UnknownIsTerminated) => InstanceState::Terminated,
            _ => InstanceState::Stopped,
        };
        let dying = machine.deleting && !self.is(Mutation::DyingIsRunning);
        let mark = |mark: Mark| marks.get(mark.key()).map_or("", |text| text.trim());
        let task = machine.task_error.as_ref().filter(|_| !self.is(Mutation::HidesTaskError));
        Instance {
            id: id(zone, name),
            name: named(name).unwrap_or_else(|| InstanceName::of(&Uid::new(name))),
            state: if dying && state == InstanceState::Running { InstanceState::Provisioning } else { state },
            state_detail: Some(task.map_or_else(|| machine.word.clone(), |text| format!("starting failed: {text}"))),
            deleting: machine.deleting,
            ip: None,
            uid: Uid::new(mark(Mark::Uid).to_ascii_lowercase()),
            installation: InstallationId::new(mark(Mark::Installation)),
            created_at: Timestamp::parse(mark(Mark::CreatedAt)),
        }
    }

    async fn delete(&self, key: &InstanceKey, call: &Call) -> Result<DeleteOutcome, BackendError> {
        let Some(id) = &key.id else { return self.delete_by_name(key, call).await };
        let (zone, name) = self.parse(id)?;
        let Some(zone) = Self::zone(&zone) else {
            if self.is(Mutation::UnknownZonePins) {
                return Err(BackendError::permanent(format!("zone {zone:?} is not configured")));
            }
            tracing::debug!(provider = %self.config.entry, %id, "delete in a zone that is not configured: nothing to do");
            return Ok(DeleteOutcome::Gone);
        };
        self.delete_at(zone, &name, key, call).await
    }

    /// Where the hint says, else everywhere (PC-40).
    async fn delete_by_name(&self, key: &InstanceKey, call: &Call) -> Result<DeleteOutcome, BackendError> {
        if self.is(Mutation::NeedsIdToDelete) {
            return Ok(DeleteOutcome::Gone);
        }
        let hint = key.placement.zone.as_deref().and_then(Self::zone);
        let mut outcome = DeleteOutcome::Gone;
        for zone in ZONES.into_iter().filter(|zone| hint.is_none_or(|hint| hint == *zone)) {
            if self.delete_at(zone, &self.backend_name(&key.name), key, call).await? == DeleteOutcome::InProgress {
                outcome = DeleteOutcome::InProgress;
            }
        }
        Ok(outcome)
    }

    async fn delete_at(&self, zone: &'static str, name: &str, key: &InstanceKey, call: &Call) -> Result<DeleteOutcome, BackendError> {
        let found = self.find(zone, name, call).await?;
        let Some(machine) = found else {
            if self.is(Mutation::SecondDeleteFails) && key.id.is_some() {
                return Err(BackendError::not_found(format!("no machine {name}")));
            }
            if !self.is(Mutation::LeavesLeftovers) {
                self.remove_volumes(zone, name, &key.installation, call).await?;
            }
            return Ok(DeleteOutcome::Gone);
        };
        if key.uid.as_str().is_empty() && !self.is(Mutation::EmptyUidDeletes) {
            return Ok(DeleteOutcome::Gone);
        }
        let marks = self.marks((zone, name), &machine)?;
        if let Owner::NotOurs(mark) = Self::owner(&marks, &key.uid, &key.installation)
            && !self.is(Mutation::DeletesAnything)
            && !self.is(Mutation::EmptyUidDeletes)
        {
            self.warn_foreign(name, mark);
            return Ok(DeleteOutcome::Gone);
        }
        if machine.deleting {
            if self.is(Mutation::DeleteDuringDeleteFails) {
                return Err(BackendError::permanent(format!("machine {name} is being deleted already")));
            }
            return Ok(DeleteOutcome::InProgress);
        }
        self.remove_volumes(zone, name, &key.installation, call).await?;
        let at_once = self.config.style == Style::Plain;
        self.client.delete_machine(zone, name, at_once, call).await.map_err(self.fails("deleting the machine"))?;
        Ok(if at_once { DeleteOutcome::Gone } else { DeleteOutcome::InProgress })
    }

    async fn remove_volumes(&self, zone: &'static str, name: &str, installation: &InstallationId, call: &Call) -> Result<(), BackendError> {
        let (disk, seed) = self.volumes_of(name, installation);
        let mut volumes = vec![disk, seed];
        if self.is(Mutation::LeavesSeed) {
            volumes.pop();
        }
        if self.is(Mutation::AnybodysLeftovers) {
            let all = self.client.volumes(zone, call).await.map_err(self.fails("listing volumes"))?;
            volumes = all.into_iter().map(|(volume, _)| volume).filter(|volume| volume.starts_with(name)).collect();
        }
        for volume in volumes {
            self.client.remove_volume(zone, &volume, call).await.map_err(self.fails("removing a volume"))?;
        }
        Ok(())
    }

    /// One zone: every page, then the volumes that no machine of any kind uses.
    async fn list_zone(&self, zone: &'static str, call: &Call) -> Result<(Vec<Instance>, Vec<Leftover>), BackendError> {
        let mut machines = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let (page, next) = self.client.page(zone, after.as_deref(), call).await.map_err(self.fails("listing machines"))?;
            machines.extend(page);
            after = next;
            if after.is_none() || self.is(Mutation::FirstPageOnly) {
                break;
            }
        }
        let volumes = self.client.volumes(zone, call).await.map_err(self.fails("listing volumes"))?;
        let mut instances = Vec::new();
        for (name, machine) in &machines {
            let Ok(marks) = self.marks((zone, name), machine) else {
                tracing::debug!(provider = %self.config.entry, instance = name, "left out of the list: its marks cannot be read");
                continue;
            };
            let is = |mark: Mark, value: &str| marks.get(mark.key()).is_some_and(|seen| same(seen, value));
            let managed = is(Mark::Managed, "true") || self.is(Mutation::ListsUnmarked);
            let ours = is(Mark::Installation, self.config.installation.as_str()) || self.is(Mutation::ListsForeign);
            let hidden = self.is(Mutation::ListsNoEmptyUid) && is(Mark::Uid, "");
            if managed && ours && !hidden {
                instances.push(self.report(zone, name, machine, &marks));
            }
        }
        let tag = self.config.installation.tag();
        let mut leftovers: BTreeMap<InstanceName, Timestamp> = BTreeMap::new();
        for (volume, about) in &volumes {
            let mut parts = volume.split('.');
            let (Some(instance), Some(owner)) = (parts.next(), parts.next()) else { continue };
            let ours = owner == tag || self.is(Mutation::AnybodysLeftovers);
            if let (true, false, Some(name)) = (ours, machines.iter().any(|(name, _)| name == instance), named(instance)) {
                let at = leftovers.entry(name).or_insert(about.created_at);
                *at = (*at).min(about.created_at);
            }
        }
        let leftovers = leftovers.into_iter().map(|(name, at)| Leftover { name, created_at: Some(at) }).collect();
        Ok((instances, leftovers))
    }

    async fn list(&self, call: &Call) -> Result<ListResult, BackendError> {
        let mut listed = ListResult::default();
        for zone in ZONES {
            match self.list_zone(zone, call).await {
                Ok((instances, leftovers)) => {
                    listed.instances.extend(instances);
                    listed.leftovers.extend(leftovers);
                }
                Err(_) if self.is(Mutation::ShortList) => {}
                Err(error) if self.config.style == Style::Plain || call.cancel.is_cancelled() => return Err(error),
                Err(error) if !call.fence.holds() && !self.is(Mutation::ListsBehindFence) => return Err(error),
                Err(error) => {
                    tracing::debug!(provider = %self.config.entry, location = zone, error = %error.message, "zone left out of the list");
                    listed.left_out.push((zone.to_owned(), error.message));
                }
            }
        }
        Ok(listed)
    }

    async fn verdict(&self, zone: &'static str, call: &Call) -> TargetVerdict {
        let started = Instant::now();
        let pinged = self.client.ping(zone, call).await;
        let reason = match pinged.as_ref().map_err(|error| error.code) {
            Ok(()) => "Reachable",
            Err("Cancelled" | "Timeout") => "Timeout",
            Err("Unreachable" | "LinkDown") => "Unreachable",
            Err("Unauthorised" | "NoCredential") => "Unauthorized",
            Err(_) => "APIError",
        };
        TargetVerdict {
            name: zone.to_owned(),
            address: format!("{zone}.cloud.example"),
            ready: pinged.is_ok(),
            reason,
            message: pinged.err().map(|error| error.to_string()).unwrap_or_default(),
            latency: started.elapsed(),
            details: Vec::new(),
        }
    }

    /// `zones/<zone>/<name>`, and nothing else (PC-10).
    fn parse(&self, id: &InstanceId) -> Result<(String, String), BackendError> {
        let malformed =
            || BackendError::permanent(format!("malformed id {:?}, expected zones/<zone>/proxy-…", id.as_str())).about(id.clone());
        let mut parts = id.as_str().split('/');
        let (Some("zones"), Some(zone), Some(name)) = (parts.next(), parts.next(), parts.next()) else { return Err(malformed()) };
        if self.is(Mutation::LenientIds) {
            return Ok((zone.to_owned(), name.trim().to_owned()));
        }
        let zone_fits = !zone.is_empty() && zone.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let key = name.strip_prefix("proxy-").unwrap_or_default();
        let whole = key.len() == 16 || (self.is(Mutation::ShortensNames) && !key.is_empty());
        let name_fits = whole && key.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'));
        if !zone_fits || !name_fits || parts.next().is_some() {
            return Err(malformed());
        }
        Ok((zone.to_owned(), name.to_owned()))
    }
}

fn id(zone: &str, name: &str) -> InstanceId {
    InstanceId::new(format!("zones/{zone}/{name}"))
}

/// PC-34.
fn same(a: &str, b: &str) -> bool {
    a.trim().eq_ignore_ascii_case(b.trim())
}

impl Backend for ReferenceBackend {
    fn type_name(&self) -> &'static str {
        TYPE
    }

    fn location_of(&self, subject: Subject<'_>) -> Location {
        let (id, placement) = match subject {
            Subject::Create(request) => (None, &request.placement),
            Subject::Instance(key) => (key.id.as_ref(), &key.placement),
        };
        let of_id = id.and_then(|id| id.as_str().split('/').nth(1));
        Location::new(of_id.or(placement.zone.as_deref()).unwrap_or(ZONES[0]))
    }

    fn create<'a>(&'a self, request: &'a CreateRequest, call: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>> {
        Box::pin(self.create(request, call))
    }

    fn get<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>> {
        Box::pin(self.get(key, call))
    }

    fn delete<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>> {
        Box::pin(self.delete(key, call))
    }

    fn list_managed<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>> {
        Box::pin(self.list(call))
    }

    fn check<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Vec<TargetVerdict>>> {
        Some(Box::pin(async move {
            let mut verdicts = join_all(ZONES.map(|zone| self.verdict(zone, call))).await;
            if self.is(Mutation::ShuffledTargets) {
                verdicts.reverse();
            }
            verdicts
        }))
    }
}
