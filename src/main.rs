//! The binary: reads the command line, does what it asks for, ends with the exit code of OP-4.

use std::process::ExitCode;

use egress_config::cli;
use egress_proxies_operator::{commands, tls};

fn main() -> ExitCode {
    tls::install();
    ExitCode::from(commands::run(cli::from_process()))
}
