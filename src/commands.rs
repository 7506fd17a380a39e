//! What the subcommands do (OP-3). Each ends with the exit code of OP-4.

pub mod check;
pub mod client;
pub mod get;
pub mod table;

use std::io::{self, Write};
use std::path::PathBuf;

use egress_config::cli::{Command, GetKind, GetOutput, GetSettings, Stop};

use crate::app::Way;
use crate::{app, version};
use client::{Client, ClientError};
use get::{GetError, Kind, Output};

/// Does what the command line asks for.
pub fn run(asked: Result<Command, Stop>) -> u8 {
    match asked {
        Err(stop) => {
            if stop.code == 0 {
                tell(&stop.to_string(), 0)
            } else {
                complain(&stop.to_string(), stop.code)
            }
        }
        Ok(Command::Run(settings)) => app::run(Way::Cluster(*settings)),
        Ok(Command::Standalone(settings)) => app::run(Way::Standalone(*settings)),
        Ok(Command::Check(settings)) => check::run(&settings),
        Ok(Command::Crds) => tell(&egress_config::crds(), 0),
        Ok(Command::Validate { files }) => validate(&files),
        Ok(Command::Get(settings)) => get(&settings),
        Ok(Command::Version) => tell(&version::line(), 0),
    }
}

fn validate(files: &[PathBuf]) -> u8 {
    let report = egress_config::validate_files(files);
    tell(&report.to_string(), report.exit_code())
}

fn get(settings: &GetSettings) -> u8 {
    let (kind, server) = match settings.kind {
        GetKind::Proxies => (Kind::Proxies, &settings.server),
        GetKind::Leases => (Kind::Leases, &settings.server),
        GetKind::Providers => (Kind::Providers, &settings.debug_server),
        GetKind::Actors => (Kind::Actors, &settings.debug_server),
    };
    let output = match settings.output {
        GetOutput::Table => Output::Table,
        GetOutput::Wide => Output::Wide,
        GetOutput::Json => Output::Json,
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("error: {error}"), 1),
    };
    let asked = Client::new(server, settings.token.clone()).map_err(GetError::from).and_then(|client| {
        let name = settings.name.as_deref();
        runtime.block_on(get::run(&client, kind, name, output, settings.watch, &mut io::stdout()))
    });
    match asked {
        // A reader that went away, such as `head`, has what it wanted.
        Ok(()) | Err(GetError::Output(_)) => 0,
        Err(error @ GetError::Client(ClientError::Address(_))) => complain(&format!("error: {error}"), 2),
        Err(error) => complain(&format!("error: {error}"), 1),
    }
}

fn tell(text: &str, code: u8) -> u8 {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
    code
}

fn complain(text: &str, code: u8) -> u8 {
    let _ = writeln!(io::stderr().lock(), "{}", text.trim_end());
    code
}
