//! Looking names up.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use egress_net::resolve::{Lookups, Share};
use futures::future::BoxFuture;

/// Look-ups at a time of one instance, of names that resolved lately and of others.
const OF_AN_INSTANCE: usize = 8;
/// How long a request waits for a place among them.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks a name up, once per connection.
pub trait Resolve: Send + Sync {
    /// The addresses in order of preference. [`io::ErrorKind::ResourceBusy`]: nobody could look.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;

    /// The same for one instance, with a share of its own where there are shares.
    fn of_an_instance(&self) -> Option<Arc<dyn Resolve>> {
        None
    }
}

/// The system's resolver. The instances of a backend have equal shares of it.
#[derive(Debug, Clone)]
pub struct SystemResolver(Share);

impl Default for SystemResolver {
    fn default() -> Self {
        Self(Lookups::system().share(OF_AN_INSTANCE, PATIENCE))
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(self.0.lookup(host))
    }

    fn of_an_instance(&self) -> Option<Arc<dyn Resolve>> {
        Some(Arc::new(Self(self.0.another(OF_AN_INSTANCE, PATIENCE))))
    }
}
