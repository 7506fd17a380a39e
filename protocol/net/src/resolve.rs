//! Names to addresses by the system's resolver, for everybody who dials.
//!
//! Each look-up holds a thread until the system gives it up, also when nobody waits for it any more. So their number is
//! bounded, and what one user of names can take of it too: a client that asks for dead names must not keep the others
//! waiting. Names that resolved lately have places of their own. One name is looked up once at a time, and one that does
//! not resolve is not asked for again for [`UNKNOWN_FOR`].

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

/// Look-ups at a time of names that did not resolve lately.
const STRANGERS: usize = 48;
/// Look-ups at a time of names that did.
const KNOWN: usize = 16;
/// How long it is remembered that a name does not resolve.
pub const UNKNOWN_FOR: Duration = Duration::from_secs(5);
/// How long it is remembered that a name resolved.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// Names that are remembered, of each kind.
const MOST_NAMES: usize = 4096;

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;
type Found = Result<Arc<[IpAddr]>, Arc<str>>;
type Flight = watch::Receiver<Option<Found>>;

/// The places for look-ups. Clones are one.
#[derive(Clone)]
pub struct Lookups(Arc<Inner>);

struct Inner {
    lookup: Box<Lookup>,
    strangers: Arc<Semaphore>,
    known: Arc<Semaphore>,
    names: Mutex<Names>,
}

#[derive(Default)]
struct Names {
    flights: HashMap<Arc<str>, Flight>,
    unknown: HashMap<Arc<str>, (Instant, Arc<str>)>,
    known: HashMap<Arc<str>, Instant>,
}

/// What one user of names may take of the places.
#[derive(Clone)]
pub struct Share {
    lookups: Lookups,
    strangers: Arc<Semaphore>,
    known: Arc<Semaphore>,
    patience: Duration,
}

impl Lookups {
    /// By the system's resolver.
    pub fn system() -> Self {
        Self::new(|host| Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    /// By another one, which may block.
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            lookup: Box::new(lookup),
            strangers: Arc::new(Semaphore::new(STRANGERS)),
            known: Arc::new(Semaphore::new(KNOWN)),
            names: Mutex::default(),
        }))
    }

    /// A share of `most` places of each kind; whoever waits for one longer than `patience` is told that there is none.
    pub fn share(&self, most: usize, patience: Duration) -> Share {
        let (strangers, known) = (Arc::new(Semaphore::new(most)), Arc::new(Semaphore::new(most)));
        Share { lookups: self.clone(), strangers, known, patience }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a look-up, unless one is under way. The places are free again when the system has answered.
    fn begin(&self, host: &str, places: [OwnedSemaphorePermit; 2]) -> Flight {
        let mut names = self.names();
        if let Some(flight) = names.flight(host) {
            return flight;
        }
        let (told, flight) = watch::channel(None);
        let host: Arc<str> = host.into();
        names.flights.insert(Arc::clone(&host), flight.clone());
        drop(names);
        let lookups = self.clone();
        spawn_blocking(move || {
            let found = (lookups.0.lookup)(&host).map(Arc::from).map_err(|error| Arc::from(error.to_string()));
            lookups.names().learn(&host, &found, Instant::now());
            let _ = told.send(Some(found));
            drop(places);
        });
        flight
    }
}

impl Names {
    /// The look-up of this name that is under way; one whose thread panicked is not.
    fn flight(&self, host: &str) -> Option<Flight> {
        self.flights.get(host).filter(|flight| flight.has_changed().is_ok()).cloned()
    }

    fn learn(&mut self, host: &Arc<str>, found: &Found, now: Instant) {
        self.flights.remove(host);
        match found {
            Ok(_) => {
                make_room(&mut self.known, |since| now.duration_since(*since) < KNOWN_FOR);
                self.known.insert(Arc::clone(host), now);
            }
            Err(why) => {
                make_room(&mut self.unknown, |(since, _)| now.duration_since(*since) < UNKNOWN_FOR);
                self.unknown.insert(Arc::clone(host), (now, Arc::clone(why)));
            }
        }
    }
}

/// Forgets what is too old when there is much, and all when that is not enough.
fn make_room<V>(map: &mut HashMap<Arc<str>, V>, is_young: impl Fn(&V) -> bool) {
    if map.len() >= MOST_NAMES {
        map.retain(|_, value| is_young(value));
    }
    if map.len() >= MOST_NAMES {
        map.clear();
    }
}

