//! What the reference backend supplies to the suite: every hook.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use egress_protocol::provider::{CreateRequest, ErrorClass, InstanceState};
use egress_protocol::resource::Placement;
use egress_protocol::{InstallationId, InstanceId, InstanceName, Timestamp, Uid};
use egress_supervision::Failure;
use futures::future::BoxFuture;

use super::client::classify;
use super::cloud::{Cloud, Condition, Machine, Marks, PASSWORD, TOKEN, Volume, ZONES, named};
use super::{Mutation, ReferenceBackend, ReferenceConfig, Style, TYPE};
use crate::{
    Alter, AsyncOps, BackendTest, BadPlacement, Captured, ChildSpans, Classified, ClientKind, CreateReturn, CreatedAt, Credentials,
    DeleteReturn, Entry, Fault, Fixture, GcMark, Hook, Intervention, IpSource, ListPartial, Logging, Mark, NotApplicable, NotFound, Object,
    PrimaryKey, Profiles, ProvisioningState, Quota, Readiness, SecondaryResources, Timeouts, Tls, World, cut_by_blocking,
};
use egress_provider::{Backend, Call, Ground};

/// The reference backend in one of its styles, whole or with a rule broken.
#[derive(Debug, Clone, Copy)]
pub struct ReferenceFixture {
    style: Style,
    mutation: Option<Mutation>,
}

impl ReferenceFixture {
    /// With every rule kept.
    pub const fn new(style: Style) -> Self {
        Self { style, mutation: None }
    }

    /// With one rule broken.
    pub const fn broken(mutation: Mutation) -> Self {
        Self { style: Style::Early, mutation: Some(mutation) }
    }
}

impl Fixture for ReferenceFixture {
    fn type_name(&self) -> &'static str {
        TYPE
    }

    fn profiles(&self) -> Profiles {
        let early = self.style == Style::Early;
        Profiles {
            readiness: Readiness::ProvisioningWindow,
            create_return: CreateReturn::Submit,
            delete_return: if early { DeleteReturn::ReturnsEarly } else { DeleteReturn::Waits },
            ip_source: if early { IpSource::Discovered } else { IpSource::AssignedAtCreate },
            gc_mark: GcMark::WrittenMetadata,
            created_at: CreatedAt::WrittenAtCreate,
            list_partial: if early { ListPartial::OmitUnreachable } else { ListPartial::FailWhole },
            quota: Quota::Detected,
            not_found: NotFound::ErrorCode,
            primary_key: PrimaryKey::NameIsKey,
            provisioning_state: ProvisioningState::Native,
            async_ops: AsyncOps::TaskHandleAndBackendLock,
            secondary_resources: SecondaryResources::Explicit,
            credentials: Credentials::MountedFiles,
            tls: Tls::None,
            client_kind: ClientKind::ThinClient,
            timeouts: Timeouts::PerCall,
            logging: Logging::Tiered,
            child_spans: ChildSpans::SpanDecorator,
            backend_test: BackendTest::Own,
        }
    }

    fn world(&self) -> Box<dyn World> {
        Box::new(ReferenceWorld { cloud: Cloud::new(), style: self.style, mutation: self.mutation })
    }

    fn classified(&self) -> Hook<Vec<Classified>> {
        let row = |what: &str, kind, code: &str, expected| Classified {
            what: what.to_owned(),
            kind,
            expected,
            classified: classify(code, self.mutation),
        };
        Ok(vec![
            row("a machine that is not there", Captured::Response, "NoSuchMachine", ErrorClass::NotFound),
            row("no room", Captured::Response, "QuotaExceeded", ErrorClass::QuotaExceeded),
            row("a refused credential", Captured::Response, "Unauthorised", ErrorClass::Permanent),
            row("what the cloud cannot do", Captured::Response, "Unsupported", ErrorClass::Permanent),
            row("a lock", Captured::Response, "Locked", ErrorClass::Transient),
            row("an error of the cloud's own", Captured::Response, "InternalError", ErrorClass::Transient),
            row("nobody answers", Captured::Response, "Unreachable", ErrorClass::Transient),
            row("a broken link", Captured::Response, "LinkDown", ErrorClass::Transient),
            row("a name that is taken", Captured::Response, "AlreadyExists", ErrorClass::Transient),
            row("a missing credential file", Captured::Response, "NoCredential", ErrorClass::Transient),
            row("a call that was cancelled", Captured::Cancellation, "Cancelled", ErrorClass::Transient),
            row("something else", Captured::Foreign, "no code of the cloud's", ErrorClass::Transient),
        ])
    }
}

struct ReferenceWorld {
    cloud: Cloud,
    style: Style,
    mutation: Option<Mutation>,
}

