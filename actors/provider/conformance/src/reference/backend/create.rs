//! `create`: judge the placement, look the name up, adopt or make, clear up what failed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use egress_protocol::leadership::Fence;
use egress_protocol::provider::CreateRequest;
use egress_protocol::{InstallationId, InstanceId, Timestamp};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::Mutation;
use super::super::cloud::{Machine, Marks, Volume, ZONES};
use super::{Owner, ReferenceBackend, id};
use crate::Mark;
use egress_provider::{BackendError, CLEANUP_BUDGET, Call};

/// What a placement comes to.
struct Plan {
    zone: &'static str,
    image: String,
    size: u64,
}

impl ReferenceBackend {
    /// PC-19: before any call, naming field and value.
    fn plan(&self, request: &CreateRequest) -> Result<Plan, BackendError> {
        let refuse = |field: &str, value: &str| {
            let text =
                if self.is(Mutation::NamesNoField) { value.to_owned() } else { format!("placement.{field}: {value:?} is not known") };
            if self.is(Mutation::BadPlacementIsTransient) { BackendError::transient(text) } else { BackendError::permanent(text) }
        };
        let zone = request.placement.zone.as_deref().unwrap_or(ZONES[0]);
        let zone = ZONES.into_iter().find(|known| *known == zone).ok_or_else(|| refuse("zone", zone))?;
        let machine = request.placement.machine_type.as_deref().unwrap_or("small");
        let size = match machine {
            "small" => 10,
            "large" => 20,
            _ => return Err(refuse("machineType", machine)),
        };
        let image = request.placement.image.as_deref().unwrap_or("debian");
        if image != "debian" {
            return Err(refuse("image", image));
        }
        Ok(Plan { zone, image: image.to_owned(), size })
    }

    async fn adopt(&self, plan: &Plan, name: &str, machine: &Machine, request: &CreateRequest, call: &Call) -> Result<(), BackendError> {
        if machine.deleting && !self.is(Mutation::AdoptsDying) {
            return Err(BackendError::transient(format!("instance {name} is still being deleted")));
        }
        let marks = self.marks((plan.zone, name), machine)?;
        let spared = |mark: &str| match self.config.mutation {
            Some(Mutation::AdoptsAnything) => true,
            Some(Mutation::AdoptsEmptyUid) => mark == Mark::Uid.key() && marks.get(mark).is_some_and(String::is_empty),
            Some(Mutation::AdoptsForeignInstallation) => mark == Mark::Installation.key(),
            _ => false,
        };
        if let Owner::NotOurs(mark) = Self::owner(&marks, &request.uid, &request.installation)
            && !spared(mark)
        {
            return Err(BackendError::permanent(format!("instance {name} exists and is not ours: mark {mark} differs")));
        }
        if self.is(Mutation::AdoptsIncomplete) {
            return Ok(());
        }
        let (disk, seed) = self.volumes_of(name, &request.installation);
        match self.client.volume(plan.zone, &disk, call).await.map_err(self.fails("looking the disk up"))? {
            None => self.make_disk(plan, &disk, call).await?,
            Some(there) if (&there.image, there.size) != (&plan.image, plan.size) && !self.is(Mutation::AdoptsAnyDisk) => {
                return Err(BackendError::permanent(format!("disk {disk} is {} of {}, not what was asked for", there.size, there.image)));
            }
            Some(_) => {}
        }
        let seed = if self.is(Mutation::UploadsAgain) { format!("{seed}-again") } else { seed };
        if self.client.volume(plan.zone, &seed, call).await.map_err(self.fails("looking the seed up"))?.is_none() {
            self.upload(plan, &seed, request, call).await?;
        }
        Ok(())
    }

    async fn make_disk(&self, plan: &Plan, name: &str, call: &Call) -> Result<(), BackendError> {
        let volume = Volume { image: plan.image.clone(), size: plan.size, created_at: self.config.clock.now() };
        self.client.make_disk(plan.zone, name, volume, call).await.map_err(self.fails("making the disk"))
    }

    async fn upload(&self, plan: &Plan, name: &str, request: &CreateRequest, call: &Call) -> Result<(), BackendError> {
        let (body, now) = (request.cloud_init.expose(), self.config.clock.now());
        self.client.upload_seed(plan.zone, name, body, now, call).await.map_err(self.fails("uploading the seed"))
    }

