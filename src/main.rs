//! The binary: reads the command line, does what it asks for, ends with the exit code of OP-4.

use std::process::ExitCode;

use egress_config::cli;
use egress_proxies_operator::{commands, tls};

/// Threads free what other threads allocated without a lock on the way: docs/decisions/0007-allocator.md has what it saves.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tls::install();
    ExitCode::from(commands::run(cli::from_process()))
}
