//! What goes over the wire, and what every answer comes to: the whole client against the double (K8-21 U).

mod answers;
mod credentials;
mod requests;
mod seen;

use std::time::Duration;

/// Credentials are not read again more often than every few seconds: the clock goes on, the wire's time is real.
pub async fn later() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(6)).await;
    tokio::time::resume();
}
