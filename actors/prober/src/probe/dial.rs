//! From the proxy's host to a connection: every address of a name is tried, the next one when the last has not answered
//! within [`HEAD_START`] (RFC 8305), so that one dead address costs little (S3). An endpoint that a user typed is judged
//! address by address, right before connecting (HE-10).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use egress_protocol::prober::{ProbeFailure, ProbeTarget};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::fault::{Fault, OwnFault, Stop, words};
use crate::settings::ProbeSettings;

/// How long an address is tried before the next one joins in.
const HEAD_START: Duration = Duration::from_millis(250);
/// More addresses of one name than this are not tried.
const MOST_ADDRESSES: usize = 16;

pub(super) async fn dial(target: &ProbeTarget, settings: &ProbeSettings) -> Result<TcpStream, Stop> {
    let mut refused = None;
    let mut allowed = addresses(target, settings).await?;
    allowed.truncate(MOST_ADDRESSES);
    allowed.retain(|address| match check(target, settings, address.ip()) {
        Ok(()) => true,
        Err(what) => {
            refused.get_or_insert_with(|| format!("{} is {what}", address.ip()));
            false
        }
    });
    match (allowed.as_slice(), refused) {
        ([], Some(refused)) => Err(Fault::of_proxy(ProbeFailure::NotAllowed, refused).into()),
        ([], None) => Err(Fault::of_proxy(ProbeFailure::ConnectFailed, format!("{} has no address", target.host)).into()),
        (addresses, _) => {
            let stream = race(addresses).await?;
            // Small requests and answers: nothing is gained by waiting for more to send.
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
    }
}

async fn addresses(target: &ProbeTarget, settings: &ProbeSettings) -> Result<Vec<SocketAddr>, Stop> {
    if let Ok(ip) = target.host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, target.port)]);
    }
    settings.resolver.lookup(&target.host, target.port).await.map_err(|error| match own(&error) {
        true => OwnFault(error).into(),
        false => Fault::of_proxy(ProbeFailure::ConnectFailed, format!("the name {} cannot be resolved", target.host)).into(),
    })
}

fn check(target: &ProbeTarget, settings: &ProbeSettings, ip: IpAddr) -> Result<(), &'static str> {
    if target.external { settings.guard.endpoint(&target.host, ip, target.port) } else { Ok(()) }
}

/// The first connection that comes about; when none does, the reason that came first.
async fn race(addresses: &[SocketAddr]) -> Result<TcpStream, Stop> {
    let mut waiting = addresses.iter();
    let mut trying = FuturesUnordered::new();
    let mut first_error: Option<Stop> = None;
    loop {
        match waiting.next() {
            Some(address) => trying.push(async move { (address, TcpStream::connect(address).await) }),
            None if trying.is_empty() => {
                let nothing = || Fault::of_proxy(ProbeFailure::ConnectFailed, "no address").into();
                return Err(first_error.unwrap_or_else(nothing));
            }
            None => {}
        }
        let head_start = async {
            if waiting.len() == 0 {
                std::future::pending::<()>().await;
            }
            sleep(HEAD_START).await;
        };
        tokio::select! {
            biased;
            Some((address, result)) = trying.next() => match result {
                Ok(stream) => return Ok(stream),
                Err(error) if own(&error) => return Err(OwnFault(error).into()),
                Err(error) => {
                    let fault = Fault::of_proxy(ProbeFailure::ConnectFailed, format!("connect to {address}: {}", words(&error)));
                    first_error.get_or_insert(fault.into());
                }
            },
            () = head_start => {}
        }
    }
}

/// Whether an error is about this machine and not about the peer.
fn own(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    // There was no place to look a name up in.
    error.kind() == io::ErrorKind::ResourceBusy || matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE | ENOBUFS))
}
