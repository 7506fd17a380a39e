//! Every way of saying no, with its status and its `Proxy-Status` (LO-1, RFC 9209).

use std::time::Duration;

use tokio::net::TcpSocket;

use super::support::{Client, Names, Setup, Target, black_hole, closed_port};
use crate::config::Limits;
use egress_config::providers::FaultKnobs as Faults;

fn get(target: impl std::fmt::Display) -> String {
    format!("GET http://{target}/ HTTP/1.1\r\nHost: x\r\n\r\n")
}

/// Issue 3, "Egress guard"; S4: as an address and as a name that resolves to it, in both forms of a request.
#[tokio::test]
async fn every_address_that_is_not_the_worlds_is_refused_and_so_is_a_name_for_it() {
    let refused = [
        "169.254.169.254",
        "127.0.0.1",
        "[::1]",
        "10.0.0.1",
        "100.64.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "0.0.0.0",
        "[::]",
        "[fd00::1]",
        "[fe80::1]",
        "[::ffff:10.0.0.1]",
        "[64:ff9b::a00:1]",
        "[2002:a00:1::1]",
        "224.0.0.1",
        "[ff02::1]",
        "198.51.100.7",
    ];
    for text in refused {
        let bare = text.trim_matches(['[', ']']);
        let names = Names::with(&[("inside.example", &[&[bare]])]);
        let proxy = Setup { allow: Vec::new(), names, own: vec!["198.51.100.7".parse().unwrap()], ..Setup::default() }.start();
        for target in [format!("{text}:443"), "inside.example:443".to_owned()] {
            let (connect, _) = proxy.tunnel(&target).await;
            assert_eq!((connect.status, connect.error()), (403, Some("destination_ip_prohibited")), "CONNECT {target} ({text})");
            let plain = proxy.ask(&get(&target)).await;
            assert_eq!((plain.status, plain.error()), (403, Some("destination_ip_prohibited")), "GET {target} ({text})");
        }
    }
}

#[tokio::test]
async fn port_25_is_refused_unless_an_entry_names_it() {
    let names = Names::with(&[("mail.example", &[&["127.0.0.1"]])]);
    let proxy = Setup { names, ..Setup::default() }.start();
    let (answer, _) = proxy.tunnel("mail.example:25").await;
    assert_eq!((answer.status, answer.error()), (403, Some("destination_ip_prohibited")));
    let proxy = Setup { allow: vec!["127.0.0.1:25".into()], ..Setup::default() }.start();
    let (answer, _) = proxy.tunnel("127.0.0.1:25").await;
    assert_eq!(answer.status, 502, "let through, and nothing listens there");
}

