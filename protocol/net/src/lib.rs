//! Connections of clients as every listener of ours treats them (LS-23).
//!
//! - [`closing`]: an end that lets the last words arrive
//! - [`places`]: a bounded number of connections; whoever has waited longest gives way
//! - [`descriptors`]: some are kept for listeners
//! - [`resolve`]: names to addresses, for those who dial

pub mod closing;
pub mod descriptors;
pub mod places;
pub mod resolve;
