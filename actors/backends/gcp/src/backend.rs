//! The provider contract over the calls (provider-gcp.md §3…§8).

mod absence;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use egress_protocol::provider::{CreateRequest, DeleteOutcome, Instance, InstanceKey, InstanceState, ListResult, Settings, TargetVerdict};
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Timestamp, Uid};
use egress_provider::ownership::Ownership;
use egress_provider::{Backend, BackendError, Call, Ground, Location, Subject};
use egress_supervision::Failure;
use futures::future::BoxFuture;

use crate::api::Api;
use crate::body::InsertBody;
use crate::check;
use crate::class::{failed, not_created};
use crate::client::{self, Sender, Wire};
use crate::config::{GcpConfig, Live};
use crate::credentials::Fetcher;
use crate::host::{self, HostArgs, TokenSource};
use crate::id::VmRef;
use crate::model::{Operation, Vm, VmPage};
use crate::operations::{Absence, Kind, Known};
use crate::place::Place;
use crate::request::Requests;
use crate::state;

/// Where calls go whose zone is not known yet.
const ANYWHERE: &str = "every zone";
/// A scope without instances warns so; it is no fault.
const NOTHING_THERE: &str = "NO_RESULTS_ON_PAGE";

/// Virtual machines of one project.
pub struct GcpBackend {
    config: Arc<GcpConfig>,
    live: ArcSwap<Live>,
    requests: Requests,
    api: Api,
    clock: Clock,
}

impl fmt::Debug for GcpBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GcpBackend").field("entry", &self.config.entry).finish_non_exhaustive()
    }
}

impl GcpBackend {
    /// Starts the host `host/<entry>/api`. Dials nothing, reads nothing and fetches no token (PC-73).
    pub fn new(config: GcpConfig, ground: &Ground, clock: Clock) -> Result<Self, Failure> {
        let http = client::http(&config.budgets).map_err(Failure::new)?;
        let fetcher = Fetcher { http: http.clone(), source: config.credentials.clone(), clock };
        Self::over(config, ground, clock, Arc::new(http), Arc::new(fetcher))
    }

    /// Over a client and a source of tokens of one's own.
    pub(crate) fn over(
        config: GcpConfig,
        ground: &Ground,
        clock: Clock,
        wire: Arc<dyn Wire>,
        tokens: Arc<dyn TokenSource>,
    ) -> Result<Self, Failure> {
        let config = Arc::new(config);
        let requests = Requests::new(Arc::clone(&config)).map_err(Failure::new)?;
        let sender = Sender { entry: Arc::clone(&config.entry), full_payloads: config.full_payloads };
        let args = HostArgs { sender, wire, tokens, token_budget: config.budgets.token };
        let api = Api::new(ground.start_host::<host::Host>("api", args));
        Ok(Self { live: ArcSwap::from_pointee(config.live.clone()), requests, config, api, clock })
    }

    async fn make(&self, request: &CreateRequest, call: &Call) -> Result<InstanceId, BackendError> {
        let place = Place::of(&request.placement)?;
        let body = InsertBody::new(request, &place, &self.config, self.live.load().disk_size_gb)?;
        let at = VmRef { zone: place.zone, name: request.name.clone() };
        tracing::trace!(provider = %self.config.entry, instance = %at.name, zone = at.zone, %body, "instance to insert");
        match self.api.read::<Operation>(self.requests.insert(&at, &body), call).await {
            Ok(operation) => {
                self.keep(&at, Kind::Insert, operation.name);
                Ok(at.id())
            }
            Err(error) if error.api_status() == Some(409) => self.adopt(&at, request, call).await,
            Err(error) => Err(not_created(format_args!("inserting {at}"), error)),
        }
    }

    /// The name is taken: by our own instance, by one on its way out, or by somebody else's (GC-7).
    async fn adopt(&self, at: &VmRef, request: &CreateRequest, call: &Call) -> Result<InstanceId, BackendError> {
        let vm = match self.api.read::<Vm>(self.requests.get(at), call).await {
            Ok(vm) => vm,
            // It vanished, or its insert is still running: the next create or get finds out.
            Err(error) if error.is_absent() => {
                return Err(BackendError::transient(format!("{at} is taken and not there yet, or not any more")).caused_by(error));
            }
            Err(error) => return Err(not_created(format_args!("reading {at}, whose name is taken"), error)),
        };
        if let Some(label) = Ownership::of(Some(&vm.labels)).differs(&request.uid, &request.installation) {
            return Err(BackendError::permanent(format!("{at} is not ours: its label {label} differs")).about(at.id()));
        }
        if self.deletion(at, &vm, call).await?.is_some() {
            return Err(BackendError::transient(format!("{at} is still being deleted")).about(at.id()));
        }
        Ok(at.id())
    }

