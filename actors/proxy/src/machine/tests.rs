//! The machine against a small world of a source and a backend: promises one by one, random lives, every short life.

mod explore;
mod promises;
mod random;
mod world;
