//! The book's rules as sentences, and its invariants under random and exhaustive use.

mod cooling;
mod draining;
mod exhaustive;
mod granting;
mod model;
mod opening;
mod people;
mod preparing;
mod world;
