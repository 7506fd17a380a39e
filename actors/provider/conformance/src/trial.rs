//! One test's world, its providers, and what it says about them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egress_protocol::leadership::Fence;
use egress_protocol::provider::{
    self, CallContext, CreateRequest, DeleteOutcome, ErrorClass, Instance, InstanceKey, ListResult, Op, ProviderError, ProviderMessage,
    TargetVerdict,
};
use egress_protocol::{Clock, InstallationId, InstanceId, InstanceName, Secret, Timestamp, Uid};
use egress_supervision::{Address, AddressError, Root, System};
use tokio_util::sync::CancellationToken;

use super::capture::Capture;
use super::lend::{lend, tree};
use super::{Entry, Fixture, Hook, Intervention, Miss, Object, Profiles, Verdict, World, ensure};
use egress_provider::{Backend, BackendError, Call};

/// The configured name, unlike any type's.
pub(super) const ENTRY: &str = "conf-entry";
/// We.
pub(super) const OURS: &str = "suite-ours";
/// Another operator.
pub(super) const THEIRS: &str = "suite-theirs";
/// In every cloud-init (PC-92).
pub(super) const SENTINEL: &str = "SENTINEL-cloud-init-7c1f";
/// When each test begins.
const BEGINS: i64 = 1_767_323_045_678;
/// Creates that run at once at one location.
pub(super) const SLOTS: usize = 4;
/// More steps than any create has.
const STEPS: usize = 200;
/// More settling than any honest backend needs.
const PATIENCE: usize = 8;

/// See the module.
pub(crate) struct Trial {
    pub(super) world: Arc<dyn World>,
    pub(super) profiles: Profiles,
    pub(super) type_name: &'static str,
    pub(super) fixture_classified: Hook<Vec<super::Classified>>,
    pub(super) capture: Capture,
    /// Whether we lead (SV-4); every provider and every call of the test has it.
    pub(super) fence: Fence,
    clock: Clock,
    roots: Mutex<Vec<Root>>,
    /// Reason, and the parts it keeps from applying.
    parts: Mutex<BTreeMap<String, Vec<String>>>,
    broken: Arc<Mutex<Option<String>>>,
}

impl Trial {
    pub(super) fn new(fixture: &dyn Fixture) -> Self {
        Self {
            world: fixture.world().into(),
            profiles: fixture.profiles(),
            type_name: fixture.type_name(),
            fixture_classified: fixture.classified(),
            capture: Capture::default(),
            fence: Fence::open(),
            clock: Clock::starting_at(Timestamp::from_millis(BEGINS)),
            roots: Mutex::default(),
            parts: Mutex::default(),
            broken: Arc::default(),
        }
    }

    /// Stops all providers; what broke beside the test, and the parts that do not apply.
    pub(super) async fn end(self) -> (Option<String>, Vec<String>) {
        let roots = std::mem::take(&mut *self.roots.lock().unwrap_or_else(PoisonError::into_inner));
        for root in roots {
            root.stop().await;
        }
        let parts = std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        let parts = parts.into_iter().map(|(why, parts)| format!("({}) {why}", parts.join("; "))).collect();
        (self.broken.lock().unwrap_or_else(PoisonError::into_inner).take(), parts)
    }

    /// What a hook offers; what it does not is noted as a part that does not apply.
    pub(super) fn part<T>(&self, part: &str, hook: Hook<T>) -> Option<T> {
        match hook {
            Ok(value) => Some(value),
            Err(why) => {
                let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
                let parts = parts.entry(why.0).or_default();
                if !parts.iter().any(|known| known == part) {
                    parts.push(part.to_owned());
                }
                None
            }
        }
    }

    pub(super) fn entry(&self, installation: &str) -> Entry {
        Entry { name: ENTRY.into(), installation: InstallationId::new(installation), clock: self.clock }
    }

