use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{get, post};
use egress_protocol::metrics::{Listener as Counted, Metrics, Refused};
use http::StatusCode;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::wire::{Wire, ask, request};
use crate::http::body;
use crate::http::connection::{Exchange, Limits};
use crate::http::problem;
use crate::http::server::{Connections, Site, accept};
use crate::http::tls::Tls;

pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) connections: Connections,
    _accept: tokio::task::JoinSet<()>,
    pub(super) stop: CancellationToken,
    metrics: Arc<Metrics>,
}

async fn serve(router: Router, limits: Limits) -> Server {
    serve_over(router, limits, None).await
}

pub(super) async fn serve_over(router: Router, limits: Limits, tls: Option<Tls>) -> Server {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Connections::default();
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let metrics = Metrics::default().shared();
    let site = Site { tls, ..Site::new(router, address, limits) }.counted("test", Arc::clone(&metrics));
    tasks.spawn(accept(listener, site, connections.opener(), stop.clone()));
    Server { address, connections, _accept: tasks, stop, metrics }
}

pub(super) fn quick() -> Limits {
    let moment = Duration::from_millis(150);
    Limits { head: moment, body: moment, idle: moment * 4, write: moment, connections: 8, ..Limits::default() }
}

async fn echo(request: Request) -> Result<Response, problem::Refused> {
    let (parts, incoming) = request.into_parts();
    let bytes = body::read(&parts.headers, incoming, Duration::from_millis(150)).await?;
    Ok(body::json_bytes(StatusCode::OK, bytes))
}

pub(super) fn router() -> Router {
    Router::new()
        .route("/echo", post(echo))
        .route(
            "/panic",
            get(|| async {
                if true {
                    panic!("by a test")
                }
            }),
        )
        .route("/slow", get(|| async { tokio::time::sleep(Duration::from_millis(300)).await }))
}

#[tokio::test]
async fn errors_of_the_frame_are_problem_documents_ls_20() {
    let server = serve(router(), Limits::default()).await;
    for (raw, status, code) in [
        (request("GET", "/nothing", &[], None), 404, "not-found"),
        (request("GET", "/echo", &[], None), 405, "method-not-allowed"),
        (request("POST", "/echo", &[("Content-Type", "text/plain")], Some("{}")), 415, "unsupported-media-type"),
        (request("POST", "/echo", &[("Content-Type", "application/json; charset=latin1")], Some("{}")), 415, "unsupported-media-type"),
        (request("POST", "/echo", &[], Some(&"x".repeat(65 * 1024))), 413, "body-too-large"),
        (request("GET", "/panic", &[], None), 500, "internal"),
    ] {
        let answer = ask(server.address, raw).await;
        assert_eq!((answer.status, answer.code()), (status, code.to_owned()));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.json()["type"], format!("https://crawl.example.com/problems/{code}"));
    }
    assert_eq!(ask(server.address, request("POST", "/echo", &[], Some("{}"))).await.body, b"{}");
}