    async fn read(&self, key: &InstanceKey, call: &Call) -> Result<Instance, BackendError> {
        let id = key.id.as_ref().ok_or_else(|| BackendError::permanent("get needs an id"))?;
        let at = VmRef::parse(id)?;
        let vm = match self.api.read::<Vm>(self.requests.get(&at), call).await {
            Ok(vm) => vm,
            Err(error) if error.is_absent() => return self.missing(&at, key, call).await,
            Err(error) => return Err(failed(format_args!("reading {at}"), error).about(at.id())),
        };
        if let Some(label) = Ownership::of(Some(&vm.labels)).differs(&key.uid, &key.installation) {
            self.warn_foreign(&at, label);
            return Err(BackendError::not_found(format!("{at} is not ours: its label {label} differs")).about(at.id()));
        }
        let known = self.api.known(&at.name, call).await.map_err(|error| failed(format_args!("reading {at}"), error).about(at.id()))?;
        let deleting = known.is_some_and(|known| known.kind == Kind::Delete && known.zone == at.zone);
        Ok(self.instance(&at, &vm, deleting))
    }

    /// What a 404 on an instance means (GC-11, GC-12).
    async fn missing(&self, at: &VmRef, key: &InstanceKey, call: &Call) -> Result<Instance, BackendError> {
        let gone = || BackendError::not_found(format!("{at} does not exist")).about(at.id());
        let (absence, known) = self.absence(at, call).await?;
        match absence {
            Absence::Gone => Err(gone()),
            Absence::InTheMaking => Ok(Instance {
                id: at.id(),
                name: at.name.clone(),
                state: InstanceState::Provisioning,
                state_detail: Some("its insert is still running".to_owned()),
                deleting: false,
                ip: None,
                uid: key.uid.clone(),
                installation: key.installation.clone(),
                created_at: None,
            }),
            Absence::Failed { class, message } => {
                let first = match known {
                    Some(known) => self.api.report(&at.name, known, call).await,
                    None => Ok(true),
                };
                match first.map_err(|error| failed(format_args!("reading {at}"), error).about(at.id()))? {
                    true => Err(BackendError::new(class, format!("{at} could not be made: {message}")).about(at.id())),
                    false => Err(gone()),
                }
            }
        }
    }

    async fn remove(&self, key: &InstanceKey, call: &Call) -> Result<DeleteOutcome, BackendError> {
        if key.uid.as_str().trim().is_empty() {
            // Only leftovers would be removed, and this type makes none (PC-40): disk and address go with the instance.
            return Ok(DeleteOutcome::Gone);
        }
        let places = match (&key.id, &key.placement.zone) {
            (Some(id), _) => vec![VmRef::parse(id)?],
            (None, Some(zone)) if crate::id::is_zone(zone) => vec![VmRef { zone: zone.clone(), name: key.name.clone() }],
            (None, _) => self.find(&key.name, call).await?,
        };
        let mut outcome = DeleteOutcome::Gone;
        for at in &places {
            if self.remove_one(at, key, call).await? == DeleteOutcome::InProgress {
                outcome = DeleteOutcome::InProgress;
            }
        }
        Ok(outcome)
    }

    async fn remove_one(&self, at: &VmRef, key: &InstanceKey, call: &Call) -> Result<DeleteOutcome, BackendError> {
        let vm = match self.api.read::<Vm>(self.requests.get(at), call).await {
            Ok(vm) => vm,
            Err(error) if error.is_absent() => {
                return Ok(match self.absence(at, call).await?.0 {
                    Absence::InTheMaking => DeleteOutcome::InProgress,
                    Absence::Gone | Absence::Failed { .. } => DeleteOutcome::Gone,
                });
            }
            Err(error) => return Err(failed(format_args!("reading {at}"), error).about(at.id())),
        };
        if let Some(label) = Ownership::of(Some(&vm.labels)).differs(&key.uid, &key.installation) {
            self.warn_foreign(at, label);
            return Ok(DeleteOutcome::Gone);
        }
        if self.deletion(at, &vm, call).await?.is_some() {
            return Ok(DeleteOutcome::InProgress);
        }
        match self.api.read::<Operation>(self.requests.delete(at), call).await {
            Ok(operation) => {
                self.keep(at, Kind::Delete, operation.name);
                Ok(DeleteOutcome::InProgress)
            }
            Err(error) if error.is_absent() => Ok(DeleteOutcome::Gone),
            Err(error) => Err(failed(format_args!("deleting {at}"), error).about(at.id())),
        }
    }

    /// Where an instance of that name is (GC-14). A zone that cannot be read might have it.
    async fn find(&self, name: &InstanceName, call: &Call) -> Result<Vec<VmRef>, BackendError> {
        let page: VmPage =
            self.api.read(self.requests.find(name), call).await.map_err(|error| failed(format_args!("looking for {name}"), error))?;
        let found: Vec<VmRef> = (page.items.iter())
            .filter_map(|(scope, list)| Some((zone_of(scope)?, list)))
            .flat_map(|(zone, list)| list.instances.iter().filter(|vm| vm.name == name.as_str()).map(move |_| zone))
            .map(|zone| VmRef { zone: zone.to_owned(), name: name.clone() })
            .collect();
        match left_out(&page).into_iter().next() {
            Some((scope, why)) if found.is_empty() => {
                Err(BackendError::transient(format!("looking for {name}: {scope} cannot be read: {why}")))
            }
            _ => Ok(found),
        }
    }

