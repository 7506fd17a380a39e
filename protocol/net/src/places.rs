//! Places for connections, a bounded number. When all are taken, whoever has waited longest on its client gives way: a
//! connection that does nothing must not keep out one that would (LS-23).
//!
//! A connection waits on its client before the first request, between two requests, and while its client reads or does
//! not. It does not wait while an answer is being made.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// The places of one listener. Clones are one.
#[derive(Debug, Clone)]
pub struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: usize,
    spared: Duration,
    start: Instant,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    holders: BTreeMap<u64, Arc<Holder>>,
}

#[derive(Debug)]
struct Holder {
    /// Microseconds from the start of the listener, plus one; 0: it is at work.
    waiting_since: AtomicU64,
    gives_way: CancellationToken,
}

/// A place; free again when it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    id: u64,
    holder: Arc<Holder>,
}

impl Places {
    /// `limit` of them. Whoever has waited for less than `spared` keeps its place: its client may just be speaking.
    pub fn new(limit: usize, spared: Duration) -> Self {
        Self(Arc::new(Inner { limit, spared, start: Instant::now(), taken: Mutex::default() }))
    }

    /// A place, whose holder waits on its client. When all are taken the holder that has waited longest is told to give
    /// way; `None` when nobody can.
    pub fn take(&self) -> Option<Place> {
        let mut taken = self.lock();
        if taken.holders.len() >= self.0.limit && !self.dismiss(&mut taken) {
            return None;
        }
        let holder = Arc::new(Holder { waiting_since: AtomicU64::new(self.now()), gives_way: CancellationToken::new() });
        let id = taken.next;
        taken.next += 1;
        taken.holders.insert(id, Arc::clone(&holder));
        drop(taken);
        Some(Place { places: self.clone(), id, holder })
    }

    /// Tells the holder that has waited longest to give way, though there may be places: descriptors are short. Whether
    /// there was one.
    pub fn make_room(&self) -> bool {
        self.dismiss(&mut self.lock())
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.lock().holders.len()
    }

    fn dismiss(&self, taken: &mut Taken) -> bool {
        let waits = |(id, holder): (&u64, &Arc<Holder>)| match holder.waiting_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some((since, *id)),
        };
        let Some((since, id)) = taken.holders.iter().filter_map(waits).min() else { return false };
        let spared = u64::try_from(self.0.spared.as_micros()).unwrap_or(u64::MAX);
        if self.now().saturating_sub(since) < spared {
            return false;
        }
        if let Some(holder) = taken.holders.remove(&id) {
            holder.gives_way.cancel();
        }
        true
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.start.elapsed().as_micros()).unwrap_or(u64::MAX - 1) + 1
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The holder is at work and keeps its place.
    pub fn works(&self) {
        self.holder.waiting_since.store(0, Ordering::Relaxed);
    }

    /// From now on the holder waits on its client.
    pub fn waits(&self) {
        self.holder.waiting_since.store(self.places.now(), Ordering::Relaxed);
    }

    /// Resolves when the place was given to another: the connection must end.
    pub fn given_away(&self) -> WaitForCancellationFuture<'_> {
        self.holder.gives_way.cancelled()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().holders.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
