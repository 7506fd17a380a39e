//! The Kubernetes client as everyone of ours uses it (OP-29): each user has its own, and it sends nothing until it is asked.
//!
//! - [`Access`]: where the API server is and who we are there
//! - [`ApiClient`]: a client that is made when it is first needed, and anew after a 401 or when its connections seem dead
//! - [`Request`]: a request in the API server's own words, whose answer the caller reads
//! - [`ApiError`]: how a call ends that did not succeed
//!
//! What must stay true: the library's own retries are off; every call has a deadline; a refused token is read again once,
//! never in a storm; nothing secret is printed.

mod access;
mod client;
mod error;
mod request;

pub use access::{Access, AccessError};
pub use client::{ApiClient, CONNECT, LIST_PAGE, Link, REQUEST, span};
pub use error::{ApiError, chain};
pub use futures::AsyncBufRead;
pub use kube;
pub use request::{PatchKind, Request, segment};
