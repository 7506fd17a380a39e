//! Clients that mean harm, or do it: what they cost, and that health is answered all the while (issue 10, LS-23).

use std::process::{Command, Stdio};
use std::time::Duration;

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::http::connect_through;
use crate::support::lab::{Echo, Lab, carries};
use crate::support::operator::{BINARY, Site};
use crate::support::wire::{say, say_and_reset};
use crate::support::{eventually, skip};

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
const CONTRACT: &str = "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
const MIB: u64 = 1024;

fn at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// `/healthz` on an address, which must be there within a second.
async fn healthy(address: &str, during: &str) {
    let answer = say(address, HEALTH).await;
    assert_eq!(answer.status, 200, "{during}, at {address}: {answer:?}");
    assert!(answer.after < Duration::from_secs(1), "{during}, at {address}: {:?}", answer.after);
    assert!(answer.head.to_ascii_lowercase().contains("connection: close"), "{answer:?}");
}

/// Writes as long as it is taken, for a while.
async fn push(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = timeout(Duration::from_secs(3), stream.write_all(bytes)).await;
}

/// Issue 10, item 1: 2,800 requests cost 208 MiB unread, 5 MiB of them 3 to 7 GiB read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_requests_on_one_connection_stay_within_64_mib_and_are_answered_in_turn() {
    let site = Site::new();
    let operator = site.start().up().await;
    let mut unread = TcpStream::connect(at(site.discovery)).await.unwrap();
    push(&mut unread, CONTRACT.repeat(10_000).as_bytes()).await;
    healthy(&at(site.discovery), "10,000 requests that nobody reads the answers of").await;
    let (_, highest) = operator.memory();
    assert!(highest <= 64 * MIB, "{highest} KiB");
    drop(unread);

    let (mut from, mut to) = TcpStream::connect(at(site.discovery)).await.unwrap().into_split();
    let sent = tokio::spawn(async move {
        to.write_all(CONTRACT.repeat(500).as_bytes()).await.unwrap();
        to
    });
    let (mut buffer, mut answers, mut tail) = (vec![0; 256 * 1024], 0, Vec::new());
    while answers < 500 {
        let n = timeout(Duration::from_secs(20), from.read(&mut buffer)).await.expect("answers go on").unwrap();
        assert!(n > 0, "{answers} answers");
        tail.extend_from_slice(&buffer[..n]);
        answers += tail.windows(12).filter(|window| window == b"HTTP/1.1 200").count();
        tail.drain(..tail.len().saturating_sub(11));
    }
    drop(sent.await.unwrap());
    let (_, highest) = operator.memory();
    assert!(highest <= 64 * MIB, "{highest} KiB");
    operator.kill();
}

/// Issue 10, item 10: they starved `/healthz` for a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_idle_connections_do_not_keep_health_from_being_answered() {
    let site = Site::new();
    let operator = site.start().up().await;
    for port in [site.health, site.discovery] {
        let mut idle = Vec::new();
        for _ in 0..5000 {
            idle.push(TcpStream::connect(at(port)).await.unwrap());
        }
        for port in [site.health, site.discovery] {
            healthy(&at(port), "5,000 idle connections").await;
        }
    }
    let metrics = operator.metrics.get("/metrics").await.text();
    for listener in ["health", "discovery"] {
        assert!(metrics.contains(&format!("proxy_operator_connections_displaced_total{{listener=\"{listener}\"}}")), "{metrics}");
    }
    operator.kill();
}

/// Issue 10, item 10: with a limit of 128 open files, 150 tunnels silenced health.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnels_do_not_take_the_descriptors_that_health_needs() {
    let lab = Lab::new().await;
    lab.site.write("px.yaml", &lab.managed("px-1", 3128));
    let operator = lab.site.start().up().await;
    operator.wait_phase("default/px-1", "Ready").await;
    let limit = [format!("--pid={}", operator.child.id()), "--nofile=128:128".to_owned()];
    if !Command::new("prlimit").args(limit).status().is_ok_and(|status| status.success()) {
        return skip("tunnels_do_not_take_the_descriptors_that_health_needs", "prlimit (util-linux) is not there");
    }
    let (echo, proxy) = (Echo::start().await, lab.at(3128).to_string());
    let mut tunnels = Vec::new();
    for _ in 0..150 {
        tunnels.extend(timeout(Duration::from_secs(5), connect_through(&proxy, &echo.target, None)).await.ok().and_then(Result::ok));
    }
    assert!(tunnels.len() >= 10, "{} tunnels", tunnels.len());
    for _ in 0..3 {
        healthy(&at(lab.site.health), "150 tunnels under a limit of 128 files").await;
    }
    carries(&mut tunnels[0], b"still open").await.unwrap();
    operator.kill();
}