#[tokio::test]
async fn a_foreign_host_is_refused_on_loopback_ls_22() {
    let server = serve(router(), Limits::default()).await;
    for (host, status) in [
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost:1", 200),
        ("[::1]:2", 200),
        ("127.0.0.9", 200),
    ] {
        let raw = format!("POST /echo HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        let answer = ask(server.address, raw).await;
        assert_eq!(answer.status, status, "{host}");
        assert!(answer.header("access-control-allow-origin").is_none());
    }
    let absolute = "POST http://evil.example/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(ask(server.address, absolute).await.status, 421);
    let twice = "POST /echo HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(ask(server.address, twice).await.status, 400);
}

#[tokio::test]
async fn odd_bytes_and_resets_hurt_nobody_else_m25() {
    let server = serve(router(), quick()).await;
    for raw in [
        &b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"\xff\xfe\xfd\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX\x80: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let mut wire = Wire::open(server.address).await;
        wire.send(raw).await;
        if let Some(answer) = wire.answer().await {
            assert_eq!(answer.status, 400, "{raw:?}");
        }
    }
    let mut wire = Wire::open(server.address).await;
    wire.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc").await;
    wire.0.set_zero_linger().unwrap();
    drop(wire);
    let binary = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nX: \x80\xff\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(ask(server.address, binary).await.status, 200);
}

#[tokio::test]
async fn a_slow_head_a_slow_body_and_an_idle_connection_are_ended_ls_23() {
    let server = serve(router(), quick()).await;
    let start = Instant::now();
    let mut silent = Wire::open(server.address).await;
    let mut dripping = Wire::open(server.address).await;
    let mut half = Wire::open(server.address).await;
    let mut idle = Wire::open(server.address).await;
    dripping.send("GET /slow HT").await;
    half.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{").await;
    idle.send(request("POST", "/echo", &[], Some("{}"))).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    let drip = async {
        let mut sent = 0;
        while sent < 40 && tokio::io::AsyncWriteExt::write_all(&mut dripping.0, b"T").await.is_ok() {
            sent += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(sent < 40, "a dripping head is not waited for");
    };
    let late_body = async {
        let answer = half.answer().await.unwrap();
        assert_eq!((answer.status, answer.fields()), (400, vec!["body".to_owned()]));
        assert_eq!(answer.header("connection"), Some("close"));
    };
    let (silent, idle, ..) = tokio::join!(silent.closes(), idle.closes(), drip, late_body);
    assert!(silent && idle);
    assert!(start.elapsed() >= Duration::from_millis(500), "the idle one had its time");
}

#[tokio::test]
async fn a_body_that_announces_too_much_is_refused_before_it_comes() {
    let server = serve(router(), Limits::default()).await;
    let head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n";
    let mut wire = Wire::open(server.address).await;
    wire.send(head).await;
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.code().as_str(), answer.header("connection")), (413, "body-too-large", Some("close")));
}

#[tokio::test]
async fn beyond_the_limit_every_connection_is_told_so_and_counted_and_places_come_back_ls_23() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = serve(router(), limits).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut wire = Wire::open(server.address).await;
        wire.send(request("GET", "/slow", &[], None)).await;
        held.push(wire);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let clients = (0..100).map(|_| ask(server.address, request("POST", "/echo", &[], Some("{}"))));
    for refused in futures::future::join_all(clients).await {
        assert_eq!((refused.status, refused.code(), refused.header("connection")), (503, "overloaded".to_owned(), Some("close")));
        let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&seconds));
    }
    let counted = Refused { listener: "test", reason: "connections" };
    assert_eq!(server.metrics.connections_refused.get_or_create(&counted).get(), 100);
    drop(held);
    loop {
        let answer = ask(server.address, request("POST", "/echo", &[], Some("{}"))).await;
        if answer.status == 200 {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_connection_that_has_waited_longest_gives_way_ls_23() {
    let limits = Limits { connections: 4, spared: Duration::from_millis(20), ..Limits::default() };
    let server = serve(router(), limits).await;
    let mut idle = Wire::open(server.address).await;
    idle.send(request("POST", "/echo", &[], Some("{}"))).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(Wire::open(server.address).await);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut busy = Wire::open(server.address).await;
    busy.send(request("GET", "/slow", &[], None)).await;
    let start = Instant::now();
    assert_eq!(ask(server.address, request("POST", "/echo", &[], Some("{}"))).await.status, 200);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(idle.closes().await);
    assert_eq!(busy.answer().await.unwrap().status, 200, "whoever is served keeps its place");
    let counted = Counted { listener: "test" };
    assert!(server.metrics.connections_displaced.get_or_create(&counted).get() >= 2);
}

/// Issue 10, item 1: an answer was withheld for 5 s when any byte followed the request.
#[tokio::test]
async fn an_answer_comes_at_once_whatever_follows_the_request() {
    let server = serve(router(), Limits::default()).await;
    for follows in ["\r\n", "GET /no", "GET /nothing HTTP/1.1\r\nHost: local", "\r\n\r\n\r\n"] {
        let start = Instant::now();
        let answer = ask(server.address, [request("GET", "/nothing", &[], None), follows.into()].concat()).await;
        assert_eq!(answer.status, 404, "{follows:?}");
        assert!(start.elapsed() < Duration::from_secs(1), "{follows:?}: {:?}", start.elapsed());
    }
}

/// Issue 10, items 1 and 19: these answers were swallowed, or had no body.
#[tokio::test]
async fn a_request_that_cannot_be_read_is_told_why() {
    let server = serve(router(), Limits::default()).await;
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    for (raw, status, says) in [
        ("GET /<a> HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400, "percent-encoded"),
        ("nonsense\r\n\r\n".to_owned(), 400, "HTTP/1.1"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX y: z\r\n\r\n".to_owned(), 400, "HTTP/1.1"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(200_000)), 431, "32 KiB"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"), 431, "100 headers"),
        (format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(200_000)), 414, "URL"),
    ] {
        let answer = ask(server.address, &raw).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, "invalid-request"), "{}", raw.get(..40).unwrap_or(&raw));
        assert_eq!(answer.json()["status"], status);
        assert!(answer.json()["detail"].as_str().unwrap().contains(says), "{:?}", answer.json());
        assert_eq!((answer.header("connection"), answer.header("content-type")), (Some("close"), Some("application/problem+json")));
        let after = [request("GET", "/nothing", &[], None), raw.into_bytes()].concat();
        let mut wire = Wire::open(server.address).await;
        wire.send(after).await;
        let mut heard = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut wire.0, &mut heard).await.unwrap();
        let heard = String::from_utf8_lossy(&heard);
        // Where the head begins is not known then, so one that is too large may be called a URL that is too long.
        let told = [status, if status == 431 { 414 } else { status }].iter().any(|status| heard.contains(&format!("HTTP/1.1 {status} ")));
        assert!(heard.starts_with("HTTP/1.1 404 ") && told, "behind another: {heard}");
    }
}

