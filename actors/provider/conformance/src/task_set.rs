//! Tasks of a backend that a test builds without a tree.

use std::sync::{Arc, Mutex, PoisonError};

use egress_provider::Tasks;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

/// Runs tasks until it is dropped, as a process runs them until it ends.
#[derive(Debug, Default)]
pub struct TaskSet(Mutex<JoinSet<()>>);

impl TaskSet {
    /// With nothing in it.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
}

impl Tasks for TaskSet {
    fn run(&self, task: BoxFuture<'static, ()>) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}