/// Issue 10, item 11: at 2,500 clients 17,500 connections were closed without a word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_2500_clients_everyone_is_answered_200_or_503_with_retry_after_ls_23() {
    let site = Site::new();
    let operator = site.start().up().await;
    let address = at(site.discovery);
    for _ in 0..2 {
        let mut open = JoinSet::new();
        for _ in 0..2500 {
            let address = address.clone();
            // Each stays connected when it has its answer, as clients with a pool of connections do.
            open.spawn(async move {
                let mut stream = TcpStream::connect(&address).await.ok()?;
                let _ = stream.write_all(b"GET /v1/proxies HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
                let mut read = Vec::new();
                while !read.windows(4).any(|four| four == b"\r\n\r\n") {
                    if stream.read_buf(&mut read).await.ok()? == 0 {
                        return None;
                    }
                }
                Some((String::from_utf8_lossy(&read).to_ascii_lowercase(), stream))
            });
        }
        let heard = open.join_all().await;
        let silent = heard.iter().filter(|heard| heard.is_none()).count();
        assert_eq!(silent, 0, "of 2500 closed without a word");
        for (head, _) in heard.iter().flatten() {
            let told = head.starts_with("http/1.1 503") && head.contains("\r\nretry-after: ");
            assert!(told || head.starts_with("http/1.1 200"), "{head}");
        }
        healthy(&at(site.health), "2,500 clients").await;
    }
    operator.kill();
}

/// Issue 10, item 8: a stderr that nobody reads froze the API, health and SIGTERM.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_nobody_reads_freezes_nothing() {
    let site = Site::new();
    let mut child = Command::new(BINARY)
        .args(["standalone", "--log-level", "trace,hyper=trace,tokio=trace,mio=trace", "--log-format", "json"])
        .args(["--manifests", site.manifests().to_str().unwrap(), "--state", site.path("state").to_str().unwrap()])
        .args(["--discovery-bind-address", &at(site.discovery), "--debug-bind-address", "0"])
        .args(["--metrics-bind-address", &at(site.metrics), "--health-probe-bind-address", &at(site.health)])
        .env_remove("DISCOVERY_TOKEN")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let up = async || (say(&at(site.health), HEALTH).await.status == 200).then_some(());
    eventually("it is up", Duration::from_secs(20), up).await;
    let dropped = async || {
        let address = at(site.discovery);
        join_all((0..50).map(|_| say_and_reset(&address, CONTRACT))).await;
        let answer = say(&at(site.metrics), "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        let line = answer.body.lines().find_map(|line| line.strip_prefix("proxy_operator_log_lines_dropped_total "))?;
        (line != "0").then_some(())
    };
    eventually("lines are dropped and counted", Duration::from_secs(60), dropped).await;
    healthy(&at(site.health), "a log that nobody reads").await;
    assert_eq!(say(&at(site.discovery), CONTRACT).await.status, 200);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), nix::sys::signal::Signal::SIGTERM).unwrap();
    let child = std::cell::RefCell::new(&mut child);
    let ended = eventually("it ends", Duration::from_secs(30), || async { child.borrow_mut().try_wait().unwrap() }).await;
    assert_eq!(ended.code(), Some(0));
}

/// Issue 10, item 28: SIGHUP ended the process without order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_is_an_orderly_end() {
    // What ignores it is inherited, and then it is ignored on purpose.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    if ignored.is_some_and(|mask| mask & 1 == 1) {
        return skip("hostile::a_hangup_is_an_orderly_end", "SIGHUP is ignored here (nohup)");
    }
    let site = Site::new();
    let mut operator = site.start().up().await;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(operator.child.id().cast_signed()), nix::sys::signal::Signal::SIGHUP).unwrap();
    assert_eq!(operator.exit().await.code(), Some(0));
    assert!(operator.stderr.iter().any(|line| line.contains("\"message\":\"stopped\"")));
}