    async fn make(&self, plan: &Plan, name: &str, request: &CreateRequest, call: &Call) -> Result<(), BackendError> {
        let (disk, seed) = self.volumes_of(name, &request.installation);
        let there = self.client.volume(plan.zone, &disk, call).await.map_err(self.fails("looking the disk up"))?;
        if there.is_none_or(|there| (&there.image, there.size) != (&plan.image, plan.size)) {
            self.make_disk(plan, &disk, call).await?;
        }
        self.upload(plan, &seed, request, call).await?;
        let mut marks = Marks::from([
            (Mark::Managed.key().to_owned(), "true".to_owned()),
            (Mark::Uid.key().to_owned(), request.uid.to_string()),
            (Mark::Installation.key().to_owned(), request.installation.to_string()),
            (Mark::CreatedAt.key().to_owned(), whole_seconds(self.config.clock.now())),
        ]);
        if self.is(Mutation::ForgetsInstallation) {
            marks.remove(Mark::Installation.key());
        }
        let later = if self.is(Mutation::MarksLater) { std::mem::take(&mut marks) } else { Marks::new() };
        self.client.make_machine(plan.zone, name, marks, call).await.map_err(self.fails("making the machine"))?;
        if !later.is_empty() {
            self.client.set_marks(plan.zone, name, later, call).await.map_err(self.fails("marking the machine"))?;
        }
        Ok(())
    }

    /// PC-23: under a budget of its own, whatever happened to the call, but not when leadership was lost.
    async fn clear_up(&self, plan: &Plan, name: &str, installation: &InstallationId, call: &Call) {
        let mut own = call.clone().with_cancel(CancellationToken::new());
        if self.is(Mutation::ClearsUpFenced) {
            own.fence = Fence::open();
        }
        let work = async {
            if !matches!(self.find(plan.zone, name, &own).await, Ok(None)) {
                return;
            }
            let (disk, seed) = self.volumes_of(name, installation);
            for volume in [seed, disk] {
                let _ = self.client.remove_volume(plan.zone, &volume, &own).await;
            }
        };
        let _ = tokio::time::timeout(CLEANUP_BUDGET, work).await;
    }

    /// Whether a list that is at most a second old lacks the name, as a mutation would look it up.
    async fn is_missing_in_stale_list(&self, zone: &'static str, name: &str, call: &Call) -> bool {
        let fresh = self.memory().names.as_ref().is_some_and(|(at, _)| at.elapsed() < Duration::from_secs(1));
        if !fresh {
            let page = self.client.page(zone, None, call).await.map(|(page, _)| page).unwrap_or_default();
            self.memory().names = Some((Instant::now(), page.into_iter().map(|(name, _)| name).collect()));
        }
        self.memory().names.as_ref().is_some_and(|(_, names)| !names.contains(name))
    }

    pub(super) async fn create(&self, request: &CreateRequest, call: &Call) -> Result<InstanceId, BackendError> {
        self.attempt.store(self.client.calls_so_far(), Ordering::Relaxed);
        let name = self.backend_name(&request.name);
        if self.is(Mutation::LooksBeforeItJudges) {
            let _ = self.find(ZONES[0], &name, call).await;
        }
        let plan = self.plan(request)?;
        let found = if self.is(Mutation::StaleNames) && self.is_missing_in_stale_list(plan.zone, &name, call).await {
            None
        } else {
            self.find(plan.zone, &name, call).await?
        };
        if let Some(machine) = found {
            self.adopt(&plan, &name, &machine, request, call).await?;
        } else {
            self.artefact.needed(call, self.config.mutation).await?;
            let made = self.make(&plan, &name, request, call).await;
            if made.is_err() && !self.is(Mutation::KeepsWhatItMade) {
                self.clear_up(&plan, &name, &request.installation, call).await;
            }
            made?;
            self.memory().made.insert(name.clone(), Instant::now());
        }
        Ok(id(plan.zone, &name))
    }
}

/// PC-52.
fn whole_seconds(at: Timestamp) -> String {
    let text = Timestamp::from_millis(at.as_millis().div_euclid(1000) * 1000).to_string();
    text.strip_suffix(".000Z").map_or(text.clone(), |seconds| format!("{seconds}Z"))
}
