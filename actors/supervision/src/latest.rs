//! What outlives a crash, and collapsing at the sender: the latest value counts, one doorbell rings (SV-3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use crate::AddressError;

/// A value that is nobody's state: given to an actor in its arguments, it is there for each life, and for whoever starts the
/// actor. It is the only way for something to outlive a crash (docs/architecture.md), and it is no queue: of what was put
/// there only the latest counts.
///
/// The value outlives lives and a doorbell does not, so a receiver reads it when it starts.
#[derive(Debug)]
pub struct Latest<T> {
    value: ArcSwap<T>,
    rung: AtomicBool,
}

impl<T: Default> Default for Latest<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<Arc<T>> for Latest<T> {
    fn from(value: Arc<T>) -> Self {
        Self { value: ArcSwap::new(value), rung: AtomicBool::new(false) }
    }
}

impl<T> Latest<T> {
    /// With a first value.
    pub fn new(value: T) -> Self {
        Self::from(Arc::new(value))
    }

    /// What is there.
    pub fn look(&self) -> Arc<T> {
        self.value.load_full()
    }

    /// What is there, for the one whom the doorbell wakes: the next value rings again.
    pub fn read(&self) -> Arc<T> {
        self.rung.store(false, Ordering::SeqCst);
        self.look()
    }

    /// Replaces the value.
    pub fn put(&self, value: Arc<T>) {
        self.value.store(value);
    }

    /// Changes a copy and puts it there; for a value that one actor alone writes.
    pub fn change(&self, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        let mut value = T::clone(&self.value.load());
        change(&mut value);
        self.put(Arc::new(value));
    }

    /// Replaces the value by what is made of it, if anything is; for one that several write. Asked again when another one was
    /// faster.
    pub fn update(&self, mut next: impl FnMut(&T) -> Option<Arc<T>>) {
        self.value.rcu(|value| next(value).unwrap_or_else(|| Arc::clone(value)));
    }

    /// Changes the value where it is, however large; for one that only a single life at a time knows. It is back when the
    /// work is done, also by a panic.
    pub fn work<R>(&self, work: impl FnOnce(&mut T) -> R) -> R
    where
        T: Clone + Default,
    {
        struct Back<'a, T>(&'a Latest<T>, Arc<T>);
        impl<T> Drop for Back<'_, T> {
            fn drop(&mut self) {
                self.0.put(Arc::clone(&self.1));
            }
        }
        let mut back = Back(self, self.value.swap(Arc::default()));
        work(Arc::make_mut(&mut back.1))
    }

    /// Rings the doorbell, unless it has rung and was not answered yet: a flood of values costs one message. One that found
    /// nobody is forgotten, so that the next rings; the sender repeats later, as with any message.
    pub fn ring(&self, ring: impl FnOnce() -> Result<(), AddressError>) -> Result<(), AddressError> {
        if self.rung.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        ring().inspect_err(|_| self.rung.store(false, Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_flood_rings_once_and_the_last_value_counts() {
        let (latest, mut rung) = (Latest::new(0), 0);
        let mut post = |value| {
            latest.put(Arc::new(value));
            latest.ring(|| {
                rung += 1;
                Ok(())
            })
        };
        (1..=1000).for_each(|value| post(value).unwrap());
        assert_eq!(*latest.read(), 1000);
        post(1001).unwrap();
        assert_eq!((rung, *latest.look()), (2, 1001), "and rings again for the next");
    }

    #[test]
    fn a_doorbell_that_cannot_be_rung_is_rung_again_for_the_next_value() {
        let latest = Latest::new(1);
        assert_eq!(latest.ring(|| Err(AddressError::Down)), Err(AddressError::Down));
        let mut rung = false;
        latest.change(|value| *value = 2);
        assert_eq!(
            latest.ring(|| {
                rung = true;
                Ok(())
            }),
            Ok(())
        );
        assert!(rung);
        assert_eq!(*latest.read(), 2);
    }

    #[test]
    fn work_is_done_in_place_and_what_it_leaves_is_there_also_after_a_panic() {
        let latest = Latest::new(vec![1]);
        let place = latest.look().as_ptr();
        latest.work(|values| values[0] = 2);
        assert_eq!((latest.look().as_ptr(), latest.look().as_slice()), (place, &[2][..]));
        let panic = catch_unwind(AssertUnwindSafe(|| {
            latest.work(|values| {
                values.push(3);
                panic!("in the middle of it")
            })
        }));
        assert!(panic.is_err());
        assert_eq!(latest.look().as_slice(), [2, 3]);
    }

    #[test]
    fn an_update_is_lost_to_nobody() {
        let latest = Latest::new(0_u32);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| latest.update(|value| Some(Arc::new(value + 1)))));
            }
        });
        latest.update(|_| None);
        assert_eq!(*latest.look(), 4000);
    }

    #[test]
    fn under_threads_no_last_value_is_left_without_a_doorbell() {
        for _ in 0..20 {
            let latest = Latest::<[usize; 3]>::default();
            let (doorbell, rung) = mpsc::channel();
            std::thread::scope(|scope| {
                for sender in 0..3 {
                    let (latest, doorbell) = (&latest, doorbell.clone());
                    scope.spawn(move || {
                        for value in 1..=2000 {
                            latest.update(|values| {
                                let mut values = *values;
                                values[sender] = value;
                                Some(Arc::new(values))
                            });
                            latest.ring(|| doorbell.send(()).map_err(|_| AddressError::Down)).unwrap();
                        }
                    });
                }
                drop(doorbell);
                let mut seen = [0; 3];
                while rung.recv().is_ok() {
                    let values = latest.read();
                    assert!(seen.iter().zip(values.iter()).all(|(seen, value)| seen <= value), "never an older value after a newer one");
                    seen = *values;
                }
                assert_eq!(seen, [2000; 3], "nothing is left that nobody was woken for");
            });
        }
    }
}
