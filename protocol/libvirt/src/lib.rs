//! An async client of the libvirt remote protocol, over any byte stream.
//!
//! libvirt's own client is a C library that blocks. This one speaks the same protocol over whatever reads and writes: a
//! unix socket, an SSH channel, a pipe in a test. It starts no task and depends on no other crate of this project:
//! [`connect`] hands out a [`Client`] to call with and a [`Connection`] to drive, as `hyper` does.
//!
//! ```
//! use std::time::Duration;
//!
//! use egress_libvirt::procedures::{ConnectGetHostname, ConnectGetLibVersion};
//! use egress_libvirt::{Error, Options, connect};
//! use tokio::time::Instant;
//! # use egress_libvirt::{wire::{self, Header}, xdr};
//! # use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
//! # // A libvirt of few words, so that the example runs anywhere.
//! # async fn libvirt(mut io: DuplexStream) {
//! #     while let Ok(length) = io.read_u32().await {
//! #         let mut call = vec![0; length as usize - 4];
//! #         io.read_exact(&mut call).await.unwrap();
//! #         let mut header: Header = xdr::from_bytes(&call[..24]).unwrap();
//! #         header.kind = wire::kind::REPLY;
//! #         let payload = match header.procedure {
//! #             66 => xdr::to_bytes(&vec![0_u32]),
//! #             157 => xdr::to_bytes(&9_000_000_u64),
//! #             59 => xdr::to_bytes(&"host-a".to_owned()),
//! #             _ => Vec::new(),
//! #         };
//! #         io.write_all(&header.message(&payload)).await.unwrap();
//! #     }
//! # }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! // Elsewhere: tokio::net::UnixStream::connect("/var/run/libvirt/libvirt-sock").await?
//! let (io, peer) = tokio::io::duplex(4096);
//! # let libvirt = libvirt(peer);
//! let (client, connection) = connect(io, &Options::default());
//! let work = async {
//!     let deadline = Instant::now() + Duration::from_secs(30);
//!     client.open("qemu:///system", deadline).await?;
//!     let version = client.call(ConnectGetLibVersion {}, deadline).await?;
//!     let hostname = client.call(ConnectGetHostname {}, deadline).await?;
//!     client.close(deadline).await;
//!     Ok::<_, Error>((version, hostname))
//! };
//! // Usually a task of its own drives the link.
//! # let connection = async { tokio::join!(connection, libvirt).0 };
//! let (closed, answers) = tokio::join!(connection, work);
//! assert_eq!(answers.unwrap(), (9_000_000, "host-a".to_owned()));
//! assert_eq!(closed.reason(), "closed");
//! # });
//! ```
//!
//! What it promises:
//!
//! - Each call has a deadline and can be given up by dropping its future. Either way the others on the link do not notice,
//!   and nothing is dialled anew. An error says whether libvirt may have seen the call ([`Error::Deadline`]).
//! - Whatever the other side sends ends in an answer or an error: lengths are held against their bounds before anything is
//!   allocated, and answers that belong to nothing are dropped and [counted](Client::unexpected).
//! - A transfer has at most 1 MiB in memory. An upload waits for the line; a download asks for one range after the other,
//!   since libvirt cannot be asked to wait.
//! - A link that is [marked dead](Client::kill) ends every waiter at once, even while a write is blocked.
//!
//! [`procedures`] lists the calls it knows, [`wire`] and [`xdr`] are what messages are made of, for those who write a peer.

mod client;
mod connection;
mod error;
mod inbound;
mod keepalive;
pub mod procedures;
mod shared;
mod slots;
mod stream;
pub mod wire;
pub mod xdr;

pub use client::Client;
pub use connection::{Connection, Options, connect};
pub use error::{Closed, Error, LibvirtError};
pub use stream::{Download, MAX_RANGE, Upload};