    async fn list(&self, call: &Call) -> Result<ListResult, BackendError> {
        let mut result = ListResult::default();
        let mut token: Option<String> = None;
        loop {
            let request = self.requests.list(self.config.budgets.page_size, token.as_deref());
            let page: VmPage = self.api.read(request, call).await.map_err(|error| failed("listing instances", error))?;
            for (scope, why) in left_out(&page) {
                tracing::warn!(provider = %self.config.entry, scope, why, "WARNING: a part of the project could not be listed");
                result.left_out.push((scope, why));
            }
            for (scope, list) in &page.items {
                let Some(zone) = zone_of(scope) else { continue };
                for vm in &list.instances {
                    self.take(zone, vm, &mut result);
                }
            }
            token = page.next_page_token.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(result);
            }
        }
    }

    /// An instance of this installation goes into the list; others are not ours (PC-43, PC-54).
    fn take(&self, zone: &str, vm: &Vm, result: &mut ListResult) {
        let ownership = Ownership::of(Some(&vm.labels));
        if !ownership.is_managed() || !ownership.is_of(&self.config.installation) {
            return;
        }
        match InstanceName::parse(&vm.name) {
            Some(name) => {
                let at = VmRef { zone: zone.to_owned(), name };
                tracing::trace!(provider = %self.config.entry, instance = %at.name, zone, status = vm.status, "instance listed");
                result.instances.push(self.instance(&at, vm, false));
            }
            None => {
                tracing::debug!(provider = %self.config.entry, instance = vm.name, zone, "an instance has our labels and no name of ours");
                result.left_out.push((format!("zones/{zone}/instances/{}", vm.name), "it has our labels and no name of ours".to_owned()));
            }
        }
    }

    fn instance(&self, at: &VmRef, vm: &Vm, deleting: bool) -> Instance {
        let ownership = Ownership::of(Some(&vm.labels));
        let ip = state::address(vm, self.config.address_mode);
        Instance {
            id: at.id(),
            name: at.name.clone(),
            state: state::state(&vm.status, ip, deleting),
            state_detail: Some(vm.status.clone()),
            deleting,
            ip,
            uid: Uid::new(ownership.uid),
            installation: InstallationId::new(ownership.installation),
            created_at: vm.creation_timestamp.as_deref().and_then(Timestamp::parse),
        }
    }

    fn keep(&self, at: &VmRef, kind: Kind, operation: String) {
        self.api.keep(&at.name, Known { zone: at.zone.clone(), operation, kind, reported: false });
    }

    fn warn_foreign(&self, at: &VmRef, label: &'static str) {
        tracing::warn!(
            provider = %self.config.entry,
            instance = %at.name,
            zone = at.zone,
            label,
            "WARNING: an instance of that name is not ours, it is left alone"
        );
    }
}

/// The zone of a scope `zones/<zone>`; lists of other scopes hold no instances.
fn zone_of(scope: &str) -> Option<&str> {
    scope.strip_prefix("zones/").filter(|zone| crate::id::is_zone(zone))
}

/// What of a page's scope could not be read, each with its reason (GC-15).
fn left_out(page: &VmPage) -> Vec<(String, String)> {
    let unreachable = page.unreachables.iter().map(|scope| (scope.clone(), "unreachable".to_owned()));
    let warned = page.items.iter().filter_map(|(scope, list)| {
        let warning = list.warning.as_ref().filter(|warning| warning.code != NOTHING_THERE)?;
        Some((scope.clone(), format!("{}: {}", warning.code, warning.message)))
    });
    unreachable.chain(warned).collect()
}

impl Backend for GcpBackend {
    fn type_name(&self) -> &'static str {
        crate::TYPE
    }

    fn location_of(&self, subject: Subject<'_>) -> Location {
        let zone = match subject {
            Subject::Create(request) => request.placement.zone.clone(),
            Subject::Instance(key) => match &key.id {
                Some(id) => VmRef::parse(id).ok().map(|at| at.zone),
                None => key.placement.zone.clone(),
            },
        };
        zone.map_or_else(|| Location::new(ANYWHERE), Location::new)
    }

    fn reconfigure(&self, settings: &Settings) -> bool {
        let Some(live) = settings.downcast_ref::<Live>() else { return false };
        self.live.store(Arc::new(live.clone()));
        true
    }

    fn create<'a>(&'a self, request: &'a CreateRequest, call: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>> {
        Box::pin(self.make(request, call))
    }

    fn get<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>> {
        Box::pin(self.read(key, call))
    }

    fn delete<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>> {
        Box::pin(self.remove(key, call))
    }

    fn list_managed<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>> {
        Box::pin(self.list(call))
    }

    fn check<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Vec<TargetVerdict>>> {
        let regions = self.live.load_full();
        Some(Box::pin(async move {
            let verdicts = check::check(&self.api, &self.requests, &self.config.project, &regions.quota_regions, call).await;
            for verdict in verdicts.iter().filter(|verdict| !verdict.ready) {
                let (reason, error) = (verdict.reason, &verdict.message);
                tracing::debug!(provider = %self.config.entry, op = "check", target = verdict.name, reason, error, "gcp check failed");
            }
            verdicts
        }))
    }
}
