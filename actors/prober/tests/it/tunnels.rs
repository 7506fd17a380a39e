//! HE-1, HE-3, HE-7 behind a working tunnel: TLS, the answer, the address, and who gets to see the credentials.

use std::net::IpAddr;
use std::sync::Arc;

use egress_protocol::prober::{ProbeFailure, ProbeOutcome};
use tokio::io::AsyncWriteExt;

use crate::zoo::{Ca, SENTINEL, failure, head, outcome, serve, target, tls_target, trusting, tunnel};

const URL: &str = "https://target.example/204?key=s3nt1nel";
const OK: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// HE-1: any 2xx of any version opens the tunnel, whatever else its head says; tinyproxy answers HTTP/1.0.
#[tokio::test]
async fn every_way_to_open_a_tunnel_works() {
    let ca = Ca::new();
    let settings = trusting(&ca);
    let site = tls_target(ca.acceptor("target.example", |_| {}), NO_CONTENT).await;
    for answer in [
        OK,
        b"HTTP/1.0 200 Connection established\r\nProxy-agent: tinyproxy/1.11.1\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"\r\nHTTP/1.1 200\r\n\r\n",
        // Issue 10 item 16.
        b"HTTP/1.1 200 OK\r\nX-XSS-Protection : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n  b\r\n\tc\r\n\r\n",
    ] {
        let proxy = tunnel(answer, site.port).await;
        let result = outcome(&target(proxy.port, URL), &settings).await;
        assert!(result.passed(), "{} gave {result:?}", String::from_utf8_lossy(answer));
        assert!(proxy.heads()[0].starts_with("CONNECT target.example:443 HTTP/1.1\r\n"));
    }
}

/// S7: the proxy gets the credentials, the target never; caches on the way are asked not to answer.
#[tokio::test]
async fn credentials_go_to_the_proxy_and_never_to_the_target() {
    let ca = Ca::new();
    let site = tls_target(ca.acceptor("target.example", |_| {}), NO_CONTENT).await;
    let proxy = tunnel(OK, site.port).await;
    assert!(outcome(&target(proxy.port, URL), &trusting(&ca)).await.passed());
    assert!(proxy.heads()[0].contains("Basic dXNlcjpzM250MW5lbA=="));
    assert!(!proxy.heads()[0].contains("/204"), "the proxy is not told the path");
    let seen = site.heads()[0].to_ascii_lowercase();
    assert!(!seen.contains("authorization") && !seen.contains("dxnlcj"), "{seen}");
    assert!(seen.starts_with("get /204?key=s3nt1nel http/1.1\r\n") && seen.contains("cache-control: no-cache"), "{seen}");
    assert!(seen.contains("\r\nhost: target.example\r\n"), "{seen}");
}

/// M8 (d): each fault of the handshake, and only of the handshake.
#[tokio::test]
async fn a_handshake_that_fails_says_why() {
    let ca = Ca::new();
    let settings = trusting(&ca);
    let past = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    };
    let future = |params: &mut rcgen::CertificateParams| params.not_before = rcgen::date_time_ymd(3000, 1, 1);
    for (site, words) in [
        (tls_target(ca.acceptor("target.example", past), NO_CONTENT).await, "expired"),
        (tls_target(ca.acceptor("target.example", future), NO_CONTENT).await, "not valid yet"),
        (tls_target(ca.acceptor("s3nt1nel.example", |_| {}), NO_CONTENT).await, "another name"),
        (tls_target(Ca::new().acceptor("target.example", |_| {}), NO_CONTENT).await, "trusted issuer"),
        (serve(|stream, _| async move { drop(stream) }).await, "TLS handshake with target.example"),
        (
            serve(|mut stream, _| async move { stream.write_all(b"HTTP/1.1 400 s3nt1nel\r\n\r\n").await.unwrap() }).await,
            "does not speak TLS",
        ),
    ] {
        let proxy = tunnel(OK, site.port).await;
        let (reason, message, side) = failure(&target(proxy.port, URL), &settings).await;
        assert_eq!((reason, side), (ProbeFailure::TlsFailed, true), "{message}");
        assert!(message.contains(words), "{message}");
    }
}

/// HE-3: after the handshake a wrong status, a close and garbage are the target's; a redirect is not followed.
#[tokio::test]
async fn after_the_handshake_everything_but_the_expected_status_is_unexpected() {
    let ca = Ca::new();
    let settings = trusting(&ca);
    for (answer, words) in [
        (format!("HTTP/1.1 503 {SENTINEL}\r\nContent-Length: 0\r\n\r\n"), "status 503 instead of 204"),
        (format!("HTTP/1.1 302 Found\r\nLocation: https://{SENTINEL}.example/\r\nContent-Length: 0\r\n\r\n"), "status 302"),
        ("HTTP/1.1 407 Auth\r\nContent-Length: 0\r\n\r\n".to_owned(), "status 407"),
        (format!("{SENTINEL}\r\n\r\n"), "no status"),
        (String::new(), "no status"),
    ] {
        let site = tls_target(ca.acceptor("target.example", |_| {}), answer).await;
        let proxy = tunnel(OK, site.port).await;
        let (reason, message, side) = failure(&target(proxy.port, URL), &settings).await;
        assert_eq!((reason, side), (ProbeFailure::UnexpectedStatus, true), "{message}");
        assert!(message.contains(words), "{message}");
        assert_eq!((site.heads().len(), proxy.heads().len()), (1, 1), "one request, no second one");
    }
}

