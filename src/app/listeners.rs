//! Sockets, bound before anything is started, so that an address that is taken is a configuration error (OP-4).

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::Router;
use egress_config::cli::BindAddress;
use tokio::net::TcpSocket;

use crate::http::connection::Limits;
use crate::http::listener::ListenerArgs;
use crate::http::server::Site;

/// How many connections the system may keep ready for us.
const BACKLOG: u32 = 1024;

/// A socket with a name and a flag.
#[derive(Debug)]
pub(super) struct Bound {
    name: &'static str,
    socket: TcpListener,
    pub(super) address: SocketAddr,
}

impl Bound {
    /// One that listens already.
    pub(super) fn ready(name: &'static str, socket: TcpListener, address: SocketAddr) -> Self {
        Self { name, socket, address }
    }

    /// Listens on the first candidate that works. The error names the flag.
    pub(super) fn bind(name: &'static str, flag: &str, wanted: BindAddress) -> Result<Self, String> {
        let mut failed = None;
        for candidate in wanted.candidates() {
            match listen(candidate) {
                Ok((socket, address)) => return Ok(Self { name, socket, address }),
                Err(error) => {
                    failed.get_or_insert_with(|| {
                        format!("--{flag} {candidate}: cannot listen: {error}; stop whoever does, or give another address")
                    });
                }
            }
        }
        Err(failed.unwrap_or_else(|| format!("--{flag}: no address")))
    }

    /// The socket a second time, for a server that comes before ours.
    pub(super) fn share(&self) -> std::io::Result<TcpListener> {
        let socket = self.socket.try_clone()?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// What to start.
    pub(super) fn serving(self, router: Router, limits: Limits) -> std::io::Result<ListenerArgs> {
        self.socket.set_nonblocking(true)?;
        let site = Site::new(router, self.address, limits);
        tracing::info!(listener = self.name, address = %self.address, "listening");
        Ok(ListenerArgs { name: self.name, socket: Arc::new(self.socket), site })
    }
}

fn listen(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let socket = socket.listen(BACKLOG)?.into_std()?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}
