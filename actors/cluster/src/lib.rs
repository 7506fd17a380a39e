//! In work.

pub mod reviewer;
