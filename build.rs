//! Tells the binary what it was built from: commit, `-dirty`, compiler (OP-3). Needs neither git nor a work tree: an
//! image build gives the commit as `EPO_BUILD_COMMIT`.

use std::process::Command;

#[expect(clippy::disallowed_methods, reason = "a build script is told by its environment")]
fn main() {
    let commit = std::env::var("EPO_BUILD_COMMIT").ok().or_else(commit).unwrap_or_else(|| "unknown".to_owned());
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let compiler = output(&rustc, &["--version"]).unwrap_or_else(|| "unknown compiler".to_owned());
    println!("cargo::rustc-env=EPO_COMMIT={commit}");
    println!("cargo::rustc-env=EPO_COMPILER={compiler}");
    println!("cargo::rerun-if-env-changed=EPO_BUILD_COMMIT");
    for path in ["Cargo.toml", "Cargo.lock", "src", "protocol", "actors", "config", ".git/HEAD", ".git/refs/heads"] {
        if std::path::Path::new(path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn commit() -> Option<String> {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    let changed = output("git", &["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}-dirty") })
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
