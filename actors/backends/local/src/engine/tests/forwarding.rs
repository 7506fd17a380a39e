//! Absolute form: what the target gets, what the client gets back.

use std::process::Stdio;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::support::{Setup, Target, closed_port};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nKeep-Alive: timeout=5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n\r\nhello";

#[tokio::test]
async fn the_target_gets_origin_form_its_own_host_and_nothing_of_this_hop() {
    let target = Target::http(OK).await;
    let proxy = Setup::default().start();
    let answer = proxy
        .ask(&format!(
            "GET http://{}/a?b=c HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\n\
             Connection: X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nX-Yours: 2\r\n\r\n",
            target.address
        ))
        .await;
    assert_eq!((answer.status, answer.body.as_str(), answer.header("x-end")), (200, "hello", Some("2")));
    assert_eq!((answer.header("x-hop"), answer.header("keep-alive")), (None, None));
    let seen = target.last().to_ascii_lowercase();
    assert!(seen.starts_with("get /a?b=c http/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: {}\r\n", target.address)) && seen.contains("x-yours: 2"), "{seen}");
    for hidden in ["other.example", "proxy-", "x-mine", "te:", "upgrade", "via", "forwarded"] {
        assert!(!seen.contains(hidden), "{hidden} in {seen}");
    }
}

#[tokio::test]
async fn bodies_go_through_with_a_length_and_in_chunks() {
    let target = Target::http(OK).await;
    let proxy = Setup::default().start();
    let line = format!("POST http://{}/ HTTP/1.1\r\nHost: x\r\n", target.address);
    assert_eq!(proxy.ask(&format!("{line}Content-Length: 4\r\n\r\nbody")).await.body, "hello");
    assert!(target.last().ends_with("\r\n\r\nbody"));
    assert_eq!(proxy.ask(&format!("{line}Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n")).await.body, "hello");
    assert!(target.last().ends_with("4\r\nbody\r\n0\r\n\r\n"), "{}", target.last());
}

/// Two readers never disagree about where a message ends: what goes out is framed anew.
#[tokio::test]
async fn a_request_with_two_lengths_cannot_smuggle_another() {
    let target = Target::http(OK).await;
    let proxy = Setup::default().start();
    let answer = proxy
        .ask(&format!(
            "POST http://{}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://{}/smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
            target.address, target.address
        ))
        .await;
    if answer.status == 200 {
        let first = String::from_utf8(target.seen.lock().unwrap()[0].1.clone()).unwrap().to_ascii_lowercase();
        assert!(!first.contains("content-length: 60"), "{first}");
        assert!(!first.contains("smuggled"), "{first}");
    } else {
        assert_eq!(answer.status, 400);
    }
}

#[tokio::test]
async fn one_client_connection_serves_requests_to_several_targets() {
    let (a, b) = (Target::http(OK).await, Target::http("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno").await);
    let proxy = Setup::default().start();
    let mut client = proxy.connect().await;
    for (target, status) in [(a.address, 200), (b.address, 404), (closed_port().await, 502), (a.address, 200)] {
        client.send(format!("GET http://{target}/ HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await;
        assert_eq!(client.answer().await.status, status, "{target}");
    }
}

#[tokio::test]
async fn a_target_that_is_no_http_server_is_502() {
    let proxy = Setup::default().start();
    for (says, error) in [
        ("garbage\r\n\r\n", "http_protocol_error"),
        ("", "http_response_incomplete"),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "http_protocol_error"),
    ] {
        let target = Target::http(says).await;
        let answer = proxy.ask(&format!("GET http://{}/ HTTP/1.1\r\nHost: x\r\n\r\n", target.address)).await;
        assert_eq!((answer.status, answer.error()), (502, Some(error)), "{says:?}");
    }
}

#[tokio::test]
async fn curl_reaches_a_target_in_both_forms() {
    let target = Target::http(OK).await;
    let proxy = Setup::default().start();
    for form in [None, Some("--proxytunnel")] {
        let child = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "10", "--noproxy", "", "--proxy", &format!("http://{}", proxy.address)])
            .args(form)
            .arg(format!("http://{}/page", target.address))
            .stdout(Stdio::piped())
            .spawn();
        // Not every machine has curl; this repository's CI does.
        let Ok(mut child) = child else { return };
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).await.unwrap();
        assert!(child.wait().await.unwrap().success());
        assert_eq!(out, "hello", "{form:?}");
        assert!(target.last().starts_with("GET /page HTTP/1.1\r\n"));
    }
}
