//! From a target to a connection: look up once, judge every address, connect to one that was judged.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use egress_net::descriptors;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::uri::Authority;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Settings;
use super::answer::Refusal;

/// An address that does not answer at once does not keep the next one waiting (RFC 8305 §5; S3).
const STAGGER: Duration = Duration::from_millis(250);
/// A name with more addresses than this is tried no further.
const MAX_CANDIDATES: usize = 16;

/// Whom the client wants to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub host: Host,
    pub port: u16,
}

/// A name or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    Name(String),
    Address(IpAddr),
}

impl Target {
    /// From a request's authority; `default_port` where it may be left out.
    pub(super) fn read(authority: &Authority, default_port: Option<u16>) -> Result<Self, Refusal> {
        if authority.as_str().contains('@') {
            return Err(Refusal::malformed("user information in the target"));
        }
        let has_port_text = authority.as_str().len() > authority.host().len();
        let port = match (authority.port_u16(), has_port_text, default_port) {
            (Some(port), ..) => port,
            (None, false, Some(port)) => port,
            _ => return Err(Refusal::malformed("the target needs a port from 1 to 65535")),
        };
        if port == 0 {
            return Err(Refusal::malformed("the target needs a port from 1 to 65535"));
        }
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = match bare.parse::<IpAddr>() {
            Ok(address) => Host::Address(address),
            Err(_) if bare.is_empty() || bare.len() > 253 || bare.bytes().any(|b| b == b'%' || b == b':') => {
                return Err(Refusal::malformed("the target's host is neither a name nor an address"));
            }
            Err(_) => Host::Name(bare.to_ascii_lowercase()),
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
        }
    }
}

/// Connects to the target within the connect timeout, or says why not.
pub(super) async fn connect(settings: &Settings, target: &Target) -> Result<TcpStream, Refusal> {
    let rules = settings.rules.load_full();
    let deadline = Instant::now() + rules.limits.connect_timeout;
    let (name, found) = match &target.host {
        Host::Address(address) => (None, vec![*address]),
        Host::Name(name) => (Some(name.as_str()), look_up(settings, name, deadline).await?),
    };
    let mut refused = None;
    let mut judged = Vec::new();
    for ip in found.into_iter().map(|ip| ip.to_canonical()) {
        match rules.guard.judge(name, ip, target.port) {
            Ok(()) => judged.push(ip),
            Err(why) => refused = Some(why),
        }
    }
    if judged.is_empty() {
        return Err(Refusal::prohibited(refused.unwrap_or_else(|| "no address".to_owned())));
    }
    if let Some(source) = settings.source {
        judged.retain(|ip| ip.is_ipv4() == source.is_ipv4());
        if judged.is_empty() {
            let family = if source.is_ipv4() { "IPv4" } else { "IPv6" };
            return Err(Refusal::bad_gateway(
                "destination_ip_unroutable",
                format!("the target has no {family} address, this proxy no other source"),
            ));
        }
    }
    let addresses = interleaved(judged).into_iter().map(|ip| SocketAddr::new(ip, target.port)).collect();
    race(addresses, settings.source, deadline).await
}

async fn look_up(settings: &Settings, name: &str, deadline: Instant) -> Result<Vec<IpAddr>, Refusal> {
    match timeout_at(deadline, settings.resolver.resolve(name)).await {
        Err(_) => Err(Refusal::timeout("dns_timeout", "looking the name up took too long")),
        Ok(Err(error)) if error.kind() == io::ErrorKind::ResourceBusy => {
            Err(Refusal::limit("all look-ups that this proxy may have at a time are busy with other names"))
        }
        Ok(Err(error)) => Err(Refusal::bad_gateway("dns_error", format!("the name is unknown: {error}"))),
        Ok(Ok(found)) if found.is_empty() => Err(Refusal::bad_gateway("dns_error", "the name has no address")),
        Ok(Ok(found)) => Ok(found),
    }
}

/// The families in turn, beginning with the first one's (RFC 8305 §4), at most [`MAX_CANDIDATES`].
fn interleaved(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    let (mut a, mut b): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|ip| ip.is_ipv4() == first_is_v4);
    a.reverse();
    b.reverse();
    let mut out = Vec::new();
    while out.len() < MAX_CANDIDATES && !(a.is_empty() && b.is_empty()) {
        out.extend(a.pop());
        out.extend(b.pop());
    }
    out
}

