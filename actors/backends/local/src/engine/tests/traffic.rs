//! Traffic arrives as it was sent, or is refused with a reason (issue 10 items 13 to 19).

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::support::{Client, Proxy, Setup, Target};
use crate::config::Limits;

/// All that comes for one request on a connection of its own; the target closes behind its answer.
async fn exchange(proxy: &Proxy, request: &str) -> String {
    let mut client = proxy.connect().await;
    client.send(request.as_bytes()).await;
    let mut got = Vec::new();
    let _ = timeout(Duration::from_secs(5), client.0.read_to_end(&mut got)).await.expect("an end");
    String::from_utf8_lossy(&got).into_owned()
}

fn get(target: &Target, more: &str) -> String {
    format!("GET http://{}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n", target.address)
}

/// A target that answers at once with `answer`, and says what it was sent when the client has ended.
async fn at_once(answer: &'static str) -> Target {
    Target::serve("127.0.0.1:0", move |mut stream, keep| {
        Box::pin(async move {
            let _ = stream.write_all(answer.as_bytes()).await;
            let mut got = Vec::new();
            let _ = stream.read_to_end(&mut got).await;
            keep(got);
        })
    })
    .await
}

/// Item 13.
#[tokio::test]
async fn an_answer_with_two_ways_to_end_is_told_with_one() {
    let proxy = Setup::default().start();
    for (answer, told, body) in [
        (
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "transfer-encoding: chunked",
            "5\r\nhello\r\n0\r\n\r\n",
        ),
        ("Content-Length: 5, 5\r\n\r\nhello", "content-length: 5", "hello"),
        ("Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello", "content-length: 5", "hello"),
        ("X: 1\r\n\r\nhello", "transfer-encoding: chunked", "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        let target = Target::http(format!("HTTP/1.1 200 OK\r\n{answer}").leak()).await;
        let got = exchange(&proxy, &get(&target, "")).await;
        let (head, rest) = got.split_once("\r\n\r\n").unwrap();
        let head = head.to_ascii_lowercase();
        let framing: Vec<_> = head.lines().filter(|line| line.starts_with("content-length") || line.starts_with("transfer-")).collect();
        assert_eq!((framing.as_slice(), rest), (&[told][..], body), "{answer:?}");
    }
    for answer in [
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: +5\r\n\r\nhello",
    ] {
        let target = Target::http(format!("HTTP/1.1 200 OK\r\n{answer}").leak()).await;
        let answered = proxy.ask(&get(&target, "")).await;
        assert_eq!((answered.status, answered.error()), (502, Some("http_protocol_error")), "{answer:?}");
    }
}

/// Item 13: a client can tell that a body is not whole.
#[tokio::test]
async fn a_body_that_breaks_off_never_looks_whole() {
    let proxy = Setup::default().start();
    for answer in [
        "Content-Length: 50\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello!!0\r\n\r\n",
    ] {
        let target = Target::http(format!("HTTP/1.1 200 OK\r\n{answer}").leak()).await;
        let got = exchange(&proxy, &get(&target, "")).await;
        assert!(!got.ends_with("0\r\n\r\n"), "{got:?}");
        assert!(
            got.is_empty() || got.contains("Content-Length: 50") || got.to_ascii_lowercase().contains("transfer-encoding: chunked"),
            "{got:?}"
        );
    }
    // A client of HTTP/1.0 knows the end by the connection's end alone: a reset is no end.
    let target = Target::http("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").await;
    let mut client = proxy.connect().await;
    client.send(format!("GET http://{}/ HTTP/1.0\r\n\r\n", target.address).as_bytes()).await;
    let ended = timeout(Duration::from_secs(5), client.rest()).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

/// Item 13.
#[tokio::test]
async fn a_request_whose_end_is_doubtful_is_refused_and_one_in_another_coding_is_501() {
    let target = Target::http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let proxy = Setup::default().start();
    for (framing, status) in [
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: gzip", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
        ("Content-Length: 2, 3", 400),
        ("Content-Length: -1", 400),
    ] {
        let answer = proxy.ask(&format!("POST http://{}/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\nab", target.address)).await;
        assert_eq!((answer.status, answer.error()), (status, Some("http_request_error")), "{framing}");
    }
    assert!(target.seen.lock().unwrap().is_empty());
}

/// Item 14: whatever the method.
#[tokio::test]
async fn every_method_keeps_its_body() {
    let target = Target::http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let proxy = Setup::default().start();
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "POST", "QUERY"] {
        for (framing, body) in [("Content-Length: 4", "body"), ("Transfer-Encoding: chunked", "4\r\nbody\r\n0\r\n\r\n")] {
            let request = format!("{method} http://{}/ HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n{body}", target.address);
            assert_eq!(proxy.ask(&request).await.status, 200, "{method}");
            let seen = target.last();
            assert!(seen.contains(&format!("{framing}\r\n")) && seen.ends_with(&format!("\r\n\r\n{body}")), "{method}: {seen}");
        }
    }
}

/// Item 15: bot filters read both.
#[tokio::test]
async fn field_names_keep_their_case_and_their_order_both_ways() {
    let target = Target::http(
        "HTTP/1.1 200 Fine\r\nsErVer: x\r\nX-B: 1\r\nSet-Cookie: a\r\nx-a: 2\r\nSet-Cookie: b\r\nDate: d\r\nCONTENT-length: 0\r\n\r\n",
    )
    .await;
    let proxy = Setup::default().start();
    let got = exchange(
        &proxy,
        &format!(
            "GET http://{0}/ HTTP/1.1\r\nHost: {0}\r\nUSER-Agent: x\r\nsec-ch-ua: \"a\"\r\nAccept: */*\r\nCookie: c=1\r\nX-a: 1\r\nConnection: close\r\nX-b: 2\r\nX-a: 3\r\n\r\n",
            target.address
        ),
    )
    .await;
    assert_eq!(
        target.last(),
        format!(
            "GET / HTTP/1.1\r\nHost: {}\r\nUSER-Agent: x\r\nsec-ch-ua: \"a\"\r\nAccept: */*\r\nCookie: c=1\r\nX-a: 1\r\nX-b: 2\r\nX-a: 3\r\n\r\n",
            target.address
        )
    );
    assert_eq!(
        got,
        "HTTP/1.1 200 Fine\r\nsErVer: x\r\nX-B: 1\r\nSet-Cookie: a\r\nx-a: 2\r\nSet-Cookie: b\r\nDate: d\r\nCONTENT-length: 0\r\nConnection: close\r\n\r\n"
    );
}

/// Item 16.
#[tokio::test]
async fn untidy_answers_pass_and_so_do_many_fields_both_ways() {
    let many: String = (0..400).map(|n| format!("N{n}: {n}\r\n")).collect();
    let answer = format!("HTTP/1.1 200 OK\r\nX-XSS-Protection : 1\r\nFolded: a\r\n b\r\n{many}Content-Length: 2\r\n\r\nok");
    let target = Target::http(answer.leak()).await;
    let proxy = Setup::default().start();
    let got = exchange(&proxy, &get(&target, &many)).await;
    assert!(got.starts_with("HTTP/1.1 200 OK\r\nX-XSS-Protection: 1\r\nFolded: a   b\r\n") && got.ends_with("\r\n\r\nok"), "{got}");
    assert!(got.contains(&many) && target.last().contains(&many));
}

/// Item 17.
#[tokio::test]
async fn a_client_that_waits_for_100_continue_gets_the_targets() {
    let target = Target::serve("127.0.0.1:0", |mut stream, keep| {
        Box::pin(async move {
            let mut got = Vec::new();
            while !got.ends_with(b"\r\n\r\n") {
                got.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await.unwrap();
            let mut body = [0; 4];
            stream.read_exact(&mut body).await.unwrap();
            got.extend(body);
            keep(got);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        })
    })
    .await;
    let proxy = Setup::default().start();
    let mut client = proxy.connect().await;
    client
        .send(format!("PUT http://{}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", target.address).as_bytes())
        .await;
    client.expect(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n").await;
    client.send(b"body").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    assert!(target.last().contains("Expect: 100-continue\r\n"));
}

/// Item 17: bounded in number.
#[tokio::test]
async fn interim_answers_without_end_are_502() {
    let target = Target::serve("127.0.0.1:0", |mut stream, _| {
        Box::pin(async move { while stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").await.is_ok() {} })
    })
    .await;
    let proxy = Setup::default().start();
    let got = exchange(&proxy, &get(&target, "")).await;
    assert_eq!(got.matches("HTTP/1.1 102").count(), 17);
    assert!(got.contains("HTTP/1.1 502 Bad Gateway\r\n"), "{got}");
    let got = exchange(&proxy, &format!("GET http://{}/ HTTP/1.0\r\n\r\n", target.address)).await;
    assert!(got.starts_with("HTTP/1.1 502 "), "HTTP/1.0 knows none: {got}");
}

/// Sends a large body without looking up, then reads.
async fn upload(proxy: &Proxy, head: &str) -> String {
    let mut client = proxy.connect().await;
    client.send(head.as_bytes()).await;
    for _ in 0..256 {
        if client.0.write_all(&[b'x'; 64 * 1024]).await.is_err() {
            return "lost".to_owned();
        }
    }
    let mut got = Vec::new();
    match client.0.read_to_end(&mut got).await {
        Ok(_) => String::from_utf8(got).unwrap(),
        Err(error) => format!("lost: {error}"),
    }
}

/// Item 18.
#[tokio::test]
async fn a_refusal_during_an_upload_arrives() {
    let early = at_once("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno").await;
    let proxy = Setup::default().start();
    for _ in 0..20 {
        for (target, status) in [("10.0.0.1".to_owned(), "403"), ("x.invalid".to_owned(), "502"), (early.address.to_string(), "413")] {
            let head = format!("POST http://{target}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 16777216\r\n\r\n");
            let got = upload(&proxy, &head).await;
            assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {got}");
            assert!(got.contains("Connection: close\r\n"), "{got}");
        }
    }
}

/// Item 19.
#[tokio::test]
async fn every_byte_of_a_url_is_forwarded_or_refused_with_a_reason() {
    let target = Target::http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let proxy = Setup::default().start();
    for byte in 1..=255_u8 {
        if byte == b'\n' {
            continue;
        }
        let mut client = proxy.connect().await;
        client.send(format!("GET http://{}/a", target.address).as_bytes()).await;
        client.send(&[byte]).await;
        client.send(b"b?c HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let answer = client.answer().await;
        if byte <= b' ' || byte == 0x7f {
            assert_eq!((answer.status, answer.error()), (400, Some("http_request_error")), "{byte:#x}");
        } else {
            assert_eq!(answer.status, 200, "{byte:#x}");
            let seen = target.seen.lock().unwrap().last().unwrap().1.clone();
            let sent = if byte == b'#' { b"GET /a HTTP".to_vec() } else { [&b"GET /a"[..], &[byte], b"b?c HTTP"].concat() };
            assert!(seen.starts_with(&sent), "{byte:#x}");
        }
    }
}

/// Item 19.
#[tokio::test]
async fn max_forwards_ends_at_this_proxy() {
    let target = Target::http("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let proxy = Setup::default().start();
    let answer = proxy.ask(&format!("TRACE http://{}/ HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n", target.address)).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("message/http")));
    assert!(answer.body.starts_with("TRACE http://"), "{}", answer.body);
    assert!(target.seen.lock().unwrap().is_empty());
    assert_eq!(proxy.ask(&format!("OPTIONS http://{}/ HTTP/1.1\r\nHost: x\r\nMax-Forwards: 1\r\n\r\n", target.address)).await.status, 200);
    assert!(target.last().contains("Max-Forwards: 0\r\n"));
}

/// Item 19: before and after the head was sent on.
#[tokio::test]
async fn a_broken_body_is_the_clients_fault() {
    let target = at_once("").await;
    let proxy = Setup::default().start();
    for body in ["x\r\n", "4\r\nbody??\r\n", "4\r\nbody\r\nzz\r\n"] {
        let request = format!("POST http://{}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}", target.address);
        let answer = proxy.ask(&request).await;
        assert_eq!((answer.status, answer.error()), (400, Some("http_request_error")), "{body:?}: {answer:?}");
        assert!(answer.body.contains("chunked body is broken"), "{}", answer.body);
    }
}

/// Item 6: what a target sends waits with the target while the client does not read.
#[tokio::test]
async fn a_slow_reader_makes_the_target_wait() {
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let target = Target::serve("127.0.0.1:0", move |mut stream, _| {
        let counted = Arc::clone(&counted);
        Box::pin(async move {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while let Ok(n) = stream.write(&[b'x'; 64 * 1024]).await {
                counted.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
            }
        })
    })
    .await;
    let proxy = Setup::default().start();
    let mut client = proxy.connect().await;
    client.send(get(&target, "").as_bytes()).await;
    // All buffers of the system are full when nothing moves any more.
    let mut before = usize::MAX;
    while before != sent.load(std::sync::atomic::Ordering::Relaxed) {
        before = sent.load(std::sync::atomic::Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let mut got = 0;
    let mut buffer = vec![0; 1 << 20];
    while got < before {
        got += timeout(Duration::from_secs(5), client.0.read(&mut buffer)).await.unwrap().unwrap();
    }
}

/// A client that pipelines is answered in order, also when one of its bodies was refused.
#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let target = Target::http("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na").await;
    let proxy = Setup::default().start();
    let mut client = proxy.connect().await;
    let one = |body: &str| format!("POST http://{}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{body}", target.address);
    client.send(format!("{}\r\n{}{}", one("1\r\nb\r\n0\r\n\r\n"), one("0\r\n\r\n"), one("!")).as_bytes()).await;
    for status in [200, 200, 400] {
        assert_eq!(client.answer().await.status, status);
    }
    assert_eq!(client.rest().await.unwrap(), b"");
}

/// Item 18, between two parts of a connection: an orderly stop ends idle connections at once.
#[tokio::test]
async fn an_orderly_stop_does_not_wait_for_idle_clients() {
    let proxy = Setup::default().start();
    let mut idle = proxy.connect().await;
    idle.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(idle.answer().await.status, 400);
    let started = Instant::now();
    proxy.instance.stop(Duration::from_secs(10)).await;
    assert!(started.elapsed() < Duration::from_secs(1));
}

/// Item 11: nobody is closed without a word, and the refusals are counted.
#[tokio::test]
async fn every_client_beyond_the_limit_hears_503() {
    use egress_protocol::metrics::{Metrics, Refused};
    let target = Target::echo().await;
    let metrics = Metrics::default();
    let limits = Limits { max_connections: 1, ..Limits::default() };
    let proxy = Setup { limits, metrics: metrics.clone(), ..Setup::default() }.start();
    let (_, _one) = proxy.tunnel(target.address).await;
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..600 {
        let mut client = proxy.connect().await;
        client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", target.address).as_bytes()).await;
        clients.push(client);
    }
    for client in &mut clients[300..] {
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.error(), answer.header("retry-after")), (503, Some("connection_limit_reached"), Some("1")));
    }
    let counted = metrics.connections_refused.get_or_create(&Refused { listener: "local", reason: "connections" }).get();
    assert_eq!(counted, 600);
}
