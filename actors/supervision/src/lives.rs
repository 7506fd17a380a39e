//! The lives of one child, one after another, as its parent begins them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use ractor::{Actor as _, ActorCell};
use tokio::sync::OwnedSemaphorePermit;

use crate::address::Cell;
use crate::children::{Parent, Started};
use crate::face::{Alive, Face, Line};
use crate::inner::Inner;
use crate::inspect::ActorStatus;
use crate::shell::{Life, Shell};
use crate::{Actor, System};

/// What a life begins with besides the actor's arguments.
pub(crate) struct Birth {
    /// That nothing of the former life is left.
    pub(crate) permit: OwnedSemaphorePermit,
    /// Whom to tell of the outcome.
    pub(crate) started: Started,
    /// A parent that was told that its child is given up.
    pub(crate) back: Option<Weak<dyn Parent>>,
}

/// A child whose actor type nobody needs to know.
pub(crate) trait Lives: Send {
    fn system(&self) -> &System;
    fn face(&self) -> &Arc<Face>;
    /// Counts in whoever holds this, for as long as it does; the id leaves the tree with the last of them.
    fn serve(&mut self);
    /// Spawns the next life.
    fn begin(&mut self, birth: Birth, supervisor: ActorCell) -> BoxFuture<'static, Result<ActorCell, String>>;
}

pub(crate) struct LivesOf<A: Actor> {
    system: System,
    face: Arc<Face>,
    /// Until the end, so that it can be let go before the id is forgotten.
    cell: Option<Arc<Cell<A::Message>>>,
    above: Option<Arc<Line>>,
    /// Among its siblings, for people.
    order: u64,
    serving: bool,
    args: A::Args,
    stop_timeout: Duration,
}

impl<A: Actor> LivesOf<A> {
    /// Behind those that were made ready before.
    pub(crate) fn prepare(
        system: System,
        cell: Arc<Cell<A::Message>>,
        above: Option<Arc<Line>>,
        args: A::Args,
        stop_timeout: Duration,
    ) -> Box<dyn Lives> {
        let (face, order) = (Arc::clone(&cell.face), system.next_order());
        Box::new(Self { system, face, cell: Some(cell), above, order, serving: false, args, stop_timeout })
    }
}

impl<A: Actor> Lives for LivesOf<A> {
    fn system(&self) -> &System {
        &self.system
    }

    fn face(&self) -> &Arc<Face> {
        &self.face
    }

    fn serve(&mut self) {
        self.serving = true;
        self.face.serve(A::KIND, self.above.clone(), self.order);
    }

    fn begin(&mut self, birth: Birth, supervisor: ActorCell) -> BoxFuture<'static, Result<ActorCell, String>> {
        let Some(cell) = self.cell.clone() else { return std::future::ready(Err("it is gone".to_owned())).boxed() };
        // The shell of the former life may have had its say meanwhile.
        self.face.set_status(ActorStatus::Starting, self.system.now());
        let alive = Alive::new(birth.permit, self.system.clone(), Arc::clone(&self.face));
        let inner = Arc::new(Inner::<A>::new(self.system.clone(), cell, alive));
        let life = Life::new(inner, self.args.clone(), self.stop_timeout, birth.started, birth.back);
        Box::pin(async move {
            match Shell::spawn_linked(None, Shell::default(), Box::new(life), supervisor).await {
                Ok((actor, _)) => Ok(actor.into()),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

impl<A: Actor> Drop for LivesOf<A> {
    fn drop(&mut self) {
        self.cell = None;
        if self.serving && self.face.records.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.system.forget(&self.face.id);
        }
    }
}
