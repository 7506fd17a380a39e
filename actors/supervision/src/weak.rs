//! A handle on an actor's life that does not keep it.

use std::sync::{Arc, Weak};

use crate::inner::Inner;
use crate::{Actor, Context};

/// A [`Context`] for whoever may outlive the actor's life: holding one keeps nothing of that life, so that the next one of
/// the same id can start.
pub struct WeakContext<A: Actor> {
    inner: Weak<Inner<A>>,
}

impl<A: Actor> Clone for WeakContext<A> {
    fn clone(&self) -> Self {
        Self { inner: Weak::clone(&self.inner) }
    }
}

impl<A: Actor> std::fmt::Debug for WeakContext<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakContext")
    }
}

impl<A: Actor> Context<A> {
    /// A handle that does not keep this life.
    pub fn downgrade(&self) -> WeakContext<A> {
        WeakContext { inner: Arc::downgrade(&self.inner) }
    }
}

impl<A: Actor> WeakContext<A> {
    /// The context, unless nothing is left of that life. Keep it no longer than one use takes.
    pub fn upgrade(&self) -> Option<Context<A>> {
        self.inner.upgrade().map(|inner| Context { inner })
    }
}
