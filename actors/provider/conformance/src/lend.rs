//! A backend on the ground of a small tree, for tests that call the backend itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egress_protocol::leadership::Fence;
use egress_protocol::metrics::Metrics;
use egress_protocol::provider::{self, CreateRequest, DeleteOutcome, Instance, InstanceKey, ListResult};
use egress_protocol::{Clock, InstanceId};
use egress_provider::{Backend, BackendError, BuildBackend, Call, Ground, Location, ProviderActor, ProviderArgs, Subject};
use egress_supervision::{ChildSpec, Failure, Root, System};
use futures::future::BoxFuture;

/// Runs a provider's actor of that name, and what its backend starts, in a tree of their own.
pub(crate) async fn tree(entry: &str, clock: Clock, fence: Fence, slots: usize, build: BuildBackend) -> Result<(System, Root), Failure> {
    let system = System::new(clock, Metrics::default().shared());
    let args = ProviderArgs { name: entry.into(), max_concurrent_creates: slots, stop_grace: Duration::ZERO, fence, build };
    let root = system.start_root(ChildSpec::<ProviderActor>::retried(provider::actor_id(entry), args)).await?;
    Ok((system, root))
}

/// Builds a backend as its actor would, without starting it: the test calls it. What it started ends with the root.
pub async fn lend<B: Backend + ?Sized>(
    entry: &str,
    clock: Clock,
    fence: Fence,
    build: impl Fn(&Ground) -> Result<Arc<B>, Failure> + Send + Sync + 'static,
) -> Result<(Arc<B>, System, Root), Failure> {
    let built: Arc<Mutex<Option<Arc<B>>>> = Arc::default();
    let kept = Arc::clone(&built);
    let build: BuildBackend = Arc::new(move |ground| {
        let backend = build(ground)?;
        *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&backend));
        Ok(Arc::new(Lent(backend)))
    });
    let (system, root) = tree(entry, clock, fence, 1, build).await?;
    let backend = built.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok((backend.ok_or_else(|| Failure::new("the actor did not build its backend"))?, system, root))
}

/// What the actor of a lent backend has: it neither starts nor stops it.
struct Lent<B: ?Sized>(Arc<B>);

impl<B: Backend + ?Sized> Backend for Lent<B> {
    fn type_name(&self) -> &'static str {
        self.0.type_name()
    }

    fn location_of(&self, subject: Subject<'_>) -> Location {
        self.0.location_of(subject)
    }

    fn create<'a>(&'a self, request: &'a CreateRequest, call: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>> {
        self.0.create(request, call)
    }

    fn get<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>> {
        self.0.get(key, call)
    }

    fn delete<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>> {
        self.0.delete(key, call)
    }

    fn list_managed<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>> {
        self.0.list_managed(call)
    }
}
