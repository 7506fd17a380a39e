//! Against a real control plane (`tests/bed`): what the API server says of our kinds, and the operator in a cluster.

mod fleet;
mod kinds;
mod lifecycle;
mod metrics;
mod moments;
mod orphans;
mod pods;
mod replicas;
mod rights;
mod weather;
