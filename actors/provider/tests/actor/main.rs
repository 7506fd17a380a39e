//! The provider actor through its messages, over a scripted backend, under a paused clock.

mod answers;
mod order;
mod support;
mod tree;