/// Issue 10, item 18: refusals during an upload were lost in 6 of 100 runs.
#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let server = serve(router(), Limits::default()).await;
    let body = "x".repeat(3 << 20);
    for target in ["/echo", "/nothing"] {
        for round in 0..30 {
            let mut wire = Wire::open(server.address).await;
            wire.send(request("POST", target, &[], Some(&body))).await;
            let answer = wire.answer().await.unwrap_or_else(|| panic!("{target}, round {round}: lost"));
            assert_eq!(answer.status, if target == "/echo" { 413 } else { 404 });
        }
    }
}

#[tokio::test]
async fn a_drain_lets_requests_end_and_cuts_off_who_does_not_op_5() {
    let server = serve(router(), Limits::default()).await;
    let mut running = Wire::open(server.address).await;
    running.send(request("GET", "/slow", &[], None)).await;
    let mut idle = Wire::open(server.address).await;
    idle.send(request("POST", "/echo", &[], Some("{}"))).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    server.stop.cancel();
    let (answer, idle_closes, ()) = tokio::join!(running.answer(), idle.closes(), server.connections.drain(Duration::from_secs(5)));
    assert_eq!(answer.unwrap().status, 200);
    assert!(idle_closes);
    assert_eq!(server.connections.open(), 0);

    let server = serve(router(), Limits::default()).await;
    let mut stuck = Wire::open(server.address).await;
    stuck.send(request("GET", "/slow", &[], None)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.connections.drain(Duration::from_millis(20)).await;
    assert!(stuck.answer().await.is_none());
}

/// Arms the undoing, then takes as long as it is told.
fn granting(undone: &Arc<AtomicBool>, takes: Duration) -> Router {
    let undone = Arc::clone(undone);
    let grant = move |request: Request| async move {
        if let Some(exchange) = request.extensions().get::<Arc<Exchange>>() {
            exchange.unless_written(move || undone.store(true, Ordering::SeqCst));
        }
        tokio::time::sleep(takes).await;
    };
    Router::new().route("/grant", get(grant))
}

/// Issue 10, item 2: of three grants in one segment two were released at once, though their answers came.
#[tokio::test]
async fn each_of_several_answers_in_a_row_has_its_own_undoing_ls_2() {
    let undone = Arc::new(AtomicBool::new(false));
    let server = serve(granting(&undone, Duration::ZERO), Limits::default()).await;
    let mut wire = Wire::open(server.address).await;
    wire.send(request("GET", "/grant", &[], None).repeat(3)).await;
    let mut read = Vec::new();
    while read.windows(4).filter(|four| four == b"\r\n\r\n").count() < 3 {
        assert!(tokio::io::AsyncReadExt::read_buf(&mut wire.0, &mut read).await.unwrap() > 0);
    }
    assert!(!undone.load(Ordering::SeqCst), "all three were written");
    wire.0.set_zero_linger().unwrap();
    drop(wire);
    server.connections.drain(Duration::from_secs(1)).await;
    assert!(!undone.load(Ordering::SeqCst), "and stay so");
}

/// An answer larger than every buffer on its way, of which the client reads a little: it did not arrive, and the grant
/// behind it was not even begun.
#[tokio::test]
async fn an_answer_that_is_not_read_is_undone_and_holds_back_the_next_request_ls_2() {
    let (begun, undone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let grant = {
        let (begun, undone) = (Arc::clone(&begun), Arc::clone(&undone));
        move |request: Request| async move {
            begun.fetch_add(1, Ordering::SeqCst);
            let exchange = request.extensions().get::<Arc<Exchange>>().unwrap();
            exchange.unless_written(move || {
                undone.fetch_add(1, Ordering::SeqCst);
            });
            vec![b'x'; 64 << 20]
        }
    };
    let server = serve(Router::new().route("/grant", get(grant)), Limits::default()).await;
    let mut wire = Wire::open(server.address).await;
    wire.send(request("GET", "/grant", &[], None).repeat(3)).await;
    let mut some = [0; 4096];
    tokio::io::AsyncReadExt::read_exact(&mut wire.0, &mut some).await.unwrap();
    drop(wire);
    server.connections.drain(Duration::from_secs(5)).await;
    assert_eq!((begun.load(Ordering::SeqCst), undone.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn what_cannot_be_written_is_undone_ls_2() {
    let undone = Arc::new(AtomicBool::new(false));
    let server = serve(granting(&undone, Duration::ZERO), Limits::default()).await;
    assert_eq!(ask(server.address, request("GET", "/grant", &[], None)).await.status, 200);
    server.connections.drain(Duration::from_secs(1)).await;
    assert!(!undone.load(Ordering::SeqCst), "it was written");

    let server = serve(granting(&undone, Duration::from_secs(60)), Limits::default()).await;
    let mut wire = Wire::open(server.address).await;
    wire.send(request("GET", "/grant", &[], None)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(wire);
    let until = Instant::now() + Duration::from_secs(2);
    while !undone.load(Ordering::SeqCst) && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(undone.load(Ordering::SeqCst), "the client hung up");
}
