//! Many proxies in one process, and a health worker that stands still (M1, O12).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use egress_proxies_operator::app::App;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::http::{Client, connect_through};
use crate::support::lab::{Echo, Lab, block, carries, own_address};
use crate::support::operator::Operator;
use crate::support::{eventually, rounds};

const PATIENCE: Duration = Duration::from_secs(120);
/// Documents of a file.
const PER_FILE: usize = 100;

/// As many files as the system lets us have: each tunnel takes two of this process.
fn raise_open_files(needed: usize) -> bool {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    hard >= u64::try_from(needed).unwrap()
}

/// The addresses of all Ready proxies.
async fn ready(operator: &Operator) -> Vec<String> {
    let Ok(answer) = operator.api.try_send(http::Method::GET, "/v1/proxies?phase=Ready&limit=1000", None).await else { return Vec::new() };
    let list = answer.json();
    list["items"].as_array().into_iter().flatten().map(|item| format!("{}:{}", item["host"].as_str().unwrap(), item["port"])).collect()
}

/// A tunnel through each proxy, all open at once, each carrying bytes both ways.
async fn round(proxies: &[String], echo: &Echo) {
    let mut opening = JoinSet::new();
    for proxy in proxies {
        let (proxy, target) = (proxy.clone(), echo.target.clone());
        opening.spawn(async move { connect_through(&proxy, &target, None).await.unwrap_or_else(|status| panic!("{proxy}: {status}")) });
    }
    let tunnels: Vec<TcpStream> = opening.join_all().await;
    assert_eq!(tunnels.len(), proxies.len());
    let bytes: Vec<u8> = (0..4096_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let mut carrying = JoinSet::new();
    for mut tunnel in tunnels {
        let bytes = bytes.clone();
        carrying.spawn(async move {
            carries(&mut tunnel, &bytes).await.unwrap();
            tunnel
        });
    }
    // All are open until the last has carried its bytes.
    assert_eq!(carrying.join_all().await.len(), proxies.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_proxies_in_one_process_are_ready_carry_a_thousand_tunnels_in_steady_memory_and_leave_nothing_o12() {
    let count = rounds(300, 1000);
    if !raise_open_files(3 * count) {
        return crate::support::skip("a thousand proxies", "the limit of open files is too low");
    }
    let [_, b, c, _] = own_address().octets();
    // A /22 of the test's own: `own_address` stays above 127.100.
    let first = Ipv4Addr::new(127, b / 4, c & 0xfc, 0);
    let lab = Lab::of(first, &format!("  - name: lab\n    type: local\n{}", block(&format!("{first}/22")))).await;
    let names: Vec<String> = (0..count).map(|number| format!("px-{number:04}")).collect();
    for (number, names) in names.chunks(PER_FILE).enumerate() {
        let documents: String =
            names.iter().map(|name| lab.managed(name, 3128).replace("intervalSeconds: 5", "intervalSeconds: 60")).collect();
        lab.site.write(&format!("{number}.yaml"), &documents);
    }
    let began = Instant::now();
    let operator = lab.site.start().up().await;
    let proxies =
        eventually("all are Ready", PATIENCE, || async { Some(ready(&operator).await).filter(|ready| ready.len() == count) }).await;
    println!("{count} Ready after {:?}, {} KiB", began.elapsed(), operator.memory().0);
    assert_eq!(proxies.iter().collect::<BTreeSet<_>>().len(), count, "each at an address of its own");
    assert_eq!(lab.marks().len(), count);

    let echo = Echo::start().await;
    for _ in 0..3 {
        round(&proxies, &echo).await;
    }
    let warm = operator.memory().0;
    for _ in 0..rounds(6, 30) {
        round(&proxies, &echo).await;
    }
    let after = operator.memory().0;
    println!("{warm} KiB after the warm-up, {after} KiB after all rounds");
    assert!(after < warm + warm / 10 + 4096, "memory grows with use: {warm} KiB, then {after} KiB");
    eventually("what the tunnels had is closed: one listener per proxy and little else is left", PATIENCE, || async {
        (operator.open_files() < count + 200).then_some(())
    })
    .await;

    // O12: a restart meets all of them at once.
    let (uids, sockets) = (uids(&lab), addresses(&operator, &lab));
    operator.kill();
    let operator = lab.site.start().up().await;
    let adopted = async {
        eventually("all are Ready again", PATIENCE, || async { Some(ready(&operator).await).filter(|ready| ready.len() == count) }).await
    };
    let health = async {
        loop {
            let asked = Instant::now();
            let answer = operator.health.get("/healthz").await;
            assert_eq!(answer.status, 200);
            assert!(asked.elapsed() < Duration::from_secs(3), "the health port answers meanwhile, not after {:?}", asked.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        _ = adopted => {}
        () = health => {}
    }
    assert!(operator.open_files() < 2 * count + 200, "{} files", operator.open_files());
    let peak = operator.memory().1;
    assert!(peak < 2 * warm + 32 * 1024, "a restart needs {peak} KiB, running needed {warm} KiB");
    assert_eq!((self::uids(&lab), addresses(&operator, &lab)), (uids, sockets), "the same objects at the same addresses");

    for number in 0..names.chunks(PER_FILE).len() {
        lab.site.remove(&format!("{number}.yaml"));
    }
    eventually("no port, no mark and no record is left", PATIENCE, || async {
        let left = addresses(&operator, &lab).len() + lab.marks().len() + lab.objects().len();
        (left == 0).then_some(())
    })
    .await;
    eventually("none is listed", PATIENCE, || async {
        operator.api.get("/v1/proxies").await.json()["items"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
}

fn uids(lab: &Lab) -> Vec<(String, String)> {
    lab.objects().into_iter().map(|(name, record)| (name, record.uid.to_string())).collect()
}

/// Where the instances listen.
fn addresses(operator: &Operator, lab: &Lab) -> BTreeSet<std::net::SocketAddrV4> {
    operator.sockets().into_keys().filter(|address| address.ip().octets()[..2] == lab.address.octets()[..2]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_health_workers_stand_still_discovery_keeps_what_it_knows_and_says_how_old_it_is_m1() {
    const FLEET: usize = 14;
    let lab = Lab::new().await;
    let documents: String = (0..FLEET).map(|number| lab.managed(&format!("px-{number}"), 3000 + u16::try_from(number).unwrap())).collect();
    lab.site.write("fleet.yaml", &documents);
    let running = App::start(lab.settings()).await.unwrap();
    let api = Client::new(running.addresses.discovery.to_string());
    let metrics = Client::new(running.addresses.metrics.unwrap().to_string());
    let healthy = || async {
        let list = api.get("/v1/proxies?healthy=true").await.json();
        list["items"].as_array().cloned().unwrap_or_default()
    };
    eventually("all are healthy", PATIENCE, || async { (healthy().await.len() == FLEET).then_some(()) }).await;

    // Every prober dies until it is given up: nobody checks any more.
    let probers: Vec<String> = (0..FLEET).map(|number| format!("prober/default/px-{number}")).collect();
    eventually("every prober is given up", PATIENCE, || async {
        let mut up = 0;
        for id in &probers {
            let node = running.system().inspect(Some(id), Some(0)).await.unwrap();
            if node.status != egress_supervision::ActorStatus::GaveUp {
                up += 1;
                running.system().crash(id);
            }
        }
        (up == 0).then_some(())
    })
    .await;
    let checked = |items: &[Value]| items.iter().map(|item| item["checkedAt"].as_str().expect("checkedAt").to_owned()).collect::<Vec<_>>();
    let known = healthy().await;
    assert_eq!(known.len(), FLEET, "never an empty list because the checker stalled");
    // Longer than the interval of 5 s and its time limit of 5 s.
    tokio::time::sleep(Duration::from_secs(11)).await;
    let still = healthy().await;
    assert_eq!(checked(&still), checked(&known), "the last that is known, with its time");
    let text = metrics.get("/metrics").await.text();
    let age = text.lines().find_map(|line| line.strip_prefix("proxy_operator_oldest_probe_seconds ")).unwrap_or_else(|| panic!("{text}"));
    assert!(age.parse::<f64>().unwrap() >= 10.0, "the checker's age is told: {age}");
    let granted = api.post("/v1/leases", &serde_json::json!({})).await;
    assert_eq!(granted.status, 201, "and they are leased: {}", granted.text());
    running.stop().await;
}
