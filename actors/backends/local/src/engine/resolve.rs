//! Looking names up.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::Semaphore;

/// Looks a name up, once per connection.
pub trait Resolve: Send + Sync {
    /// The addresses in order of preference.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver. At most 64 look-ups of one backend hold a thread at a time: a look-up whose client has gone runs
/// on until the system gives it up, and must not take the threads of others.
#[derive(Clone)]
pub struct SystemResolver {
    threads: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { threads: Arc::new(Semaphore::new(64)) }
    }
}

impl fmt::Debug for SystemResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemResolver").field("free", &self.threads.available_permits()).finish()
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let permit = Arc::clone(&self.threads).acquire_owned().await.map_err(io::Error::other)?;
            let host = host.to_owned();
            tokio::task::spawn_blocking(move || {
                let _permit = permit;
                Ok((host.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect())
            })
            .await
            .map_err(io::Error::other)?
        })
    }
}
