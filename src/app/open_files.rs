//! Open files: as many as the system lets us have (OP-5).

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, and says so when that is less than the configured connections need.
pub(super) fn raise(needed: u64) {
    let (soft, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => {
            tracing::warn!(%error, "WARNING: the limit of open files cannot be read");
            return;
        }
    };
    if soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, hard, "WARNING: the limit of open files cannot be raised");
        return;
    }
    if hard < needed {
        tracing::warn!(limit = hard, needed, "WARNING: the limit of open files is less than the configured connections need");
    }
}
