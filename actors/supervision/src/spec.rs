//! Children as data.

use std::fmt;
use std::time::Duration;

use crate::{Actor, RestartBudget};

/// A child as data.
pub struct ChildSpec<A: Actor> {
    /// Unique in the tree: `proxy/default/px-1`.
    pub id: String,
    /// Given to each incarnation.
    pub args: A::Args,
    /// What a crash means.
    pub policy: Policy,
}

impl<A: Actor> Clone for ChildSpec<A> {
    fn clone(&self) -> Self {
        Self { id: self.id.clone(), args: self.args.clone(), policy: self.policy.clone() }
    }
}

impl<A: Actor> fmt::Debug for ChildSpec<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChildSpec({} {})", A::KIND, self.id)
    }
}

impl<A: Actor> ChildSpec<A> {
    /// A child that is given up when its budget is spent and retried every 5 minutes: per-object actors (SV-2).
    pub fn retried(id: impl Into<String>, args: A::Args) -> Self {
        Self { id: id.into(), args, policy: Policy::default() }
    }

    /// A child whose spent budget is its parent's crash, up to the root and the end of the process: singletons (SV-2).
    pub fn essential(id: impl Into<String>, args: A::Args) -> Self {
        Self { id: id.into(), args, policy: Policy { on_exhausted: OnExhausted::Escalate, ..Policy::default() } }
    }

    /// A child whose first crash is its parent's: what cannot be rebuilt (the memory journal).
    pub fn irreplaceable(id: impl Into<String>, args: A::Args) -> Self {
        let budget = RestartBudget::none();
        Self { id: id.into(), args, policy: Policy { budget, on_exhausted: OnExhausted::Escalate, ..Policy::default() } }
    }
}

/// What a crash means, and how long a stop may take.
#[derive(Debug, Clone)]
pub struct Policy {
    /// When to restart.
    pub budget: RestartBudget,
    /// When the budget is spent.
    pub on_exhausted: OnExhausted,
    /// How long `stopping` and the grace of the tasks may take. What the children take is theirs, so that one that hangs
    /// does not cost its parents their own orderly end. The root's bounds the whole stop of the tree.
    pub stop_timeout: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            budget: RestartBudget::default(),
            on_exhausted: OnExhausted::RetryEvery(Duration::from_secs(300)),
            stop_timeout: Duration::from_secs(5),
        }
    }
}

/// When the budget is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExhausted {
    /// Give up, tell the parent ([`Actor::child_given_up`]), try again with a fresh budget after this long.
    RetryEvery(Duration),
    /// The parent crashes too; at the root, the process ends with exit 3.
    Escalate,
}