impl ReferenceWorld {
    fn with<T>(&self, name: &InstanceName, change: impl FnOnce(&mut Machine) -> T) -> Hook<T> {
        let mut state = self.cloud.state();
        let machine = state.machines.iter_mut().find(|((_, machine), _)| name.as_str().starts_with(machine.as_str()));
        machine.map(|(_, machine)| change(machine)).ok_or_else(|| NotApplicable::because(format!("there is no machine {name}")))
    }

    /// The first volume of an instance that has that ending.
    fn volume(&self, name: &InstanceName, ending: &str) -> Hook<(String, String)> {
        let state = self.cloud.state();
        let at = state.volumes.keys().find(|(_, volume)| volume.starts_with(name.as_str()) && volume.contains(ending));
        at.cloned().ok_or_else(|| NotApplicable::because(format!("{name} has no {ending}")))
    }
}

impl World for ReferenceWorld {
    fn build(&self, entry: &Entry, ground: &Ground) -> Result<Arc<dyn Backend>, Failure> {
        let config = ReferenceConfig {
            entry: Arc::clone(&entry.name),
            installation: entry.installation.clone(),
            clock: entry.clock,
            style: self.style,
            mutation: self.mutation,
        };
        Ok(Arc::new(ReferenceBackend::new(self.cloud.clone(), config, ground)))
    }

    fn placement(&self) -> (Placement, u16) {
        (Placement { zone: Some(ZONES[0].to_owned()), ..Placement::default() }, 3128)
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        self.cloud.settle();
        Box::pin(std::future::ready(()))
    }

    fn objects(&self) -> Vec<Object> {
        let state = self.cloud.state();
        let of = |name: &str| named(name).unwrap_or_else(|| InstanceName::of(&Uid::new("")));
        let machines = state.machines.iter().map(|((zone, name), machine)| Object {
            kind: Object::INSTANCE,
            name: format!("{zone}/{name}"),
            instance: of(name),
            content: format!("{machine:?}"),
        });
        let volumes = state.volumes.iter().map(|((zone, name), volume)| Object {
            kind: "volume",
            name: format!("{zone}/{name}"),
            instance: of(name.split('.').next().unwrap_or_default()),
            content: format!("{volume:?}"),
        });
        machines.chain(volumes).collect()
    }

    fn calm(&self) {
        self.cloud.calm();
    }

    fn bad_placements(&self) -> Hook<Vec<BadPlacement>> {
        let good = self.placement().0;
        let zone = Placement { zone: Some("zone-nowhere".to_owned()), ..good.clone() };
        let machine = Placement { machine_type: Some("enormous".to_owned()), ..good.clone() };
        let image = Placement { image: Some("unheard-of".to_owned()), ..good };
        Ok(vec![
            BadPlacement { placement: zone, field: "zone", value: "zone-nowhere".to_owned() },
            BadPlacement { placement: machine, field: "machineType", value: "enormous".to_owned() },
            BadPlacement { placement: image, field: "image", value: "unheard-of".to_owned() },
        ])
    }

    fn malformed_ids(&self) -> Vec<String> {
        [
            "zones//proxy-ck4to7f6pzojj2fh",
            "zones/zone-a/proxy-CK4TO7F6PZOJJ2FH",
            "zones/zone-a/",
            "zones/zone-a",
            "zone-a/proxy-ck4to7f6pzojj2fh",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn unconfigured_id(&self, name: &InstanceName) -> Hook<InstanceId> {
        Ok(InstanceId::new(format!("zones/zone-z/{name}")))
    }

    fn calls(&self) -> Hook<Vec<String>> {
        Ok(self.cloud.state().calls.iter().map(|call| (*call).to_owned()).collect())
    }

    fn intervene(&self, n: usize, what: Intervention) -> Hook {
        self.cloud.intervene(n, what);
        Ok(())
    }

    fn during(&self, n: usize, then: Box<dyn FnOnce() + Send>) -> Hook {
        self.cloud.during(n, then);
        Ok(())
    }

    fn fail_all(&self, fault: Fault) -> Hook {
        self.cloud.fail_all(fault);
        Ok(())
    }

    fn cut_create<'a>(
        &'a self,
        backend: &'a dyn Backend,
        request: &'a CreateRequest,
        call: &'a Call,
        step: usize,
    ) -> BoxFuture<'a, Hook<bool>> {
        Box::pin(cut_by_blocking(self, backend, request, call, step))
    }

    fn marks(&self, name: &InstanceName) -> Hook<Option<BTreeMap<String, String>>> {
        let state = self.cloud.state();
        let machine = state.machines.iter().find(|((_, machine), _)| machine == name.as_str());
        Ok(machine.map(|(_, machine)| machine.marks.get(TYPE).cloned().unwrap_or_default()))
    }

