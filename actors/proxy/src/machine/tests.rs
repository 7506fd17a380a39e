//! The machine against a small world of a source and a backend: promises one by one, mutants, random lives, every short life.

mod causes;
mod explore;
mod promises;
mod proven;
mod random;
mod world;
