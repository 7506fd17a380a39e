//! A Lease in memory, on tokio's clock, that fails as it is told; and replicas that contend for it.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_kube::ApiError;
use egress_protocol::leadership::{ACTOR_ID, BRANCH_ID, Fence, LeadershipMessage, LeadershipState, Standing, StandingCell};
use egress_protocol::message::Never;
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Timestamp};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Root, System};
use k8s_openapi::api::coordination::v1::Lease;
use kube::core::Status;
use serde_json::json;

use crate::leadership::{Call, LeaderSettings, LeadershipArgs, LeaseStore};

/// How the store answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    /// At once.
    Well,
    /// With this status.
    Fails(u16),
    /// It is carried out, and the answer is lost.
    Mute,
}

struct Kept {
    lease: Option<Lease>,
    version: u64,
    mood: Mood,
    /// What was carried out: `HOLDER writes` or `NAMELESS writes`.
    writes: Vec<String>,
}

/// Clones are one.
#[derive(Clone)]
pub(super) struct Double(Arc<Mutex<Kept>>);

/// As long as the real one waits, with [`settings`].
const ATTEMPT: Duration = Duration::from_millis(3333);

impl Double {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Kept { lease: None, version: 0, mood: Mood::Well, writes: Vec::new() })))
    }

    pub(super) fn mood(&self, mood: Mood) {
        self.0.lock().unwrap().mood = mood;
    }

    pub(super) fn writes(&self) -> Vec<String> {
        self.0.lock().unwrap().writes.clone()
    }

    pub(super) fn lease(&self) -> Option<Lease> {
        self.0.lock().unwrap().lease.clone()
    }

    pub(super) fn holder(&self) -> Option<String> {
        self.lease()?.spec?.holder_identity
    }

    /// By hand, over whatever version there is.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Option<Lease>)) {
        let mut kept = self.0.lock().unwrap();
        change(&mut kept.lease);
        kept.version += 1;
        let version = kept.version.to_string();
        if let Some(lease) = &mut kept.lease {
            lease.metadata.resource_version = Some(version);
        }
    }

    fn answer<T: Send + 'static>(&self, act: impl FnOnce(&mut Kept) -> Result<T, u16> + Send + 'static) -> Call<T> {
        let kept = Arc::clone(&self.0);
        Box::pin(async move {
            let (mood, result) = {
                let mut kept = kept.lock().unwrap();
                match kept.mood {
                    Mood::Fails(code) => (kept.mood, Err(code)),
                    mood => (mood, act(&mut kept)),
                }
            };
            if mood == Mood::Mute {
                tokio::time::sleep(ATTEMPT).await;
                return Err(ApiError::Timeout(ATTEMPT));
            }
            result.map_err(|code| ApiError::Status(Box::new(Status::failure("as told", "Told").with_code(code))))
        })
    }

    fn write(&self, lease: Lease, over: impl FnOnce(&Kept) -> Result<(), u16> + Send + 'static) -> Call<Lease> {
        self.answer(move |kept| {
            over(kept)?;
            kept.version += 1;
            let mut lease = lease;
            lease.metadata.resource_version = Some(kept.version.to_string());
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
            kept.writes.push(format!("{} writes", holder.unwrap_or_else(|| "NAMELESS".to_owned())));
            kept.lease = Some(lease.clone());
            Ok(lease)
        })
    }
}

impl LeaseStore for Double {
    fn get(&self) -> Call<Option<Lease>> {
        self.answer(|kept| Ok(kept.lease.clone()))
    }

    fn create(&self, lease: Lease) -> Call<Lease> {
        self.write(lease, |kept| if kept.lease.is_some() { Err(409) } else { Ok(()) })
    }

    fn replace(&self, lease: Lease) -> Call<Lease> {
        let base = lease.metadata.resource_version.clone();
        self.write(lease, move |kept| match &kept.lease {
            None => Err(404),
            Some(kept) if kept.metadata.resource_version != base => Err(409),
            Some(_) => Ok(()),
        })
    }
}

