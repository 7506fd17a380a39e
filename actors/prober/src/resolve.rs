//! Names to addresses, as this machine sees them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use egress_net::resolve::Lookups;
use futures::future::BoxFuture;

/// Look-ups at a time of all probers.
const MOST_AT_ONCE: usize = 48;
/// How long a probe waits for a place; less than the least timeout of one.
const PATIENCE: Duration = Duration::from_millis(800);

type Lookup = dyn Fn(Arc<str>, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

/// Looks names up; the system's resolver, or a test's.
#[derive(Clone)]
pub struct Resolver(Arc<Lookup>);

impl Resolver {
    /// The system's.
    pub fn system() -> Self {
        let share = Lookups::system().share(MOST_AT_ONCE, PATIENCE);
        Self::new(move |host, port| {
            let share = share.clone();
            Box::pin(async move { Ok(share.lookup(&host).await?.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()) })
        })
    }

    /// Another way to look names up.
    pub fn new(lookup: impl Fn(Arc<str>, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    /// Every address of `host`, best first; [`io::ErrorKind::ResourceBusy`] when nobody could look.
    pub async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        (self.0)(host.into(), port).await
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}
