//! What a backend's author supplies: how to make a world with nothing in it, and hands to interfere with it.
//!
//! A hook that a backend cannot offer answers [`NotApplicable`] with the reason, which the report lists; there are no
//! default hooks, so that each reason was written by somebody.

use std::collections::BTreeMap;
use std::sync::Arc;

use egress_protocol::provider::{CreateRequest, ErrorClass, InstanceState};
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Uid};
use egress_supervision::Failure;
use futures::future::BoxFuture;

use super::Profiles;
use egress_provider::{Backend, Call, Ground};

/// Why something does not apply to this backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotApplicable(pub String);

impl NotApplicable {
    /// The reason, as the report shows it.
    pub fn because(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// What a hook answers.
pub type Hook<T = ()> = Result<T, NotApplicable>;

/// A backend under test.
pub trait Fixture: Send + Sync {
    /// The type in the providers file.
    fn type_name(&self) -> &'static str;
    /// PC-71.
    fn profiles(&self) -> Profiles;
    /// A world in which nothing was made yet; each test gets its own, inside a paused runtime.
    fn world(&self) -> Box<dyn World>;
    /// What the classification makes of captured answers (PC-93).
    fn classified(&self) -> Hook<Vec<Classified>>;
}

/// A captured answer of the backend and what the classification made of it (PC-93).
#[derive(Debug, Clone)]
pub struct Classified {
    /// Where it came from.
    pub what: String,
    /// Which kind of answer.
    pub kind: Captured,
    /// What the provider's document says.
    pub expected: ErrorClass,
    /// What the classification says.
    pub classified: ErrorClass,
}

/// What was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Captured {
    /// The backend's own code or message.
    Response,
    /// The end of a call that was cancelled.
    Cancellation,
    /// An error that is none of the backend's.
    Foreign,
}

/// What a provider is built for.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The configured name.
    pub name: Arc<str>,
    /// Whose instances are ours.
    pub installation: InstallationId,
    /// The process's clock.
    pub clock: Clock,
}

/// A placement that can never be served (PC-19).
#[derive(Debug, Clone)]
pub struct BadPlacement {
    /// The whole placement.
    pub placement: Placement,
    /// The field that the message names.
    pub field: &'static str,
    /// The value that the message names.
    pub value: String,
}

/// One thing at the backend; shared artefacts (base images) are left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// [`Object::INSTANCE`] for the instance itself.
    pub kind: &'static str,
    /// Its own name.
    pub name: String,
    /// The instance it belongs to.
    pub instance: InstanceName,
    /// Whatever changes when somebody touches it.
    pub content: String,
}

impl Object {
    /// The kind of an instance.
    pub const INSTANCE: &'static str = "instance";
}

/// A mark of PC-52.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// `proxy-operator-managed`
    Managed,
    /// `proxy-operator-uid`
    Uid,
    /// `proxy-operator-installation`
    Installation,
    /// `proxy-operator-created-at`
    CreatedAt,
}

impl Mark {
    /// The key.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Managed => "proxy-operator-managed",
            Self::Uid => "proxy-operator-uid",
            Self::Installation => "proxy-operator-installation",
            Self::CreatedAt => "proxy-operator-created-at",
        }
    }
}

/// What somebody did to an instance's marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alter {
    /// Took one off.
    Strip(Mark),
    /// Wrote another value.
    Set(Mark, String),
    /// They are there and make no sense.
    Corrupt,
    /// They cannot be read for now.
    Unreadable,
}

/// How a backend call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nobody answers.
    Unreachable,
    /// The credential is refused.
    Unauthorised,
    /// The backend has an error of its own.
    Erring,
    /// The link breaks under the call.
    LinkDown,
    /// There is no capacity.
    Quota,
}

impl Fault {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Unreachable, Self::Unauthorised, Self::Erring, Self::LinkDown, Self::Quota];
}

/// What happens to one backend call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intervention {
    /// It fails without having had an effect.
    Fail(Fault),
    /// It never answers and has had no effect.
    BlockBefore,
    /// It has its effect and never answers.
    BlockAfter,
    /// The client panics.
    Panic,
}

