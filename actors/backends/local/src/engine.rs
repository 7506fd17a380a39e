//! One forward proxy: CONNECT tunnels and absolute-form HTTP/1.1.
//!
//! A client's connection is one task of its listener's task, which belongs to the [`Instance`]: dropping that ends them
//! all. What must stay true: a target is judged by the address that is then connected to, looked up once (`dial`); nothing
//! a client or target sends ends anything but its own connection; an idle tunnel holds no buffer.
//!
//! `listener` accepts and bounds · `connection` serves one client · `forward` answers one request · `dial` looks up, judges
//! and connects · `guard` decides what may be reached · `relay` moves a tunnel's bytes · `exchange` passes a request and its
//! answers on · `head` reads heads as they came · `framing` decides where a message ends, `chunked` and `body` keep to it ·
//! `outgoing` writes heads anew without what is this hop's · `activity` knows what is idle · `answer` says no.
//!
//! Heads are read by httparse and not by hyper, which knows neither the order of fields nor interim answers, and refuses
//! URLs that targets take.

mod activity;
mod answer;
mod body;
mod chunked;
mod connection;
mod dial;
mod exchange;
mod forward;
mod framing;
mod guard;
mod head;
mod listener;
mod outgoing;
mod relay;
mod resolve;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use egress_protocol::Clock;
use egress_protocol::metrics::Metrics;
use ipnet::IpNet;
use jiff::fmt::rfc2822::DateTimePrinter;

pub(crate) use guard::{Guard, OwnAddresses, interface_addresses};
pub(crate) use listener::{Instance, listen};
pub use resolve::{Resolve, SystemResolver};

use crate::config::Limits;
use egress_config::providers::FaultKnobs as Faults;

/// Who an instance is, in logs and answers.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// The configured provider.
    pub provider: Arc<str>,
    /// The instance's name.
    pub instance: Arc<str>,
    /// `NAMESPACE/NAME` of its Proxy.
    pub proxy: Arc<str>,
}

/// What an instance is run with.
pub(crate) struct Settings {
    pub identity: Identity,
    pub resolver: Arc<dyn Resolve>,
    /// Outgoing connections are bound to it.
    pub source: Option<IpAddr>,
    /// For `Date`.
    pub clock: Clock,
    pub metrics: Metrics,
    /// May change while it runs (LO-3): read anew by each connection and request, so that what runs is left alone.
    pub rules: ArcSwap<Rules>,
}

impl Settings {
    /// Now, as `Date` has it (RFC 9110 §5.6.7).
    fn date(&self) -> String {
        static FORMAT: DateTimePrinter = DateTimePrinter::new();
        FORMAT.timestamp_to_rfc9110_string(&self.clock.now().to_jiff()).unwrap_or_default()
    }
}

/// What may change while an instance runs.
#[derive(Clone)]
pub(crate) struct Rules {
    pub limits: Limits,
    pub allowed_clients: Vec<IpNet>,
    pub guard: Guard,
    pub faults: Option<Faults>,
    /// Requests seen, for `refuseAfter`; counted anew when the knobs change.
    pub requests: Arc<AtomicU64>,
}
