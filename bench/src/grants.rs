//! Lease grants over HTTP: the discovery API, the broker and the journal, against a handler that only parses and answers,
//! and fleets of different sizes against each other. A cost is that of a whole round, so that the expiry of the leases of
//! a slice is paid for by their server, also where it falls behind the slice.

pub(crate) mod bare;
pub(crate) mod server;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use tempfile::TempDir;

use crate::fleet::{Shape, Wish};
use crate::process::Helper;
use crate::rounds::{self, Slice, Spread};
use crate::table::{Table, thousands};
use crate::{Outcome, Role, load, progress};

/// Leases of this time to live are granted; a slice is as long.
pub(crate) const TTL: &str = "1s";
/// Until a server has expired what the last slice left.
pub(crate) const SETTLE: Duration = Duration::from_millis(1300);
/// So many that the tenth which does not cool is never full within a slice.
pub(crate) const PLACES: u32 = 20_000_000;
/// Seconds of load before the first slice: selectors have their index, proxies were granted before, and ended leases are
/// remembered.
pub(crate) const WARM_UP: u32 = 8;

/// A child with the discovery API, or with what it is compared with.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) helper: Helper,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(role: &Role) -> Outcome<Self> {
        let (helper, ready) = Helper::start(role)?;
        Ok(Self { helper, address: ready.parse()? })
    }

    /// The same of another build of this program.
    pub(crate) fn start_of(program: &Path, role: &Role) -> Outcome<Self> {
        let (helper, ready) = Helper::start_of(program, role)?;
        Ok(Self { helper, address: ready.parse()? })
    }

    fn leases(proxies: u32, places: u32, cooling: bool) -> Outcome<Self> {
        Self::start(&Role::Leases(Shape { proxies, places, cooling }))
    }
}

/// Scripts for wrk, in a folder that ends with this value.
#[derive(Debug)]
pub(crate) struct Scripts(TempDir);

impl Scripts {
    pub(crate) fn new() -> Outcome<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    pub(crate) fn add(&self, name: &str, script: &str) -> Outcome<PathBuf> {
        let path = self.0.path().join(format!("{name}.lua"));
        std::fs::write(&path, script)?;
        Ok(path)
    }
}

pub(crate) fn run(rounds: u32) -> Outcome<Vec<Table>> {
    let scripts = Scripts::new()?;
    Ok(vec![against_bare(rounds, &scripts)?, between_fleets(rounds, &scripts)?, while_leases_expire(rounds, &scripts)?])
}

/// Slices of one second in turn; and how many requests were refused.
pub(crate) fn slices(rounds: u32, servers: &[&Server], script: &Path, connections: u32) -> Outcome<(Vec<Vec<Slice>>, f64)> {
    let mut all = Vec::new();
    let mut refused = 0.0;
    for round in 0..rounds {
        let before = servers.iter().map(|server| server.helper.cpu()).collect::<Outcome<Vec<f64>>>()?;
        let mut slices = vec![Slice::default(); servers.len()];
        for n in rounds::order(round, servers.len()) {
            let seen = load::run(script, servers[n].address, connections, 1)?;
            slices[n].done = seen.answers;
            refused += seen.refused;
        }
        sleep(SETTLE);
        for ((slice, server), before) in slices.iter_mut().zip(servers).zip(before) {
            slice.cpu = server.helper.cpu()? - before;
        }
        all.push(slices);
    }
    Ok((all, refused))
}

/// A line that tells of refusals, which there should be none of.
pub(crate) fn refusals(table: &mut Table, refused: f64) {
    if refused > 0.0 {
        table.note(format!("**{} requests were refused.**", thousands(refused)));
    }
}

