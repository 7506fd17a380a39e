//! A stand-in for the few methods of Compute Engine v1 that the gcp backend uses, with state.
//!
//! [`FakeGce`] answers requests as data ([`FakeGce::handle`]) or over HTTP ([`FakeGce::serve`]). It is
//! ours, and judged by what is not (GC-30, `tests/it/gcp/official.rs`): Google's own client, and the discovery document. What it does on its own: an insert makes an operation and an instance that is `RUNNING` with
//! addresses once the operation has settled; a delete makes one that removes it. What it does on command: hold operations,
//! fail them, make zones dark, refuse requests, mangle answers.

mod http;
mod instance;
mod query;
mod state;

pub use http::Server;
pub use state::{Answer, Change, Exchange, FakeGce, Fault, Hold};