    fn alter(&self, name: &InstanceName, change: &Alter) -> Hook {
        self.with(name, |machine| {
            let marks = machine.marks.entry(TYPE).or_default();
            match change {
                Alter::Strip(mark) => {
                    marks.remove(mark.key());
                }
                Alter::Set(mark, value) => {
                    marks.insert(mark.key().to_owned(), value.clone());
                }
                Alter::Corrupt => machine.condition = Condition::Corrupt,
                Alter::Unreadable => machine.condition = Condition::Unreadable,
            }
        })
    }

    fn states(&self) -> Hook<Vec<(&'static str, InstanceState)>> {
        Ok(vec![
            ("prepared", InstanceState::Provisioning),
            ("running", InstanceState::Running),
            ("suspended", InstanceState::Paused),
            ("io-error", InstanceState::Paused),
            ("off", InstanceState::Stopped),
            ("destroyed", InstanceState::Terminated),
        ])
    }

    fn set_state(&self, name: &InstanceName, word: &str) -> Hook {
        self.with(name, |machine| word.clone_into(&mut machine.word))
    }

    fn lock(&self, name: &InstanceName, locked: bool) -> Hook {
        self.with(name, |machine| machine.locked = locked)
    }

    fn fail_task(&self, name: &InstanceName, text: &str) -> Hook {
        self.with(name, |machine| {
            "prepared".clone_into(&mut machine.word);
            machine.task_error = Some(text.to_owned());
        })
    }

    fn begin_delete(&self, name: &InstanceName) -> Hook {
        self.with(name, |machine| machine.deleting = true)
    }

    fn hide_address(&self, name: &InstanceName) -> Hook {
        self.with(name, |machine| machine.hidden = true)
    }

    fn fail_address_sources(&self, fault: Fault) -> Hook {
        self.cloud.fail_sources(fault);
        Ok(())
    }

    fn drop_secondary(&self, name: &InstanceName) -> Hook {
        let at = self.volume(name, "seed")?;
        self.cloud.state().volumes.remove(&at);
        Ok(())
    }

    fn mismatch_disk(&self, name: &InstanceName) -> Hook {
        let at = self.volume(name, "disk")?;
        if let Some(volume) = self.cloud.state().volumes.get_mut(&at) {
            "another".clone_into(&mut volume.image);
        }
        Ok(())
    }

    fn add_leftover(&self, name: &InstanceName, owner: Option<&InstallationId>) -> Hook {
        let volume = owner.map_or_else(|| format!("{name}.disk"), |owner| format!("{name}.{}.disk", owner.tag()));
        let about = Volume { image: "debian".to_owned(), size: 10, created_at: Timestamp::from_millis(0) };
        self.cloud.state().volumes.insert((ZONES[0].to_owned(), volume), about);
        Ok(())
    }

    fn add_other_type(&self, name: &InstanceName, uid: &Uid, owner: &InstallationId) -> Hook {
        let marks = Marks::from([
            (Mark::Managed.key().to_owned(), "true".to_owned()),
            (Mark::Uid.key().to_owned(), uid.to_string()),
            (Mark::Installation.key().to_owned(), owner.to_string()),
        ]);
        let mut state = self.cloud.state();
        let made = state.make_machine((ZONES[0].to_owned(), name.to_string()), Marks::new());
        made.map_err(|raw| NotApplicable::because(raw.code))?;
        drop(state);
        self.with(name, |machine| machine.marks = BTreeMap::from([("other-type", marks)]))
    }

    fn cut_off_part(&self) -> Hook<String> {
        self.cloud.cut_off(ZONES[0]);
        Ok(ZONES[0].to_owned())
    }

    fn more_than_two_pages(&self) -> usize {
        7
    }

    fn remove_credentials(&self, gone: bool) -> Hook {
        *self.cloud.file.lock().unwrap_or_else(PoisonError::into_inner) = (!gone).then(|| TOKEN.to_owned());
        Ok(())
    }

    fn rotate_credentials(&self) -> Hook {
        let token = format!("{TOKEN}-second");
        self.cloud.rotate(&token);
        *self.cloud.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
        Ok(())
    }

    fn targets(&self) -> Hook<Vec<String>> {
        Ok(ZONES.map(str::to_owned).to_vec())
    }

    fn secrets(&self) -> Vec<String> {
        vec![TOKEN.to_owned(), PASSWORD.to_owned()]
    }

    fn host(&self) -> Hook<String> {
        Ok(ZONES[0].to_owned())
    }

    fn elsewhere(&self) -> Hook<Placement> {
        Ok(Placement { zone: Some(ZONES[1].to_owned()), ..Placement::default() })
    }

    fn hold_outside(&self, held: bool) -> Hook {
        self.cloud.set_image(!held);
        Ok(())
    }
}
