//! HE-3, M8, M14, S3, HE-10: what a proxy does wrong, each told apart. Every answer carries a sentinel that must not
//! reach a message.

use std::time::Duration;

use egress_prober::probe::tls;
use egress_prober::{Guard, GuardPolicy, ProbeSettings, Resolver};
use egress_protocol::net::AllowList;
use egress_protocol::prober::{ProbeFailure, ProbeOutcome};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::zoo::{SENTINEL, failure, head, outcome, script, serve, settings, target};
use ProbeFailure::{ConnectFailed, NotAllowed, ProxyAuthRequired, ProxyRefused, Timeout, TlsFailed, UnexpectedStatus};

const HTTPS: &str = "https://target.example/204?key=s3nt1nel";
const HTTP: &str = "http://target.example/204?key=s3nt1nel";

fn answer(status: &str) -> String {
    format!("HTTP/1.1 {status} {SENTINEL}\r\nX-Said: {SENTINEL}\r\nContent-Length: 8\r\n\r\n{SENTINEL}")
}

/// An answer that says who made it.
fn own(status: &str, field: &str) -> String {
    format!("HTTP/1.1 {status} {SENTINEL}\r\n{field}\r\nContent-Length: 8\r\n\r\n{SENTINEL}")
}

fn flood() -> String {
    format!("HTTP/1.1 200 OK\r\n{}\r\n", format!("X-Flood: {SENTINEL}\r\n").repeat(20_000))
}

/// M8 (b), (c), (e): what CONNECT was answered with.
#[tokio::test]
async fn each_answer_to_connect_has_its_reason() {
    let settings = settings();
    for (bytes, reason, words, target_side) in [
        (answer("407"), ProxyAuthRequired, "407", false),
        (answer("401"), ProxyAuthRequired, "401", false),
        (answer("400"), ProxyRefused, "400", false),
        (answer("403"), ProxyRefused, "403", false),
        (answer("302"), ProxyRefused, "302", false),
        (answer("500"), ProxyRefused, "500", true),
        (answer("502"), ProxyRefused, "502", true),
        (answer("503"), ProxyRefused, "503", true),
        (answer("101"), ProxyRefused, "101", false),
        (format!("HTTP/1.0 403 Denied\r\n\r\n<html>{SENTINEL}"), ProxyRefused, "403", false),
        (format!("SSH-2.0-{SENTINEL}\r\n"), ProxyRefused, "not HTTP", false),
        (format!("220 mail.example ESMTP {SENTINEL}\r\n"), ProxyRefused, "not HTTP", false),
        ("\u{16}\u{3}\u{1}".to_owned(), ProxyRefused, "not HTTP", false),
        ("HTTP/1.1 2".to_owned(), ProxyRefused, "not HTTP", false),
        (format!("HTTP/1.1 200 OK\r\nX: {SENTINEL}\r\n"), ProxyRefused, "not HTTP", false),
        (flood(), ProxyRefused, "not HTTP", false),
        (String::new(), ConnectFailed, "before it answered", false),
        ("HTTP/1.1 200 OK\r\n\r\n".to_owned(), TlsFailed, "TLS handshake", true),
        (format!("HTTP/1.1 200 OK\r\n\r\n{SENTINEL}{SENTINEL}"), TlsFailed, "does not speak TLS", true),
    ] {
        let proxy = script(bytes.clone()).await;
        let (failure, message, side) = failure(&target(proxy.port, HTTPS), &settings).await;
        let shown: String = bytes.chars().take(60).collect();
        assert_eq!((failure, side), (reason, target_side), "{shown:?} gave {message}");
        assert!(message.contains(words), "{shown:?} gave {message}");
    }
}

