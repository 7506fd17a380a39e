//! The root of a tree: a ractor actor that has the root as its only child, because ractor tells nobody why an actor ended
//! that has no supervisor.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ractor::{Actor as _, ActorCell, ActorProcessingErr, ActorRef, ActorStatus as Phase, SupervisionEvent};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::children::{ChildCrash, Children, Order, Parent, Start};
use crate::{Actor, ChildSpec, Failure, OnExhausted, RestartBudget, System};

struct Guardian;

struct Guarding {
    children: Children,
    /// The children hold it weakly.
    _me: Arc<Me>,
    /// Whom to tell why the root ended.
    failed: Option<oneshot::Sender<String>>,
}

impl Guarding {
    /// The root's crash: the guardian ends too.
    fn tell(&mut self, crash: ChildCrash) -> ActorProcessingErr {
        if let Some(failed) = self.failed.take() {
            let _ = failed.send(crash.reason.clone());
        }
        crash.reason.into()
    }
}

/// The guardian as its child sees it.
struct Me(ActorRef<Order>);

impl Parent for Me {
    fn order(&self, order: Order) {
        let _ = self.0.send_message(order);
    }

    /// A root is never given up: its crash ends the tree.
    fn child_given_up(&self, _: Arc<str>, _: Option<String>) {}
}

impl ractor::Actor for Guardian {
    type Msg = Order;
    type State = Guarding;
    type Arguments = oneshot::Sender<String>;

    async fn pre_start(&self, me: ActorRef<Order>, failed: oneshot::Sender<String>) -> Result<Guarding, ActorProcessingErr> {
        let me = Arc::new(Me(me));
        let parent: Weak<dyn Parent> = Arc::downgrade(&me) as _;
        Ok(Guarding { children: Children::new(parent), _me: me, failed: Some(failed) })
    }

    async fn handle(&self, me: ActorRef<Order>, order: Order, state: &mut Guarding) -> Result<(), ActorProcessingErr> {
        if me.get_status() >= Phase::Draining {
            return Ok(());
        }
        state.children.take(order, me.into()).await.map_err(|crash| state.tell(crash))
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<Order>,
        event: SupervisionEvent,
        state: &mut Guarding,
    ) -> Result<(), ActorProcessingErr> {
        let stopping = me.get_status() >= Phase::Draining;
        state.children.hear(event, stopping).map_err(|crash| state.tell(crash))
    }

    async fn post_stop(&self, _: ActorRef<Order>, state: &mut Guarding) -> Result<(), ActorProcessingErr> {
        state.children.stop().await;
        Ok(())
    }
}

impl System {
    /// Starts the root and waits until it runs. The root is never restarted: its crash ends the tree. The limit of its
    /// stop is that of the whole tree's.
    pub async fn start_root<A: Actor>(&self, mut spec: ChildSpec<A>) -> Result<Root, Failure> {
        let limit = spec.policy.stop_timeout;
        spec.policy.budget = RestartBudget::none();
        spec.policy.on_exhausted = OnExhausted::Escalate;
        let (failed, failure) = oneshot::channel();
        let (started, outcome) = oneshot::channel();
        let (guardian, ended) = Guardian::spawn(None, Guardian, failed).await.map_err(Failure::new)?;
        let start = Start::new::<A>(self.clone(), self.cell(&spec.id), None, spec, Some(started));
        let _ = guardian.send_message(Order::Start(Box::new(start)));
        // Made before the wait: whoever loses interest meanwhile kills the tree.
        let mut root = Root { guardian: guardian.into(), ended, failure: Some(failure), limit };
        match outcome.await {
            Ok(Ok(())) => Ok(root),
            Ok(Err(reason)) => {
                root.failed().await;
                Err(Failure(reason))
            }
            Err(_) => Err(root.failed().await),
        }
    }
}

/// The running tree. Dropping it kills the tree.
pub struct Root {
    guardian: ActorCell,
    /// With the guardian's last breath.
    ended: JoinHandle<()>,
    failure: Option<oneshot::Receiver<String>>,
    limit: Duration,
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Root")
    }
}

impl Root {
    /// Resolves when the root ended by itself: its crash, or a child's that escalated.
    pub async fn failed(&mut self) -> Failure {
        let Some(failure) = self.failure.as_mut() else { return std::future::pending().await };
        let reason = failure.await;
        self.failure = None;
        Failure(reason.unwrap_or_else(|_| "the root stopped by itself".to_owned()))
    }

    /// Stops the tree in reverse start order and waits for all of it, but not longer than the root's `stop_timeout`.
    pub async fn stop(mut self) {
        let _ = self.guardian.drain();
        if tokio::time::timeout(self.limit, &mut self.ended).await.is_err() {
            tracing::warn!("WARNING: the tree did not stop in time and was ended");
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.guardian.kill();
    }
}
