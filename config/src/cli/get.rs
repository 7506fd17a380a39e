//! `get`: its flags → its settings.

use std::collections::BTreeSet;
use std::ffi::OsString;

use egress_protocol::Secret;

use super::TOKEN_VARIABLE;
use super::faults::Faults;
use super::raw;
use crate::tokens::{self, Tokens};

/// What `get` asks, where and as whom (OP-31).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetSettings {
    /// What to show.
    pub kind: GetKind,
    /// One of them.
    pub name: Option<String>,
    /// The discovery API, `http://HOST:PORT`.
    pub server: String,
    /// The debug endpoint, likewise.
    pub debug_server: String,
    /// What to present.
    pub token: Option<Secret>,
    /// How to show it.
    pub output: GetOutput,
    /// Follow.
    pub watch: bool,
}

/// What to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of OP-31")]
pub enum GetKind {
    Proxies,
    Leases,
    Providers,
    Actors,
}

/// How to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of OP-31")]
pub enum GetOutput {
    Table,
    Wide,
    Json,
}

/// The error is a text of one line for each fault.
pub(super) fn read(raw: raw::Get, variable: Option<OsString>, variables: &BTreeSet<String>) -> Result<GetSettings, String> {
    let mut faults = Faults::new(variables);
    let kinds =
        [("proxies", GetKind::Proxies), ("leases", GetKind::Leases), ("providers", GetKind::Providers), ("actors", GetKind::Actors)];
    let kind = kinds.iter().find(|(word, _)| *word == raw.what).map(|(_, kind)| *kind);
    if kind.is_none() {
        faults.say(format!("get {}: must be proxies, leases, providers or actors", raw.what));
    }
    let outputs = [("table", GetOutput::Table), ("wide", GetOutput::Wide), ("json", GetOutput::Json)];
    let output = faults.word("output", &raw.output, outputs);
    for (flag, url) in [("server", &raw.server), ("debug-server", &raw.debug_server)] {
        if !is_server(url) {
            // It may hold a password: it is not shown.
            faults.say(format!("{}: must be http://HOST:PORT, such as http://127.0.0.1:8090", faults.name(flag)));
        }
    }
    let token = match (raw.token_file, variable) {
        (Some(path), _) => match tokens::load_once(&path) {
            Ok(read) => first(read),
            Err(reasons) => {
                reasons.iter().for_each(|reason| faults.value("token-file", path.display(), reason));
                None
            }
        },
        (None, Some(text)) => match Tokens::single(&text.to_string_lossy()) {
            Ok(read) => first(read),
            Err(reason) => {
                faults.say(format!("{TOKEN_VARIABLE}: {reason}: unset it to ask without a token"));
                None
            }
        },
        (None, None) => None,
    };
    let (kind, output) = faults.finish(kind.zip(output))?;
    Ok(GetSettings {
        kind,
        name: raw.name,
        server: raw.server.trim_end_matches('/').to_owned(),
        debug_server: raw.debug_server.trim_end_matches('/').to_owned(),
        token,
        output,
        watch: raw.watch,
    })
}

fn first(read: Tokens) -> Option<Secret> {
    read.tokens.into_iter().next().map(|token| token.secret)
}

fn is_server(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    !authority.is_empty() && !authority.contains(['/', '?', '#', '@', ' ']) && authority.is_ascii()
}
