//! What a local proxy does not reach (LO-1, S4), and that nothing a client sends hurts it (M25), through the proxies of a
//! running operator.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::http::{Client, connect_through};
use crate::support::lab::{Echo, Lab, carries, own_address};
use crate::support::operator::Operator;
use crate::support::origin::{Manner, Origin};
use crate::support::wire::{Spoken, say, say_and_reset};
use crate::support::{eventually, long};

/// An address of loopback that only `--egress-allow` names.
const BY_FLAG: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 99);

/// Three proxies: `shut` may reach nothing special, `open` what its entry lists, `named` what has a listed name.
struct Guarded {
    lab: Lab,
    operator: Operator,
    echo: Echo,
    origin: Origin,
    shut: String,
    open: String,
    named: String,
}

impl Guarded {
    async fn new() -> Self {
        let (echo, origin) = (Echo::start().await, Origin::http(Manner::Fine).await);
        let address = own_address();
        let listen = format!("    local:\n      listenAddresses: [\"{address}\"]\n");
        let entries = format!(
            "  - name: shut\n    type: local\n{listen}  - name: open\n    type: local\n{listen}      allowedTargets: [\"{}\", \
             \"127.0.0.1:{}\", \"198.18.0.0/15:443\", \"169.254.77.0/24\"]\n      connectTimeout: 1s\n  - name: named\n    type: local\n\
             {listen}      allowedTargets: [\"localhost\"]\n",
            echo.target, origin.port
        );
        let mut lab = Lab::of(address, &entries).await;
        lab.site.flags.extend(["--egress-allow".to_owned(), format!("{BY_FLAG}/32")]);
        for (name, port) in [("shut", 3001), ("open", 3002), ("named", 3003)] {
            lab.site.write(&format!("{name}.yaml"), &lab.document(name, &format!("mode: Managed\n  provider: {name}\n  port: {port}")));
        }
        let operator = lab.site.start().up().await;
        let [shut, open, named] = [3001, 3002, 3003].map(|port| lab.at(port).to_string());
        eventually("all three listen", Duration::from_secs(20), || async { (lab.instances(&operator).len() == 3).then_some(()) }).await;
        Self { lab, operator, echo, origin, shut, open, named }
    }
}

/// A CONNECT, and the same target in absolute form.
async fn both_ways(proxy: &str, host: &str, port: u16) -> [Spoken; 2] {
    let connect = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    let absolute = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n");
    [say(proxy, connect).await, say(proxy, absolute).await]
}

/// Issue 3, "Egress guard": refused by default, by CONNECT and in absolute form.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_not_globally_reachable_is_reached_by_default_lo_1_s4() {
    let guarded = Guarded::new().await;
    let mut hosts: Vec<String> = [
        "169.254.169.254",
        "127.0.0.1",
        "127.255.255.254",
        "[::1]",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.254",
        "172.16.0.1",
        "192.168.0.1",
        "[fd00::1]",
        "[fdff::1]",
        "[fe80::1]",
        "[::ffff:10.0.0.1]",
        "[::ffff:a00:1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::a00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:a00:1::1]",
        "[2001:0:808:808:0:0:f5ff:fffe]",
        "0.0.0.0",
        "[::]",
        "224.0.0.1",
        "[ff02::1]",
        "255.255.255.255",
        "198.18.0.1",
        "100.100.100.200",
        "168.63.129.16",
        "[fd00:ec2::254]",
        // What the system's resolver takes for loopback.
        "localhost",
        "LOCALHOST",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0",
    ]
    .map(str::to_owned)
    .to_vec();
    let own: Vec<IpAddr> = nix::ifaddrs::getifaddrs().unwrap().filter_map(|interface| address_of(&interface)).collect();
    assert!(own.iter().any(|ip| ip.is_loopback()), "{own:?}");
    hosts.extend(own.iter().map(|ip| match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }));
    // The machine's own name, where it is one that resolves.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    if !name.is_empty() && (name.as_str(), 80).to_socket_addrs().is_ok_and(|mut found| found.next().is_some()) {
        hosts.push(name);
    }
    for host in &hosts {
        for port in [80, guarded.origin.port] {
            for (way, answer) in ["CONNECT", "absolute"].into_iter().zip(both_ways(&guarded.shut, host, port).await) {
                assert_eq!(answer.status, 403, "{way} {host}:{port}: {answer:?}");
                let head = answer.head.to_ascii_lowercase();
                assert!(
                    head.to_ascii_lowercase().contains("proxy-status: ") && head.contains("error=destination_ip_prohibited"),
                    "{way} {host}: {answer:?}"
                );
            }
        }
    }
    assert_eq!(guarded.origin.hits(), 0, "nothing was connected to");
    for answer in both_ways(&guarded.shut, "8.8.8.8", 25).await {
        assert_eq!(answer.status, 403, "mail: {answer:?}");
    }
    for (host, port) in [("no-such-name.invalid", 80), ("127.0.0.1", 0), ("u:p@127.0.0.1", 80), ("[fe80::1%251]", 80), ("127.0.0.1:1", 1)] {
        for answer in both_ways(&guarded.shut, host, port).await {
            assert!([400, 403, 502, 504].contains(&answer.status), "{host}:{port}: {answer:?}");
        }
    }
    assert_eq!(guarded.origin.hits(), 0);
    assert_eq!(guarded.operator.health.get("/readyz").await.status, 200);
}