fn against_bare(rounds: u32, scripts: &Scripts) -> Outcome<Table> {
    let ours = Server::leases(10_000, PLACES, false)?;
    let bare = Server::start(&Role::Bare(bare::Stack::Axum))?;
    let on_our_server = Server::start(&Role::Bare(bare::Stack::Ours))?;
    let servers = [&ours, &bare, &on_our_server];
    let bodies = Wish::Fifty.bodies(TTL);
    let grants = scripts.add("grants", &load::grants(&bodies))?;
    let pairs = scripts.add("pairs", &load::pairs(&bodies))?;
    for server in servers {
        load::run(&grants, server.address, 64, if std::ptr::eq(server, &ours) { WARM_UP } else { 1 })?;
    }
    let mut table = Table::new(
        "grants",
        format!("Lease grants over HTTP, 10,000 proxies, 50 selectors, TTL 1 s: median of {rounds} rounds [quartiles]"),
        &["load", "requests per CPU-s", "bare handler", "ratio to bare", "bare on our server / bare", "ratio to bare on our server"],
    );
    let mut refused = 0.0;
    for (what, script, connections) in [
        ("grants, 64 connections", &grants, 64),
        ("grants, 1 connection", &grants, 1),
        ("grant + release, 64 connections", &pairs, 64),
        ("grant + release, 1 connection", &pairs, 1),
    ] {
        progress(what);
        let (slices, no) = slices(rounds, &servers, script, connections)?;
        refused += no;
        table.row([
            what.to_owned(),
            thousands(rounds::rate(&slices, 0).median),
            thousands(rounds::rate(&slices, 1).median),
            rounds::ratio(&slices, 0, 1).ratio(),
            rounds::ratio(&slices, 2, 1).ratio(),
            rounds::ratio(&slices, 0, 2).ratio(),
        ]);
    }
    let sizes = [server::answer_size(ours.address, &bodies[0])?, server::answer_size(bare.address, &bodies[0])?];
    table.note(format!("Answers: {} bytes of ours, {} of the bare handler.", sizes[0], sizes[1]));
    refusals(&mut table, refused);
    Ok(table)
}

fn between_fleets(rounds: u32, scripts: &Scripts) -> Outcome<Table> {
    let small = Server::leases(100, PLACES, true)?;
    let large = Server::leases(100_000, PLACES, true)?;
    let servers = [&small, &large];
    let mut table = Table::new(
        "fleets",
        format!("100 against 100,000 proxies, grants, 64 connections: median of {rounds} rounds [quartiles]"),
        &["requests", "100 proxies, per CPU-s", "100,000 proxies, per CPU-s", "cost at 100,000 / at 100"],
    );
    let mut refused = 0.0;
    let wishes =
        [("50 selectors in turn", Wish::Fifty), ("10 selectors, 90 % cool", Wish::Uncooled), ("a selector that names one", Wish::One)];
    for (n, (what, wish)) in wishes.into_iter().enumerate() {
        progress(what);
        let script = scripts.add(&format!("fleet-{n}"), &load::grants(&wish.bodies(TTL)))?;
        for server in servers {
            load::run(&script, server.address, 64, WARM_UP)?;
        }
        let (slices, no) = slices(rounds, &servers, &script, 64)?;
        refused += no;
        table.row([
            what.to_owned(),
            thousands(rounds::rate(&slices, 0).median),
            thousands(rounds::rate(&slices, 1).median),
            rounds::ratio(&slices, 0, 1).ratio(),
        ]);
    }
    refusals(&mut table, refused);
    Ok(table)
}

/// A burst of grants, and one connection in the second in which they expire, or do not.
fn while_leases_expire(rounds: u32, scripts: &Scripts) -> Outcome<Table> {
    progress("while leases expire");
    let (expiring, staying) = (Server::leases(10_000, PLACES, false)?, Server::leases(10_000, PLACES, false)?);
    let short = scripts.add("short", &load::grants(&Wish::Fifty.bodies(TTL)))?;
    let long = scripts.add("long", &load::grants(&Wish::Fifty.bodies("1h")))?;
    let servers = [(&expiring, &short), (&staying, &long)];
    for (server, script) in servers {
        load::run(script, server.address, 64, WARM_UP)?;
    }
    let mut table = Table::new(
        "expiry",
        format!("Grants at 1 connection in the second in which the leases of a burst expire: median of {rounds} rounds [quartiles]"),
        &["leases", "p99 µs", "ratio", "leases that expire meanwhile"],
    );
    let mut p99 = Vec::new();
    let mut bursts = Vec::new();
    let mut refused = 0.0;
    for round in 0..rounds {
        let mut of_round = [0.0; 2];
        for n in rounds::order(round, 2) {
            let (server, script) = servers[n];
            let burst = load::run(script, server.address, 64, 1)?;
            let seen = load::run(script, server.address, 1, 1)?;
            refused += burst.refused + seen.refused;
            of_round[n] = seen.p99;
            if n == 0 {
                bursts.push(burst.answers);
            }
            sleep(SETTLE);
        }
        p99.push(of_round);
    }
    let of = |n: usize| thousands(Spread::of(p99.iter().map(|round| round[n])).median);
    let ratio = Spread::of(p99.iter().map(|round| round[0] / round[1])).ratio();
    table.row(["1 s".to_owned(), of(0), ratio, thousands(Spread::of(bursts).median)]);
    table.row(["1 h".to_owned(), of(1), "1".to_owned(), "0".to_owned()]);
    refusals(&mut table, refused);
    Ok(table)
}
