//! The same server over TLS: clients that verify, clients that do not shake hands, and the certificate's life.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, Timestamp};
use egress_supervision::System;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::server::{Server, quick, router, serve_over};
use super::wire::{Answer, Wire, ask, request};
use crate::http::certificate;
use crate::http::connection::Limits;
use crate::http::listener::ListenerArgs;
use crate::http::server::Site;
use crate::http::tls::Tls;

const POD: &str = "egress-proxies-operator-5d5c8b7f6-x7k2p";
const DAY: Duration = Duration::from_secs(86_400);

fn tls() -> Tls {
    let addresses: [IpAddr; 2] = ["10.1.2.3".parse().unwrap(), "0.0.0.0".parse().unwrap()];
    Tls::new(certificate::names(POD, addresses), Clock::system().now()).unwrap()
}

async fn secure(limits: Limits) -> (Server, Tls) {
    let tls = tls();
    (serve_over(router(), limits, Some(tls.clone())).await, tls)
}

/// Trusts that certificate and no other, as a client does that was given it.
fn connector(trusted: CertificateDer<'static>, versions: &[&'static SupportedProtocolVersion], alpn: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config).into()
}

async fn shake(address: SocketAddr, name: &str, tls: &Tls) -> std::io::Result<Wire<TlsStream<TcpStream>>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = TcpStream::connect(address).await?;
    Ok(Wire(connector(tls.certificate(), rustls::ALL_VERSIONS, &[]).connect(name, stream).await?))
}

async fn get_slow(wire: &mut Wire<TlsStream<TcpStream>>) -> Answer {
    wire.send(request("GET", "/slow", &[], None)).await;
    wire.answer().await.unwrap()
}