    /// The constructor alone, in a tree of its own that ends with the root.
    pub(super) async fn build(&self) -> Verdict<(Arc<dyn Backend>, Root)> {
        let (world, entry) = (Arc::clone(&self.world), self.entry(OURS));
        let built = lend(ENTRY, self.clock, self.fence.clone(), move |ground| world.build(&entry, ground));
        let (backend, _, root) = built.await.map_err(|failure| Miss::Failed(format!("the constructor failed: {failure}")))?;
        Ok((backend, root))
    }

    /// The backend itself, as its actor would start it, on the ground of a small tree.
    pub(super) async fn backend(&self) -> Verdict<Door> {
        let (backend, root) = self.build().await?;
        self.roots.lock().unwrap_or_else(PoisonError::into_inner).push(root);
        backend.start().await;
        Ok(Door { way: Way::Backend(backend, self.fence.clone()), broken: Arc::clone(&self.broken) })
    }

    /// A provider's actor over a backend of its own.
    pub(super) async fn provider(&self) -> Verdict<Door> {
        let (world, entry) = (Arc::clone(&self.world), self.entry(OURS));
        let started = tree(ENTRY, self.clock, self.fence.clone(), SLOTS, Arc::new(move |ground| world.build(&entry, ground))).await;
        let (system, root) = started.map_err(|failure| Miss::Failed(format!("the actor did not start: {failure}")))?;
        self.roots.lock().unwrap_or_else(PoisonError::into_inner).push(root);
        Ok(Door { way: Way::Actor(system.address(&provider::actor_id(ENTRY)), system), broken: Arc::clone(&self.broken) })
    }

    /// Both ways to ask.
    pub(super) async fn both(&self) -> Verdict<[Door; 2]> {
        Ok([self.provider().await?, self.backend().await?])
    }

    pub(super) fn request(&self, uid: &str) -> CreateRequest {
        let uid = Uid::new(uid);
        let (placement, port) = self.world.placement();
        CreateRequest {
            name: InstanceName::of(&uid),
            uid,
            installation: InstallationId::new(OURS),
            namespace: "suite".into(),
            proxy_name: "px".into(),
            placement,
            cloud_init: Arc::new(Secret::new(format!("#cloud-config\n# {SENTINEL}\n").into_bytes())),
            port,
        }
    }

    /// Made, and started as far as the backend lets it.
    pub(super) async fn made(&self, door: &Door, uid: &str) -> Verdict<InstanceKey> {
        let request = self.request(uid);
        let id = ok(door.create(&request).await, "create")?;
        self.world.settle().await;
        Ok(key(&request, Some(id)))
    }

    /// Deletes until nothing is left, as the reconciler would (PC-41).
    pub(super) async fn gone(&self, door: &Door, key: &InstanceKey) -> Verdict {
        for _ in 0..PATIENCE {
            if ok(door.delete(key).await, "delete")? == DeleteOutcome::Gone {
                return Ok(());
            }
            self.world.settle().await;
        }
        Err(Miss::Failed(format!("a delete of {} never comes to Gone", key.name)))
    }

    /// A delete under way; `Err` if the backend's never are.
    pub(super) async fn dying(&self, door: &Door, key: &InstanceKey) -> Verdict {
        if self.profiles.delete_return == super::DeleteReturn::ReturnsEarly {
            let outcome = ok(door.delete(key).await, "delete")?;
            ensure!(outcome == DeleteOutcome::InProgress, "delete-return is returns-early, but the first delete came to {outcome:?}");
            Ok(())
        } else {
            Ok(self.world.begin_delete(&key.name)?)
        }
    }

    /// What belongs to an instance.
    pub(super) fn objects_of(&self, name: &InstanceName) -> Vec<Object> {
        self.world.objects().into_iter().filter(|object| object.instance == *name).collect()
    }

    /// Kinds and names, for counting.
    pub(super) fn census(&self) -> Vec<(&'static str, String)> {
        let mut all: Vec<_> = self.world.objects().into_iter().map(|object| (object.kind, object.name)).collect();
        all.sort();
        all
    }

