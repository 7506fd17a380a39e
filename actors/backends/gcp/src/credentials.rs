//! Where a token comes from (GC-21): a credential file of one of three kinds, or the metadata server.
//!
//! What must stay true: a file is read anew for each token, so that a rotated one needs no restart (PC-74); nothing secret
//! is in any error. `file` reads the kinds (pure), `jwt` signs (pure), `fetch` asks.

mod fetch;
mod file;
mod jwt;

use std::fmt;
use std::time::Duration;

use egress_protocol::Secret;

pub(crate) use fetch::{Fetcher, bearer};

/// What a token is asked for.
pub(crate) const SCOPE: &str = "https://www.googleapis.com/auth/compute";

/// An access token.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) secret: Secret,
    /// From the moment it was received.
    pub(crate) lasts: Duration,
    /// The e-mail address of who it speaks for, if known.
    pub(crate) account: Option<String>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("lasts", &self.lasts).field("account", &self.account).finish_non_exhaustive()
    }
}
