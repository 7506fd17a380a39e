//! `check`: one round of provider checks, as a table (PH-48). It opens what a check opens and writes nothing.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use egress_config::cli::CheckSettings;
use egress_monitor::status::{self, Checked, Outcome};
use egress_protocol::metrics::Metrics;
use egress_protocol::monitor::ProviderChecked;
use egress_protocol::provider::{
    self, CallContext, CreateRequest, DeleteOutcome, Instance, InstanceKey, ListResult, Op, ProviderMessage, TargetVerdict,
};
use egress_protocol::resource::conditions::{self, kind};
use egress_protocol::time::format_duration;
use egress_protocol::{Clock, InstanceId};
use egress_provider::{Backend, BackendError, BuildBackend, Call, Location, ProviderActor, ProviderArgs, ProviderEntry, Subject};
use egress_supervision::{ChildSpec, System};
use futures::future::{BoxFuture, join_all};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::app::providers;
use crate::commands::table::{Row, Table, line};

/// What a check that was told to end may still take (PH-15).
const GRACE: Duration = Duration::from_secs(1);

/// Does it. The exit code is 1 when a target is not ready.
pub fn run(settings: &CheckSettings) -> u8 {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return super::complain(&format!("error: {error}"), 2),
    };
    let entries = providers::for_a_check(&settings.providers);
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr(), "checking {} providers, at most {} …", entries.len(), format_duration(settings.timeout + GRACE));
    }
    let round = runtime.block_on(round(entries, settings.timeout));
    // A check that blocks its thread is not waited for.
    runtime.shutdown_background();
    super::tell(&show(&round), exit_code(&round))
}

/// All at once, under one deadline; in the order of the file.
async fn round(entries: Vec<ProviderEntry>, timeout: Duration) -> Vec<ProviderChecked> {
    let (clock, began) = (Clock::system(), Instant::now());
    let system = System::new(clock, Metrics::default().shared());
    let checks = entries.into_iter().map(|entry| {
        let (name, type_, system) = (Arc::clone(&entry.args.name), entry.type_, system.clone());
        async move {
            let outcome = check(&system, entry, timeout).await;
            let checked = Checked { name, type_, outcome, finished: clock.now(), took: began.elapsed() };
            status::next(None, &checked)
        }
    });
    join_all(checks).await
}

/// Brings up one provider's part of the tree, asks it, and stops it in order (PH-48).
async fn check(system: &System, entry: ProviderEntry, timeout: Duration) -> Outcome {
    let id = provider::actor_id(&entry.args.name);
    let build = entry.args.build;
    let build: BuildBackend = Arc::new(move |ground| Ok(Arc::new(CheckOnly(build(ground)?))));
    let spec = ChildSpec::<ProviderActor>::retried(id.clone(), ProviderArgs { build, ..entry.args });
    let root = match system.start_root(spec).await {
        Ok(root) => root,
        Err(failure) => return Outcome::Broken(format!("the provider did not start: {failure}")),
    };
    let call = CallContext { deadline: timeout, ..CallContext::new(Op::List, CancellationToken::new()) };
    let address = system.address::<ProviderMessage>(&id);
    // The actor gives a check up that does not end by then, and drops its reply.
    let answer = address.call(timeout + GRACE * 2, |reply_to| ProviderMessage::Check { call, reply_to });
    let began = Instant::now();
    let outcome = match answer.await {
        Ok(Some(verdicts)) => Outcome::Verdicts(verdicts),
        Ok(None) => Outcome::NotImplemented,
        Err(_) if began.elapsed() >= timeout => Outcome::Abandoned,
        Err(_) => Outcome::Broken("the check broke down".to_owned()),
    };
    let _ = tokio::time::timeout(GRACE, root.stop()).await;
    outcome
}

/// A backend that is asked for nothing but its check: what the last process ran is not brought back.
struct CheckOnly(Arc<dyn Backend>);

/// What is answered to anything else.
fn refused<T: Send + 'static>() -> BoxFuture<'static, Result<T, BackendError>> {
    Box::pin(std::future::ready(Err(BackendError::permanent("only checks are made here"))))
}

impl Backend for CheckOnly {
    fn type_name(&self) -> &'static str {
        self.0.type_name()
    }

    fn location_of(&self, _: Subject<'_>) -> Location {
        Location::new("check")
    }

    fn create<'a>(&'a self, _: &'a CreateRequest, _: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>> {
        refused()
    }

    fn get<'a>(&'a self, _: &'a InstanceKey, _: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>> {
        refused()
    }

    fn delete<'a>(&'a self, _: &'a InstanceKey, _: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>> {
        refused()
    }

    fn list_managed<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>> {
        refused()
    }

    fn check<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Vec<TargetVerdict>>> {
        self.0.check(call)
    }
}

fn show(round: &[ProviderChecked]) -> String {
    let columns = vec!["PROVIDER", "TYPE", "TARGET", "READY", "REASON", "LATENCY", "ADDRESS", "MESSAGE"];
    let rows = round.iter().flat_map(|checked| {
        let status = &checked.status;
        let lead = [checked.name.to_string(), status.type_.clone().unwrap_or_default()];
        let mut rows: Vec<Row> = Vec::new();
        for target in &status.targets {
            let latency = target.latency_millis.map(|ms| format!("{ms}ms")).unwrap_or_default();
            let [reason, address, message] =
                [&target.reason, &target.address, &target.message].map(|text| text.clone().unwrap_or_default());
            let cells = [target.name.clone(), target.ready.to_string(), reason, latency, address, message];
            rows.push(Row { key: String::new(), cells: lead.iter().cloned().chain(cells).collect() });
        }
        if let (true, Some(ready)) = (rows.is_empty(), conditions::find(&status.conditions, kind::READY)) {
            let cells = ["-", "unknown", &ready.reason, "", "", &ready.message].map(str::to_owned);
            rows.push(Row { key: String::new(), cells: lead.iter().cloned().chain(cells).collect() });
        }
        rows
    });
    let table = Table { columns, rows: rows.collect() };
    let widths = table.widths();
    let lines = table.rows.iter().map(|row| line(row.cells.iter().map(String::as_str), &widths));
    std::iter::once(table.header(&widths)).chain(lines).collect::<Vec<_>>().join("\n")
}

fn exit_code(round: &[ProviderChecked]) -> u8 {
    u8::from(round.iter().any(|checked| checked.status.targets.iter().any(|target| !target.ready)))
}

#[cfg(test)]
mod tests;
