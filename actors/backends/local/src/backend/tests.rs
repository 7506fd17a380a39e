//! The contract over marks and real listeners on loopback addresses of each test's own.

mod contract;
mod crashes;
mod live;
mod seam;
mod support;
