//! Bad input to the discovery API: the right status, the field named, before anybody is asked (no broker runs here).

use std::net::SocketAddr;
use std::time::Duration;

use egress_protocol::leadership::{Standing, StandingCell};
use egress_protocol::lease::{Cursor, LeaseId};
use egress_protocol::metrics::Metrics;
use egress_protocol::{Clock, ObjectKey};
use egress_supervision::System;
use tokio_util::sync::CancellationToken;

use super::wire::{Answer, Wire, ask, request};
use crate::http::auth::Tokens;
use crate::http::connection::Limits;
use crate::http::discovery::Discovery;
use crate::http::health::{self, Health};
use crate::http::server::{Connections, Site, accept};
use crate::lifecycle::Lifecycle;

pub(super) struct Api {
    pub(super) address: SocketAddr,
    pub(super) lifecycle: Lifecycle,
    _connections: Connections,
    _tasks: tokio::task::JoinSet<()>,
}

pub(super) async fn api(tokens: Tokens) -> Api {
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let lifecycle = Lifecycle::default();
    let standing = StandingCell::new(Standing::Alone);
    let discovery = Discovery::new(&system, tokens.clone(), lifecycle.clone(), standing.clone(), Duration::from_secs(1), 1000);
    let health = Health::new(&system, lifecycle.clone(), egress_protocol::InstallationId::new("test"), standing, false);
    let router = discovery.routes().merge(health::routes(health, tokens));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Connections::default();
    let mut tasks = tokio::task::JoinSet::new();
    let site = Site::new(router, address, Limits::default());
    tasks.spawn(accept(listener, site, connections.opener(), CancellationToken::new()));
    Api { address, lifecycle, _connections: connections, _tasks: tasks }
}

fn single(token: &str) -> Tokens {
    Tokens::of(egress_config::tokens::Tokens::single(token).unwrap())
}

fn post(target: &str, body: &str) -> Vec<u8> {
    request("POST", target, &[], Some(body))
}

fn get(target: &str) -> Vec<u8> {
    request("GET", target, &[], None)
}

