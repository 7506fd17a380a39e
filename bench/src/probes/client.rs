//! Probes as fast as they come, for as long as a line on stdin says; answers how many there were.

use std::io::BufRead;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use egress_prober::{Guard, GuardPolicy, ProbeSettings};
use egress_protocol::prober::{ProbeOutcome, ProbeTarget};
use egress_protocol::resource::HealthCheck;
use egress_protocol::{ObjectKey, Uid};
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::target::{HOST, Ready, read_head};
use crate::{Outcome, process, runtime};

/// Who probes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// [`egress_prober::probe::probe`].
    Prober,
    /// The same bytes by hand.
    Bare,
}

/// What a child of the benchmark is started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) kind: Kind,
    pub(crate) tls: bool,
    pub(crate) concurrency: u32,
    pub(crate) target: Ready,
}

/// Both share it, roots and all.
#[derive(Debug)]
struct Shared {
    kind: Kind,
    tls: bool,
    proxies: Vec<SocketAddr>,
    targets: Vec<ProbeTarget>,
    probes: ProbeSettings,
    next: AtomicUsize,
}

/// Runs until the benchmark ends.
pub(crate) fn run(settings: &Settings) -> Outcome<()> {
    let tls = egress_prober::tls::client_config(Some(settings.target.roots.as_bytes()))?;
    let shared = Arc::new(Shared {
        kind: settings.kind,
        tls: settings.tls,
        targets: settings.target.proxies.iter().map(|proxy| target(*proxy, settings.tls)).collect(),
        proxies: settings.target.proxies.clone(),
        probes: ProbeSettings::new(tls, Guard::new(GuardPolicy::default())),
        next: AtomicUsize::new(0),
    });
    let runtime = runtime()?;
    process::say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let within = Duration::from_millis(line?.parse()?);
        let answer = runtime.block_on(probe_for(within, settings.concurrency, &shared));
        process::say(&answer.map_or_else(|error| error.to_string(), |done| done.to_string()))?;
    }
    Ok(())
}

fn target(proxy: SocketAddr, tls: bool) -> ProbeTarget {
    let url = format!("{}://{HOST}/generate_204", if tls { "https" } else { "http" });
    ProbeTarget {
        key: ObjectKey::new("default", "px"),
        uid: Uid::new("6ba7b810-9dad-11d1-80b4-000000000000"),
        epoch: 1,
        host: proxy.ip().to_string().into(),
        port: proxy.port(),
        credentials: None,
        external: true,
        provider: None,
        health_check: HealthCheck { url, timeout_seconds: 30, ..HealthCheck::default() },
        prior: None,
    }
}

async fn probe_for(within: Duration, concurrency: u32, shared: &Arc<Shared>) -> Outcome<u64> {
    let until = Instant::now() + within;
    let mut loops = JoinSet::new();
    for _ in 0..concurrency {
        let shared = Arc::clone(shared);
        loops.spawn(async move {
            let mut done = 0;
            while Instant::now() < until {
                let n = shared.next.fetch_add(1, Ordering::Relaxed) % shared.proxies.len();
                match shared.kind {
                    Kind::Prober => prober(&shared, n).await?,
                    Kind::Bare => bare(&shared, n).await?,
                }
                done += 1;
            }
            Ok(done)
        });
    }
    let mut all = 0;
    while let Some(ended) = loops.join_next().await {
        let done: Outcome<u64> = ended?;
        all += done?;
    }
    Ok(all)
}

async fn prober(shared: &Shared, n: usize) -> Outcome<()> {
    match egress_prober::probe::probe(&shared.targets[n], &shared.probes).await {
        Ok(ProbeOutcome::Passed { .. }) => Ok(()),
        Ok(ProbeOutcome::Failed { failure, message, .. }) => Err(format!("{}: {message}", failure.as_str()).into()),
        Err(_) => Err("this machine is at fault".into()),
    }
}

async fn bare(shared: &Shared, n: usize) -> Outcome<()> {
    let mut stream = TcpStream::connect(shared.proxies[n]).await?;
    stream.set_nodelay(true)?;
    let head = if shared.tls {
        let connect = format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\nUser-Agent: bare\r\n\r\n");
        stream.write_all(connect.as_bytes()).await?;
        let head = read_head(&mut stream).await?;
        if !head.starts_with(b"HTTP/1.1 200 ") {
            return Err("CONNECT was refused".into());
        }
        let connector = TlsConnector::from(Arc::clone(&shared.probes.tls));
        let mut stream = connector.connect(ServerName::try_from(HOST.to_string())?, stream).await?;
        let get = format!("GET /generate_204 HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: bare\r\nAccept: */*\r\nConnection: close\r\n\r\n");
        stream.write_all(get.as_bytes()).await?;
        read_head(&mut stream).await?
    } else {
        let get = format!(
            "GET http://{HOST}/generate_204 HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: bare\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(get.as_bytes()).await?;
        read_head(&mut stream).await?
    };
    if head.starts_with(b"HTTP/1.1 204 ") { Ok(()) } else { Err("not 204".into()) }
}
