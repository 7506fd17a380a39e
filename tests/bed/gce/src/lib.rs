//! A stand-in for the few methods of Compute Engine v1 that the gcp backend uses, with state.
//!
//! [`FakeGce`] answers requests as data ([`FakeGce::handle`]) or over HTTP ([`FakeGce::serve`], `examples/serve.rs`). What it
//! does on its own: an insert makes an operation and an instance that is `RUNNING` with addresses once the operation has
//! settled; a delete makes one that removes it. What it does on command: hold operations, fail them, make zones dark, refuse
//! requests, mangle answers.
//!
//! It is ours, so [`official`] has two that are not judge it: Google's own client and the discovery document (GC-30).

mod control;
mod http;
mod instance;
pub mod official;
mod query;
mod state;

pub use control::Change;
pub use http::Server;
pub use state::{Answer, Exchange, FakeGce, Fault, Hold};
