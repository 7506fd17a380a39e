//! A replica that does not lead (LS-10, O9): over real sockets, with a leader that is the real API over the real book, or
//! one whose every byte a test decides.

mod leader;

use std::sync::Arc;
use std::time::Duration;

use egress_protocol::leadership::Standing;
use http::header;
use serde_json::json;
use tokio::time::Instant;
use tower::ServiceExt;

use self::leader::{Replica, Script, follows, nobody, object, tokens};
use super::wire::{Wire, ask, request};
use crate::http::connection::Exchange;

const TOKEN: (&str, &str) = ("Authorization", "Bearer r00t");

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn get(target: &str) -> Vec<u8> {
    request("GET", target, &[TOKEN], None)
}

fn post(target: &str, body: &str) -> Vec<u8> {
    request("POST", target, &[TOKEN], Some(body))
}

/// A leader with two proxies, and a follower of it.
async fn pair() -> (Replica, Replica) {
    let leader = Replica::leading(tokens(), &["px-1", "px-2"]).await;
    let follower = Replica::following(tokens(), follows(leader.address), None).await;
    (leader, follower)
}

#[tokio::test]
async fn a_lease_lives_its_whole_life_through_a_replica_that_does_not_lead() {
    let (leader, follower) = pair().await;
    let granted = ask(follower.address, post("/v1/leases", r#"{"owner": "crawler", "ttl": "90s"}"#)).await;
    assert_eq!(granted.status, 201, "{granted:?}");
    let id = granted.json()["id"].as_str().unwrap().to_owned();
    let lease = |call: &str| format!("/v1/leases/{id}{call}");
    assert_eq!(ask(leader.address, get(&lease(""))).await.json()["owner"], "crawler", "it is the leader's book");
    for (raw, status) in [
        (get(&lease("")), 200),
        (get("/v1/leases?owner=crawler"), 200),
        (post(&lease("/renew"), r#"{"ttl": "2m"}"#), 200),
        (request("POST", &lease("/renew"), &[TOKEN], None), 200),
        (post(&lease("/report"), r#"{"result": "success"}"#), 200),
        (post("/v1/leases/explain", "{}"), 200),
        (get("/v1/proxies"), 200),
        (get("/v1/proxies/default/px-1"), 200),
        (post("/v1/proxies/default/px-2/cordon", r#"{"reason": "by hand"}"#), 200),
        (request("DELETE", "/v1/proxies/default/px-2/cordon", &[TOKEN], None), 204),
        (request("DELETE", "/v1/proxies/default/px-2/cooldown", &[TOKEN], None), 204),
        (request("DELETE", &lease(""), &[TOKEN], None), 204),
        (post(&lease("/renew"), "{}"), 410),
    ] {
        let first = String::from_utf8_lossy(&raw).lines().next().unwrap_or_default().to_owned();
        let answer = ask(follower.address, raw).await;
        assert_eq!(answer.status, status, "{first}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!((answer.header("egress-stale"), answer.header("egress-hop")), (None, None), "{first}");
    }
}

#[tokio::test]
async fn what_the_leader_says_arrives_as_it_was_said() {
    let (leader, follower) = pair().await;
    for raw in [
        get("/v1/proxies?limit=1"),
        get("/v1/proxies?nope=1"),
        get("/v1/proxies/default/none"),
        get("/v1/leases/nothing"),
        post("/v1/leases", r#"{"ttl": 90}"#),
        post("/v1/leases", r#"{"selector": {"namespace": "elsewhere"}}"#),
        request("POST", "/v1/leases", &[TOKEN, ("Idempotency-Key", "k-1")], Some("{}")),
        request("GET", "/v1/proxies", &[("Authorization", "Bearer sm4ll")], None),
        request("POST", "/v1/proxies/default/px-1/cordon", &[("Authorization", "Bearer sm4ll")], Some(r#"{"reason": "x"}"#)),
        request("HEAD", "/v1/proxies", &[TOKEN], None),
    ] {
        let mut by_leader = Wire::open(leader.address).await;
        let mut by_follower = Wire::open(follower.address).await;
        by_leader.send(&raw).await;
        by_follower.send(&raw).await;
        let head = raw.starts_with(b"HEAD");
        let (said, heard) =
            if head { (by_leader.head().await, by_follower.head().await) } else { (by_leader.answer().await, by_follower.answer().await) };
        let (said, heard) = (said.unwrap(), heard.unwrap());
        assert_eq!(said.status, heard.status, "{}", String::from_utf8_lossy(&raw));
        assert_eq!(said.body, heard.body);
        for name in ["content-type", "content-length", "retry-after", "cache-control", "www-authenticate"] {
            assert_eq!(said.header(name), heard.header(name), "{name} of {}", String::from_utf8_lossy(&raw));
        }
    }
}

#[tokio::test]
async fn a_replica_says_itself_who_may_call_what_it_is_and_what_its_api_is() {
    let follower = Replica::following(tokens(), nobody(), None).await;
    for target in ["/v1/proxies", "/v1/leases"] {
        for headers in [&[][..], &[("Authorization", "Bearer wrong")]] {
            let answer = ask(follower.address, request("GET", target, headers, None)).await;
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{target}");
        }
    }
    assert_eq!(ask(follower.address, get("/healthz")).await.status, 200);
    assert_eq!(ask(follower.address, get("/openapi.json")).await.status, 200);
    assert_eq!(ask(follower.address, get("/v1/nothing")).await.code(), "not-found");
    assert_eq!(ask(follower.address, request("DELETE", "/v1/leases", &[TOKEN], None)).await.code(), "method-not-allowed");
    let ready = ask(follower.address, get("/readyz?verbose")).await;
    let readiness = ready.json();
    let names: Vec<&str> = readiness["parts"].as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["source", "leaseBroker", "providersFile", "leadership", "discovery"]);
    assert_eq!(
        (&readiness["role"], &readiness["parts"][1]["ready"]),
        (&json!("follower"), &json!(true)),
        "O9: it needs no book to be ready"
    );
    follower.standing.set(Standing::Leader);
    let readiness = ask(follower.address, get("/readyz?verbose")).await.json();
    assert_eq!((&readiness["role"], &readiness["parts"][1]["ready"]), (&json!("leader"), &json!(false)));
    follower.lifecycle.set_stopping();
    follower.standing.set(nobody());
    assert_eq!(ask(follower.address, post("/v1/leases", "{}")).await.code(), "stopping");
}

#[tokio::test]
async fn without_a_leader_calls_are_told_when_to_come_back() {
    let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mute = Standing::Follower { leader: Some("a_1".into()), address: None };
    let odd = Standing::Follower { leader: Some("a_1".into()), address: Some("not an address".into()) };
    for standing in [nobody(), mute, odd, follows(refusing)] {
        let follower = Replica::following(tokens(), standing.clone(), Some(vec![])).await;
        for raw in [
            post("/v1/leases", "{}"),
            get("/v1/leases"),
            post("/v1/leases/explain", "{}"),
            request("DELETE", "/v1/leases/x", &[TOKEN], None),
            post("/v1/proxies/default/px-1/cordon", r#"{"reason": "x"}"#),
        ] {
            let answer = ask(follower.address, raw).await;
            assert_eq!((answer.status, answer.code().as_str()), (503, "no-leader"), "{standing:?}: {answer:?}");
            assert_eq!(answer.header("retry-after"), Some("1"));
        }
        let answer = ask(follower.address, get("/v1/proxies")).await;
        assert_eq!(
            (answer.status, answer.header("egress-stale"), answer.json()),
            (200, Some("true"), json!({"items": []})),
            "{standing:?}"
        );
    }
}

#[tokio::test]
async fn a_call_is_handed_on_once() {
    let last = Replica::following(tokens(), nobody(), Some(vec![object("default", "old", &[])])).await;
    let first = Replica::following(tokens(), follows(last.address), Some(vec![object("default", "px", &[])])).await;
    let answer = ask(first.address, post("/v1/leases", "{}")).await;
    assert_eq!((answer.status, answer.code().as_str(), answer.header("egress-hop")), (503, "no-leader", None));
    let answer = ask(first.address, get("/v1/proxies")).await;
    assert_eq!(answer.json()["items"][0]["name"], "px", "its own watch, not that of who was asked last");
    let answer = ask(last.address, request("GET", "/v1/proxies", &[TOKEN, ("Egress-Hop", "1")], None)).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "no-leader"));
    // Not even by a replica that takes itself for its own leader.
    first.standing.set(follows(first.address));
    assert_eq!(ask(first.address, post("/v1/leases", "{}")).await.code(), "no-leader");
}

#[tokio::test]
async fn without_a_leader_proxies_are_listed_from_the_own_watch() {
    let objects = vec![
        object("a", "one", &[("geo", "de"), ("tier", "x")]),
        object("a", "two", &[("geo", "fr")]),
        object("b", "one", &[("geo", "de")]),
        object("b", "two", &[("geo", "de")]),
    ];
    let follower = Replica::following(tokens(), nobody(), Some(objects)).await;
    let names = async |target: &str, token: &str| {
        let authorization = format!("Bearer {token}");
        let answer = ask(follower.address, request("GET", target, &[("Authorization", &authorization)], None)).await;
        assert_eq!((answer.status, answer.header("egress-stale")), (200, Some("true")), "{target}: {answer:?}");
        let page = answer.json();
        let names: Vec<String> = page["items"].as_array().unwrap().iter().map(|i| format!("{}/{}", i["namespace"], i["name"])).collect();
        (names.join(" ").replace('"', ""), page["nextCursor"].as_str().map(str::to_owned))
    };
    assert_eq!(names("/v1/proxies", "r00t").await.0, "a/one a/two b/one b/two");
    assert_eq!(names("/v1/proxies?attr.geo=de&attr.tier=x", "r00t").await.0, "a/one");
    assert_eq!(names("/v1/proxies?namespace=b&healthy=true&phase=Ready&mode=External", "r00t").await.0, "b/one b/two");
    assert_eq!(names("/v1/proxies?healthy=false", "r00t").await.0, "");
    assert_eq!(names("/v1/proxies", "sm4ll").await.0, "b/one b/two", "a token sees its own namespaces");
    let (page, cursor) = names("/v1/proxies?limit=2&attr.geo=de", "r00t").await;
    assert_eq!(page, "a/one b/one");
    let (page, cursor) = names(&format!("/v1/proxies?limit=2&attr.geo=de&cursor={}", cursor.unwrap()), "r00t").await;
    assert_eq!((page.as_str(), cursor), ("b/two", None));

    let one = ask(follower.address, get("/v1/proxies/a/one")).await;
    assert_eq!(one.header("egress-stale"), Some("true"));
    assert_eq!(
        one.json(),
        json!({"namespace": "a", "name": "one", "mode": "External", "phase": "Ready", "healthy": true, "host": "one.example", "port": 3128,
            "url": "http://one.example:3128", "attributes": {"geo": "de", "tier": "x"}, "maxLeases": 1}),
        "nothing that only the leader knows, and no credentials"
    );
    let hidden = request("GET", "/v1/proxies/a/one", &[("Authorization", "Bearer sm4ll")], None);
    assert_eq!(ask(follower.address, hidden).await.code(), "not-found");
    assert_eq!(ask(follower.address, get("/v1/proxies/a/three")).await.code(), "not-found");
    assert_eq!(ask(follower.address, get("/v1/proxies?limit=0")).await.fields(), ["limit"]);
    assert_eq!(ask(follower.address, get("/v1/proxies/a/one?x=1")).await.fields(), ["x"]);
}

#[tokio::test]
async fn a_watch_that_has_read_nothing_yet_is_no_empty_list() {
    for objects in [None, Some(None)] {
        let follower = Replica::start(tokens(), nobody(), &[], objects).await;
        let answer = ask(follower.address, get("/v1/proxies")).await;
        assert_eq!((answer.status, answer.code().as_str(), answer.header("retry-after")), (503, "no-leader", Some("1")), "{answer:?}");
    }
}

#[tokio::test]
async fn the_leader_gets_the_callers_headers_but_for_those_of_the_connection() {
    let script = Script::start().await;
    let follower = Replica::following(tokens(), follows(script.address), None).await;
    let headers = [
        TOKEN,
        ("Idempotency-Key", "k-1"),
        ("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("X-Mine", "kept"),
        ("Connection", "keep-alive, X-Hop"),
        ("X-Hop", "dropped"),
        ("TE", "trailers"),
        ("Expect", "100-continue"),
    ];
    let mut wire = Wire::open(follower.address).await;
    wire.send(request("POST", "/v1/leases?x=%20y", &headers, Some(r#"{"a": 1}"#))).await;
    let mut call = script.call().await;
    let head = call.head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/leases?x=%20y http/1.1\r\n"), "{head}");
    for line in [
        "authorization: bearer r00t",
        "idempotency-key: k-1",
        "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "x-mine: kept",
        "content-type: application/json",
        "content-length: 8",
        "egress-hop: 1",
        &format!("host: {}", script.address),
    ] {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line} in {head}");
    }
    for name in ["x-hop", "te:", "expect", "connection:"] {
        assert!(!head.contains(&format!("\r\n{name}")), "{name} in {head}");
    }
    assert_eq!(call.body, br#"{"a": 1}"#);
    call.answer(
        "HTTP/1.1 409 Conflict\r\nRetry-After: 4\r\nX-Theirs: kept\r\nConnection: close, X-Odd\r\nX-Odd: 1\r\nContent-Length: 2\r\n\r\n{}",
    )
    .await;
    let answer = loop {
        let answer = wire.answer().await.unwrap();
        if answer.status != 100 {
            break answer;
        }
    };
    assert_eq!((answer.status, answer.header("retry-after"), answer.header("x-theirs")), (409, Some("4"), Some("kept")));
    assert_eq!((answer.header("x-odd"), answer.header("connection")), (None, None));
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_the_call_at_the_leader() {
    let script = Script::start().await;
    let follower = Replica::following(tokens(), follows(script.address), None).await;
    let mut wire = Wire::open(follower.address).await;
    wire.send(post("/v1/leases", r#"{"wait": "5m"}"#)).await;
    let mut call = script.call().await;
    drop(wire);
    tokio::time::timeout(millis(2000), call.hangs_up()).await.expect("the leader is told at once");
}

#[tokio::test]
async fn a_leader_that_goes_away_before_it_answers_is_no_leader_and_the_lists_are_answered_all_the_same() {
    let script = Script::start().await;
    let follower = Replica::following(tokens(), follows(script.address), Some(vec![object("a", "one", &[])])).await;
    for part in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let mut wire = Wire::open(follower.address).await;
        wire.send(post("/v1/leases", "{}")).await;
        script.call().await.dies_after(part).await;
        let answer = wire.answer().await.unwrap();
        assert_eq!((answer.status, answer.code().as_str(), answer.header("retry-after")), (503, "no-leader", Some("1")), "{part}");
        let mut wire = Wire::open(follower.address).await;
        wire.send(get("/v1/proxies")).await;
        script.call().await.dies_after(part).await;
        assert_eq!(wire.answer().await.unwrap().header("egress-stale"), Some("true"), "{part}");
    }
}

#[tokio::test]
async fn an_answer_that_stops_in_the_middle_is_cut_off_and_never_a_shorter_one() {
    let script = Script::start().await;
    let follower = Replica::following(tokens(), follows(script.address), None).await;
    let halves = [
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{\"items\"",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"items\"\r\n",
    ];
    for half in halves {
        for dies in [true, false] {
            let mut wire = Wire::open(follower.address).await;
            wire.send(get("/v1/leases")).await;
            let mut call = script.call().await;
            let _held = if dies {
                call.dies_after(half).await;
                None
            } else {
                call.answer(half).await;
                Some(call)
            };
            let mut bytes = Vec::new();
            let read = tokio::io::AsyncReadExt::read_to_end(&mut wire.0, &mut bytes);
            let _ = tokio::time::timeout(millis(5000), read).await.expect("the client is not left waiting");
            let text = String::from_utf8_lossy(&bytes);
            assert!(text.contains("{\"items\"") && !text.ends_with("0\r\n\r\n"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_leader_that_is_frozen_keeps_nobody_when_another_leads() {
    let script = Script::start().await;
    let follower = Replica::following(tokens(), follows(script.address), None).await;
    let mut wire = Wire::open(follower.address).await;
    wire.send(post("/v1/leases", r#"{"wait": "5m"}"#)).await;
    let _frozen = script.call().await;
    let begun = Instant::now();
    follower.standing.set(nobody());
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.code().as_str()), (503, "no-leader"));
    assert!(answer.json()["detail"].as_str().unwrap().contains("lost the leadership"), "{answer:?}");
    assert!(begun.elapsed() < millis(1500), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn nobody_waits_longer_than_an_answer_may_take_and_for_a_list_least() {
    let script = Script::start().await;
    let follower = Replica::following(tokens(), follows(script.address), Some(vec![])).await;
    // Of the tests' patience: 2.4 s for a grant, which may wait for a proxy, 1.2 s for others, 0.4 s for lists.
    let calls = [
        (post("/v1/leases", r#"{"wait": "5m"}"#), 503, millis(2400)),
        (get("/v1/leases"), 503, millis(1200)),
        (get("/v1/proxies"), 200, millis(400)),
    ];
    for (raw, status, patience) in calls {
        let begun = Instant::now();
        let mut wire = Wire::open(follower.address).await;
        wire.send(raw).await;
        let _frozen = script.call().await;
        assert_eq!(wire.answer().await.unwrap().status, status);
        assert!((patience..patience + millis(1200)).contains(&begun.elapsed()), "{:?} of {patience:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_body_is_read_within_its_limits_before_the_leader_hears_of_it() {
    let script = Script::start().await;
    let follower = Replica::following(tokens(), follows(script.address), None).await;
    let large = format!("\"{}\"", "x".repeat(64 * 1024));
    assert_eq!(ask(follower.address, post("/v1/leases", &large)).await.code(), "body-too-large");
    let text = request("POST", "/v1/leases", &[TOKEN, ("Content-Type", "text/plain")], Some("x"));
    assert_eq!(ask(follower.address, text).await.code(), "unsupported-media-type");
    let mut half = Wire::open(follower.address).await;
    let head = "POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer r00t\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{";
    half.send(head).await;
    assert_eq!(half.answer().await.unwrap().fields(), ["body"]);
    assert!(!script.was_called());
    let full = format!("\"{}\"", "x".repeat(64 * 1024 - 2));
    let mut wire = Wire::open(follower.address).await;
    wire.send(post("/v1/leases", &full)).await;
    let mut call = script.call().await;
    assert_eq!(call.body.len(), 64 * 1024);
    call.answer("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert_eq!(wire.answer().await.unwrap().status, 204);
    drop(call);
    let mut wire = Wire::open(follower.address).await;
    wire.send("POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer r00t\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n").await;
    assert_eq!(script.call().await.body, b"{}");
}

/// LS-2: a grant whose answer cannot be written is released at once.
#[tokio::test]
async fn a_grant_that_the_client_never_sees_is_given_back_at_the_leader() {
    let script = Script::start().await;
    let follower = Replica::following(tokens(), follows(script.address), None).await;
    let granted = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"id\":\"l1\"}";
    let call = |key: Option<&'static str>| {
        let exchange = Arc::new(Exchange::default());
        let mut request = http::Request::post("/v1/leases").header(header::AUTHORIZATION, "Bearer r00t");
        request = request.extension(Arc::clone(&exchange));
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        (follower.router.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()), exchange)
    };
    let (answer, exchange) = call(None);
    let (answer, ()) = tokio::join!(answer, async { script.call().await.answer(granted).await });
    assert_eq!(answer.unwrap().status(), 201);
    assert!(!script.was_called(), "it may still be written");
    drop(exchange);
    let release = script.call().await;
    assert!(release.head.starts_with("DELETE /v1/leases/l1 HTTP/1.1\r\n"), "{}", release.head);
    assert!(release.head.to_ascii_lowercase().contains("\r\nauthorization: bearer r00t\r\n"));
    // With a key the client asks again and gets the same.
    let (answer, exchange) = call(Some("k"));
    let (answer, ()) = tokio::join!(answer, async { script.call().await.answer(granted).await });
    assert_eq!(answer.unwrap().status(), 201);
    drop(exchange);
    tokio::time::sleep(millis(200)).await;
    assert!(!script.was_called());
}

#[tokio::test]
async fn many_calls_to_one_leader_share_connections() {
    let (leader, follower) = pair().await;
    for _ in 0..50 {
        assert_eq!(ask(follower.address, get("/v1/leases")).await.status, 200);
    }
    assert!(leader.connections.open() <= 2, "{} connections for calls one after another", leader.connections.open());
}

#[tokio::test]
async fn a_leader_that_closed_an_idle_connection_is_asked_over_another_one() {
    let script = Script::start().await;
    let follower = Replica::following(tokens(), follows(script.address), None).await;
    for _ in 0..3 {
        let mut wire = Wire::open(follower.address).await;
        wire.send(post("/v1/leases", "{}")).await;
        let mut call = script.call().await;
        call.answer("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(wire.answer().await.unwrap().status, 204);
        drop(call);
    }
}

/// LS-22: nothing that is handed on is written to the log, at any level.
#[tokio::test]
async fn no_token_is_logged_on_the_way() {
    let log = leader::Log::default();
    let seen = {
        let _guard = tracing::subscriber::set_default(log.subscriber());
        let script = Script::start().await;
        let follower = Replica::following(tokens(), follows(script.address), Some(vec![])).await;
        let mut wire = Wire::open(follower.address).await;
        wire.send(post("/v1/leases", r#"{"owner": "s3cret-owner"}"#)).await;
        script.call().await.dies_after("").await;
        assert_eq!(wire.answer().await.unwrap().status, 503);
        assert_eq!(ask(follower.address, get("/v1/proxies?attr.k=s3cret-owner")).await.status, 200);
        log.text()
    };
    assert!(seen.contains("answered from the own watch"), "the log is read: {seen}");
    assert!(!seen.contains("r00t") && !seen.contains("s3cret-owner"), "{seen}");
}