/// Tries the addresses in turn, each one at the latest [`STAGGER`] after the one before; the first that answers wins.
async fn race(addresses: Vec<SocketAddr>, source: Option<IpAddr>, deadline: Instant) -> Result<TcpStream, Refusal> {
    let mut waiting = addresses.into_iter();
    let mut attempts = FuturesUnordered::new();
    attempts.extend(waiting.next().map(|address| attempt(address, source)));
    let mut failure = None;
    loop {
        let next_at = sleep(STAGGER);
        tokio::select! {
            biased;
            ended = attempts.next() => match ended {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(refusal)) => {
                    failure = Some(refusal);
                    attempts.extend(waiting.next().map(|address| attempt(address, source)));
                }
                None => return Err(failure.unwrap_or_else(|| Refusal::bad_gateway("destination_unavailable", "no address to try"))),
            },
            () = sleep_until(deadline) => return Err(Refusal::timeout("connection_timeout", "connecting took too long")),
            () = next_at, if waiting.len() > 0 => attempts.extend(waiting.next().map(|address| attempt(address, source))),
        }
    }
}

async fn attempt(address: SocketAddr, source: Option<IpAddr>) -> Result<TcpStream, Refusal> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(|error| failed(&error))?;
    if descriptors::are_short(&socket) {
        return Err(Refusal::limit("the process is out of descriptors"));
    }
    if let Some(source) = source {
        // The port is chosen at connect, so that one source address serves more than 28,000 connections.
        let _ = setsockopt(&socket.as_fd(), sockopt::IpBindAddressNoPort, &true);
        socket.bind(SocketAddr::new(source, 0)).map_err(|error| {
            Refusal::bad_gateway("proxy_configuration_error", format!("the source address {source} cannot be used: {error}"))
        })?;
    }
    if descriptors::are_short(&socket) {
        return Err(Refusal::limit("the process is out of descriptors"));
    }
    let stream = socket.connect(address).await.map_err(|error| failed(&error))?;
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

fn failed(error: &io::Error) -> Refusal {
    use nix::errno::Errno;
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => Refusal::limit(error.to_string()),
        Some(Errno::ECONNREFUSED) => Refusal::bad_gateway("connection_refused", "the target refuses the connection"),
        Some(Errno::ETIMEDOUT) => Refusal::timeout("connection_timeout", "the target does not answer"),
        Some(Errno::ECONNRESET) => Refusal::bad_gateway("connection_terminated", "the target reset the connection"),
        _ => Refusal::bad_gateway("destination_ip_unroutable", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, default_port: Option<u16>) -> Result<String, String> {
        let authority: Authority = text.parse().map_err(|_| "no authority".to_owned())?;
        Target::read(&authority, default_port).map(|target| target.to_string()).map_err(|refusal| refusal.details)
    }

    #[test]
    fn a_target_is_a_host_and_a_port() {
        for (text, default_port, target) in [
            ("shop.example:443", None, Some("shop.example:443")),
            ("Shop.Example:443", None, Some("shop.example:443")),
            ("127.0.0.1:80", None, Some("127.0.0.1:80")),
            ("[::1]:443", None, Some("[::1]:443")),
            ("shop.example", Some(80), Some("shop.example:80")),
            ("[::1]", Some(80), Some("[::1]:80")),
            ("shop.example", None, None),
            ("shop.example:", Some(80), None),
            ("shop.example:0", None, None),
            ("shop.example:99999", None, None),
            ("u:p@shop.example:80", None, None),
            ("a%2eb:80", None, None),
            (":80", None, None),
        ] {
            assert_eq!(read(text, default_port).ok().as_deref(), target, "{text}");
        }
    }

    #[test]
    fn families_take_turns() {
        let ips = |texts: &[&str]| texts.iter().map(|t| t.parse::<IpAddr>().unwrap()).collect::<Vec<_>>();
        let found = ips(&["2600::1", "2600::2", "2600::3", "8.8.8.8"]);
        assert_eq!(interleaved(found), ips(&["2600::1", "8.8.8.8", "2600::2", "2600::3"]));
    }
}