/// A fake backend, a provider's constructor over it, and hands to interfere. It is honest (PC-90).
pub trait World: Send + Sync {
    /// The constructor (PC-73), on the ground that the provider's actor gives it (PC-99). Called again for a restart and for
    /// another installation.
    fn build(&self, entry: &Entry, ground: &Ground) -> Result<Arc<dyn Backend>, Failure>;
    /// A placement and a port that can be served.
    fn placement(&self) -> (Placement, u16);
    /// Lets the backend finish what is under way: instances start, deletes end.
    fn settle(&self) -> BoxFuture<'_, ()>;
    /// Everything that is there.
    fn objects(&self) -> Vec<Object>;
    /// Takes all interventions and faults back.
    fn calm(&self);
    /// Placements that can never be served.
    fn bad_placements(&self) -> Hook<Vec<BadPlacement>>;
    /// Texts that are no ids.
    fn malformed_ids(&self) -> Vec<String>;
    /// A well-formed id in a location that is not configured.
    fn unconfigured_id(&self, name: &InstanceName) -> Hook<InstanceId>;

    /// Every call of the client seam so far, by its name there.
    fn calls(&self) -> Hook<Vec<String>>;
    /// Something happens to the `n`-th backend call from now, the next being 1.
    fn intervene(&self, n: usize, what: Intervention) -> Hook;
    /// `then` happens while the backend serves the `n`-th call from now, the next being 1; the call itself goes on.
    fn during(&self, n: usize, then: Box<dyn FnOnce() + Send>) -> Hook;
    /// Every call fails from now on.
    fn fail_all(&self, fault: Fault) -> Hook;
    /// Runs a create and cuts it off after its `step`-th step, the first being 0; `false`: it ended before.
    fn cut_create<'a>(
        &'a self,
        backend: &'a dyn Backend,
        request: &'a CreateRequest,
        call: &'a Call,
        step: usize,
    ) -> BoxFuture<'a, Hook<bool>>;

    /// The marks of an instance, if it exists.
    fn marks(&self, name: &InstanceName) -> Hook<Option<BTreeMap<String, String>>>;
    /// Somebody changes them.
    fn alter(&self, name: &InstanceName, change: &Alter) -> Hook;
    /// The backend's states and what they are to be read as.
    fn states(&self) -> Hook<Vec<(&'static str, InstanceState)>>;
    /// An instance gets a state, by the backend's word.
    fn set_state(&self, name: &InstanceName, word: &str) -> Hook;
    /// The backend locks an instance, or lets go.
    fn lock(&self, name: &InstanceName, locked: bool) -> Hook;
    /// The task that starts an instance failed with that text.
    fn fail_task(&self, name: &InstanceName, text: &str) -> Hook;
    /// A delete of the instance begins at the backend and does not end before `settle`.
    fn begin_delete(&self, name: &InstanceName) -> Hook;
    /// No source knows the instance's address.
    fn hide_address(&self, name: &InstanceName) -> Hook;
    /// Every source of addresses fails.
    fn fail_address_sources(&self, fault: Fault) -> Hook;
    /// A secondary resource of an instance vanishes.
    fn drop_secondary(&self, name: &InstanceName) -> Hook;
    /// An instance's disk is another than was asked for.
    fn mismatch_disk(&self, name: &InstanceName) -> Hook;
    /// A secondary resource without an instance, with the tag of an installation or with none.
    fn add_leftover(&self, name: &InstanceName, owner: Option<&InstallationId>) -> Hook;
    /// An instance of that name which another type made, with the same marks in its own form.
    fn add_other_type(&self, name: &InstanceName, uid: &Uid, owner: &InstallationId) -> Hook;

    /// The part that holds what [`World::placement`] makes cannot be reached any more; its name in `left_out`.
    fn cut_off_part(&self) -> Hook<String>;
    /// How many instances fill more than two pages of a list.
    fn more_than_two_pages(&self) -> usize;
    /// The credential files go away, or come back.
    fn remove_credentials(&self, gone: bool) -> Hook;
    /// Other credentials lie on disk, and the old ones are refused.
    fn rotate_credentials(&self) -> Hook;
    /// The targets of the check, in the order of the configuration.
    fn targets(&self) -> Hook<Vec<String>>;
    /// What must never be seen, beside the cloud-init.
    fn secrets(&self) -> Vec<String>;

    /// The host actor that serves what [`World::placement`] makes, by the last part of its id (PC-99).
    fn host(&self) -> Hook<String>;
    /// A placement that another host serves.
    fn elsewhere(&self) -> Hook<Placement>;
    /// Creates of [`World::placement`] wait outside from now on (PC-100), or go on.
    fn hold_outside(&self, held: bool) -> Hook;
}
