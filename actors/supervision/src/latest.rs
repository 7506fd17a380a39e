//! Collapsing at the sender: the latest value counts, one doorbell rings (SV-3).

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::AddressError;

/// A slot between a sender and an actor. [`Latest::put`] tells whether the receiver has to be woken: it does not while
/// an earlier value still waits, so that a flood of updates costs one message.
///
/// The slot outlives incarnations and a doorbell does not, so a receiver takes what is there when it starts, and a sender
/// uses [`Latest::post`], or takes the value back when its doorbell could not be rung.
#[derive(Debug)]
pub struct Latest<T>(Arc<ArcSwapOption<T>>);

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self(Arc::new(ArcSwapOption::const_empty()))
    }
}

impl<T> Latest<T> {
    /// Stores the value; `true` when the slot was empty, so that a doorbell message must be sent.
    #[must_use = "true means that the receiver must be woken"]
    pub fn put(&self, value: Arc<T>) -> bool {
        self.0.swap(Some(value)).is_none()
    }

    /// Stores the value and rings when nothing waited. When the doorbell cannot be rung the slot is emptied again, so that
    /// the next value rings; the sender repeats later, as with any message.
    pub fn post(&self, value: Arc<T>, ring: impl FnOnce() -> Result<(), AddressError>) -> Result<(), AddressError> {
        if !self.put(value) {
            return Ok(());
        }
        ring().inspect_err(|_| {
            self.take();
        })
    }

    /// Takes what is there.
    pub fn take(&self) -> Option<Arc<T>> {
        self.0.swap(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_flood_rings_once_and_the_last_value_counts() {
        let latest = Latest::default();
        assert!(latest.put(Arc::new(0)));
        for value in 1..=1000 {
            assert!(!latest.put(Arc::new(value)), "the doorbell has rung already");
        }
        assert_eq!(latest.take().as_deref(), Some(&1000));
        assert!(latest.take().is_none());
        assert!(latest.put(Arc::new(1001)), "and rings again for the next");
    }

    #[test]
    fn a_doorbell_that_cannot_be_rung_is_rung_again_for_the_next_value() {
        let latest = Latest::default();
        assert_eq!(latest.post(Arc::new(1), || Err(AddressError::Down)), Err(AddressError::Down));
        let mut rung = false;
        assert_eq!(
            latest.post(Arc::new(2), || {
                rung = true;
                Ok(())
            }),
            Ok(())
        );
        assert!(rung);
        assert_eq!(latest.take().as_deref(), Some(&2));
    }

    #[test]
    fn under_threads_no_last_value_is_left_without_a_doorbell() {
        for _ in 0..20 {
            let (latest, rings) = (Latest::<(usize, usize)>::default(), AtomicUsize::new(0));
            let (doorbell, rung) = mpsc::channel();
            std::thread::scope(|scope| {
                for sender in 0..3 {
                    let (latest, rings, doorbell) = (latest.clone(), &rings, doorbell.clone());
                    scope.spawn(move || {
                        for value in 0..=2000 {
                            if latest.put(Arc::new((sender, value))) {
                                rings.fetch_add(1, Ordering::Relaxed);
                                doorbell.send(()).unwrap();
                            }
                        }
                    });
                }
                drop(doorbell);
                let mut seen = [None; 3];
                let mut taken = 0;
                while rung.recv().is_ok() {
                    let value = latest.take().expect("one doorbell, one value");
                    assert!(seen[value.0] < Some(value.1), "never an older value after a newer one of the same sender");
                    seen[value.0] = Some(value.1);
                    taken += 1;
                }
                assert!(latest.take().is_none(), "nothing is left that nobody was woken for");
                assert_eq!(taken, rings.load(Ordering::Relaxed));
            });
        }
    }
}
