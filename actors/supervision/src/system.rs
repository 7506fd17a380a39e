//! One tree.

use std::sync::Arc;

use egress_protocol::message::Message;
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Timestamp};

use crate::{Actor, Address, ChildSpec, Failure, Node};

/// One supervised tree: the addresses of its actors, its clock and metrics. Cheap to clone; a process has one, tests as
/// many as they like.
#[derive(Debug, Clone)]
pub struct System {
    _private: (),
}

impl System {
    /// An empty tree.
    pub fn new(_clock: Clock, _metrics: Arc<Metrics>) -> Self {
        unimplemented!()
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        unimplemented!()
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        unimplemented!()
    }

    /// The metric families.
    pub fn metrics(&self) -> &Arc<Metrics> {
        unimplemented!()
    }

    /// The address of an actor by id, whether or not it is up now. Panics in debug builds when two uses of one id
    /// disagree on the message type; in release builds such an address is never up.
    pub fn address<M: Message>(&self, _id: &str) -> Address<M> {
        unimplemented!()
    }

    /// Starts the root and waits until it runs. The root is never restarted: its crash ends the tree.
    pub async fn start_root<A: Actor>(&self, _spec: ChildSpec<A>) -> Result<Root, Failure> {
        unimplemented!()
    }

    /// The subtree under `id` (the root without one), `depth` levels of children deep (all without one). Actors are
    /// asked for their state concurrently; one that does not answer in 250 ms is busy and has at most one question
    /// waiting (OB-4).
    pub async fn inspect(&self, _id: Option<&str>, _depth: Option<usize>) -> Option<Node> {
        unimplemented!()
    }

    /// The actors that exist, by kind: how many, and how many messages wait. For the metrics.
    pub fn counts(&self) -> Vec<(&'static str, u64, u64)> {
        unimplemented!()
    }

    /// Makes the actor panic in its next message; for tests. `false` when it is not up.
    pub fn crash(&self, _id: &str) -> bool {
        unimplemented!()
    }

    /// Kills the actor at its next await; for tests. `false` when it is not up.
    pub fn kill(&self, _id: &str) -> bool {
        unimplemented!()
    }
}

/// The running tree.
#[derive(Debug)]
pub struct Root {
    _private: (),
}

impl Root {
    /// Resolves when the root ended by itself: its crash, or a child's that escalated.
    pub async fn failed(&mut self) -> Failure {
        unimplemented!()
    }

    /// Stops the tree in reverse start order and waits for all of it.
    pub async fn stop(self) {
        unimplemented!()
    }
}
