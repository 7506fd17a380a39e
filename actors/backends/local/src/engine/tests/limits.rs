//! What one instance may use.

use std::time::Duration;

use tokio::time::Instant;

use super::support::{Setup, Target};
use crate::config::Limits;

#[tokio::test]
async fn connections_beyond_the_limit_are_503_and_a_freed_place_serves_again() {
    let target = Target::echo().await;
    let limits = Limits { max_connections: 2, ..Limits::default() };
    let proxy = Setup { limits, ..Setup::default() }.start();
    let (_, one) = proxy.tunnel(target.address).await;
    let (_, mut two) = proxy.tunnel(target.address).await;
    let (answer, mut three) = proxy.tunnel(target.address).await;
    assert_eq!((answer.status, answer.error()), (503, Some("connection_limit_reached")));
    assert_eq!(three.rest().await.unwrap(), b"", "and the connection ends");
    two.send(b"unharmed").await;
    two.expect(b"unharmed").await;
    drop(one);
    while proxy.tunnel(target.address).await.0.status != 200 {
        tokio::task::yield_now().await;
    }
}

fn idle(millis: u64) -> Limits {
    Limits { idle_timeout: Duration::from_millis(millis), ..Limits::default() }
}

#[tokio::test]
async fn a_tunnel_ends_when_nothing_moves_in_either_direction() {
    let target = Target::echo().await;
    let proxy = Setup { limits: idle(500), ..Setup::default() }.start();
    let (_, mut client) = proxy.tunnel(target.address).await;
    let started = Instant::now();
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        client.send(b"x").await;
        client.expect(b"x").await;
    }
    assert!(started.elapsed() > Duration::from_millis(700), "a busy one lives on");
    assert_eq!(client.rest().await.unwrap(), b"");
}

#[tokio::test]
async fn a_client_that_never_finishes_its_request_is_cut_off() {
    let proxy = Setup { limits: idle(300), ..Setup::default() }.start();
    let mut silent = proxy.connect().await;
    let mut slow = proxy.connect().await;
    slow.send(b"GET http://127.0.0.1/ HT").await;
    assert!(silent.rest().await.is_ok_and(|rest| rest.is_empty()));
    assert!(slow.rest().await.is_ok());
}

#[tokio::test]
async fn a_target_that_never_answers_is_504() {
    let target = Target::serve("127.0.0.1:0", |stream, _| {
        Box::pin(async move {
            std::future::pending::<()>().await;
            drop(stream);
        })
    })
    .await;
    let proxy = Setup { limits: idle(300), ..Setup::default() }.start();
    let answer = proxy.ask(&format!("GET http://{}/ HTTP/1.1\r\nHost: x\r\n\r\n", target.address)).await;
    assert_eq!((answer.status, answer.error()), (504, Some("http_response_timeout")));
}

/// Issue 3: many tunnels at once. The rest of the promise (1,000, steady memory) is a whole-system test.
#[tokio::test]
async fn two_hundred_tunnels_at_once_all_carry_bytes() {
    let target = Target::echo().await;
    let proxy = Setup::default().start();
    let mut clients = Vec::new();
    for _ in 0..200 {
        let (answer, client) = proxy.tunnel(target.address).await;
        assert_eq!(answer.status, 200);
        clients.push(client);
    }
    for client in &mut clients {
        client.send(b"ping").await;
        client.expect(b"ping").await;
    }
}