/// HE-7: one address, whatever its family and the blanks round it; anything else is unexpected, and not repeated.
#[tokio::test]
async fn a_reported_address_is_read_and_nothing_else() {
    let ca = Ca::new();
    let settings = trusting(&ca);
    let long = format!("{}198.51.100.7", " ".repeat(300));
    for (body, address) in [
        ("198.51.100.7\n", Some("198.51.100.7")),
        (" 2001:db8::7 \r\n", Some("2001:db8::7")),
        ("::ffff:198.51.100.7", Some("198.51.100.7")),
        ("", None),
        ("198.51.100.7 198.51.100.8", None),
        ("198.51.100", None),
        ("s3nt1nel", None),
        ("{\"ip\": \"198.51.100.7\"}", None),
        (&*long, None),
    ] {
        for framing in [format!("Content-Length: {}\r\n", body.len()), String::new()] {
            let site = tls_target(ca.acceptor("target.example", |_| {}), format!("HTTP/1.1 200 OK\r\n{framing}\r\n{body}")).await;
            let proxy = tunnel(OK, site.port).await;
            let mut to = target(proxy.port, URL);
            to.health_check.expected_status = 200;
            to.health_check.reports_address = true;
            match (outcome(&to, &settings).await, address) {
                (ProbeOutcome::Passed { egress_ip, .. }, Some(address)) => {
                    assert_eq!(egress_ip, Some(address.parse::<IpAddr>().unwrap()));
                }
                (ProbeOutcome::Failed { failure: ProbeFailure::UnexpectedStatus, target_side: true, .. }, None) => {}
                (other, _) => panic!("{body:?} gave {other:?}"),
            }
        }
    }
}

/// HE-1: a body that ends with its connection may end without TLS's farewell, as many servers do it.
#[tokio::test]
async fn a_server_without_manners_still_passes() {
    let ca = Ca::new();
    let acceptor = ca.acceptor("target.example", |_| {});
    let site = serve(move |stream, seen| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            head(&mut stream, &seen).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n198.51.100.7").await.unwrap();
            stream.flush().await.unwrap();
            let (mut tcp, _) = stream.into_inner();
            let _ = tcp.shutdown().await;
        }
    })
    .await;
    let proxy = tunnel(OK, site.port).await;
    let mut to = target(proxy.port, URL);
    to.health_check.expected_status = 200;
    to.health_check.reports_address = true;
    assert!(outcome(&to, &trusting(&ca)).await.passed());
}

/// HE-1: a check URL may name an IPv6 address; CONNECT gets it in brackets, the certificate is checked against it.
#[tokio::test]
async fn a_check_url_on_an_ipv6_address_works() {
    let ca = Ca::new();
    let site = tls_target(ca.acceptor("2001:db8::1", |_| {}), NO_CONTENT).await;
    let proxy = tunnel(OK, site.port).await;
    let mut to = target(proxy.port, "https://[2001:db8::1]:8443/x");
    to.credentials = None;
    assert!(outcome(&to, &trusting(&ca)).await.passed());
    assert!(proxy.heads()[0].starts_with("CONNECT [2001:db8::1]:8443 HTTP/1.1\r\n"));
    assert!(!proxy.heads()[0].to_ascii_lowercase().contains("authorization"));
}

/// Nothing is resumed: a second probe shows its certificate again, and no ticket ties two proxies together.
#[tokio::test]
async fn every_probe_is_a_full_handshake() {
    let ca = Ca::new();
    let settings = trusting(&ca);
    let acceptor = ca.acceptor("target.example", |_| {});
    let kinds = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&kinds);
    let site = serve(move |stream, seen| {
        let (acceptor, noted) = (acceptor.clone(), Arc::clone(&noted));
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            head(&mut stream, &seen).await.unwrap();
            noted.lock().unwrap().push(stream.get_ref().1.handshake_kind());
            stream.write_all(NO_CONTENT.as_bytes()).await.unwrap();
        }
    })
    .await;
    let proxy = tunnel(OK, site.port).await;
    for _ in 0..3 {
        assert!(outcome(&target(proxy.port, URL), &settings).await.passed());
    }
    assert_eq!(*kinds.lock().unwrap(), [Some(rustls::HandshakeKind::Full); 3]);
}
