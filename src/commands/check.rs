//! `check`: one round of provider checks, as a table (PH-48). It opens what a check opens and writes nothing.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use egress_config::cli::CheckSettings;
use egress_monitor::status::{self, Checked, Outcome};
use egress_protocol::Clock;
use egress_protocol::monitor::ProviderChecked;
use egress_protocol::provider::Progress;
use egress_protocol::resource::conditions::{self, kind};
use egress_protocol::time::format_duration;
use egress_provider::{Backend, Call};
use tokio::task::JoinSet;
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
    let backends = providers::for_a_check(&settings.providers);
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr(), "checking {} providers, at most {} …", backends.len(), format_duration(settings.timeout + GRACE));
    }
    let round = runtime.block_on(round(backends, settings.timeout));
    // A check that blocks its thread is not waited for.
    runtime.shutdown_background();
    super::tell(&show(&round), exit_code(&round))
}

/// All at once, under one deadline; in the order of the file.
async fn round(backends: Vec<(Arc<str>, &'static str, Arc<dyn Backend>)>, timeout: Duration) -> Vec<ProviderChecked> {
    let (clock, began) = (Clock::system(), Instant::now());
    let mut checks = JoinSet::new();
    let mut asked = Vec::new();
    for (name, type_, backend) in backends {
        let cancel = CancellationToken::new();
        let call = Call {
            cancel: cancel.clone(),
            deadline: began + timeout,
            progress: Progress::default(),
            fence: egress_protocol::leadership::Fence::open(),
        };
        let handle = checks.spawn(async move {
            let check = async { Some(backend.check(&call)?.await) };
            tokio::pin!(check);
            let outcome = tokio::select! {
                biased;
                verdicts = &mut check => Some(verdicts),
                () = tokio::time::sleep_until(began + timeout) => {
                    cancel.cancel();
                    tokio::time::timeout(GRACE, check).await.ok()
                }
            };
            let outcome = match outcome {
                Some(Some(verdicts)) => Outcome::Verdicts(verdicts),
                Some(None) => Outcome::NotImplemented,
                None => Outcome::Abandoned,
            };
            (outcome, clock.now(), began.elapsed())
        });
        asked.push((name, type_, handle.id()));
    }
    let mut ended = std::collections::HashMap::new();
    let end = began + timeout + GRACE * 2;
    while let Ok(Some(joined)) = tokio::time::timeout_at(end, checks.join_next_with_id()).await {
        match joined {
            Ok((id, result)) => ended.insert(id, result),
            Err(error) => ended.insert(error.id(), (Outcome::Broken("the check broke down".to_owned()), clock.now(), began.elapsed())),
        };
    }
    checks.detach_all();
    let results = asked.into_iter().map(|(name, type_, id)| {
        let (outcome, finished, took) = ended.remove(&id).unwrap_or_else(|| (Outcome::Abandoned, clock.now(), began.elapsed()));
        status::next(None, &Checked { name, type_, outcome, finished, took })
    });
    results.collect()
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
