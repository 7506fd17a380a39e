//! Levels per target: `info,kvm2=debug`.

use tracing_subscriber::EnvFilter;

/// Libraries speak up from warn on, so that one format does not add volume (OB-6). A level given for one of them by
/// name wins.
const LIBRARIES: &str =
    "ractor=warn,hyper=warn,h2=warn,rustls=warn,tokio=warn,axum=warn,tower=warn,log=warn,mio=warn,want=warn,kube=warn,russh=warn";

pub(super) fn parse(level: &str) -> Result<EnvFilter, String> {
    check(level)?;
    EnvFilter::builder().parse(format!("{LIBRARIES},{level}")).map_err(|e| e.to_string())
}

/// Whether a level is one that `--log-level` takes: a level, and `TARGET=LEVEL` pairs, separated by commas.
pub fn check(level: &str) -> Result<(), String> {
    for directive in level.split(',') {
        let (target, level) = match directive.split_once('=') {
            Some((target, level)) => (target, level),
            None => ("-", directive),
        };
        let known = ["error", "warn", "info", "debug", "trace", "off"].iter().any(|l| l.eq_ignore_ascii_case(level));
        let named = !target.is_empty() && target.chars().all(|c| c.is_ascii_alphanumeric() || "_-:".contains(c));
        if !known || !named {
            return Err(format!("{directive} is not a level (error, warn, info, debug, trace, off) or TARGET=LEVEL"));
        }
    }
    Ok(())
}
