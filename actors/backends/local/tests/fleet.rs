//! Issue 3: 1,000 proxies in one process, 1,000 tunnels at once, steady memory. A process of its own, so that nothing else
//! moves its memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use egress_backend_local::{LocalBackend, LocalConfig, Outside};
use egress_protocol::net::AllowList;
use egress_protocol::provider::CreateRequest;
use egress_protocol::resource::Placement;
use egress_protocol::{Clock, InstallationId, InstanceName, Timestamp, Uid};
use egress_provider::{Backend, Call};
use futures::future::join_all;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const PROXIES: usize = 1000;
const PORT: u16 = 23127;

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn echo(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        connections.spawn(async move {
            let mut byte = [0; 4];
            while stream.read_exact(&mut byte).await.is_ok() && stream.write_all(&byte).await.is_ok() {}
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn tunnel(proxy: SocketAddr, target: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_proxies_carry_a_thousand_tunnels_in_steady_memory() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard >= 8192, "needs 8,192 open files, the hard limit is {hard}");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(8192), hard).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(echo(listener));

    let mut config = LocalConfig::new("lab", InstallationId::new("inst"));
    let second = 16 + std::process::id() % 200;
    config.listen = vec![format!("127.{second}.192.0/20").parse().unwrap()];
    config.allowed_targets = AllowList::parse(&["127.0.0.1"]).unwrap();
    let backend =
        LocalBackend::new(config, Outside::system(Clock::starting_at(Timestamp::from_millis(0))), egress_conformance::TaskSet::new());
    let call = Call::until(tokio::time::Instant::now() + Duration::from_secs(60));
    let mut proxies = Vec::new();
    for n in 0..PROXIES {
        let uid = Uid::new(n.to_string());
        let request = CreateRequest {
            name: InstanceName::of(&uid),
            uid: uid.clone(),
            installation: InstallationId::new("inst"),
            namespace: "default".into(),
            proxy_name: format!("px-{n}").into(),
            placement: Placement::default(),
            cloud_init: Arc::default(),
            port: PORT,
        };
        backend.create(&request, &call).await.unwrap();
    }
    for instance in backend.list_managed(&call).await.unwrap().instances {
        proxies.push(SocketAddr::from((instance.ip.expect("running"), PORT)));
    }
    assert_eq!(proxies.len(), PROXIES);

    let idle = resident_kib();
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let mut tunnels = join_all(proxies.iter().map(|proxy| tunnel(*proxy, target))).await;
        join_all(tunnels.iter_mut().map(|stream| async move {
            stream.write_all(b"ping").await.unwrap();
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"ping");
        }))
        .await;
        rounds.push(resident_kib());
    }
    println!("idle {idle} KiB, with {PROXIES} tunnels (both ends of them in this process) {rounds:?} KiB");
    let per_tunnel = (rounds[0].saturating_sub(idle)) / PROXIES as u64;
    assert!(per_tunnel < 64, "{per_tunnel} KiB a tunnel");
    // The allocator's share settles over the first rounds.
    assert!(rounds[4] < rounds[2] + 8 * 1024, "grows from round to round: {rounds:?}");
}
