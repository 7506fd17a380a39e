//! What the commands `standalone` and `run` do with an [`App`]: the log, signals, what a person is shown, the exit code.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use egress_config::cli::{CommonSettings, LogFormat, RunSettings, StandaloneSettings, TokenSource};
use egress_protocol::lease::{BROKER_ID, BrokerMessage, Caller, ProxyFilter};
use egress_supervision::System;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{App, Ports, Running};
use crate::demo::{self, Auth};
use crate::logging::queue::Queue;
use crate::telemetry::{Telemetry, TelemetryError};
use crate::{logging, version};

/// How long the lines to paste wait for the pool.
const PATIENCE: Duration = Duration::from_secs(10);
/// After the tree has ended, what may still hold a thread.
const LINGER: Duration = Duration::from_secs(1);

/// The two ways to run (OP-1, OP-2).
#[derive(Debug, Clone)]
pub enum Way {
    /// Without a cluster.
    Standalone(StandaloneSettings),
    /// In or against one.
    Cluster(RunSettings),
}

impl Way {
    const fn common(&self) -> &CommonSettings {
        match self {
            Self::Standalone(settings) => &settings.common,
            Self::Cluster(settings) => &settings.common,
        }
    }
}

/// Runs until it is told to stop, or until it gives up. Returns the exit code of OP-4.
pub fn run(way: Way) -> u8 {
    let settings = way.common();
    let format = match settings.log_format {
        Some(LogFormat::Json) => logging::Format::Json,
        Some(LogFormat::Text) => logging::Format::Text,
        None if std::io::stderr().is_terminal() => logging::Format::Text,
        None => logging::Format::Json,
    };
    let telemetry = Telemetry::start(&settings.telemetry);
    let exporter = telemetry.as_ref().ok().and_then(Option::as_ref);
    let _log = match logging::install(format, &settings.log_level, exporter) {
        Ok(log) => log,
        Err(error) => {
            // There is no log to say it in.
            let _ = writeln!(std::io::stderr().lock(), "error: {error}");
            return 2;
        }
    };
    // By a thread of its own too: often the two streams are one pipe.
    let out = match Queue::start("stdout", |text| drop(write_out(text))) {
        Ok(out) => out,
        Err(error) => return complain(3, &format!("stdout cannot be written to: {error}")),
    };
    tracing::info!(version = version::VERSION, commit = version::COMMIT, compiler = version::COMPILER, "egress-proxies-operator");
    for warning in &settings.telemetry.warnings {
        tracing::warn!(warning, "WARNING: spans");
    }
    match &telemetry {
        Ok(_) => {}
        Err(TelemetryError::Settings(reason)) => return complain(2, reason),
        Err(TelemetryError::Exporter(error)) => tracing::warn!(error, "WARNING: spans are not exported"),
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("egress").build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(3, &format!("the runtime cannot be made: {error}")),
    };
    let code = runtime.block_on(serve(way, &out));
    runtime.shutdown_timeout(LINGER);
    if let Ok(Some(telemetry)) = telemetry {
        telemetry.shutdown();
    }
    code
}

async fn serve(way: Way, out: &Queue) -> u8 {
    let Ok(mut signals) = Signals::listen() else { return complain(3, "signals cannot be listened to") };
    let auth = match &way.common().tokens {
        TokenSource::Open => Auth::Open,
        TokenSource::Variable(_) => Auth::Environment,
        TokenSource::File { path, .. } => Auth::File(std::path::absolute(path).unwrap_or_else(|_| path.clone())),
    };
    let start = async {
        match way {
            Way::Standalone(settings) => App::start(settings).await,
            Way::Cluster(settings) => App::start_in_cluster(settings, Ports::default()).await,
        }
    };
    let started = tokio::select! {
        started = start => started,
        // Nothing has begun yet that needs an orderly end.
        () = signals.any() => return 0,
    };
    let mut running = match started {
        Ok(running) => running,
        Err(error) => return complain(error.exit_code(), &error.to_string()),
    };
    // In a cluster what is written is a log, and nothing else (OB-6).
    if let Some(state) = &running.state {
        out.push(summary(&running, state).as_bytes());
    }
    let (system, at) = (running.system().clone(), running.addresses);
    let shown = async {
        if let Some(page) = at.demonstration {
            let ready = wait_until_ready(&system).await;
            out.push(pool(ready, at.discovery, page, &auth).as_bytes());
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = shown => {}
        () = signals.any() => {}
        failure = running.failed() => {
            tracing::error!(reason = %failure, "the process gives up");
            return 3;
        }
    }
    tokio::select! {
        biased;
        () = running.stop() => 0,
        () = signals.any() => {
            tracing::warn!("WARNING: told to stop twice: ending at once");
            3
        }
    }
}

/// What asks for an orderly end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// A terminal that was closed. `None` under `nohup`, which asks for the opposite.
    hangup: Option<Signal>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let hangup = if hangup_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, hangup })
    }

    async fn any(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = hangup => {}
        }
    }
}

/// Whether whoever started us said so; unknown on systems without `/proc`.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 != 0)
}

/// One line for each reason.
fn complain(code: u8, text: &str) -> u8 {
    for reason in text.lines() {
        tracing::error!(reason, "not started");
    }
    code
}

/// Where everything is (OP-2).
fn summary(running: &Running, state: &Path) -> String {
    let at = running.addresses;
    let mut out = format!(
        "{}\n\n  state folder   {}\n  installation   {}\n  discovery API  http://{}\n",
        version::line(),
        state.display(),
        running.installation,
        reachable(at.discovery),
    );
    for (name, address, path) in
        [("debug", at.debug, "/debug/actors"), ("metrics", at.metrics, "/metrics"), ("health", at.health, "/readyz")]
    {
        if let Some(address) = address {
            let _ = writeln!(out, "  {name:<13}  http://{}{path}", reachable(address));
        }
    }
    out
}

/// An address that listens everywhere is asked on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn pool(ready: usize, api: SocketAddr, page: SocketAddr, auth: &Auth) -> String {
    let mut out = format!("\nDemonstration pool: {ready} of {} proxies are Ready. Paste these, as often as you like:\n", demo::SIZE);
    for (what, line) in demo::curl_lines(reachable(api), page, auth) {
        let _ = write!(out, "\n# {what}\n{line}\n");
    }
    out += "\nStop with Ctrl-C. Your own proxies: standalone --manifests DIR\n";
    out
}

/// How many of the pool are Ready: all of them, or as many as are after a while.
async fn wait_until_ready(system: &System) -> usize {
    let broker = system.address::<BrokerMessage>(BROKER_ID);
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        let list = broker.call(PATIENCE, |reply_to| BrokerMessage::ListProxies {
            filter: Box::new(ProxyFilter { healthy: Some(true), ..ProxyFilter::default() }),
            after: None,
            limit: demo::SIZE + 1,
            caller: Caller::anonymous(),
            reply_to,
        });
        let ready = list.await.map_or(0, |list| list.items.len());
        if ready >= demo::SIZE || tokio::time::Instant::now() >= until {
            return ready;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// On stdout; nobody there to read is no fault.
fn write_out(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush())
}
