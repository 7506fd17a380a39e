//! The Kubernetes client as everyone of ours uses it (OP-29): each user has its own, and it sends nothing until it is asked.
//!
//! - [`Access`]: where the API server is and who we are there
//! - [`ApiClient`]: a client that is made when it is first needed, and anew after a 401
//! - [`ApiError`]: how a call ends that did not succeed
//!
//! What must stay true: the library's own retries are off; every call has a deadline; a refused token is read again once,
//! never in a storm; nothing secret is printed.

mod access;
mod client;
mod error;

pub use access::{Access, AccessError};
pub use client::{ApiClient, CONNECT, Link, REQUEST};
pub use error::ApiError;
pub use kube;