fn address_of(interface: &nix::ifaddrs::InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address?;
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    // One with a zone is refused as well; it cannot be written without it.
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

/// LO-1, OP-27: the entry's list and the flag open exactly what they name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lists_open_what_they_name_and_nothing_beside_it_lo_1() {
    let guarded = Guarded::new().await;
    let mut tunnel = connect_through(&guarded.open, &guarded.echo.target, None).await.unwrap();
    carries(&mut tunnel, b"opened by address and port").await.unwrap();
    let [connected, fetched] = both_ways(&guarded.open, "127.0.0.1", guarded.origin.port).await;
    assert_eq!((connected.status, fetched.status, fetched.body.as_str()), (200, 200, "hello"));
    let mapped = both_ways(&guarded.open, "[::ffff:127.0.0.1]", guarded.origin.port).await;
    assert_eq!(mapped.map(|answer| answer.status), [200, 200], "it is the same address");

    let beside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = beside.local_addr().unwrap().port();
    for (host, port) in [
        ("127.0.0.1", port),
        ("[::1]", guarded.origin.port),
        ("198.18.0.1", 80),
        ("192.168.0.1", 443),
        ("[64:ff9b::a00:1]", 443),
        ("localhost", port),
    ] {
        for answer in both_ways(&guarded.open, host, port).await {
            assert_eq!(answer.status, 403, "{host}:{port}: {answer:?}");
        }
    }
    // Allowed, though nobody may be there: it is tried, not refused.
    for (host, port) in [("198.18.0.1", 443), ("169.254.77.7", 80)] {
        let connect = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        assert_ne!(say(&guarded.open, connect).await.status, 403, "{host}:{port}");
    }

    // A name opens what it resolves to, by that name only.
    let [connected, fetched] = both_ways(&guarded.named, "localhost", guarded.origin.port).await;
    assert_eq!((connected.status, fetched.status), (200, 200));
    let direct = both_ways(&guarded.named, "127.0.0.1", guarded.origin.port).await;
    assert_eq!(direct.map(|answer| answer.status), [403, 403]);

    // The flag is for every entry.
    let listener = TcpListener::bind((BY_FLAG, 0)).await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    for proxy in [&guarded.shut, &guarded.open, &guarded.named] {
        connect_through(proxy, &target, None).await.unwrap_or_else(|status| panic!("{target} through {proxy}: {status}"));
    }
    assert_eq!(connect_through(&guarded.shut, &guarded.echo.target, None).await.unwrap_err(), 403);
}

