//! In work.

pub mod leadership;