#[tokio::test]
async fn every_kind_of_bad_input_is_a_400_that_names_its_field() {
    let id = LeaseId::from_bytes([7; 16]);
    let lease_cursor = Cursor::Lease(id).encode();
    let proxy_cursor = Cursor::Proxy(ObjectKey::new("default", "px-1")).encode();
    let lease = |call: &str| format!("/v1/leases/{id}/{call}");
    let long = "x".repeat(254);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        // Bodies that are no requests.
        (post("/v1/leases", "{"), "body"),
        (post("/v1/leases", "[]"), "body"),
        (post("/v1/leases", "\"x\""), "body"),
        (post("/v1/leases", "{} {}"), "body"),
        (request("POST", "/v1/leases", &[("Content-Type", "application/json")], Some("")), "body"),
        (post("/v1/leases", "{\"owner\": \"\\ud800\"}"), "body"),
        // Fields of a grant.
        (post("/v1/leases", r#"{"nope": 1}"#), "nope"),
        (post("/v1/leases", r#"{"ttl": 90}"#), "ttl"),
        (post("/v1/leases", r#"{"ttl": "90"}"#), "ttl"),
        (post("/v1/leases", r#"{"ttl": "0s"}"#), "ttl"),
        (post("/v1/leases", r#"{"ttl": "-5m"}"#), "ttl"),
        (post("/v1/leases", r#"{"ttl": "soon"}"#), "ttl"),
        (post("/v1/leases", r#"{"target": ""}"#), "target"),
        (post("/v1/leases", r#"{"target": "a b"}"#), "target"),
        (post("/v1/leases", r#"{"target": "täst"}"#), "target"),
        (post("/v1/leases", &format!(r#"{{"target": "{long}"}}"#)), "target"),
        (post("/v1/leases", r#"{"target": 5}"#), "target"),
        (post("/v1/leases", &format!(r#"{{"owner": "{long}"}}"#)), "owner"),
        (post("/v1/leases", r#"{"owner": ["a"]}"#), "owner"),
        (post("/v1/leases", r#"{"selector": "x"}"#), "selector"),
        (post("/v1/leases", r#"{"selector": {"geo": "de"}}"#), "selector.geo"),
        (post("/v1/leases", r#"{"selector": {"attributes": []}}"#), "selector.attributes"),
        (post("/v1/leases", r#"{"selector": {"attributes": {"geo": 1}}}"#), "selector.attributes.geo"),
        (post("/v1/leases", r#"{"selector": {"attributes": {"geo": []}}}"#), "selector.attributes.geo"),
        (post("/v1/leases", r#"{"selector": {"attributes": {"geo": ["de", 1]}}}"#), "selector.attributes.geo[1]"),
        (post("/v1/leases", r#"{"selector": {"provider": ""}}"#), "selector.provider"),
        (post("/v1/leases", r#"{"selector": {"exclude": ["px-1"]}}"#), "selector.exclude[0]"),
        (post("/v1/leases", r#"{"selector": {"exclude": "default/px-1"}}"#), "selector.exclude"),
        // What a later version will serve.
        (post("/v1/leases", r#"{"count": 2}"#), "count"),
        (post("/v1/leases", r#"{"distinct": "egressIP"}"#), "distinct"),
        (post("/v1/leases", r#"{"wait": "30s"}"#), "wait"),
        (post("/v1/leases", r#"{"session": "abc"}"#), "session"),
        (post("/v1/leases", r#"{"sticky": "hard"}"#), "sticky"),
        (post(&lease("report"), r#"{"counts": {"success": 1}}"#), "counts"),
        (request("POST", "/v1/leases", &[("Idempotency-Key", "k1")], Some("{}")), "Idempotency-Key"),
        (request("POST", &lease("renew"), &[("idempotency-key", "k1")], Some("{}")), "Idempotency-Key"),
        (post("/v1/leases/renew", r#"{"ids": []}"#), "ids"),
        (post("/v1/leases/release", r#"{"owner": "a"}"#), "ids"),
        (post("/v1/sessions/report", "{}"), "session"),
        (post("/v1/sessions/rotate", "{}"), "session"),
        // Renewals, reports, explanations, cordons.
        (post(&lease("renew"), r#"{"ttl": 5}"#), "ttl"),
        (post(&lease("renew"), r#"{"target": "a"}"#), "target"),
        (post(&lease("report"), "{}"), "result"),
        (post(&lease("report"), r#"{"result": "banned"}"#), "result"),
        (post(&lease("report"), r#"{"result": "blocked", "cooldown": "25h"}"#), "cooldown"),
        (post(&lease("report"), r#"{"result": "blocked", "cooldown": true}"#), "cooldown"),
        (post(&lease("report"), r#"{"result": "blocked", "target": " "}"#), "target"),
        (post("/v1/leases/explain", r#"{"ttl": "1"}"#), "ttl"),
        (post("/v1/proxies/default/px-1/cordon", "{}"), "reason"),
        (post("/v1/proxies/default/px-1/cordon", r#"{"reason": "x", "until": "tomorrow"}"#), "until"),
        (post("/v1/proxies/default/px-1/cordon", r#"{"reason": "x", "until": "2001-01-01T00:00:00Z"}"#), "until"),
        (request("DELETE", "/v1/proxies/default/px-1/cordon?target=", &[], None), "target"),
        (request("DELETE", "/v1/proxies/default/px-1/cordon?tarket=a", &[], None), "tarket"),
        (post("/v1/proxies/default/px-1/cordon", r#"{"reason": " "}"#), "reason"),
        (request("DELETE", "/v1/proxies/default/px-1/cooldown?target=", &[], None), "target"),
        (request("DELETE", "/v1/proxies/default/px-1/cooldown?all=true", &[], None), "all"),
        // Query strings.
        (get("/v1/proxies?nope=1"), "nope"),
        (get("/v1/proxies?limit=0"), "limit"),
        (get("/v1/proxies?limit=1001"), "limit"),
        (get("/v1/proxies?limit=ten"), "limit"),
        (get("/v1/proxies?limit=1&limit=2"), "limit"),
        (get("/v1/proxies?healthy=yes"), "healthy"),
        (get("/v1/proxies?mode=managed"), "mode"),
        (get("/v1/proxies?phase=Up"), "phase"),
        (get("/v1/proxies?provider=%ff"), "provider"),
        (get("/v1/proxies?attr.=x"), "attr."),
        (get("/v1/proxies?cursor=abc"), "cursor"),
        (get(&format!("/v1/proxies?cursor={lease_cursor}")), "cursor"),
        (get(&format!("/v1/leases?cursor={proxy_cursor}")), "cursor"),
        (get("/v1/leases?proxy=px-1"), "proxy"),
        (get("/v1/leases?owner=%zz"), "owner"),
        (get(&format!("/v1/leases/{id}?verbose")), "verbose"),
        (post("/v1/leases?dry-run=1", "{}"), "dry-run"),
        (get("/v1/proxies/default/px-1?x=1"), "x"),
        (get("/healthz?verbose"), "verbose"),
        (get("/readyz?verbose=maybe"), "verbose"),
        (get("/readyz?full"), "full"),
        (get("/openapi.json?x"), "x"),
        (get("/v1/proxies/%ff/a"), "path"),
    ];
    let api = api(Tokens::open()).await;
    for (raw, field) in cases {
        let shown = String::from_utf8_lossy(&raw).chars().take(200).collect::<String>();
        let answer = ask(api.address, raw).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid-request"), "{shown}\n{answer:?}");
        assert!(answer.fields().iter().any(|f| f == field), "{field} is not named: {:?}\n{shown}", answer.json());
        assert!(answer.json()["detail"].as_str().unwrap().contains(field), "{shown}");
    }
}

#[tokio::test]
async fn every_fault_of_a_body_is_named_at_once() {
    let api = api(Tokens::open()).await;
    let answer = ask(api.address, post("/v1/leases", r#"{"ttl": 1, "count": 2, "nope": 3, "target": ""}"#)).await;
    let mut fields = answer.fields();
    fields.sort();
    assert_eq!(fields, ["count", "nope", "target", "ttl"]);
}

#[tokio::test]
async fn ids_that_are_none_are_unknown_leases_and_released_all_the_same_ls_6() {
    let api = api(Tokens::open()).await;
    for id in ["nope", "K5V2Q7M4N3X6C2B7D4F5G6H7JA", "%00"] {
        assert_eq!(ask(api.address, get(&format!("/v1/leases/{id}"))).await.code(), "unknown-lease");
        assert_eq!(ask(api.address, post(&format!("/v1/leases/{id}/renew"), "{}")).await.code(), "unknown-lease");
        assert_eq!(ask(api.address, request("DELETE", &format!("/v1/leases/{id}"), &[], None)).await.status, 204);
    }
}

#[tokio::test]
async fn without_a_broker_calls_are_503_with_retry_after_m3() {
    let api = api(Tokens::open()).await;
    for raw in [post("/v1/leases", "{}"), get("/v1/proxies"), get("/v1/leases"), post("/v1/leases/explain", "{}")] {
        let answer = ask(api.address, raw).await;
        assert_eq!((answer.status, answer.code().as_str()), (503, "overloaded"), "{answer:?}");
        assert!(answer.header("retry-after").is_some());
    }
    let ready = ask(api.address, get("/readyz?verbose")).await;
    assert_eq!((ready.status, &ready.json()["status"]), (503, &"notReady".into()));
    assert_eq!(ask(api.address, get("/healthz")).await.json(), serde_json::json!({"status": "ok"}));
}

#[tokio::test]
async fn a_stopping_process_serves_no_lease_call_op_5() {
    let api = api(Tokens::open()).await;
    api.lifecycle.set_stopping();
    for raw in [post("/v1/leases", "{}"), get("/v1/leases"), post("/v1/leases/explain", "{}")] {
        let answer = ask(api.address, raw).await;
        assert_eq!((answer.status, answer.code().as_str()), (503, "stopping"));
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(ask(api.address, get("/readyz")).await.json(), serde_json::json!({"status": "stopping"}));
    assert_eq!(ask(api.address, get("/healthz")).await.status, 200);
}

async fn with_token(api: &Api, token: &str, target: &str) -> Answer {
    ask(api.address, request("GET", target, &[("Authorization", &format!("Bearer {token}"))], None)).await
}

#[tokio::test]
async fn every_call_but_three_needs_the_token() {
    let api = api(single("sentinel-token")).await;
    for target in ["/v1/proxies", "/v1/proxies/a/b", "/v1/leases", "/readyz?verbose"] {
        let answer = ask(api.address, get(target)).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{target}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert_eq!(with_token(&api, "wrong", target).await.status, 401);
        assert_ne!(with_token(&api, "sentinel-token", target).await.status, 401, "{target}");
    }
    for target in ["/v1/leases", "/v1/leases/explain", "/v1/leases/renew", "/v1/leases/x/renew", "/v1/proxies/a/b/cordon"] {
        assert_eq!(ask(api.address, post(target, "{")).await.status, 401, "{target}: before the body is read");
    }
    for target in ["/healthz", "/readyz", "/openapi.json"] {
        assert_ne!(ask(api.address, get(target)).await.status, 401, "{target}");
    }
}

#[tokio::test]
async fn odd_authorization_headers_are_401_and_never_a_crash_m25() {
    let api = api(single("t")).await;
    for value in [&b"Bearer"[..], b"Bearer ", b"Basic dDp0", b"Bearer \x80\xff", b"t", b"bearer  x y", b"\xff"] {
        let mut raw = b"GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: ".to_vec();
        raw.extend_from_slice(value);
        raw.extend_from_slice(b"\r\n\r\n");
        assert_eq!(ask(api.address, raw).await.status, 401, "{value:?}");
    }
    let twice = request("GET", "/v1/leases", &[("Authorization", "Bearer t"), ("Authorization", "Bearer t")], None);
    assert_eq!(ask(api.address, twice).await.status, 401);
}

#[tokio::test]
async fn one_connection_serves_one_request_after_another() {
    let api = api(Tokens::open()).await;
    let mut wire = Wire::open(api.address).await;
    for _ in 0..3 {
        wire.send(get("/openapi.json")).await;
        assert_eq!(wire.answer().await.unwrap().status, 200);
        wire.send(post("/v1/leases", r#"{"ttl": 1}"#)).await;
        assert_eq!(wire.answer().await.unwrap().status, 400);
    }
}