    /// A create of a process that ends behind that step; `None`: it has no such step.
    pub(super) async fn cut(&self, step: usize) -> Verdict<Hook<Option<CreateRequest>>> {
        ensure!(step < STEPS, "a create has more than {STEPS} steps");
        let request = self.request(&format!("cut-{step}"));
        let (backend, root) = self.build().await?;
        let cut = self.world.cut_create(backend.as_ref(), &request, &call(Op::Create, CancellationToken::new(), &self.fence), step).await;
        drop(backend);
        // As the process would end: nothing is stopped in order.
        drop(root);
        ensure!(step > 0 || !matches!(cut, Ok(false)), "the fixture cuts no create at all");
        Ok(cut.map(|cut| cut.then_some(request)))
    }
}

/// The key of what a request makes.
pub(super) fn key(request: &CreateRequest, id: Option<InstanceId>) -> InstanceKey {
    InstanceKey {
        id,
        name: request.name.clone(),
        uid: request.uid.clone(),
        installation: request.installation.clone(),
        namespace: Arc::clone(&request.namespace),
        placement: request.placement.clone(),
    }
}

/// A call that nobody cancels, for the backend itself.
pub(super) fn call(op: Op, cancel: CancellationToken, fence: &Fence) -> Call {
    Call::until(tokio::time::Instant::now() + op.deadline()).with_cancel(cancel).with_fence(fence.clone())
}

/// A way to ask a provider.
pub(crate) struct Door {
    way: Way,
    broken: Arc<Mutex<Option<String>>>,
}

enum Way {
    Actor(Address<ProviderMessage>, System),
    Backend(Arc<dyn Backend>, Fence),
}

/// What a call comes to.
pub(super) type Answer<T> = Result<T, ProviderError>;

fn told<T>(op: Op, result: Result<T, BackendError>) -> Answer<T> {
    result.map_err(|error| ProviderError {
        class: error.class,
        op,
        provider: ENTRY.into(),
        id: error.id,
        message: error.message,
        environment: error.environment,
        retry_after: error.retry_after,
        cause: error.cause,
    })
}

impl Door {
    /// An actor that does not answer is a fault of its own, whatever the test looks for.
    fn answered<T>(&self, op: Op, result: Result<Answer<T>, AddressError>) -> Answer<T> {
        result.unwrap_or_else(|error| {
            let text = format!("the provider's actor did not answer a {}: {error:?}", op.as_str());
            *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
            told(op, Err(BackendError::transient(text)))
        })
    }

    pub(super) fn system(&self) -> Option<&System> {
        match &self.way {
            Way::Actor(_, system) => Some(system),
            Way::Backend(..) => None,
        }
    }

    pub(super) async fn create(&self, request: &CreateRequest) -> Answer<InstanceId> {
        self.create_with(request, CallContext::new(Op::Create, CancellationToken::new())).await
    }

    pub(super) async fn create_with(&self, request: &CreateRequest, context: CallContext) -> Answer<InstanceId> {
        match &self.way {
            Way::Backend(backend, fence) => told(Op::Create, backend.create(request, &call(Op::Create, context.cancel, fence)).await),
            Way::Actor(address, _) => {
                let request = request.clone();
                let asked = address.call(super::FOREVER, |reply_to| ProviderMessage::Create { request, call: context, reply_to });
                self.answered(Op::Create, asked.await)
            }
        }
    }

    pub(super) async fn get(&self, key: &InstanceKey) -> Answer<Instance> {
        self.get_with(key, CallContext::new(Op::Get, CancellationToken::new())).await
    }

    pub(super) async fn get_with(&self, key: &InstanceKey, context: CallContext) -> Answer<Instance> {
        match &self.way {
            Way::Backend(backend, fence) => told(Op::Get, backend.get(key, &call(Op::Get, context.cancel, fence)).await),
            Way::Actor(address, _) => {
                let key = key.clone();
                let asked = address.call(super::FOREVER, |reply_to| ProviderMessage::Get { key, call: context, reply_to });
                self.answered(Op::Get, asked.await)
            }
        }
    }

