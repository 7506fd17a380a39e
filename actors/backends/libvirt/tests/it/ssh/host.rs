//! A host in this process: an SSH server, and a relay before it that can stand still.

use std::sync::Arc;
use std::time::Duration;

use russh::keys::PrivateKey;
use russh::keys::ssh_key::PublicKey;
use russh::server::{self, Auth, ChannelOpenHandle, Msg, Session, VerifiedPublicKey};
use russh::{Channel, ChannelOpenFailure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ssh::support::{Libvirt, ed25519, libvirt};

/// What a host does with a request for the socket.
#[derive(Clone)]
pub enum Socket {
    Opens(Libvirt),
    Refuses(ChannelOpenFailure),
}

pub struct Host {
    pub port: u16,
    /// Dropped with it, all that it runs ends.
    _tasks: JoinSet<()>,
}

impl Host {
    /// With these host keys, for user key 1.
    pub async fn start(keys: Vec<PrivateKey>, socket: Socket) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(server::Config { keys, auth_rejection_time: Duration::ZERO, keepalive_interval: None, ..Default::default() });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut sessions = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (config, socket) = (Arc::clone(&config), socket.clone());
                sessions.spawn(async move {
                    let handler = Handler { user: ed25519(1).public_key().clone(), socket };
                    if let Ok(session) = server::run_stream(config, stream, handler).await {
                        let _ = session.await;
                    }
                });
            }
        });
        Self { port, _tasks: tasks }
    }

    /// Which serves libvirt.
    pub async fn serving(key: PrivateKey) -> Self {
        Self::start(vec![key], Socket::Opens(Libvirt::Serves)).await
    }
}

struct Handler {
    user: PublicKey,
    socket: Socket,
}

impl server::Handler for Handler {
    type Error = russh::Error;

    async fn auth_publickey(&mut self, _: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        Ok(if key.public_key.key_data() == self.user.key_data() { Auth::Accept } else { Auth::reject() })
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        assert_eq!(path, "/run/libvirt/libvirt-sock");
        match self.socket.clone() {
            Socket::Refuses(failure) => reply.reject(failure).await,
            Socket::Opens(behaves) => {
                reply.accept().await;
                tokio::spawn(libvirt(channel.into_stream(), behaves));
            }
        }
        Ok(())
    }
}

/// Passes bytes on, until it is told to stand still: then nothing moves, and nobody is told.
pub struct Relay {
    pub port: u16,
    frozen: watch::Sender<bool>,
    /// How many of the links through it the client still holds.
    pub open: watch::Receiver<usize>,
    _tasks: JoinSet<()>,
}

impl Relay {
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let frozen = watch::Sender::new(false);
        let (counter, open) = watch::channel(0);
        let mut tasks = JoinSet::new();
        let stop = frozen.clone();
        tasks.spawn(async move {
            let mut links = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let host = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (counter, stop) = (counter.clone(), stop.clone());
                counter.send_modify(|open| *open += 1);
                links.spawn(async move {
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_host, mut to_host) = host.into_split();
                    let up = async {
                        let mut buffer = vec![0; 8192];
                        let mut frozen = stop.subscribe();
                        loop {
                            if *frozen.borrow_and_update() {
                                std::future::pending::<()>().await;
                            }
                            let n = tokio::select! {
                                n = from_client.read(&mut buffer) => n.unwrap_or(0),
                                _ = frozen.changed() => continue,
                            };
                            if n == 0 || to_host.write_all(&buffer[..n]).await.is_err() {
                                return;
                            }
                        }
                    };
                    let down = async {
                        let mut buffer = vec![0; 8192];
                        let mut frozen = stop.subscribe();
                        loop {
                            let still = frozen.wait_for(|frozen| !frozen).await.is_err();
                            let n = from_host.read(&mut buffer).await.unwrap_or(0);
                            if still || n == 0 || frozen.wait_for(|frozen| !frozen).await.is_err() {
                                return;
                            }
                            if to_client.write_all(&buffer[..n]).await.is_err() {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = up => {}
                        () = down => {}
                    }
                    counter.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { port: own, frozen, open, _tasks: tasks }
    }

    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }
}