/// Of the connections that the server has.
async fn none_is_left(server: &Server, within: Duration) {
    let until = Instant::now() + within;
    while server.connections.open() > 0 {
        assert!(Instant::now() < until, "{} connections are left", server.connections.open());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// OB-1: names of loopback, of the Pod, and no other; both versions; what Prometheus offers as protocols.
#[tokio::test]
async fn a_client_that_verifies_finds_its_names_in_the_certificate_ob_1() {
    let (server, tls) = secure(Limits::default()).await;
    for name in ["localhost", "127.0.0.1", "::1", POD, "10.1.2.3"] {
        let mut wire = shake(server.address, name, &tls).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        wire.send(request("POST", "/echo", &[], Some("{}"))).await;
        assert_eq!(wire.answer().await.unwrap().body, b"{}");
        wire.send(request("POST", "/echo", &[], Some("{}"))).await;
        assert_eq!(wire.answer().await.unwrap().status, 200, "and again on the same connection");
    }
    for name in ["0.0.0.0", "10.1.2.4", "example.com"] {
        let error = shake(server.address, name, &tls).await.err().unwrap();
        assert!(error.to_string().contains("not valid for name"), "{name}: {error}");
    }
    let other = shake(server.address, "localhost", &super::tls::tls()).await.err().unwrap();
    assert!(other.to_string().contains("invalid peer certificate"), "{other}");
    for (version, alpn) in
        [(&rustls::version::TLS12, &["h2", "http/1.1"][..]), (&rustls::version::TLS13, &["http/1.1"]), (&rustls::version::TLS13, &[])]
    {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let connector = connector(tls.certificate(), &[version], alpn);
        let mut wire = Wire(connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap());
        assert_eq!(wire.0.get_ref().1.alpn_protocol(), (!alpn.is_empty()).then_some(&b"http/1.1"[..]));
        assert_eq!(get_slow(&mut wire).await.status, 200);
    }
}

#[tokio::test]
async fn whoever_speaks_plain_http_is_told_and_whoever_speaks_nonsense_is_not() {
    let (server, _) = secure(Limits::default()).await;
    let answer = ask(server.address, request("POST", "/echo", &[], Some("{}"))).await;
    assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
    assert_eq!(answer.json()["detail"], "this listener speaks HTTPS only");
    for bytes in [&b"\x80\x2e\x01\x00\x02"[..], b"SSH-2.0-x\r\n", b"\x16\x03\x01\x00\x05hello", b"\x00"] {
        let mut wire = Wire::open(server.address).await;
        wire.send(bytes).await;
        if let Some(answer) = wire.answer_or_end().await {
            assert_eq!(answer, 400, "{bytes:?}");
        }
    }
    none_is_left(&server, Duration::from_secs(5)).await;
}

/// LS-23: a handshake and the first head share their time, and neither keeps others from being served.
#[tokio::test]
async fn a_handshake_that_drags_on_is_ended_and_keeps_nobody_waiting_ls_23() {
    let limits = Limits { head: Duration::from_secs(2), ..quick() };
    let (server, tls) = secure(limits).await;
    let start = Instant::now();
    let mut silent = Wire::open(server.address).await;
    let mut half = Wire::open(server.address).await;
    // The beginning of a record whose end never comes.
    half.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    let mut dripping = Wire::open(server.address).await;
    let mut shaken = shake(server.address, "localhost", &tls).await.unwrap();
    let drip = async {
        let mut sent = 0;
        let record = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(), &[0; 400]].concat();
        for byte in record {
            if dripping.0.write_all(&[byte]).await.is_err() {
                break;
            }
            sent += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(sent < 300, "a dripping handshake is not waited for");
    };
    let others = async {
        for _ in 0..5 {
            let mut wire = shake(server.address, "localhost", &tls).await.unwrap();
            wire.send(request("POST", "/echo", &[], Some("{}"))).await;
            assert_eq!(wire.answer().await.unwrap().status, 200);
        }
        assert!(start.elapsed() < limits.head, "they were served at once: {:?}", start.elapsed());
    };
    let (silent, half, shaken, ..) = tokio::join!(silent.closes(), half.closes(), shaken.closes(), drip, others);
    assert!(silent && half && shaken);
    let took = start.elapsed();
    assert!(took >= limits.head && took < limits.head * 8, "{took:?}");
    none_is_left(&server, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_ls_23() {
    let large = Router::new().route("/large", get(|| async { vec![b'x'; 32 * 1024 * 1024] }));
    let tls = tls();
    let server = serve_over(large, quick(), Some(tls.clone())).await;
    let mut wire = shake(server.address, "localhost", &tls).await.unwrap();
    wire.send(request("GET", "/large", &[], None)).await;
    none_is_left(&server, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn beyond_the_limit_a_connection_is_told_so_over_tls_ls_23() {
    let (server, tls) = secure(Limits { connections: 1, ..Limits::default() }).await;
    let mut held = shake(server.address, "localhost", &tls).await.unwrap();
    assert_eq!(get_slow(&mut held).await.status, 200);
    let refused = shake(server.address, "localhost", &tls).await.unwrap().answer().await.unwrap();
    assert_eq!((refused.status, refused.code(), refused.header("retry-after")), (503, "overloaded".to_owned(), Some("1")));
    drop(held);
    none_is_left(&server, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_drain_ends_handshakes_at_once_and_lets_requests_end_op_5() {
    let (server, tls) = secure(Limits::default()).await;
    let mut silent = Wire::open(server.address).await;
    let mut running = shake(server.address, "localhost", &tls).await.unwrap();
    running.send(request("GET", "/slow", &[], None)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.stop.cancel();
    let start = Instant::now();
    let (answer, silent, ()) = tokio::join!(running.answer(), silent.closes(), server.connections.drain(Duration::from_secs(5)));
    assert!(silent && answer.unwrap().status == 200);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn names_are_those_of_loopback_and_of_the_pod_and_only_what_can_be_one() {
    let names = |instance: &str, addresses: &[&str]| certificate::names(instance, addresses.iter().map(|ip| ip.parse().unwrap()));
    let own = ["localhost", "127.0.0.1", "::1"];
    assert_eq!(names("op-0", &["10.1.2.3", "127.0.0.1", "::ffff:10.1.2.3", "::"]), [&own[..], &["op-0", "10.1.2.3"]].concat());
    assert_eq!(names("Work_Station", &["2001:db8::1"]), [&own[..], &["2001:db8::1"]].concat());
    let long = "a".repeat(63) + "." + &"b".repeat(63);
    for instance in ["", "ünïcode", "a b", "op-0", &long] {
        Tls::new(names(instance, &[]), Clock::system().now()).unwrap_or_else(|e| panic!("{instance}: {e}"));
    }
}

#[tokio::test]
async fn a_certificate_lasts_a_year_and_is_replaced_a_month_before_its_end_while_connections_keep_theirs() {
    let (server, tls) = secure(Limits::default()).await;
    let made = Clock::system().now();
    assert!(tls.valid_until() <= made + DAY * 365 && tls.valid_until() > made + DAY * 364);
    let old = tls.certificate();
    let mut before = shake(server.address, "localhost", &tls).await.unwrap();
    assert!(!tls.renew_if_due(made + DAY * 334).unwrap());
    assert_eq!(tls.certificate(), old);
    assert!(tls.renew_if_due(made + DAY * 335).unwrap());
    assert_ne!(tls.certificate(), old);
    assert_eq!(tls.valid_until(), made + DAY * 700);
    assert_eq!(get_slow(&mut before).await.status, 200, "open connections go on");
    // Made by a clock that is almost a year ahead, it does not count yet.
    let early = shake(server.address, "localhost", &tls).await.err().unwrap();
    assert!(early.to_string().contains("not valid yet"), "{early}");
}

/// The listener's own look, with its clock at a time that has come.
#[tokio::test(start_paused = true)]
async fn the_listener_renews_in_time_and_shows_until_when_its_certificate_counts() {
    let start = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
    let system = System::new(Clock::starting_at(start), Metrics::new(true).shared());
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let site = Site::new(router(), socket.local_addr().unwrap(), Limits::default());
    let tls = Tls::new(certificate::names("op-0", []), start).unwrap();
    let args = ListenerArgs { name: "metrics", socket: Arc::new(socket), site }.secured(tls.clone());
    let _root = system.start_root(args.spec()).await.unwrap();
    let until = async || system.inspect(Some("http/metrics"), Some(0)).await.unwrap().state.unwrap()["certificateUntil"].clone();
    assert_eq!(until().await, "2027-01-01T00:00:00.000Z");
    let old = tls.certificate();
    for _ in 0..334 {
        tokio::time::sleep(DAY).await;
    }
    assert_eq!(tls.certificate(), old);
    tokio::time::sleep(DAY + Duration::from_secs(3600)).await;
    assert_ne!(tls.certificate(), old);
    assert!(until().await.as_str().unwrap().starts_with("2027-12-02T0"), "{}", until().await);
}
