//! Names to addresses, as this machine sees them.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Look-ups that the system's resolver may be busy with. Each holds a thread until it ends, also when nobody waits for
/// it any more: without a limit a dead name server would fill the pool that everybody's file access shares.
const MOST_AT_ONCE: usize = 64;

type Lookup = dyn Fn(Arc<str>, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

/// Looks names up; the system's resolver, or a test's.
#[derive(Clone)]
pub struct Resolver(Arc<Lookup>);

impl Resolver {
    /// The system's.
    pub fn system() -> Self {
        Self::blocking(MOST_AT_ONCE, |host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    /// Another way to look names up.
    pub fn new(lookup: impl Fn(Arc<str>, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    /// Every address of `host`, best first.
    pub async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        (self.0)(host.into(), port).await
    }

    fn blocking(most: usize, lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Copy + Send + Sync + 'static) -> Self {
        let places = Arc::new(Semaphore::new(most));
        Self::new(move |host, port| {
            let places = Arc::clone(&places);
            Box::pin(async move {
                let place = places.acquire_owned().await.map_err(io::Error::other)?;
                let found = spawn_blocking(move || {
                    let found = lookup(&host, port);
                    drop(place);
                    found
                });
                found.await.map_err(io::Error::other)?
            })
        })
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test]
    async fn the_system_knows_localhost() {
        let found = Resolver::system().lookup("localhost", 80).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()) && !found.is_empty());
    }

    /// M1: a name server that answers nobody keeps so many threads and no more, however many probes give up on it.
    #[tokio::test]
    async fn look_ups_nobody_waits_for_do_not_pile_up() {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        static ALIVE: std::sync::OnceLock<()> = std::sync::OnceLock::new();
        let stuck = Resolver::blocking(3, |_, _| {
            STARTED.fetch_add(1, Ordering::SeqCst);
            ALIVE.wait();
            Ok(Vec::new())
        });
        for _ in 0..50 {
            let _ = tokio::time::timeout(Duration::from_millis(1), stuck.lookup("px.example", 1)).await;
        }
        assert!(STARTED.load(Ordering::SeqCst) <= 3);
        ALIVE.set(()).unwrap();
        assert!(stuck.lookup("px.example", 1).await.is_ok(), "and they are given back");
    }
}
