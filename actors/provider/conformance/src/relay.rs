//! What a fixture puts between a backend's client and a real counterpart: it hands calls on, and interferes (PC-107).
//!
//! The suite's time is paused and jumps ahead whenever nothing is left to do but wait. A call on its way to a real
//! counterpart is something to do: it is carried by a blocking task, and while one of those runs tokio's clock stands still.
//! Only a call that was told never to be answered lets time pass. What a call is, and how it is sent, is the backend's own.

use std::collections::HashMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Fault, Intervention};

#[cfg(test)]
mod tests;

type Aside = Box<dyn FnOnce() + Send>;

/// The plan of what happens to which call, and the carrying of those to which nothing happens. Clones are one.
#[derive(Clone, Default)]
pub struct Relay {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    plan: Mutex<Plan>,
    under_way: AtomicUsize,
}

#[derive(Default)]
struct Plan {
    calls: Vec<String>,
    /// By the number of the call, the first being 1.
    interventions: HashMap<usize, Intervention>,
    before: HashMap<usize, Aside>,
    all: Option<Fault>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay").field("calls", &self.plan().calls.len()).finish_non_exhaustive()
    }
}

impl Plan {
    /// What happens to the call that begins now, and what is done right before it.
    fn begin(&mut self, call: String) -> (Option<Intervention>, Option<Aside>) {
        self.calls.push(call);
        let n = self.calls.len();
        let what = self.interventions.remove(&n).or(self.all.map(Intervention::Fail));
        (what, self.before.remove(&n))
    }
}

impl Relay {
    /// With no call yet, and nothing planned.
    pub fn new() -> Self {
        Self::default()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.inner.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls so far, by the names of the seam ([`crate::World::calls`]).
    pub fn calls(&self) -> Vec<String> {
        self.plan().calls.clone()
    }

    /// Something happens to the `n`-th call from now, the next being 1 ([`crate::World::intervene`]).
    pub fn intervene(&self, n: usize, what: Intervention) {
        let mut plan = self.plan();
        let at = plan.calls.len() + n;
        plan.interventions.insert(at, what);
    }

    /// Something is done right before the `n`-th call from now goes out ([`crate::World::during`]). It may block.
    pub fn before(&self, n: usize, aside: impl FnOnce() + Send + 'static) {
        let mut plan = self.plan();
        let at = plan.calls.len() + n;
        plan.before.insert(at, Box::new(aside));
    }

    /// Every call fails from now on ([`crate::World::fail_all`]).
    pub fn fail_all(&self, fault: Fault) {
        self.plan().all = Some(fault);
    }

    /// Takes all of this back ([`crate::World::calm`]).
    pub fn calm(&self) {
        let mut plan = self.plan();
        plan.all = None;
        plan.interventions.clear();
        plan.before.clear();
    }

    /// Blocks until what was on its way has arrived, whoever waits for it.
    pub fn wait(&self) {
        while self.inner.under_way.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Carries one call. `fail` says what this transport answers for a fault; `send` asks the counterpart and blocks until
    /// it answered, on a thread of its own, also when this future is dropped meanwhile.
    #[expect(clippy::panic, reason = "a client that panics is one of the interventions")]
    pub async fn carry<T: Send + 'static>(
        &self,
        call: impl Into<String>,
        fail: impl FnOnce(Fault) -> T,
        send: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (what, aside) = self.plan().begin(call.into());
        match what {
            Some(Intervention::Panic) => panic!("the client panics"),
            Some(Intervention::BlockBefore) => return std::future::pending().await,
            Some(Intervention::Fail(fault)) => return fail(fault),
            Some(Intervention::BlockAfter) | None => {}
        }
        let under_way = UnderWay::begin(&self.inner);
        let carried = tokio::task::spawn_blocking(move || {
            let _under_way = under_way;
            if let Some(aside) = aside {
                aside();
            }
            send()
        });
        let answer = match carried.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(answer) => answer,
            Err(Ok(panic)) => resume_unwind(panic),
            // The runtime ends.
            Err(Err(_)) => std::future::pending().await,
        };
        if matches!(what, Some(Intervention::BlockAfter)) {
            return std::future::pending().await;
        }
        answer
    }
}

/// Counts as long as it lives.
struct UnderWay(Arc<Inner>);

impl UnderWay {
    fn begin(inner: &Arc<Inner>) -> Self {
        inner.under_way.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(inner))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
