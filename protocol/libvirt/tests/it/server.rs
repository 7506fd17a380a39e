//! The other side, under a test's control.

use std::time::Duration;

use egress_libvirt::procedures::StorageVolume;
use egress_libvirt::wire::{Header, RemoteError, keepalive, kind, status};
use egress_libvirt::xdr::{Encode, from_bytes, to_bytes};
use egress_libvirt::{Client, Closed, Options, connect};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub struct Server {
    pub io: DuplexStream,
}

/// A message as the server sees it.
pub type Message = (Header, Vec<u8>);

/// A link with a server at its other end.
pub fn link() -> (Client, Server, JoinHandle<Closed>) {
    link_with(&Options { keepalive: None }, 1 << 16)
}

pub fn link_with(options: &Options, buffer: usize) -> (Client, Server, JoinHandle<Closed>) {
    let (ours, theirs) = tokio::io::duplex(buffer);
    let (client, connection) = connect(ours, options);
    (client, Server { io: theirs }, tokio::spawn(connection))
}

pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

pub fn volume() -> StorageVolume {
    StorageVolume { pool: "default".into(), name: "v".into(), key: "/v".into() }
}

impl Server {
    /// The next message, of any kind.
    pub async fn receive(&mut self) -> Message {
        self.try_receive().await.expect("a message")
    }

    pub async fn try_receive(&mut self) -> Option<Message> {
        let length = self.io.read_u32().await.ok()? as usize;
        let mut message = vec![0; length - 4];
        self.io.read_exact(&mut message).await.ok()?;
        let payload = message.split_off(24);
        Some((from_bytes(&message).unwrap(), payload))
    }

    /// The next message, which must be such a call.
    pub async fn call(&mut self, procedure: i32) -> Header {
        let (header, _) = self.receive().await;
        assert_eq!((header.kind, header.status, header.procedure), (kind::CALL, status::OK, procedure));
        header
    }

    pub async fn send(&mut self, header: &Header, payload: &[u8]) {
        self.io.write_all(&header.message(payload)).await.unwrap();
    }

    pub async fn reply(&mut self, to: &Header, value: &impl Encode) {
        self.send(&answer(to, kind::REPLY, status::OK), &to_bytes(value)).await;
    }

    pub async fn refuse(&mut self, to: &Header, code: i32, message: &str) {
        self.send(&answer(to, kind::REPLY, status::ERROR), &to_bytes(&error(code, message))).await;
    }

    /// A packet of the stream that a call has opened.
    pub async fn stream(&mut self, of: &Header, status: u32, payload: &[u8]) {
        self.send(&answer(of, kind::STREAM, status), payload).await;
    }

    /// Nothing more comes from the client.
    pub async fn expect_silence(&mut self) {
        let more = tokio::time::timeout(Duration::from_millis(50), self.try_receive()).await;
        assert!(more.is_err(), "unexpected: {more:?}");
    }

    pub async fn ping(&mut self) {
        self.send(&Header::keepalive(keepalive::PING), &[]).await;
    }
}

pub fn answer(to: &Header, kind: u32, status: u32) -> Header {
    Header { kind, status, ..to.clone() }
}

pub fn error(code: i32, message: &str) -> RemoteError {
    RemoteError {
        code,
        domain: 18,
        message: Some(message.to_owned()),
        level: 2,
        of: None,
        str1: None,
        str2: None,
        str3: None,
        int1: 0,
        int2: 0,
        network: None,
    }
}
