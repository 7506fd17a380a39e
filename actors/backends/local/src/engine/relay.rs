//! A tunnel: bytes both ways until both ends are done, one fails or nothing moves. A direction holds a buffer only while
//! it has bytes in hand.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::activity::Activity;

/// What is read at a time.
const CHUNK: usize = 16 * 1024;

/// How a tunnel ended.
#[derive(Debug, Default)]
pub(super) struct Relayed {
    /// From the client.
    pub sent: u64,
    /// To the client.
    pub received: u64,
    /// `closed`, `idle` or the failure.
    pub end: String,
}

/// Runs a tunnel to its end. `early` is what the client sent behind its CONNECT.
pub(super) async fn relay(mut client: TcpStream, early: Bytes, mut upstream: TcpStream, idle: Duration) -> Relayed {
    let activity = Activity::new();
    let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
    let end = {
        let (client_read, mut client_write) = client.split();
        let (upstream_read, mut upstream_write) = upstream.split();
        let up = async {
            if !early.is_empty() {
                upstream_write.write_all(&early).await?;
                sent.fetch_add(early.len() as u64, Ordering::Relaxed);
            }
            drop(early);
            copy(&client_read, &mut upstream_write, &activity, &sent).await
        };
        let down = copy(&upstream_read, &mut client_write, &activity, &received);
        tokio::select! {
            both = async { tokio::try_join!(up, down) } => match both {
                Ok(_) => "closed".to_owned(),
                Err(error) => error.to_string(),
            },
            () = activity.idle(idle) => "idle".to_owned(),
        }
    };
    Relayed { sent: sent.into_inner(), received: received.into_inner(), end }
}

async fn copy(from: &ReadHalf<'_>, to: &mut WriteHalf<'_>, activity: &Activity, count: &AtomicU64) -> io::Result<()> {
    loop {
        from.readable().await?;
        let mut buffer = Vec::with_capacity(CHUNK);
        loop {
            buffer.clear();
            match from.try_read_buf(&mut buffer) {
                Ok(0) => return to.shutdown().await,
                Ok(n) => {
                    activity.touch();
                    to.write_all(&buffer).await?;
                    activity.touch();
                    count.fetch_add(n as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
}