/// HE-3: in absolute form 407 is the proxy's, every other status is unexpected.
#[tokio::test]
async fn each_answer_in_absolute_form_has_its_reason() {
    let settings = settings();
    for (bytes, reason, words, target_side) in [
        (answer("407"), ProxyAuthRequired, "407", false),
        (answer("401"), UnexpectedStatus, "401", true),
        (answer("403"), UnexpectedStatus, "403", true),
        (answer("200"), UnexpectedStatus, "200", true),
        (answer("302"), UnexpectedStatus, "302", true),
        (answer("502"), UnexpectedStatus, "502", true),
        (answer("503"), UnexpectedStatus, "503", true),
        // Issue 10 item 28: answers that say they are the proxy's.
        (own("403", "Proxy-Status: px; error=destination_ip_prohibited"), ProxyRefused, "the proxy itself answered with 403", false),
        (own("403", "X-Squid-Error: ERR_ACCESS_DENIED 0"), ProxyRefused, "the proxy itself answered with 403", false),
        (own("403", "Server: tinyproxy/1.11.1"), ProxyRefused, "the proxy itself answered with 403", false),
        (own("502", "Proxy-Status: px; error=dns_error"), ProxyRefused, "the proxy itself answered with 502", true),
        (own("403", "Proxy-Status: px; received-status=403"), UnexpectedStatus, "status 403", true),
        (format!("SSH-2.0-{SENTINEL}\r\n"), ProxyRefused, "not HTTP", false),
        (flood(), ProxyRefused, "not HTTP", false),
        (String::new(), ConnectFailed, "before it answered", false),
    ] {
        let proxy = script(bytes.clone()).await;
        let (failure, message, side) = failure(&target(proxy.port, HTTP), &settings).await;
        let shown: String = bytes.chars().take(60).collect();
        assert_eq!((failure, side), (reason, target_side), "{shown:?} gave {message}");
        assert!(message.contains(words), "{shown:?} gave {message}");
    }
}

/// HE-1: the request of an absolute-form probe: credentials, no cache, one per connection.
#[tokio::test]
async fn absolute_form_asks_for_the_url_and_for_no_cache() {
    for version in ["1.1", "1.0"] {
        let proxy = script(format!("HTTP/{version} 204 No Content\r\n\r\n")).await;
        let passed = outcome(&target(proxy.port, HTTP), &settings()).await;
        assert!(passed.passed(), "{passed:?}");
        let heads = proxy.heads();
        assert_eq!(heads.len(), 1);
        let head = heads[0].to_ascii_lowercase();
        assert!(head.starts_with("get http://target.example/204?key=s3nt1nel http/1.1\r\n"), "{head}");
        for line in ["host: target.example", "cache-control: no-cache, no-store", "pragma: no-cache", "connection: close"] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
        }
        assert!(heads[0].contains("Basic dXNlcjpzM250MW5lbA=="));
    }
}

/// HE-1: the body is capped, and a body that breaks off is no fetch.
#[tokio::test]
async fn a_huge_body_is_not_read_to_its_end_and_a_broken_one_fails() {
    let endless = serve(|mut stream, seen| async move {
        head(&mut stream, &seen).await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'x'; 16 * 1024]).await.is_ok() {}
    })
    .await;
    let mut to = target(endless.port, HTTP);
    to.health_check.expected_status = 200;
    assert!(outcome(&to, &settings()).await.passed());

    let broken = script(format!("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{SENTINEL}")).await;
    to.port = broken.port;
    let (reason, message, side) = failure(&to, &settings()).await;
    assert_eq!((reason, side), (UnexpectedStatus, true), "{message}");
}

