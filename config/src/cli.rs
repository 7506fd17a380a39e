//! Flags and environment → the settings of a command (OP-3, OP-4, OP-27).
//!
//! What must stay true: every flag `--some-flag` is also the variable `EPO_SOME_FLAG`, and the flag wins; every fault of
//! the settings is told at once and names the flag or the variable it came by, the value, the rule and a way out;
//! nothing is started from settings that have a fault. A variable that is empty counts as not set, but for
//! `DISCOVERY_TOKEN`: an API must not be opened by an empty text. The `OTEL_*` variables are judged with the rest.

mod check;
mod common;
mod environment;
mod faults;
mod get;
mod raw;
mod run;
mod settings;
mod standalone;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};

use crate::telemetry;

pub use check::CheckSettings;
pub use get::{GetKind, GetOutput, GetSettings};
pub use settings::{
    BindAddress, CheckRounds, CommonSettings, ElectionSettings, GcSettings, LeaseSettings, LogFormat, Objects, PollSettings, RunSettings,
    StandaloneSettings, TokenSource,
};

/// The variable with the discovery API's token; also what `get` presents without `--token-file`.
pub const TOKEN_VARIABLE: &str = "DISCOVERY_TOKEN";

/// What the process is to do.
#[derive(Debug, Clone)]
pub enum Command {
    /// Run in or against a cluster.
    Run(Box<RunSettings>),
    /// Run without a cluster.
    Standalone(Box<StandaloneSettings>),
    /// Print the CRDs.
    Crds,
    /// Check every provider once.
    Check(Box<CheckSettings>),
    /// Judge files.
    Validate {
        /// Files and folders.
        files: Vec<PathBuf>,
    },
    /// Ask a running instance.
    Get(GetSettings),
    /// Print the version.
    Version,
}

/// Why the process ends before it does anything: a text was asked for, or the usage is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// 0 for `--help`, on stdout; else 2, on stderr (OP-4).
    pub code: u8,
    /// What a person is told.
    pub text: String,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

impl Stop {
    fn usage(text: String) -> Self {
        Self { code: 2, text }
    }
}

impl From<clap::Error> for Stop {
    fn from(error: clap::Error) -> Self {
        let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        Self { code: if asked { 0 } else { 2 }, text: error.to_string() }
    }
}

/// The command of this process.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn from_process() -> Result<Command, Stop> {
    parse(std::env::args_os(), |name| std::env::var_os(name))
}

/// The command that arguments (the program's name first) and variables ask for.
pub fn parse(args: impl IntoIterator<Item = OsString>, variable: impl Fn(&str) -> Option<OsString>) -> Result<Command, Stop> {
    let given = environment::complete(command(), args.into_iter().collect(), &variable)?;
    let matches = command().try_get_matches_from(&given.args)?;
    let raw = raw::Cli::from_arg_matches(&matches)?;
    let token = variable(TOKEN_VARIABLE);
    match raw.command {
        raw::Command::Run(raw) => {
            let (mut settings, telemetry) = both(run::read(*raw, token, &given.variables), telemetry::read(&variable))?;
            settings.common.telemetry = telemetry;
            Ok(Command::Run(Box::new(settings)))
        }
        raw::Command::Standalone(raw) => {
            let (mut settings, telemetry) = both(standalone::read(*raw, token, &given.variables), telemetry::read(&variable))?;
            settings.common.telemetry = telemetry;
            Ok(Command::Standalone(Box::new(settings)))
        }
        raw::Command::Crds => Ok(Command::Crds),
        raw::Command::Check(raw) => {
            let settings = check::read(&raw, &given.variables).map_err(Stop::usage)?;
            Ok(Command::Check(Box::new(settings)))
        }
        raw::Command::Validate { files } => Ok(Command::Validate { files }),
        raw::Command::Get(raw) => Ok(Command::Get(get::read(raw, token, &given.variables).map_err(Stop::usage)?)),
        raw::Command::Version => Ok(Command::Version),
    }
}

/// The faults of either are told together.
fn both<A, B>(one: Result<A, String>, other: Result<B, String>) -> Result<(A, B), Stop> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (one, other) => Err(Stop::usage(one.err().unwrap_or_default() + &other.err().unwrap_or_default())),
    }
}

/// The flags, each with its variable in its help.
fn command() -> clap::Command {
    environment::annotate(raw::Cli::command())
}

/// The flags of a command with their defaults, for the documents' test.
#[cfg(test)]
pub(crate) fn flags(name: &str) -> std::collections::BTreeMap<String, Option<String>> {
    let command = raw::Cli::command();
    let arguments = command.find_subcommand(name).into_iter().flat_map(clap::Command::get_arguments);
    let flags = arguments.filter_map(|arg| {
        let default = arg.get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        Some((arg.get_long()?.to_owned(), default))
    });
    flags.filter(|(flag, _)| flag != "help").collect()
}

#[cfg(test)]
mod tests;