/// One look-up per connection: what was judged is what is connected to.
#[tokio::test]
async fn a_name_that_flips_between_two_lookups_does_not_slip_through() {
    let target = Target::echo().await;
    let names = Names::with(&[("flip.example", &[&["127.0.0.1"], &["127.0.0.2"]])]);
    let allow = vec![format!("127.0.0.1:{}", target.address.port())];
    let proxy = Setup { allow, names: names.clone(), ..Setup::default() }.start();
    let flip = format!("flip.example:{}", target.address.port());
    assert_eq!(proxy.tunnel(&flip).await.0.status, 200);
    assert_eq!(names.lookups.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(proxy.tunnel(&flip).await.0.status, 403, "now it is the other one");
}

#[tokio::test]
async fn of_several_addresses_only_the_allowed_ones_are_tried() {
    let target = Target::echo().await;
    let names = Names::with(&[("mixed.example", &[&["10.0.0.1", "127.0.0.1"]])]);
    let allow = vec!["127.0.0.1".into()];
    let proxy = Setup { allow, names, ..Setup::default() }.start();
    assert_eq!(proxy.tunnel(format!("mixed.example:{}", target.address.port())).await.0.status, 200);
}

#[tokio::test]
async fn targets_that_cannot_be_reached_are_told_apart() {
    let names = Names::with(&[("silent.example", &[&[]])]);
    let (hole, _fill, _listener) = black_hole("127.0.0.1").await;
    let limits = Limits { connect_timeout: Duration::from_millis(300), ..Limits::default() };
    let proxy = Setup { names, limits, ..Setup::default() }.start();
    for (target, status, error) in [
        ("unknown.example:443".to_owned(), 502, "dns_error"),
        ("silent.example:443".to_owned(), 504, "dns_timeout"),
        (closed_port().await.to_string(), 502, "connection_refused"),
        (hole.to_string(), 504, "connection_timeout"),
    ] {
        let (connect, _) = proxy.tunnel(&target).await;
        assert_eq!((connect.status, connect.error()), (status, Some(error)), "CONNECT {target}");
        let plain = proxy.ask(&get(&target)).await;
        assert_eq!((plain.status, plain.error()), (status, Some(error)), "GET {target}");
    }
}

#[tokio::test]
async fn a_target_without_an_address_of_the_sources_family_is_502() {
    let names = Names::with(&[("six.example", &[&["::1"]])]);
    let proxy = Setup { names, source: Some("127.0.0.1".parse().unwrap()), ..Setup::default() }.start();
    let (answer, _) = proxy.tunnel("six.example:443").await;
    assert_eq!((answer.status, answer.error()), (502, Some("destination_ip_unroutable")));
    let proxy = Setup { source: Some("192.0.2.1".parse().unwrap()), ..Setup::default() }.start();
    let (answer, _) = proxy.tunnel("127.0.0.1:443").await;
    assert_eq!((answer.status, answer.error()), (502, Some("proxy_configuration_error")), "no address of this machine");
}

#[tokio::test]
async fn what_is_no_proxy_request_is_400() {
    let proxy = Setup::default().start();
    for request in [
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET https://shop.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET ftp://shop.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://u:p@shop.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://shop.example:0/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT shop.example HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT shop.example:0 HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT shop.example:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
        "GET http://shop.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "GET http://shop.example/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nabcd",
        "GET http://shop.example/ HTTP/1.1\r\nbad\x01name: x\r\n\r\n",
        "GET http://shop.example/ HTTP/3.7\r\nHost: x\r\n\r\n",
        "\x00\u{80}\r\n\r\n",
    ] {
        let answer = proxy.ask(request).await;
        assert_eq!(answer.status, 400, "{request:?}: {answer:?}");
        assert_eq!(answer.error(), Some("http_request_error"), "{request:?}");
    }
}

#[tokio::test]
async fn a_large_head_is_431() {
    let limits = Limits { max_header_bytes: 1024, ..Limits::default() };
    let proxy = Setup { limits, ..Setup::default() }.start();
    let request = |bytes: usize| format!("GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\nX-Fill: {}\r\n\r\n", "a".repeat(bytes));
    assert_eq!(proxy.ask(&request(800)).await.status, 502, "within the limit");
    let answer = proxy.ask(&request(1100)).await;
    assert_eq!((answer.status, answer.error()), (431, Some("http_request_error")));
    assert_eq!(proxy.ask(&request(200_000)).await.status, 431, "far beyond");
}

#[tokio::test]
async fn a_client_of_another_network_is_403() {
    let proxy = Setup::default().start();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.9:0".parse().unwrap()).unwrap();
    let mut client = Client(socket.connect(proxy.address).await.unwrap());
    client.send(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.error()), (403, Some("http_request_denied")));
    assert_eq!(client.rest().await.unwrap(), b"");
}

#[tokio::test]
async fn fault_knobs_do_what_they_say() {
    let target = Target::echo().await;
    let with = |faults: Faults| Setup { faults: Some(faults), ..Setup::default() }.start();

    let proxy = with(Faults { proxy_auth: true, ..Faults::default() });
    let (answer, _) = proxy.tunnel(target.address).await;
    assert_eq!((answer.status, answer.header("proxy-authenticate")), (407, Some("Basic realm=\"egress\"")));

    let proxy = with(Faults { refuse_after: Some(2), ..Faults::default() });
    for expected in [200, 200, 403, 403] {
        assert_eq!(proxy.tunnel(target.address).await.0.status, expected);
    }

    let proxy = with(Faults { fail_ratio: 1.0, ..Faults::default() });
    let (answer, _) = proxy.tunnel(target.address).await;
    assert_eq!((answer.status, answer.error()), (502, Some("proxy_internal_error")));

    let proxy = with(Faults { reset_ratio: 1.0, ..Faults::default() });
    let mut client = proxy.connect().await;
    client.send(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.rest().await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);

    let proxy = with(Faults { latency: Some(Duration::from_millis(300)), ..Faults::default() });
    let started = tokio::time::Instant::now();
    assert_eq!(proxy.tunnel(target.address).await.0.status, 200);
    assert!(started.elapsed() >= Duration::from_millis(300));
}
