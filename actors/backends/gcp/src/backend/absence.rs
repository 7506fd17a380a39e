//! The last operation on an instance, wherever it is known from: asked before a 404 may be told as NotFound (GC-11), and
//! before an instance is adopted or deleted once more (GC-7, GC-13).

use egress_protocol::Timestamp;
use egress_provider::{BackendError, Call};

use super::GcpBackend;
use crate::class::classify_operation;
use crate::id::VmRef;
use crate::model::{Operation, OperationList, Vm};
use crate::operations::{self, Absence, Kind, Known};

/// Statuses in which an instance may be on its way out by a delete that this process does not know of.
const ON_ITS_WAY_OUT: [&str; 3] = ["STOPPING", "PENDING_STOP", "DEPROVISIONING"];

impl GcpBackend {
    /// What it means that the instance is not there, and by which operation.
    pub(super) async fn absence(&self, at: &VmRef, call: &Call) -> Result<(Absence, Option<Known>), BackendError> {
        let last = self.last_operation(at, call).await?;
        if let Some((known, _)) = &last
            && known.reported
        {
            return Ok((Absence::Gone, None));
        }
        let absence = operations::absence(last.as_ref().and_then(|(known, operation)| Some((known.kind, operation.as_ref()?))));
        let known = last.map(|(known, _)| known);
        // An ended operation without anything to tell is forgotten; the next 404 asks the backend again.
        if let (Absence::Gone, Some(known)) = (&absence, &known) {
            self.api.settled(&at.name, &known.operation);
        }
        Ok((absence, known))
    }

    /// Whether the instance, which is there, is being deleted. A delete that failed is told once, and made anew by the next.
    pub(super) async fn deletion(&self, at: &VmRef, vm: &Vm, call: &Call) -> Result<Option<Known>, BackendError> {
        let known = self.known(at, call).await?.filter(|known| known.kind == Kind::Delete);
        let last = match known {
            Some(known) => {
                let operation = self.operation(at, &known.operation, call).await?;
                Some((known, operation))
            }
            None if ON_ITS_WAY_OUT.contains(&vm.status.as_str()) => {
                self.newest_operation(at, call).await?.filter(|(known, _)| known.kind == Kind::Delete)
            }
            None => None,
        };
        let Some((known, Some(operation))) = last else { return Ok(None) };
        if !operation.is_done() {
            self.api.keep(&at.name, known.clone());
            return Ok(Some(known));
        }
        self.api.settled(&at.name, &known.operation);
        match classify_operation(operation.errors()) {
            Some((class, error)) => Err(BackendError::new(class, format!("deleting {at} failed: {error}")).about(at.id())),
            None => Ok(None),
        }
    }

    /// From memory, else from the backend; with what the backend says of it now. `None` inside: it is not known there any
    /// more, which counts as settled (GC-12).
    async fn last_operation(&self, at: &VmRef, call: &Call) -> Result<Option<(Known, Option<Operation>)>, BackendError> {
        match self.known(at, call).await? {
            // What is told or gone needs no look.
            Some(known) if known.reported || known.kind == Kind::Delete => Ok(Some((known, None))),
            Some(known) => {
                let operation = self.operation(at, &known.operation, call).await?;
                Ok(Some((known, operation)))
            }
            None => self.newest_operation(at, call).await,
        }
    }

    async fn known(&self, at: &VmRef, call: &Call) -> Result<Option<Known>, BackendError> {
        let known = self.api.known(&at.name, call).await.map_err(|error| unread(at, &error))?;
        Ok(known.filter(|known| known.zone == at.zone))
    }

    async fn operation(&self, at: &VmRef, operation: &str, call: &Call) -> Result<Option<Operation>, BackendError> {
        match self.api.read(self.requests.operation(at, operation), call).await {
            Ok(operation) => Ok(Some(operation)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(unread(at, &error).caused_by(error)),
        }
    }

    /// The newest operation on the instance, if it is young enough to say anything of it (GC-11).
    async fn newest_operation(&self, at: &VmRef, call: &Call) -> Result<Option<(Known, Option<Operation>)>, BackendError> {
        let listed: Result<OperationList, _> = self.api.read(self.requests.newest_operation(at), call).await;
        let listed = listed.map_err(|error| unread(at, &error).caused_by(error))?;
        let newest = listed.items.into_iter().find(|operation| operations::is_about(operation, &at.zone, &at.name));
        let Some((operation, kind)) = newest.and_then(|operation| operations::kind_of(&operation).map(|kind| (operation, kind))) else {
            return Ok(None);
        };
        let inserted = operation.insert_time.as_deref().and_then(Timestamp::parse);
        if inserted.is_none_or(|at| self.clock.now().since(at) >= operations::MEMORY) {
            return Ok(None);
        }
        let known = Known { zone: at.zone.clone(), operation: operation.name.clone(), kind, reported: false };
        Ok(Some((known, Some(operation))))
    }
}

/// That the operation cannot be read says nothing of the instance (GC-12).
fn unread(at: &VmRef, error: &crate::error::CallError) -> BackendError {
    BackendError::transient(format!("reading the last operation on {at}: {error}")).about(at.id())
}