    pub(super) async fn delete(&self, key: &InstanceKey) -> Answer<DeleteOutcome> {
        self.delete_with(key, CallContext::new(Op::Delete, CancellationToken::new())).await
    }

    pub(super) async fn delete_with(&self, key: &InstanceKey, context: CallContext) -> Answer<DeleteOutcome> {
        match &self.way {
            Way::Backend(backend, fence) => told(Op::Delete, backend.delete(key, &call(Op::Delete, context.cancel, fence)).await),
            Way::Actor(address, _) => {
                let key = key.clone();
                let asked = address.call(super::FOREVER, |reply_to| ProviderMessage::Delete { key, call: context, reply_to });
                self.answered(Op::Delete, asked.await)
            }
        }
    }

    pub(super) async fn list(&self) -> Answer<ListResult> {
        self.list_with(CallContext::new(Op::List, CancellationToken::new())).await
    }

    pub(super) async fn list_with(&self, context: CallContext) -> Answer<ListResult> {
        match &self.way {
            Way::Backend(backend, fence) => told(Op::List, backend.list_managed(&call(Op::List, context.cancel, fence)).await),
            Way::Actor(address, _) => {
                let asked = address.call(super::FOREVER, |reply_to| ProviderMessage::List { call: context, reply_to });
                self.answered(Op::List, asked.await)
            }
        }
    }

    /// Only through the actor; the error says that it dropped the reply.
    pub(super) async fn check(&self, context: CallContext) -> Result<Option<Vec<TargetVerdict>>, AddressError> {
        match &self.way {
            Way::Backend(backend, fence) => match backend.check(&call(Op::List, context.cancel, fence)) {
                Some(check) => Ok(Some(check.await)),
                None => Ok(None),
            },
            Way::Actor(address, _) => address.call(super::FOREVER, |reply_to| ProviderMessage::Check { call: context, reply_to }).await,
        }
    }

    /// One operation after the name of it, whatever it answers; its error, if it is one.
    pub(super) async fn op(&self, op: Op, request: &CreateRequest, key: &InstanceKey, context: CallContext) -> Option<ProviderError> {
        match op {
            Op::Create => self.create_with(request, context).await.err(),
            Op::Get => self.get_with(key, context).await.err(),
            Op::Delete => self.delete_with(key, context).await.err(),
            Op::List => self.list_with(context).await.err(),
        }
    }
}

/// The four.
pub(super) const OPS: [Op; 4] = [Op::Create, Op::Get, Op::List, Op::Delete];

/// The value, or a failed test.
pub(super) fn ok<T>(answer: Answer<T>, what: impl fmt::Display) -> Verdict<T> {
    answer.map_err(|error| Miss::Failed(format!("{what} failed ({:?}): {error}", error.class)))
}

/// An error of one class, or a failed test.
pub(super) fn refused<T: fmt::Debug>(answer: Answer<T>, class: ErrorClass, what: impl fmt::Display) -> Verdict<ProviderError> {
    match answer {
        Ok(value) => Err(Miss::Failed(format!("{what} is to be {class:?}, but answered {value:?}"))),
        Err(error) if error.class == class => Ok(error),
        Err(error) => Err(Miss::Failed(format!("{what} is to be {class:?}, but is {:?}: {error}", error.class))),
    }
}

/// Cuts a future off as soon as nothing moves any more; `None`: it was dropped unfinished.
pub(super) async fn until_stuck<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_secs(1), future).await.ok()
}

/// A [`World::cut_create`] for backends whose calls can be blocked: step `2n` is before the effect of the call `n`, step
/// `2n + 1` behind it.
pub async fn cut_by_blocking(world: &dyn World, backend: &dyn Backend, request: &CreateRequest, call: &Call, step: usize) -> Hook<bool> {
    let what = if step.is_multiple_of(2) { Intervention::BlockBefore } else { Intervention::BlockAfter };
    world.intervene(step / 2 + 1, what)?;
    let cut = until_stuck(backend.create(request, call)).await.is_none();
    world.calm();
    Ok(cut)
}