/// HE-3: an answer that trickles in is an answer.
#[tokio::test]
async fn one_byte_at_a_time_is_still_an_answer() {
    let slow = serve(|mut stream, seen| async move {
        head(&mut stream, &seen).await.unwrap();
        for byte in b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n" {
            stream.write_all(&[*byte]).await.unwrap();
            stream.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(outcome(&target(slow.port, HTTP), &settings()).await.passed());
}

/// HE-3: a proxy at its limit answers before it was asked; its status counts, whoever is faster.
#[tokio::test]
async fn an_answer_before_the_question_counts() {
    let hasty = serve(|mut stream, seen| async move {
        stream.write_all(answer("503").as_bytes()).await.unwrap();
        head(&mut stream, &seen).await;
    })
    .await;
    for _ in 0..20 {
        let (reason, message, _) = failure(&target(hasty.port, HTTPS), &settings()).await;
        assert_eq!(reason, ProxyRefused);
        assert!(message.contains("503"), "{message}");
    }
}

/// M8 (a): closed ports, resets and instant closes are the proxy's own fault.
#[tokio::test]
async fn a_closed_port_and_a_reset_are_connect_failures() {
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (reason, message, side) = failure(&target(closed.local_addr().unwrap().port(), HTTPS), &settings()).await;
    assert_eq!((reason, side), (ConnectFailed, false));
    assert!(message.contains("connection refused"), "{message}");

    let reset = serve(|stream, _| async move {
        stream.set_zero_linger().unwrap();
        drop(stream);
    })
    .await;
    let close = serve(|stream, _| async move { drop(stream) }).await;
    for (url, port) in [(HTTPS, reset.port), (HTTP, reset.port), (HTTPS, close.port), (HTTP, close.port)] {
        let (reason, message, side) = failure(&target(port, url), &settings()).await;
        assert_eq!((reason, side), (ConnectFailed, false), "{message}");
    }
}

/// M14, HE-3: a timeout names its stage; only after CONNECT is it the target's side.
#[tokio::test(start_paused = true)]
async fn a_timeout_names_its_stage() {
    let silent = serve(|mut stream, seen| async move {
        head(&mut stream, &seen).await;
        std::future::pending().await
    })
    .await;
    let mute_tunnel = serve(|mut stream, seen| async move {
        head(&mut stream, &seen).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        std::future::pending().await
    })
    .await;
    for (port, url, stage, target_side) in
        [(silent.port, HTTPS, "CONNECT", false), (mute_tunnel.port, HTTPS, "TLS", true), (silent.port, HTTP, "response", true)]
    {
        let before = Instant::now();
        let (reason, message, side) = failure(&target(port, url), &settings()).await;
        assert_eq!((reason, side), (Timeout, target_side), "{message}");
        assert!(message.ends_with(&format!("in stage {stage}")), "{message}");
        assert!(before.elapsed() >= Duration::from_secs(5) && before.elapsed() < Duration::from_secs(7));
    }
    let nowhere = settings().with_resolver(Resolver::new(|_, _| Box::pin(std::future::pending())));
    let mut named = target(1, HTTPS);
    named.host = "px.example".into();
    let (reason, message, side) = failure(&named, &nowhere).await;
    assert_eq!((reason, side), (Timeout, false));
    assert!(message.ends_with("in stage connect"), "{message}");
}

/// A listener whose queue is full: the kernel drops what more comes, as a black hole does.
async fn black_hole() -> (std::net::SocketAddr, Vec<TcpStream>, tokio::net::TcpListener) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let listener = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(50), TcpStream::connect(address)).await {
        waiting.push(stream);
    }
    (address, waiting, listener)
}

/// S3: a dead first address costs a head start, not the probe.
#[tokio::test(start_paused = true)]
async fn a_dead_first_address_costs_little() {
    let (dead, _full, _listener) = black_hole().await;
    let proxy = script("HTTP/1.1 204 No Content\r\n\r\n").await;
    let alive = std::net::SocketAddr::from(([127, 0, 0, 1], proxy.port));
    let settings = settings().with_resolver(Resolver::new(move |_, _| Box::pin(async move { Ok(vec![dead, alive]) })));
    let mut named = target(1, "http://192.0.2.1/");
    named.host = "px.example".into();
    match outcome(&named, &settings).await {
        ProbeOutcome::Passed { latency, .. } => assert!(latency < Duration::from_secs(1), "{latency:?}"),
        failed @ ProbeOutcome::Failed { .. } => panic!("{failed:?}"),
    }
    let only_dead = settings.with_resolver(Resolver::new(move |_, _| Box::pin(async move { Ok(vec![dead]) })));
    let (reason, message, _) = failure(&named, &only_dead).await;
    assert_eq!(reason, Timeout);
    assert!(message.ends_with("in stage connect"), "{message}");
}

#[tokio::test]
async fn a_name_without_an_address_is_a_connect_failure() {
    let unknown = settings().with_resolver(Resolver::new(|_, _| Box::pin(async { Err(std::io::Error::other("no such name")) })));
    let mut named = target(1, HTTPS);
    named.host = "px.example".into();
    let (reason, message, _) = failure(&named, &unknown).await;
    assert_eq!(reason, ConnectFailed);
    assert!(message.contains("px.example cannot be resolved"), "{message}");
}

