//! Collapsing at the sender: the latest value counts, one doorbell rings (SV-3).

use std::sync::Arc;

use arc_swap::ArcSwapOption;

/// A slot between a sender and an actor. [`Latest::put`] tells whether the receiver has to be woken: it does not while
/// an earlier value still waits, so that a flood of updates costs one message.
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

    /// Takes what is there.
    pub fn take(&self) -> Option<Arc<T>> {
        self.0.swap(None)
    }
}
