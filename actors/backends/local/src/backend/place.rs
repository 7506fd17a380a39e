//! Where an instance listens and where it leaves from.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::time::Duration;

use egress_protocol::resource::Placement;
use egress_provider::BackendError;
use ipnet::Ipv4Net;
use tokio::net::TcpListener;

use crate::engine::listen;

/// Strangers' sockets that are stepped over before a range counts as full: someone who holds the port on every address
/// must not cost a try for each of 65,534.
const MAX_STRANGERS: usize = 64;
/// LO-3.
const RETRY: Duration = Duration::from_secs(10);

/// Takes the first address of `listen` on which the port is free. `holders` tells which Proxy of ours has an address.
pub(super) fn claim(
    nets: &[Ipv4Net],
    port: u16,
    holders: &HashMap<SocketAddrV4, String>,
) -> Result<(SocketAddrV4, TcpListener), BackendError> {
    let mut ours = None;
    let mut strangers = 0;
    let mut unusable: Option<(SocketAddrV4, io::Error)> = None;
    for address in nets.iter().flat_map(|net| net.hosts()).map(|ip| SocketAddrV4::new(ip, port)) {
        if let Some(proxy) = holders.get(&address) {
            ours.get_or_insert_with(|| proxy.clone());
            continue;
        }
        match listen(address) {
            Ok(listener) => return Ok((address, listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => strangers += 1,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(BackendError::permanent(format!("port {port} may not be opened: {error}")).environment().caused_by(error));
            }
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                strangers += 1;
                unusable.get_or_insert((address, error));
            }
            Err(error) => return Err(BackendError::transient(format!("listening on {address}: {error}")).caused_by(error)),
        }
        if strangers >= MAX_STRANGERS {
            break;
        }
    }
    if let (None, Some((address, error))) = (&ours, unusable)
        && nets.len() == 1
    {
        let message = format!("listenAddresses: {} is no address of this machine: {error}", address.ip());
        return Err(BackendError::permanent(message).environment().caused_by(error));
    }
    let list = nets.iter().map(shown).collect::<Vec<_>>().join(", ");
    let by = ours.map(|proxy| format!(" (held by Proxy {proxy})")).unwrap_or_default();
    let message = format!(
        "port {port} is free on none of listenAddresses ({list}){by}; a CIDR such as 127.1.0.0/16 gives every instance an address of its own"
    );
    Err(BackendError::quota(message).retry_after(RETRY))
}

fn shown(net: &Ipv4Net) -> String {
    if net.prefix_len() == 32 { net.addr().to_string() } else { net.to_string() }
}

/// The address that the zone names, `None` when it names none. An unknown one is the user's mistake (PC-19).
pub(super) fn zone(placement: &Placement, sources: &[IpAddr]) -> Result<Option<IpAddr>, BackendError> {
    let Some(zone) = placement.zone.as_deref().filter(|zone| !zone.is_empty()) else { return Ok(None) };
    let named = zone.parse::<IpAddr>().ok().filter(|ip| sources.contains(ip));
    named.map(Some).ok_or_else(|| {
        let list = sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let list = if list.is_empty() { "which is empty".to_owned() } else { list };
        BackendError::permanent(format!("placement.zone: {zone:?} is none of sourceAddresses ({list})"))
    })
}

/// The least used source address, the first of equals; `None` leaves the choice to the system.
pub(super) fn least_used(sources: &[IpAddr], used: impl Fn(IpAddr) -> usize) -> Option<IpAddr> {
    sources.iter().copied().min_by_key(|source| used(*source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_names_a_source_address_or_nothing() {
        let sources = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        let of = |text: Option<&str>| zone(&Placement { zone: text.map(Into::into), ..Placement::default() }, &sources);
        assert_eq!(of(None).unwrap(), None);
        assert_eq!(of(Some("")).unwrap(), None);
        assert_eq!(of(Some("2001:db8:0::7")).unwrap(), Some(sources[1]));
        let error = of(Some("192.0.2.8")).unwrap_err();
        assert!(error.message.contains("placement.zone") && error.message.contains("192.0.2.8"), "PC-19: {}", error.message);
    }

    #[test]
    fn the_least_used_source_is_taken_the_first_of_equals() {
        let sources: Vec<IpAddr> = ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(|s| s.parse().unwrap()).to_vec();
        assert_eq!(least_used(&sources, |_| 0), Some(sources[0]));
        assert_eq!(least_used(&sources, |ip| usize::from(ip == sources[0])), Some(sources[1]));
        assert_eq!(least_used(&[], |_| 0), None);
    }
}
