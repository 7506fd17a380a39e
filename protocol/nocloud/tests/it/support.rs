//! What the tests share.

use std::ffi::OsStr;
use std::io::Write as _;
use std::process::{Command, Output};

/// Skips the calling test by name: loudly, and counted by `tests/run`.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
    if let Some(path) = std::env::var_os("EPO_TEST_SKIPS")
        && let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = writeln!(file, "{test}: {why}");
    }
}

/// Whether a program is here.
pub fn have(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

/// Runs a program to its end, which must be good.
pub fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    let output = Command::new(program).args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