/// What the branch of a replica does.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Manners {
    /// It takes so long to stop.
    pub(super) stops_in: Duration,
    /// A task of it blocks its thread until this is true.
    pub(super) hangs: Option<&'static AtomicBool>,
}

/// Says when it starts and when it has stopped.
pub(super) struct Branch(Manners, Diary);

pub(super) type Diary = Arc<Mutex<Vec<&'static str>>>;

impl Actor for Branch {
    type Message = Never;
    type Internal = Never;
    type Args = (Manners, Diary);
    const KIND: &'static str = "leader";

    async fn start(ctx: &Context<Self>, (manners, diary): Self::Args) -> Result<Self, Failure> {
        if let Some(let_go) = manners.hangs {
            let hang = move || {
                while !let_go.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            };
            ctx.spawn(async move {
                tokio::task::block_in_place(hang);
                pending().await
            })
            .keep();
        }
        diary.lock().unwrap().push("started");
        Ok(Self(manners, diary))
    }

    fn handle(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        json!({})
    }

    async fn stopping(&mut self, _: &Context<Self>) {
        tokio::time::sleep(self.0.stops_in).await;
        self.1.lock().unwrap().push("stopped");
    }
}

/// A process that would lead.
pub(super) struct Replica {
    pub(super) system: System,
    pub(super) root: Root,
    pub(super) fence: Fence,
    pub(super) standing: StandingCell,
    pub(super) diary: Diary,
}

pub(super) fn settings(name: &str) -> LeaderSettings {
    LeaderSettings {
        namespace: "ns".into(),
        name: "egress".into(),
        identity: format!("{name}_1"),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        address: format!("{name}.example:8090"),
    }
}

impl Replica {
    pub(super) async fn start(store: &Double, name: &str) -> Self {
        Self::with(store, settings(name), Manners::default(), |args| args).await
    }

    pub(super) async fn with(
        store: &Double,
        settings: LeaderSettings,
        manners: Manners,
        change: impl FnOnce(LeadershipArgs) -> LeadershipArgs,
    ) -> Self {
        let system = System::new(Clock::starting_at(Timestamp::from_millis(1_767_323_045_000)), Arc::new(Metrics::default()));
        let fence = Fence::closed();
        let standing = StandingCell::new(Standing::Follower { leader: None, address: None });
        let diary = Diary::default();
        let noted = Arc::clone(&diary);
        let branch = Arc::new(move |ctx: &Context<super::LeadershipActor>| {
            let mut spec = ChildSpec::<Branch>::essential(BRANCH_ID, (manners, Arc::clone(&noted)));
            spec.policy.stop_timeout = Duration::from_secs(60).min(manners.stops_in + Duration::from_secs(1));
            ctx.start_child(spec);
        });
        let args = LeadershipArgs::with_store(Arc::new(store.clone()), settings, fence.clone(), standing.clone(), branch);
        let mut spec = change(args).spec();
        spec.policy.stop_timeout = Duration::from_secs(120);
        let root = system.start_root(spec).await.expect("it starts");
        Self { system, root, fence, standing, diary }
    }

    pub(super) fn leads(&self) -> bool {
        *self.standing.get() == Standing::Leader && self.fence.holds()
    }

    pub(super) fn diary(&self) -> Vec<&'static str> {
        self.diary.lock().unwrap().clone()
    }

    pub(super) async fn state(&self) -> LeadershipState {
        let address = self.system.address::<LeadershipMessage>(ACTOR_ID);
        address.call(Duration::from_secs(1), |reply_to| LeadershipMessage::State { reply_to }).await.expect("it answers")
    }

    pub(super) async fn until_it_leads(&self) {
        let leads = async {
            while !self.leads() || self.diary().last() != Some(&"started") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), leads).await.expect("it leads");
    }
}