/// M25: what a broken or malicious client sends ends its own connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_bytes_and_resets_in_the_middle_of_connect_hurt_nobody_else_m25() {
    let guarded = Guarded::new().await;
    let (proxy, target) = (guarded.open.as_str(), guarded.echo.target.as_str());
    let mut steady = connect_through(proxy, target, None).await.unwrap();
    carries(&mut steady, b"before").await.unwrap();
    let files = guarded.operator.open_files();

    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    let odd: Vec<Vec<u8>> = vec![
        b"\x00".to_vec(),
        b"\xff\xfe\x80\x81\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"\x05\x01\x00".to_vec(),
        b"CONNECT\r\n\r\n".to_vec(),
        b"CONNECT  HTTP/1.1\r\n\r\n".to_vec(),
        b"CONNECT / HTTP/1.1\r\n\r\n".to_vec(),
        b"CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n".to_vec(),
        b"CONNECT 127.0.0.1:99999 HTTP/1.1\r\n\r\n".to_vec(),
        b"CONNECT [::1 HTTP/1.1\r\n\r\n".to_vec(),
        b"CONNECT a\x00b:80 HTTP/1.1\r\n\r\n".to_vec(),
        b"CONNECT \x80\xff:80 HTTP/1.1\r\n\r\n".to_vec(),
        b"CONNECT 127.0.0.1:80 HTTP/9.9\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"GET ftp://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"GET https://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        [head.as_bytes(), b"X: a\x00b\r\n\r\n"].concat(),
        [head.as_bytes(), b"X\x80: a\r\n\r\n"].concat(),
        [head.as_bytes(), b"no colon\r\n\r\n"].concat(),
        [head.as_bytes(), b" folded: a\r\n\r\n"].concat(),
        [head.as_bytes(), b"Content-Length: -1\r\n\r\n"].concat(),
        [head.as_bytes(), b"Content-Length: 5\r\n\r\nhello"].concat(),
        [head.as_bytes(), b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n"].concat(),
        [head.as_bytes(), b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"].concat(),
        [head.as_bytes(), format!("X: {}\r\n\r\n", "x".repeat(20_000)).as_bytes()].concat(),
        [head.as_bytes(), "X: y\r\n".repeat(5000).as_bytes(), b"\r\n"].concat(),
        vec![b'x'; 200_000],
    ];
    for bytes in &odd {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        let mut stream = tokio::net::TcpStream::connect(proxy).await.unwrap();
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, bytes).await;
        // Some of it is the beginning of something: the end of the connection ends the wait.
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer)).await;
        assert!(read.is_ok(), "the connection ends: {shown}");
        let answer = String::from_utf8_lossy(&answer);
        let refused = ["400", "403", "431", "505"].iter().any(|status| answer.starts_with(&format!("HTTP/1.1 {status}")));
        assert!(answer.is_empty() || refused, "{shown}: {answer}");
        carries(&mut steady, b"others never notice").await.unwrap_or_else(|fault| panic!("after {shown}: {fault}"));
    }
    let whole = format!("{head}\r\n");
    let times = if long() { 20 } else { 1 };
    let mut resetting = JoinSet::new();
    for cut in (1..=whole.len()).cycle().take(whole.len() * times) {
        let (proxy, part) = (proxy.to_owned(), whole[..cut].to_owned());
        resetting.spawn(async move { say_and_reset(&proxy, part).await });
        if resetting.len() >= 20 {
            resetting.join_next().await;
        }
    }
    resetting.join_all().await;
    // The API's listener takes the same (M25).
    let api = Client::new(&guarded.operator.api.address);
    for bytes in [
        &b"GET /\x00 HTTP/1.1\r\n\r\n"[..],
        b"GET /v1/proxies HTTP/1.1\r\nHost: \x80\xff\r\n\r\n",
        b"\x16\x03\x01",
        b"POST /v1/leases HTTP/1.1\r\nHo",
    ] {
        say_and_reset(&api.address, bytes).await;
    }
    carries(&mut steady, b"after").await.unwrap();
    let mut fresh = connect_through(proxy, target, None).await.unwrap();
    carries(&mut fresh, b"and new ones are served").await.unwrap();
    drop(fresh);
    eventually("every odd connection is given back", Duration::from_secs(20), || async {
        (guarded.operator.open_files() <= files + 4).then_some(())
    })
    .await;
    assert_eq!(api.get("/readyz").await.status, 200);
    let tree = guarded.operator.debug.get("/debug/actors").await.json();
    assert_eq!(restarts(&tree), 0, "{tree}");
    assert_eq!(guarded.lab.instances(&guarded.operator).len(), 3);
    let log = guarded.operator.kill();
    let alarms: Vec<_> = log.iter().filter(|line| line.contains("\"level\":\"ERROR\"") || line.contains("panic")).collect();
    assert!(alarms.is_empty(), "{alarms:#?}");
}

/// Of a node of `/debug/actors` and all below it.
fn restarts(node: &serde_json::Value) -> u64 {
    node["restarts"].as_u64().unwrap() + node["children"].as_array().unwrap().iter().map(restarts).sum::<u64>()
}
