//! Benchmarks as ratios in one run; how and what: docs/performance.md.
//!
//! - [`rounds`]: slices in turn, a ratio per round, the median; [`process`]: what a process costs; [`load`]: wrk
//! - [`grants`], [`book`], [`probes`], [`memory`], [`actors`], [`neighbours`], [`cloud`]: one benchmark each; [`fleet`]: what leases are granted from
//! - [`builds`]: two builds of this program against each other; [`children`], [`pods`]: what only that measures
//! - [`table`], [`page`]: what is printed, and written into docs/performance.md
//!
//! A benchmark that needs servers starts this same program again in a [`Role`]; each ends when its stdin does, so that
//! none outlives the run.

mod actors;
mod book;
mod builds;
mod children;
mod cloud;
mod fleet;
mod grants;
mod load;
mod memory;
mod neighbours;
mod page;
mod pods;
mod probes;
mod process;
mod rounds;
mod table;

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

/// The allocator of the binary that is measured, so that servers started from this program cost what the binary's do.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What went wrong, in words: a person reads it, nobody decides on it.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum What {
    /// Everything (as without a word)
    All,
    /// Lease grants over HTTP, against a bare handler and between fleets
    Grants,
    /// The lease book alone
    Book,
    /// Probes, against a bare loop
    Probes,
    /// Memory of an idle proxy with its prober
    Memory,
    /// Calls and casts through one actor
    Actors,
    /// Creates and grants beside a provider whose every call hangs
    Neighbours,
    /// The gcp backend, against a bare loop of the same requests
    Gcp,
    /// This build against another one (`--other`); not part of everything
    Builds,
    /// Also rewrite the tables of docs/performance.md
    Write,
}

/// Benchmarks as ratios in one run.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Options {
    /// Several may be given
    what: Vec<What>,
    /// How often every slice is repeated; a ratio per round, and the median of them
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Another build of this program, with its operator beside it
    #[arg(long, value_name = "PATH")]
    other: Option<PathBuf>,
    /// What a child of the benchmark does
    #[arg(long, hide = true)]
    role: Option<String>,
}

/// What a child of the benchmark does.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Role {
    /// The discovery API, the broker and the journal.
    Leases(fleet::Shape),
    /// A handler that parses the request and answers as many bytes.
    Bare(grants::bare::Stack),
    /// Forward proxies that answer for every target.
    Target,
    /// Probes on command.
    Prober(probes::client::Settings),
    /// Leases beside providers, one of which hangs or is not there; creates on command.
    Neighbours(bool),
    /// Messages through an actor on command.
    Messages,
    /// An actor with many children, on command.
    Children,
    /// The stand-in for Compute Engine with so many instances.
    Gce(usize),
    /// Accepts every Pod.
    ApiServer,
    /// Creates Pods there, on command.
    Pods(std::net::SocketAddr),
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.role {
        Some(role) => play(role),
        None => measure(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn play(role: &str) -> Outcome<()> {
    match serde_json::from_str(role)? {
        Role::Leases(shape) => grants::server::run(shape),
        Role::Bare(stack) => grants::bare::run(stack),
        Role::Target => probes::target::run(),
        Role::Prober(settings) => probes::client::run(&settings),
        Role::Neighbours(hangs) => neighbours::serve(hangs),
        Role::Messages => actors::serve(),
        Role::Children => children::serve(),
        Role::Gce(instances) => cloud::serve(instances),
        Role::ApiServer => pods::api_server(),
        Role::Pods(server) => pods::serve(server),
    }
}

fn measure(options: &Options) -> Outcome<()> {
    let write = options.what.contains(&What::Write);
    let mut wanted: Vec<What> = options.what.iter().copied().filter(|what| *what != What::Write).collect();
    if wanted.is_empty() || wanted.contains(&What::All) {
        wanted = vec![What::Grants, What::Book, What::Probes, What::Memory, What::Actors, What::Neighbours, What::Gcp];
    }
    wanted.sort_unstable();
    wanted.dedup();
    if [What::Grants, What::Neighbours, What::Builds].iter().any(|what| wanted.contains(what)) {
        load::is_installed()?;
    }
    for what in wanted {
        let tables = match what {
            What::Grants => grants::run(options.rounds)?,
            What::Book => book::run(options.rounds)?,
            What::Probes => probes::run(options.rounds)?,
            What::Memory => memory::run()?,
            What::Actors => actors::run(options.rounds)?,
            What::Neighbours => neighbours::run(options.rounds)?,
            What::Gcp => cloud::run(options.rounds)?,
            What::Builds => builds::run(options.rounds, options.other.as_deref().ok_or("--other names the other build")?)?,
            What::All | What::Write => Vec::new(),
        };
        for table in tables {
            writeln!(io::stdout(), "{table}")?;
            if write {
                page::replace(&table)?;
            }
        }
    }
    Ok(())
}

/// What a long benchmark is at; tables go to stdout.
fn progress(text: &str) {
    let _ = writeln!(io::stderr(), "… {text}");
}

/// The runtime of the operator, for whatever is compared with it as well.
fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()
}
