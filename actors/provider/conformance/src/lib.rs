//! The conformance suite: what every backend owes its callers, as tests that run against a fake of it (PC-89 to PC-93).
//!
//! - [`Fixture`] and [`World`] are what a backend's author supplies
//! - [`Profiles`] say how the backend meets the contract (PC-71)
//! - [`lend`] gives a backend the ground of a small tree, for tests that call it without its actor
//! - [`Relay`] interferes with the calls to a real counterpart, for fixtures that are no fakes (PC-107)
//! - [`run`] runs everything, [`Report`] says what passed, what does not apply and why, and what failed
//!
//! Each test has a world, a clock and a runtime of its own; time is paused, so that waiting costs nothing. What callers are
//! promised is tested through the provider's actor, what backends are promised to do through the backend.
//! [`reference`] is a backend that passes everything, with mutants that prove that each test can fail (PC-91).

mod capture;
mod cases;
mod fixture;
mod lend;
mod profiles;
pub mod reference;
mod relay;
mod task_set;
mod trial;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use egress_protocol::provider::ErrorClass;
use futures::FutureExt;
use futures::future::LocalBoxFuture;

pub use fixture::{
    Alter, BadPlacement, Captured, Classified, Entry, Fault, Fixture, Hook, Intervention, Mark, NotApplicable, Object, World,
};
pub use lend::lend;
pub use profiles::{
    AsyncOps, BackendTest, ChildSpans, ClientKind, CreateReturn, CreatedAt, Credentials, DeleteReturn, GcMark, IpSource, ListPartial,
    Logging, NotFound, PrimaryKey, Profiles, ProvisioningState, Quota, Readiness, SecondaryResources, Timeouts, Tls,
};
pub use relay::Relay;
pub use task_set::TaskSet;
pub use trial::cut_by_blocking;

use trial::Trial;

/// Longer than any deadline of the contract; only what hangs forever takes it.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Why a test did not pass.
#[derive(Debug, Clone)]
pub(crate) enum Miss {
    /// Not for this backend.
    NotApplicable(String),
    /// The contract is broken.
    Failed(String),
}

impl From<NotApplicable> for Miss {
    fn from(why: NotApplicable) -> Self {
        Self::NotApplicable(why.0)
    }
}

/// What a test comes to.
pub(crate) type Verdict<T = ()> = Result<T, Miss>;

/// One contract test.
pub(crate) struct Case {
    pub(crate) id: &'static str,
    pub(crate) says: &'static str,
    pub(crate) run: for<'a> fn(&'a Trial) -> LocalBoxFuture<'a, Verdict>,
}

/// What a run came to. Every test is in exactly one of the three lists; a test that passed in part has its other parts in
/// `not_applicable` too.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The type, and its profile on each axis.
    pub backend: String,
    /// Passed in all that applies.
    pub passed: Vec<&'static str>,
    /// Id and reason, of tests and of parts of tests.
    pub not_applicable: Vec<(&'static str, String)>,
    /// Id and what was seen.
    pub failed: Vec<(&'static str, String)>,
}

impl Report {
    /// Nothing failed.
    pub fn is_ok(&self) -> bool {
        self.failed.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.backend)?;
        writeln!(f, "passed: {} ({})", self.passed.len(), self.passed.join(" "))?;
        let whole = |id| !self.passed.contains(id) && !self.failed.iter().any(|(failed, _)| failed == id);
        let (whole, parts): (Vec<_>, Vec<_>) = self.not_applicable.iter().partition(|(id, _)| whole(id));
        for (what, entries) in [("not applicable", whole), ("not applicable in part", parts)] {
            writeln!(f, "{what}: {}", entries.len())?;
            for (id, why) in entries {
                writeln!(f, "  {id} {why}")?;
            }
        }
        writeln!(f, "failed: {}", self.failed.len())?;
        for (id, what) in &self.failed {
            let says = cases::ALL.iter().find(|case| case.id == *id).map_or("", |case| case.says);
            writeln!(f, "  {id} ({says}): {what}")?;
        }
        Ok(())
    }
}

/// Ids and statements of all tests, in order.
pub fn statements() -> impl Iterator<Item = (&'static str, &'static str)> {
    cases::ALL.iter().map(|case| (case.id, case.says))
}

/// Runs the whole suite.
pub fn run(fixture: &dyn Fixture) -> Report {
    run_if(fixture, |_| true)
}

/// Runs one test.
pub fn run_one(fixture: &dyn Fixture, id: &str) -> Report {
    run_if(fixture, |case| case == id)
}

fn run_if(fixture: &dyn Fixture, wanted: impl Fn(&str) -> bool) -> Report {
    let axes = fixture.profiles().axes().map(|(axis, profile)| format!("{axis} {profile}"));
    let mut report = Report { backend: format!("{}: {}", fixture.type_name(), axes.join(" · ")), ..Report::default() };
    for case in cases::ALL.iter().filter(|case| wanted(case.id)) {
        let (verdict, parts) = run_case(fixture, case);
        report.not_applicable.extend(parts.into_iter().map(|part| (case.id, part)));
        match verdict {
            Ok(()) => report.passed.push(case.id),
            Err(Miss::NotApplicable(why)) => report.not_applicable.push((case.id, why)),
            Err(Miss::Failed(what)) => report.failed.push((case.id, what)),
        }
    }
    report
}

/// In a runtime of its own; what it left behind ends with that.
fn run_case(fixture: &dyn Fixture, case: &Case) -> (Verdict, Vec<String>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build() {
        Ok(runtime) => runtime,
        Err(error) => return (Err(Miss::Failed(format!("no runtime: {error}"))), Vec::new()),
    };
    runtime.block_on(async {
        let trial = Trial::new(fixture);
        let _heard = trial.capture.listen();
        let run = AssertUnwindSafe((case.run)(&trial)).catch_unwind();
        let verdict = match tokio::time::timeout(FOREVER, run).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(panic)) => {
                let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
                Err(Miss::Failed(format!("panicked: {}", text.unwrap_or("no text"))))
            }
            Err(_) => Err(Miss::Failed("hangs".to_owned())),
        };
        let (broken, parts) = trial.end().await;
        match broken {
            Some(what) if !matches!(verdict, Err(Miss::Failed(_))) => (Err(Miss::Failed(what)), parts),
            _ => (verdict, parts),
        }
    })
}

/// Fails the test unless it holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::Miss::Failed(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;

/// The class of a failed call.
pub(crate) fn class<T>(result: &Result<T, egress_protocol::provider::ProviderError>) -> Option<ErrorClass> {
    result.as_ref().err().map(|error| error.class)
}
