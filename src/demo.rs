//! The demonstration pool (OP-2): what `standalone` runs when it is given nothing. Five proxies of the `local` provider,
//! and an endpoint of the process itself for them to prove themselves on; no internet needed.
//!
//! What must stay true: ports are free ones, picked at the first start and kept in the state folder; one taken since is
//! picked anew; the proxies may reach on loopback nothing but the endpoint.

mod lines;
mod ports;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use axum::Router;
use axum::routing::get;
use egress_protocol::ObjectKey;
use egress_protocol::resource::{HealthCheck, Mode, ProxySpec};
use http::StatusCode;

pub use lines::{Auth, curl_lines};

/// The provider entry of the pool.
pub const PROVIDER: &str = "local";

/// How many proxies the pool has.
pub const SIZE: usize = 5;

/// Name and what can be selected on.
const POOL: [(&str, &str, &str); SIZE] =
    [("demo-1", "de", "light"), ("demo-2", "de", "heavy"), ("demo-3", "fr", "light"), ("demo-4", "us", "light"), ("demo-5", "us", "heavy")];

/// The pool, ready to be started.
#[derive(Debug)]
pub struct Demo {
    /// Bound; serves [`routes`].
    pub endpoint: TcpListener,
    /// Its address.
    pub address: SocketAddr,
    /// The objects.
    pub proxies: Vec<(ObjectKey, ProxySpec)>,
}

impl Demo {
    /// Settles the ports.
    pub fn prepare(state: &Path) -> std::io::Result<Self> {
        let ports = ports::settle(state, POOL.len())?;
        let address = ports.endpoint.local_addr()?;
        let proxies = POOL
            .iter()
            .zip(&ports.proxies)
            .map(|((name, geo, tier), port)| (ObjectKey::new("default", *name), spec(address, *port, geo, tier)));
        Ok(Self { proxies: proxies.collect(), endpoint: ports.endpoint, address })
    }
}

fn spec(endpoint: SocketAddr, port: u16, geo: &str, tier: &str) -> ProxySpec {
    ProxySpec {
        mode: Mode::Managed,
        provider: Some(PROVIDER.to_owned()),
        placement: None,
        port,
        cloud_init: None,
        endpoint: None,
        attributes: [("geo", geo), ("tier", tier)].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        max_leases: 100,
        health_check: HealthCheck {
            url: format!("http://{endpoint}/check"),
            interval_seconds: 10,
            timeout_seconds: 5,
            ..HealthCheck::default()
        },
        provisioning_timeout_seconds: 1800,
    }
}

/// The endpoint: what the proxies are proven with, and a page to fetch.
pub fn routes() -> Router {
    Router::new().route("/check", get(|| async { StatusCode::NO_CONTENT })).route("/", get(page))
}

async fn page() -> &'static str {
    "Hello from the demonstration endpoint: a page to fetch through a proxy.\n"
}

/// All of the demonstration is on this address.
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
