//! One call: what is asked, who waits for it, and how its result becomes an answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::message::Reply;
use egress_protocol::provider::{
    CreateRequest, DeleteOutcome, ErrorClass, Instance, InstanceKey, InstanceState, ListResult, Op, ProviderError,
};
use egress_protocol::{InstanceId, InstanceName};
use egress_supervision::Task;
use tokio::time::Instant;
use tracing::Span;

use crate::queue::{Lane, Ticket};
use crate::{Backend, BackendError, Call, Location, Subject};

/// What is asked.
#[derive(Debug)]
pub(crate) enum Job {
    Create(CreateRequest),
    Get(InstanceKey),
    Delete(InstanceKey),
    List,
}

/// Who waits.
#[derive(Debug)]
pub(crate) enum Waiter {
    Create(Reply<Result<InstanceId, ProviderError>>),
    Get(Reply<Result<Instance, ProviderError>>),
    Delete(Reply<Result<DeleteOutcome, ProviderError>>),
    List(Reply<Result<ListResult, ProviderError>>),
}

/// What the backend said.
pub(crate) enum Outcome {
    Created(InstanceId),
    Read(Box<Instance>),
    Deleted(DeleteOutcome),
    Listed(ListResult),
    Failed(BackendError),
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created(_) => "Created",
            Self::Read(_) => "Read",
            Self::Deleted(_) => "Deleted",
            Self::Listed(_) => "Listed",
            Self::Failed(_) => "Failed",
        })
    }
}

impl<T> From<(Result<T, BackendError>, fn(T) -> Outcome)> for Outcome {
    fn from((result, outcome): (Result<T, BackendError>, fn(T) -> Self)) -> Self {
        result.map_or_else(Self::Failed, outcome)
    }
}

/// A call that is not over: waiting, running, or answered with its create still clearing up.
pub(crate) struct Pending {
    pub op: Op,
    pub location: Option<Location>,
    /// `None`: answered already.
    pub waiter: Option<Waiter>,
    /// Until it runs.
    pub job: Option<Job>,
    /// Seen by the backend.
    pub call: Call,
    pub about: About,
    pub span: Span,
    pub received: Instant,
    /// How long it may take, what it waits outside not counted.
    pub allowed: Duration,
    /// It came back from outside and waits for a slot.
    pub back: Option<Reply<()>>,
    /// Watches the caller's token and the deadline.
    pub watch: Option<Task>,
    /// Runs the backend.
    pub work: Option<Task>,
}

/// Of which instance, for logs.
#[derive(Debug, Clone, Default)]
pub(crate) struct About {
    pub name: Option<InstanceName>,
    pub id: Option<InstanceId>,
}

impl Job {
    pub(crate) const fn op(&self) -> Op {
        match self {
            Self::Create(_) => Op::Create,
            Self::Get(_) => Op::Get,
            Self::Delete(_) => Op::Delete,
            Self::List => Op::List,
        }
    }

    pub(crate) fn about(&self) -> About {
        match self {
            Self::Create(request) => About { name: Some(request.name.clone()), id: None },
            Self::Get(key) | Self::Delete(key) => About { name: Some(key.name.clone()), id: key.id.clone() },
            Self::List => About::default(),
        }
    }

    /// What the call needs before it runs (PC-66, PC-67).
    pub(crate) fn ticket(&self, backend: &dyn Backend) -> Ticket {
        match self {
            Self::Create(request) => {
                let place = backend.location_of(Subject::Create(request));
                Ticket { name: Some(request.name.clone()), slot: Some((place, Lane::Create)) }
            }
            Self::Delete(key) => {
                let place = backend.location_of(Subject::Instance(key));
                Ticket { name: Some(key.name.clone()), slot: Some((place, Lane::Delete)) }
            }
            Self::Get(key) => Ticket { name: None, slot: Some((backend.location_of(Subject::Instance(key)), Lane::Get)) },
            Self::List => Ticket { name: None, slot: None },
        }
    }

    /// Runs the backend. A create that was given up has [`crate::CLEANUP_BUDGET`] to clear up (PC-23).
    pub(crate) async fn run(self, backend: Arc<dyn Backend>, call: Call) -> Outcome {
        match self {
            Self::Create(request) => {
                let overdue = async {
                    call.cancel.cancelled().await;
                    tokio::time::sleep(crate::CLEANUP_BUDGET).await;
                };
                tokio::select! {
                    biased;
                    result = backend.create(&request, &call) => (result, Outcome::Created as fn(_) -> _).into(),
                    () = overdue => Outcome::Failed(BackendError::transient("the cancelled create did not end in time")),
                }
            }
            Self::Get(key) => (backend.get(&key, &call).await.map(plain_truth), Outcome::Read as fn(_) -> _).into(),
            Self::Delete(key) => (backend.delete(&key, &call).await, Outcome::Deleted as fn(_) -> _).into(),
            Self::List => (backend.list_managed(&call).await, Outcome::Listed as fn(_) -> _).into(),
        }
    }
}

/// Running means with an address (PC-28), and not on its way out (PC-27).
fn plain_truth(mut instance: Instance) -> Box<Instance> {
    if instance.state == InstanceState::Running && (instance.ip.is_none() || instance.deleting) {
        instance.state = InstanceState::Provisioning;
    }
    Box::new(instance)
}

impl Waiter {
    /// Hands the outcome over. Answers with what the call came to: the id it is about, or the error.
    pub(crate) fn answer(self, outcome: Outcome, op: Op, provider: &Arc<str>, about: &About) -> Result<Option<InstanceId>, ProviderError> {
        let told = match &outcome {
            Outcome::Created(id) => Ok(Some(id.clone())),
            Outcome::Read(instance) => Ok(Some(instance.id.clone())),
            Outcome::Deleted(_) | Outcome::Listed(_) => Ok(about.id.clone()),
            Outcome::Failed(error) => Err(provider_error(error.clone(), op, provider, about)),
        };
        // Sending fails when the caller went away: nobody waits then.
        let _ = match (self, outcome, told.clone()) {
            (Self::Create(reply), Outcome::Created(id), _) => reply.send(Ok(id)).is_ok(),
            (Self::Get(reply), Outcome::Read(instance), _) => reply.send(Ok(*instance)).is_ok(),
            (Self::Delete(reply), Outcome::Deleted(outcome), _) => reply.send(Ok(outcome)).is_ok(),
            (Self::List(reply), Outcome::Listed(listed), _) => reply.send(Ok(listed)).is_ok(),
            (Self::Create(reply), _, Err(error)) => reply.send(Err(error)).is_ok(),
            (Self::Get(reply), _, Err(error)) => reply.send(Err(error)).is_ok(),
            (Self::Delete(reply), _, Err(error)) => reply.send(Err(error)).is_ok(),
            (Self::List(reply), _, Err(error)) => reply.send(Err(error)).is_ok(),
            // A job's outcome is its own: `Job::run` makes no other.
            (Self::Create(_) | Self::Get(_) | Self::Delete(_) | Self::List(_), _, Ok(_)) => false,
        };
        told
    }
}

/// The backend's error with operation and configured name (PC-56). A create never answers NotFound (PC-24).
fn provider_error(error: BackendError, op: Op, provider: &Arc<str>, about: &About) -> ProviderError {
    let class = match (op, error.class) {
        (Op::Create, ErrorClass::NotFound) => ErrorClass::Transient,
        (_, class) => class,
    };
    ProviderError {
        class,
        op,
        provider: Arc::clone(provider),
        id: error.id.or_else(|| about.id.clone()),
        message: error.message,
        environment: error.environment,
        retry_after: error.retry_after,
        cause: error.cause,
    }
}
