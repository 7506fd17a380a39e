//! Names to addresses, as this machine sees them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

type Lookup = dyn Fn(Arc<str>, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

/// Looks names up; the system's resolver, or a test's.
#[derive(Clone)]
pub struct Resolver(Arc<Lookup>);

impl Resolver {
    /// The system's.
    pub fn system() -> Self {
        Self::new(|host, port| Box::pin(async move { Ok(tokio::net::lookup_host((&*host, port)).await?.collect()) }))
    }

    /// Another way to look names up.
    pub fn new(lookup: impl Fn(Arc<str>, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    /// Every address of `host`, best first.
    pub async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        (self.0)(host.into(), port).await
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}
