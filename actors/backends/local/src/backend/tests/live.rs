//! A changed block takes effect without dropping a tunnel (LO-3, OP-26).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use egress_protocol::net::AllowList;
use egress_protocol::provider::{ErrorClass, Settings};
use egress_provider::Backend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::support::{Bed, Calls, PORT, request};
use crate::LocalBackend;
use crate::config::LocalConfig;
use egress_config::providers::FaultKnobs as Faults;

async fn echo() -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    (address, tasks)
}

/// CONNECT; the status, and the connection.
async fn connect(proxy: SocketAddr, target: SocketAddr) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return (0, stream),
        }
    }
    let status = String::from_utf8(head).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    (status, stream)
}

async fn carries(tunnel: &mut TcpStream) -> bool {
    tunnel.write_all(b"still there").await.unwrap();
    let mut back = [0; 11];
    matches!(tokio::time::timeout(Duration::from_secs(5), tunnel.read_exact(&mut back)).await, Ok(Ok(_)))
}

fn take(backend: &LocalBackend, config: &LocalConfig) -> bool {
    let settings: Settings = Arc::new(config.clone());
    backend.reconfigure(&settings)
}

#[tokio::test]
async fn faults_lists_and_limits_change_while_a_tunnel_stays_open_lo_3() {
    let mut bed = Bed::new();
    let (target, _echo) = echo().await;
    bed.config.allowed_targets = AllowList::parse(&["127.0.0.1"]).unwrap();
    let backend = bed.backend();
    backend.made(&request("1", PORT)).await.unwrap();
    let proxy = SocketAddr::new(bed.config.listen[0].hosts().next().unwrap().into(), PORT);
    let (status, mut tunnel) = connect(proxy, target).await;
    assert_eq!(status, 200);

    let mut config = bed.config.clone();
    let knobs = Faults { proxies: vec!["default/px-*".to_owned()], ..Faults::default() };
    config.faults = vec![Faults { proxy_auth: true, ..knobs.clone() }];
    assert!(take(&backend, &config));
    assert_eq!(connect(proxy, target).await.0, 407);
    config.faults = vec![Faults { refuse_after: Some(1), ..knobs.clone() }];
    assert!(take(&backend, &config));
    assert_eq!(connect(proxy, target).await.0, 200, "requests are counted from the change on");
    assert_eq!(connect(proxy, target).await.0, 403);
    config.limits.connect_timeout = Duration::from_secs(2);
    assert!(take(&backend, &config));
    assert_eq!(connect(proxy, target).await.0, 403, "and counted on while the knobs stay");
    config.faults = vec![Faults { create_error: Some(ErrorClass::QuotaExceeded), ..knobs }];
    assert!(take(&backend, &config));
    assert_eq!(connect(proxy, target).await.0, 200);
    assert_eq!(backend.made(&request("2", PORT)).await.unwrap_err().class, ErrorClass::QuotaExceeded);
    config.faults.clear();
    config.allowed_targets = AllowList::default();
    assert!(take(&backend, &config));
    assert_eq!(connect(proxy, target).await.0, 403, "loopback is no longer allowed");
    config.allowed_targets = bed.config.allowed_targets.clone();
    config.limits.max_connections = 1;
    assert!(take(&backend, &config));
    assert_eq!(connect(proxy, target).await.0, 503, "the tunnel is the one that may be there");
    config.limits.max_connections = 10;
    config.allowed_clients = vec!["192.0.2.0/24".parse().unwrap()];
    assert!(take(&backend, &config));
    assert_eq!(connect(proxy, target).await.0, 403, "loopback is no client any more");
    assert!(carries(&mut tunnel).await, "and all the while the tunnel stayed");

    // An instance that is made later is run with what is in force.
    config.allowed_clients = bed.config.allowed_clients.clone();
    assert!(take(&backend, &config));
    backend.made(&request("3", PORT + 1)).await.unwrap();
    assert_eq!(connect(SocketAddr::new(proxy.ip(), PORT + 1), target).await.0, 200);
}

/// What instances keep needs a restart, and what is no block of this type is refused.
#[tokio::test]
async fn another_foundation_is_refused_and_changes_nothing() {
    let bed = Bed::new();
    let backend = bed.backend();
    let mut config = bed.config.clone();
    config.sources = vec!["127.0.0.1".parse().unwrap()];
    assert!(!take(&backend, &config));
    let mut config = bed.config.clone();
    config.listen = vec!["127.0.0.9/32".parse().unwrap()];
    assert!(!take(&backend, &config));
    let foreign: Settings = Arc::new("something else");
    assert!(!backend.reconfigure(&foreign));
    assert!(take(&backend, &bed.config));
}
