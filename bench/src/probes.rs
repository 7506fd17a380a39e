//! Probes per CPU-second against a bare tokio loop that says the same things to the same proxies: each in a process of its
//! own, and so are the proxies, which also stand in for every target.

pub(crate) mod client;
pub(crate) mod target;

use std::time::Duration;

use crate::process::Helper;
use crate::rounds::{self, Slice};
use crate::table::{Table, thousands};
use crate::{Outcome, Role, progress};
use client::{Kind, Settings};
use target::Ready;

/// At once, in each process.
const CONCURRENCY: u32 = 64;
const SLICE: Duration = Duration::from_secs(1);

pub(crate) fn run(rounds: u32) -> Outcome<Vec<Table>> {
    let (_target, ready) = Helper::start(&Role::Target)?;
    let target: Ready = serde_json::from_str(&ready)?;
    let mut table = Table::new(
        "probes",
        format!("Probes, {CONCURRENCY} at once, per CPU-second: median of {rounds} rounds [quartiles]"),
        &["check URL", "probes", "bare loop", "ratio"],
    );
    for (what, tls) in [("https: CONNECT, TLS, GET", true), ("http: absolute-form GET", false)] {
        progress(what);
        let mut processes = Vec::new();
        for kind in [Kind::Prober, Kind::Bare] {
            let settings = Settings { kind, tls, concurrency: CONCURRENCY, target: target.clone() };
            processes.push(Helper::start(&Role::Prober(settings))?.0);
        }
        for process in &mut processes {
            slice(process)?;
        }
        let slices = rounds::run(rounds, processes.len(), |n| slice(&mut processes[n]))?;
        let rate = |n: usize| thousands(rounds::rate(&slices, n).median);
        table.row([what.to_owned(), rate(0), rate(1), rounds::ratio(&slices, 0, 1).ratio()]);
    }
    Ok(vec![table])
}

fn slice(process: &mut Helper) -> Outcome<Slice> {
    let before = process.cpu()?;
    let answer = process.ask(&SLICE.as_millis().to_string())?;
    let done = answer.parse().map_err(|_| format!("a probe failed: {answer}"))?;
    Ok(Slice { done, cpu: process.cpu()? - before })
}
