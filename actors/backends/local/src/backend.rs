//! The provider contract over marks and forward proxies.
//!
//! What is is what the marks say, read on every call (PC-34); a listener without a mark is stopped, a mark without a
//! listener is bound again by whoever meets it (`start`, `get`, `create`). Changes run one after another, each in a task of
//! the backend that a caller's departure does not cut: take the address, write the mark, serve; remove the mark, then
//! close. So after a crash at any point the marks tell what has to listen.
//!
//! A mark whose address somebody else took meanwhile reads `Provisioning` for ten seconds (the predecessor may still be
//! closing), then `Stopped`, so that the Proxy is replaced and takes the next free address.

mod instances;
mod place;
mod seam;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::provider::{CreateRequest, DeleteOutcome, Instance, InstanceKey, ListResult, Settings, TargetVerdict};
use egress_protocol::{InstanceId, InstanceName, Uid};
use egress_provider::{Backend, BackendError, Call, Location, Subject, Tasks};
use futures::future::BoxFuture;
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tracing::{Instrument, Span};

use crate::config::{LocalConfig, Outside};
use crate::marks;
use instances::Instances;

/// Told what is about to be made or removed and when it is; for tests and external logs. Must not block.
pub type Observer = Arc<dyn Fn(&LocalEvent) + Send + Sync>;

/// What happens to an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "name and UID of the instance, and where it listens")]
pub enum LocalEvent {
    /// No mark was there; one is about to be written.
    Creating { name: InstanceName, uid: Uid, address: SocketAddrV4 },
    /// The mark is durable and the proxy serves.
    Created { name: InstanceName, uid: Uid, address: SocketAddrV4 },
    /// A create met a mark of the same Proxy.
    Adopted { name: InstanceName, uid: Uid, address: SocketAddrV4 },
    /// The mark is about to be removed.
    Deleting { name: InstanceName, uid: Uid },
    /// Mark and listener are gone.
    Deleted { name: InstanceName, uid: Uid },
}

/// Forward proxies inside this process. Dropping it ends them all; a change under way ends with its tasks.
pub struct LocalBackend {
    instances: Arc<Instances>,
    /// Runs changes.
    tasks: Arc<dyn Tasks>,
}

impl fmt::Debug for LocalBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalBackend").field("entry", &self.instances.config().entry).finish_non_exhaustive()
    }
}

impl Drop for LocalBackend {
    fn drop(&mut self) {
        self.instances.end();
    }
}

impl LocalBackend {
    /// Opens nothing and reads nothing yet (PC-73). `tasks` runs what a caller's departure must not cut: the ground of the
    /// provider's actor.
    pub fn new(config: LocalConfig, outside: Outside, tasks: Arc<dyn Tasks>) -> Self {
        Self { instances: Arc::new(Instances::new(config, outside)), tasks }
    }

    /// Runs a change to its end even if the caller goes.
    async fn change<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> Result<T, BackendError> {
        let (answer, answered) = oneshot::channel();
        let work = async move {
            let _ = answer.send(change.await);
        };
        self.tasks.run(Box::pin(work.instrument(Span::current())));
        answered.await.unwrap_or_else(|_| Err(BackendError::transient("the change panicked")))
    }
}

impl Backend for LocalBackend {
    fn type_name(&self) -> &'static str {
        crate::TYPE
    }

    fn location_of(&self, _subject: Subject<'_>) -> Location {
        Location::new(crate::TYPE)
    }

    fn start(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.instances.restore())
    }

    fn stop(&self, grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.instances.stop(grace))
    }

    fn reconfigure(&self, settings: &Settings) -> bool {
        settings.downcast_ref::<LocalConfig>().is_some_and(|config| self.instances.reconfigure(config))
    }

    fn create<'a>(&'a self, request: &'a CreateRequest, _call: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>> {
        Box::pin(async move {
            let zone = place::zone(&request.placement, &self.instances.config().sources)?;
            self.change(Arc::clone(&self.instances).create(request.clone(), zone)).await
        })
    }

    fn get<'a>(&'a self, key: &'a InstanceKey, _call: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>> {
        Box::pin(async move {
            let id = key.id.as_ref().ok_or_else(|| BackendError::permanent("get needs an id"))?;
            self.instances.get(parse(id)?, key).await.map_err(|error| error.about(id.clone()))
        })
    }

    fn delete<'a>(&'a self, key: &'a InstanceKey, _call: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>> {
        Box::pin(async move {
            let name = match &key.id {
                Some(id) => parse(id)?,
                None => key.name.clone(),
            };
            self.change(Arc::clone(&self.instances).delete(name, key.clone())).await
        })
    }

    fn list_managed<'a>(&'a self, _call: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>> {
        Box::pin(self.instances.list())
    }

    fn check<'a>(&'a self, _call: &'a Call) -> Option<BoxFuture<'a, Vec<TargetVerdict>>> {
        let config = self.instances.config();
        let verdicts = if config.sources.is_empty() {
            vec![verdict("process".to_owned(), String::new(), None)]
        } else {
            config.sources.iter().map(|source| verdict(source.to_string(), source.to_string(), bindable(*source).err())).collect()
        };
        Some(Box::pin(std::future::ready(verdicts)))
    }
}

/// PH-47.
fn verdict(name: String, address: String, failed: Option<io::Error>) -> TargetVerdict {
    TargetVerdict {
        name,
        address,
        ready: failed.is_none(),
        reason: if failed.is_none() { "Reachable" } else { "AddressUnavailable" },
        message: failed.map(|error| error.to_string()).unwrap_or_default(),
        latency: Duration::ZERO,
        details: Vec::new(),
    }
}

fn bindable(source: IpAddr) -> io::Result<()> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(source, 0))
}

/// Strictly (PC-10).
fn parse(id: &InstanceId) -> Result<InstanceName, BackendError> {
    id.as_str()
        .strip_prefix("local/")
        .and_then(marks::instance_name)
        .ok_or_else(|| BackendError::permanent(format!("malformed id {:?}, expected local/proxy-…", id.as_str())).about(id.clone()))
}