impl Share {
    /// A share like this one, of the same places.
    #[must_use]
    pub fn another(&self, most: usize, patience: Duration) -> Self {
        self.lookups.share(most, patience)
    }

    /// Every address of a name, best first. [`io::ErrorKind::ResourceBusy`]: there was no place, which says nothing about
    /// the name.
    pub async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let now = Instant::now();
        let (known, flight) = {
            let names = self.lookups.names();
            if let Some((_, why)) = names.unknown.get(host).filter(|(since, _)| now.duration_since(*since) < UNKNOWN_FOR) {
                return Err(io::Error::other(why.to_string()));
            }
            (names.known.get(host).is_some_and(|since| now.duration_since(*since) < KNOWN_FOR), names.flight(host))
        };
        let mut flight = match flight {
            Some(flight) => flight,
            None => {
                let all = &self.lookups.0;
                let (mine, all) = if known { (&self.known, &all.known) } else { (&self.strangers, &all.strangers) };
                let places =
                    timeout(self.patience, async { tokio::try_join!(Arc::clone(mine).acquire_owned(), Arc::clone(all).acquire_owned()) });
                match places.await {
                    Ok(Ok((mine, all))) => self.lookups.begin(host, [mine, all]),
                    Ok(Err(_)) | Err(_) => {
                        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "all look-ups are busy with other names"));
                    }
                }
            }
        };
        let found = flight.wait_for(Option::is_some).await.map_err(io::Error::other)?;
        match &*found {
            Some(Ok(addresses)) => Ok(addresses.to_vec()),
            Some(Err(why)) => Err(io::Error::other(why.to_string())),
            None => Err(io::Error::other("no answer")),
        }
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").field("free", &self.0.strangers.available_permits()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("free", &self.strangers.available_permits()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    /// Names that begin with `dead` are answered when `alive` is set, others at once, `no…` as unknown.
    fn lookups(alive: &Arc<OnceLock<()>>, count: &Arc<AtomicUsize>) -> Lookups {
        let (alive, count) = (Arc::clone(alive), Arc::clone(count));
        Lookups::new(move |host| {
            count.fetch_add(1, Ordering::SeqCst);
            if host.starts_with("dead") {
                alive.wait();
            }
            if host.starts_with("no") { Err(io::Error::other("unknown")) } else { Ok(vec![IpAddr::from([192, 0, 2, 1])]) }
        })
    }

    #[tokio::test]
    async fn the_system_knows_localhost() {
        let found = Lookups::system().share(1, PATIENCE).lookup("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
    }

    /// Issue 10 item 7, M1: also when nobody waits for them any more.
    #[tokio::test]
    async fn names_that_do_not_resolve_take_the_share_of_who_asks_and_no_more() {
        let (alive, count) = (Arc::default(), Arc::default());
        let lookups = lookups(&alive, &count);
        let (one, other) = (lookups.share(8, PATIENCE), lookups.share(8, PATIENCE));
        one.lookup("known.example").await.unwrap();
        let asked: Vec<_> = (0..100).map(|n| format!("dead{n}.example")).collect();
        let ended = join_all(asked.iter().map(|name| timeout(PATIENCE * 2, one.lookup(name)))).await;
        assert_eq!(ended.iter().filter(|ended| ended.is_err()).count(), 8, "these are at work");
        let busy = ended.into_iter().flatten().all(|ended| ended.unwrap_err().kind() == io::ErrorKind::ResourceBusy);
        assert!(busy, "there was no place: nothing is said about the name");
        assert_eq!(count.load(Ordering::SeqCst), 9);
        other.lookup("fresh.example").await.unwrap();
        one.lookup("known.example").await.unwrap();
        alive.set(()).unwrap();
        one.lookup("fresh2.example").await.unwrap();
    }

    /// Issue 10 item 7.
    #[tokio::test]
    async fn one_name_is_looked_up_once_at_a_time_and_an_unknown_one_not_again_at_once() {
        let (alive, count) = (Arc::new(OnceLock::new()), Arc::default());
        let lookups = lookups(&alive, &count);
        let share = lookups.share(8, PATIENCE);
        let (found, ()) = tokio::join!(join_all((0..50).map(|_| share.lookup("dead.example"))), async {
            tokio::task::yield_now().await;
            alive.set(()).unwrap();
        });
        assert!(found.iter().all(Result::is_ok));
        assert_eq!(count.load(Ordering::SeqCst), 1);
        for _ in 0..5 {
            assert_eq!(share.lookup("no.example").await.unwrap_err().to_string(), "unknown");
        }
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }
}