/// HE-10, S6: an endpoint that resolves to metadata or link-local is refused; the decision is on the address connected to,
/// so an allowed one beside it is used.
#[tokio::test]
async fn an_endpoint_that_resolves_to_metadata_is_refused() {
    let to = |addresses: Vec<std::net::SocketAddr>| {
        settings().with_resolver(Resolver::new(move |_, _| {
            let addresses = addresses.clone();
            Box::pin(async move { Ok(addresses) })
        }))
    };
    let metadata = "169.254.169.254:80".parse().unwrap();
    let mut named = target(80, "http://192.0.2.1/");
    named.host = "px.example".into();
    let (reason, message, side) = failure(&named, &to(vec![metadata])).await;
    assert_eq!((reason, side), (NotAllowed, false));
    assert!(message.contains("169.254.169.254 is a link-local or cloud-metadata address"), "{message}");

    let proxy = script("HTTP/1.1 204 No Content\r\n\r\n").await;
    let both = to(vec![metadata, ([127, 0, 0, 1], proxy.port).into()]);
    assert!(outcome(&named, &both).await.passed());

    named.host = "fe80::1".into();
    assert_eq!(failure(&named, &settings()).await.0, NotAllowed);
}

/// HE-10: in a cluster loopback is refused for endpoints that users typed, not for a provider's own instances.
#[tokio::test]
async fn loopback_is_refused_in_a_cluster_unless_allowed() {
    let proxy = script("HTTP/1.1 204 No Content\r\n\r\n").await;
    let with = |endpoint_allow: &[&str]| {
        let endpoint_allow = AllowList::parse(endpoint_allow).unwrap();
        let policy = GuardPolicy { refuse_loopback: true, endpoint_allow, ..GuardPolicy::default() };
        ProbeSettings::new(tls::client_config(None).unwrap(), Guard::new(policy))
    };
    let mut to = target(proxy.port, "http://192.0.2.1/");
    assert_eq!(failure(&to, &with(&[])).await.0, NotAllowed);
    assert_eq!(proxy.heads().len(), 0, "nothing was connected to");
    assert!(outcome(&to, &with(&["127.0.0.0/8"])).await.passed());
    to.external = false;
    assert!(outcome(&to, &with(&[])).await.passed());
}

/// HE-10: a check URL on a metadata address is never asked for.
#[tokio::test]
async fn a_check_url_on_metadata_is_refused_before_anything_is_sent() {
    let proxy = script("HTTP/1.1 204 No Content\r\n\r\n").await;
    for url in ["http://169.254.169.254/latest/s3nt1nel", "https://[fe80::1]/", "http://[::ffff:169.254.169.254]/"] {
        let (reason, message, side) = failure(&target(proxy.port, url), &settings()).await;
        assert_eq!((reason, side), (NotAllowed, false), "{url}: {message}");
    }
    let resolves = settings().with_resolver(Resolver::new(|_, _| Box::pin(async { Ok(vec!["169.254.169.254:80".parse().unwrap()]) })));
    assert_eq!(failure(&target(proxy.port, HTTP), &resolves).await.0, NotAllowed);
    assert_eq!(proxy.heads().len(), 0);
}

/// Issue 10 item 12: interim answers without end are read to a bound, not until the timeout.
#[tokio::test]
async fn interim_answers_without_end_are_no_answer() {
    static WRITTEN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let endless = serve(|mut stream, seen| async move {
        head(&mut stream, &seen).await;
        let piece = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
        while stream.write_all(piece.as_bytes()).await.is_ok() {
            WRITTEN.fetch_add(piece.len(), std::sync::atomic::Ordering::Relaxed);
        }
    })
    .await;
    for url in [HTTP, HTTPS] {
        let before = Instant::now();
        let (reason, message, side) = failure(&target(endless.port, url), &settings()).await;
        assert_eq!((reason, side), (ProxyRefused, false), "{message}");
        assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
    }
    // What fits the system's buffers was written too.
    assert!(WRITTEN.load(std::sync::atomic::Ordering::Relaxed) < 32 << 20);
}

/// Issue 10 item 7: waiting for a place among look-ups is no fault of the proxy.
#[tokio::test]
async fn a_look_up_without_a_place_says_nothing_about_the_proxy() {
    let busy = || Err(std::io::Error::new(std::io::ErrorKind::ResourceBusy, "busy"));
    let settings = settings().with_resolver(Resolver::new(move |_, _| Box::pin(async move { busy() })));
    let mut named = target(1, HTTPS);
    named.host = "px.example".into();
    assert!(egress_prober::probe::probe(&named, &settings).await.is_err());
}
