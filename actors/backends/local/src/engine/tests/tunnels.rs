//! Tunnels: bytes, addresses, ends.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::support::{Names, Setup, Target, black_hole};

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_those_sent_early_too_and_ends_with_both_sides() {
    let target = Target::echo().await;
    let proxy = Setup::default().start();
    let mut client = proxy.connect().await;
    client.send(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\nearly", target.address).as_bytes()).await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 200);
    assert_eq!((answer.header("content-length"), answer.header("transfer-encoding")), (None, None));
    client.expect(b"early").await;
    let large: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    let (mut read, mut write) = client.0.split();
    let sending = async {
        write.write_all(&large).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let receiving = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut got);
    let ((), received) = tokio::join!(sending, receiving);
    assert_eq!(received.unwrap(), large.len());
    assert!(got == large, "byte for byte");
}

#[tokio::test]
async fn outgoing_connections_leave_from_the_source_address() {
    let target = Target::serve("127.0.0.1:0", |mut stream, _| {
        Box::pin(async move {
            let peer = stream.peer_addr().unwrap().ip().to_string();
            let _ = stream.write_all(peer.as_bytes()).await;
        })
    })
    .await;
    let proxy = Setup { source: Some("127.0.0.5".parse().unwrap()), ..Setup::default() }.start();
    let (_, mut client) = proxy.tunnel(target.address).await;
    assert_eq!(client.rest().await.unwrap(), b"127.0.0.5");
}

/// S3: an address that does not answer costs a quarter of a second, not the connect timeout.
#[tokio::test]
async fn an_address_that_does_not_answer_does_not_keep_the_next_one_waiting() {
    let (hole, _fill, _listener) = black_hole("127.0.0.3").await;
    let target = Target::serve(&format!("127.0.0.4:{}", hole.port()), |mut stream, _| {
        Box::pin(async move {
            let _ = stream.write_all(b"there").await;
        })
    })
    .await;
    let names = Names::with(&[("slow.example", &[&["127.0.0.3", "127.0.0.4"]])]);
    let proxy = Setup { names, ..Setup::default() }.start();
    let started = Instant::now();
    let (answer, mut client) = proxy.tunnel(format!("slow.example:{}", target.address.port())).await;
    assert_eq!(answer.status, 200);
    client.expect(b"there").await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

/// M25.
#[tokio::test]
async fn odd_bytes_and_resets_end_their_own_connection_only() {
    let target = Target::echo().await;
    let proxy = Setup::default().start();
    let (_, mut bystander) = proxy.tunnel(target.address).await;
    for junk in
        [&b"\x00\x80\xff"[..], b"\x16\x03\x01\x02\x00", b"CONNECT ", b"CONNECT a:1 HTTP/1.1\r\nX: \x80\x00\r\n\r\n", b"\r\n\r\n\r\n"]
    {
        let mut client = proxy.connect().await;
        client.send(junk).await;
        client.0.set_zero_linger().unwrap();
        drop(client);
    }
    // In the middle of CONNECT: while the proxy connects, and right after it is told so.
    for _ in 0..20 {
        let mut client = proxy.connect().await;
        client.send(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\n", target.address).as_bytes()).await;
        client.0.set_zero_linger().unwrap();
        drop(client);
    }
    bystander.send(b"still here").await;
    bystander.expect(b"still here").await;
    assert_eq!(proxy.tunnel(target.address).await.0.status, 200);
    assert!(proxy.instance.is_alive());
}

#[tokio::test]
async fn a_stop_closes_the_listener_at_once_and_gives_tunnels_their_grace() {
    let target = Target::echo().await;
    let proxy = Setup::default().start();
    let (_, mut quick) = proxy.tunnel(target.address).await;
    let (_, mut slow) = proxy.tunnel(target.address).await;
    let idle = proxy.connect().await;
    let address = proxy.address;
    let started = Instant::now();
    let stopping = proxy.instance.stop(Duration::from_millis(700));
    let during = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(started.elapsed() < Duration::from_millis(600), "the listener closes first");
        quick.send(b"bye").await;
        quick.expect(b"bye").await;
        drop(quick);
        slow.send(b"more").await;
        slow.expect(b"more").await;
    };
    let ((), ()) = tokio::join!(stopping, during);
    assert!(started.elapsed() >= Duration::from_millis(700), "one tunnel used all of its grace");
    assert!(!matches!(slow.rest().await, Ok(rest) if !rest.is_empty()), "then it is cut");
    drop(idle);
}

#[tokio::test]
async fn a_stop_without_running_traffic_does_not_wait_for_its_grace() {
    let proxy = Setup::default().start();
    let _idle = proxy.connect().await;
    let started = Instant::now();
    proxy.instance.stop(Duration::from_secs(60)).await;
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn dropping_an_instance_ends_its_listener_and_its_tunnels() {
    let target = Target::echo().await;
    let proxy = Setup::default().start();
    let (_, mut client) = proxy.tunnel(target.address).await;
    drop(proxy.instance);
    assert!(client.rest().await.is_ok_and(|rest| rest.is_empty()) || client.rest().await.is_err());
    while TcpStream::connect(proxy.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}
