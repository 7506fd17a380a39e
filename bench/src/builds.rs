//! This build against another one, such as of the commit before a change: the same program twice, in turn, in one sitting.
//!
//! The other build is made from that commit with this folder's sources, so that both can be told the same.

use std::path::{Path, PathBuf};

use crate::children::{CHILDREN, Round};
use crate::fleet::{Shape, Wish};
use crate::grants::{PLACES, Scripts, Server, TTL, WARM_UP, refusals, slices};
use crate::process::Helper;
use crate::rounds::{self, Spread};
use crate::table::{Table, thousands};
use crate::{Outcome, Role, actors, load, memory, progress};

pub(crate) fn run(rounds: u32, other: &Path) -> Outcome<Vec<Table>> {
    let programs = [std::env::current_exe()?, other.to_owned()];
    let mut table = Table::new(
        "builds",
        format!("This build against another: median of {rounds} rounds [quartiles]"),
        &["what", "this build", "the other", "this / the other"],
    );
    messages(rounds, &programs, &mut table)?;
    children(rounds, &programs, &mut table)?;
    pods(rounds, &programs, &mut table)?;
    grants(rounds, &programs, &mut table)?;
    let slopes = memory::slopes(&programs)?;
    let kib = |n: usize| format!("{:.1} KiB", slopes[n]);
    table.row(["memory per idle proxy with its prober".to_owned(), kib(0), kib(1), format!("{:.2}", slopes[0] / slopes[1])]);
    Ok(vec![table])
}

fn helpers(programs: &[PathBuf; 2], role: &Role) -> Outcome<Vec<Helper>> {
    programs.iter().map(|program| Ok(Helper::start_of(program, role)?.0)).collect()
}

/// What both say to a question, round by round, in turn.
fn asked<T>(rounds: u32, helpers: &mut [Helper], question: &str, read: impl Fn(&str) -> Outcome<T>) -> Outcome<Vec<[T; 2]>> {
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut answers = [None, None];
        for n in rounds::order(round, 2) {
            answers[n] = Some(read(&helpers[n].ask(question)?)?);
        }
        if let [Some(this), Some(other)] = answers {
            all.push([this, other]);
        }
    }
    Ok(all)
}

/// A row of medians, and of the median of the rounds' ratios.
fn row(table: &mut Table, what: &str, rounds: &[[f64; 2]], shown: impl Fn(f64) -> String) {
    let of = |n: usize| shown(Spread::of(rounds.iter().map(|round| round[n])).median);
    let ratio = Spread::of(rounds.iter().map(|[this, other]| this / other)).ratio();
    table.row([what.to_owned(), of(0), of(1), ratio]);
}

fn messages(rounds: u32, programs: &[PathBuf; 2], table: &mut Table) -> Outcome<()> {
    let mut helpers = helpers(programs, &Role::Messages)?;
    for (what, callers) in actors::KINDS {
        progress(what);
        let rates = asked(rounds, &mut helpers, &callers.to_string(), |answer| Ok(answer.parse::<f64>()?))?;
        row(table, &format!("{what}, per CPU-s"), &rates, thousands);
    }
    Ok(())
}

fn children(rounds: u32, programs: &[PathBuf; 2], table: &mut Table) -> Outcome<()> {
    progress("children");
    let mut helpers = helpers(programs, &Role::Children)?;
    let seen = asked(rounds, &mut helpers, "round", |answer| Ok(serde_json::from_str::<Round>(answer)?))?;
    let children = thousands(CHILDREN as f64);
    let mut part = |what: String, of: fn(Round) -> f64| {
        let part: Vec<[f64; 2]> = seen.iter().map(|round| round.map(of)).collect();
        row(table, &what, &part, |seconds| format!("{:.1} ms", seconds * 1e3));
    };
    part(format!("{children} children started"), |round| round.start);
    part(format!("{children} children started, CPU"), |round| round.start_cpu);
    part("one of them killed, until it has started again".to_owned(), |round| round.restart);
    part("all of them stopped".to_owned(), |round| round.stop);
    part("all of them stopped, CPU".to_owned(), |round| round.stop_cpu);
    Ok(())
}

fn pods(rounds: u32, programs: &[PathBuf; 2], table: &mut Table) -> Outcome<()> {
    progress("creates of Pods");
    let (_server, address) = Helper::start(&Role::ApiServer)?;
    let mut helpers = helpers(programs, &Role::Pods(address.parse()?))?;
    // The first slice opens connections.
    let rates = asked(rounds + 1, &mut helpers, "creates", |answer| Ok(answer.parse::<f64>()?))?;
    row(table, "creates through the kubernetes backend, per CPU-s", &rates[1..], thousands);
    Ok(())
}

fn grants(rounds: u32, programs: &[PathBuf; 2], table: &mut Table) -> Outcome<()> {
    let role = Role::Leases(Shape { proxies: 10_000, places: PLACES, cooling: false });
    let servers = [Server::start_of(&programs[0], &role)?, Server::start_of(&programs[1], &role)?];
    let servers = [&servers[0], &servers[1]];
    let scripts = Scripts::new()?;
    let script = scripts.add("grants", &load::grants(&Wish::Fifty.bodies(TTL)))?;
    for server in servers {
        load::run(&script, server.address, 64, WARM_UP)?;
    }
    for connections in [64, 1] {
        let what = format!("grants, {connections} connection{}, per CPU-s", if connections == 1 { "" } else { "s" });
        progress(&what);
        let (seen, refused) = slices(rounds, &servers, &script, connections)?;
        let rate = |n: usize| thousands(rounds::rate(&seen, n).median);
        table.row([what, rate(0), rate(1), rounds::ratio(&seen, 0, 1).ratio()]);
        refusals(table, refused);
    }
    Ok(())
}
