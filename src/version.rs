//! Which build this is.

/// Of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Short hash, `-dirty` where it applies; `unknown` when built without git.
pub const COMMIT: &str = env!("EPO_COMMIT");
/// As the compiler names itself.
pub const COMPILER: &str = env!("EPO_COMPILER");

/// The line that `version` prints; the first log line says the same.
pub fn line() -> String {
    format!("egress-proxies-operator {VERSION} (commit {COMMIT}, {COMPILER})")
}
