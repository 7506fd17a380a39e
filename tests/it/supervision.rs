//! Any part may die: the rest serves on, it comes back, nothing that was promised is lost (SV-1, SV-2, LS-8); and the two
//! ends of the whole, giving up and stopping (OP-4, OP-5).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use egress_proxies_operator::app::{App, Running};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::support::http::{Client, connect_through};
use crate::support::lab::{Echo, Lab, block, carries, own_address};
use crate::support::{eventually, rounds};

const SOON: Duration = Duration::from_secs(20);

/// An operator inside the test, with two providers of one proxy each: `px-a` at `lab`, `px-b` at `other`.
struct Bed {
    lab: Lab,
    other: Ipv4Addr,
    running: Running,
    api: Client,
    debug: Client,
}

impl Bed {
    async fn start() -> Self {
        let (address, other) = (own_address(), own_address());
        let entry = |name: &str, address: Ipv4Addr| format!("  - name: {name}\n    type: local\n{}", block(&address.to_string()));
        let lab = Lab::of(address, &(entry("lab", address) + &entry("other", other))).await;
        lab.site.write("a.yaml", &lab.managed("px-a", 3128));
        lab.site.write("b.yaml", &lab.document("px-b", "mode: Managed\n  provider: other\n  port: 3128"));
        let running = App::start(lab.settings()).await.unwrap();
        let api = Client::new(running.addresses.discovery.to_string());
        let debug = Client::new(running.addresses.debug.unwrap().to_string());
        let bed = Self { lab, other, running, api, debug };
        bed.all_ready().await;
        bed
    }

    async fn all_ready(&self) {
        eventually("both proxies are Ready", SOON, || async {
            let answer = self.api.try_send(http::Method::GET, "/v1/proxies?healthy=true&phase=Ready", None).await.ok()?;
            (answer.status == 200 && answer.json()["items"].as_array()?.len() == 2).then_some(())
        })
        .await;
    }

    /// A node of `/debug/actors`; the tree without an id. `None` while nobody answers, or it is not there.
    async fn node(&self, id: Option<&str>) -> Option<Value> {
        let path = id.map_or("/debug/actors".to_owned(), |id| format!("/debug/actors?id={id}"));
        let answer = self.debug.try_send(http::Method::GET, &path, None).await.ok()?;
        (answer.status == 200).then(|| answer.json())
    }

    async fn lease(&self, name: &str) -> (u16, Value) {
        let body = json!({"selector": {"name": name}, "owner": "crawler", "ttl": "5m"});
        let answer = self.api.post("/v1/leases", &body).await;
        (answer.status.as_u16(), answer.json())
    }

    async fn tunnel(&self, proxy: &str, echo: &Echo) -> TcpStream {
        let address = if proxy == "px-a" { self.lab.address } else { self.other };
        let mut tunnel = eventually(&format!("a tunnel through {proxy}"), SOON, || async {
            connect_through(&format!("{address}:3128"), &echo.target, None).await.ok()
        })
        .await;
        carries(&mut tunnel, b"before").await.unwrap();
        tunnel
    }
}

/// The ids of a node and all below it.
fn ids(node: &Value) -> BTreeSet<String> {
    let below = node["children"].as_array().into_iter().flatten().flat_map(ids);
    below.chain([node["id"].as_str().unwrap().to_owned()]).collect()
}

/// Whether a node and all below it run.
fn runs(node: &Value) -> bool {
    node["status"] == "running" && node["children"].as_array().into_iter().flatten().all(runs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_part_dies_all_but_its_descendants_serve_and_they_come_back_and_no_lease_is_lost_sv_2_ls_8() {
    let bed = Bed::start().await;
    let echo = Echo::start().await;
    // px-a is full; px-b has a place left.
    let mut held = Vec::new();
    for name in ["px-a", "px-a", "px-b"] {
        let (status, lease) = bed.lease(name).await;
        assert_eq!(status, 201, "{lease}");
        held.push(lease["id"].as_str().unwrap().to_owned());
    }
    let objects = |lab: &Lab| lab.objects().into_iter().map(|(name, record)| (name, record.uid)).collect::<Vec<_>>();
    let (uids, marks) = (objects(&bed.lab), bed.lab.marks());
    let tree = bed.node(None).await.unwrap();
    let victims: Vec<String> = ids(&tree).into_iter().filter(|id| !["root", "lease-journal"].contains(&id.as_str())).collect();
    assert!(victims.len() >= 12, "every part of the tree: {victims:?}");

    for victim in &victims {
        let before = bed.node(Some(victim)).await.unwrap();
        let below = ids(&before);
        let mut tunnels = Vec::new();
        for (proxy, provider) in [("px-a", "provider/lab"), ("px-b", "provider/other")] {
            tunnels.push((below.contains(provider), bed.tunnel(proxy, &echo).await));
        }
        assert!(bed.running.system().crash(victim), "{victim}");
        let died = || async {
            let node = bed.running.system().inspect(Some(victim), Some(0)).await?;
            (node.restarts > before["restarts"].as_u64().unwrap() || node.status != egress_supervision::ActorStatus::Running).then_some(())
        };
        eventually(&format!("{victim} dies"), SOON, died).await;

        for (dies, tunnel) in &mut tunnels {
            let carried = carries(tunnel, b"after").await;
            assert!(*dies || carried.is_ok(), "{victim} died, and with it a tunnel that is not its own: {carried:?}");
        }
        if victim == "http/discovery" {
            // A connection that its dying life had accepted ends with it; the port is never lost.
            let answers =
                || async { bed.api.try_send(http::Method::GET, "/healthz", None).await.ok().filter(|answer| answer.status == 200) };
            eventually("the listener answers", SOON, answers).await;
        } else if victim != "http" {
            let answer = bed.api.get("/healthz").await;
            assert_eq!(answer.status, 200, "{victim}");
        }
        if !["http", "lease-broker"].contains(&victim.as_str()) {
            assert_eq!(bed.api.get("/v1/proxies").await.status, 200, "{victim}");
            assert_eq!(bed.api.post(&format!("/v1/leases/{}/renew", held[0]), &json!({})).await.status, 200, "{victim}");
            if !below.contains("proxy/default/px-b") {
                let (status, lease) = bed.lease("px-b").await;
                assert_eq!(status, 201, "{victim} died, and leases go on: {lease}");
                bed.api.delete(&format!("/v1/leases/{}", lease["id"].as_str().unwrap())).await;
            }
        }

        let back = eventually(&format!("{victim} and all below it are back"), SOON, || async {
            bed.node(Some(victim)).await.filter(|node| runs(node) && ids(node) == below)
        })
        .await;
        assert_eq!(back["restarts"].as_u64().unwrap(), before["restarts"].as_u64().unwrap() + 1, "{victim}: {back}");
        assert!(back["lastError"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{victim}: {back}");
        bed.all_ready().await;
        assert!(runs(&bed.node(None).await.unwrap()), "{victim}");

        for id in &held {
            let lease = bed.api.get(&format!("/v1/leases/{id}")).await.json();
            assert_eq!((&lease["state"], &lease["proxyUnhealthy"]), (&json!("active"), &json!(false)), "{victim}: {lease}");
        }
        let (status, refusal) = bed.lease("px-a").await;
        assert_eq!((status, &refusal["code"], &refusal["atCapacity"]), (409, &json!("no-capacity"), &json!(1)), "{victim}: {refusal}");
        let (status, lease) = bed.lease("px-b").await;
        assert_eq!(status, 201, "{victim}: {lease}");
        assert_eq!(bed.lease("px-b").await.0, 409, "{victim}: capacity holds");
        bed.api.delete(&format!("/v1/leases/{}", lease["id"].as_str().unwrap())).await;
    }
    assert_eq!((objects(&bed.lab), bed.lab.marks()), (uids, marks), "the same objects on the same ports, made once");
    bed.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_provider_binds_the_same_ports_again_sv_2() {
    let bed = Bed::start().await;
    let echo = Echo::start().await;
    let marks = bed.lab.marks();
    for round in 1..=rounds(2, 4) {
        let mut tunnel = bed.tunnel("px-a", &echo).await;
        assert!(bed.running.system().kill("provider/lab"));
        let killed = Instant::now();
        while carries(&mut tunnel, b"x").await.is_ok() {
            assert!(killed.elapsed() < SOON, "its tunnels end");
        }
        bed.tunnel("px-a", &echo).await;
        let node = bed.node(Some("provider/lab")).await.unwrap();
        assert_eq!(node["restarts"], round, "a killed actor counts as crashed");
        bed.all_ready().await;
    }
    assert_eq!(bed.lab.marks(), marks);
    bed.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crash_of_the_root_or_the_journal_ends_the_process_op_4_sv_2() {
    for victim in ["root", "lease-journal"] {
        let mut bed = Bed::start().await;
        assert!(bed.running.system().crash(victim), "{victim}");
        let failure = tokio::time::timeout(SOON, bed.running.failed()).await.unwrap_or_else(|_| panic!("{victim} died and nothing ended"));
        assert!(!failure.to_string().is_empty());
        for address in [bed.lab.at(3128), bed.api.address.parse().unwrap()] {
            eventually("nothing listens any more", SOON, || async move { TcpStream::connect(address).await.is_err().then_some(()) }).await;
        }
        assert_eq!(bed.lab.marks().len(), 1, "what was made is remembered for the next process");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sigterm_leases_are_refused_tunnels_get_their_grace_and_the_exit_is_0_op_5() {
    let lab = Lab::new().await;
    lab.site.write("px.yaml", &lab.managed("px-1", 3128));
    let mut operator = lab.site.start().up().await;
    operator.wait_phase("default/px-1", "Ready").await;
    let lease = operator.api.post("/v1/leases", &json!({})).await.json();
    let echo = Echo::start().await;
    let mut tunnel = connect_through(&lab.at(3128).to_string(), &echo.target, None).await.unwrap();
    carries(&mut tunnel, b"before").await.unwrap();

    let pid = nix::unistd::Pid::from_raw(operator.child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let told = Instant::now();
    eventually("it is not ready any more", SOON, || async {
        Some(operator.api.get("/readyz").await).filter(|answer| answer.status == 503 && answer.json()["status"] == "stopping")
    })
    .await;
    let id = lease["id"].as_str().unwrap();
    for (path, what) in [("/v1/leases".to_owned(), "grant"), (format!("/v1/leases/{id}/renew"), "renew")] {
        let answer = operator.api.post(&path, &json!({})).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (503, &json!("stopping")), "{what}");
        assert!(answer.headers.contains_key("retry-after"), "LS-20: every 503 says when");
    }
    tokio::time::sleep(Duration::from_secs(2).saturating_sub(told.elapsed())).await;
    carries(&mut tunnel, b"two seconds later").await.expect("running tunnels get 10 s");
    assert_eq!(operator.child.try_wait().unwrap(), None, "it waits for the tunnel");
    drop(tunnel);
    assert_eq!(operator.exit().await.code(), Some(0));
    assert!(told.elapsed() < Duration::from_secs(9), "the last tunnel ended, and so did the process: {:?}", told.elapsed());

    let mut operator = lab.site.start().up().await;
    operator.wait_phase("default/px-1", "Ready").await;
    let mut tunnel = connect_through(&lab.at(3128).to_string(), &echo.target, None).await.unwrap();
    let told = Instant::now();
    assert_eq!(operator.terminate().await.code(), Some(0));
    let took = told.elapsed();
    assert!(took > Duration::from_secs(9) && took < Duration::from_secs(18), "a tunnel that never ends is cut after 10 s: {took:?}");
    assert!(carries(&mut tunnel, b"after").await.is_err());
    assert_eq!(lab.marks().len(), 1, "the next process adopts it");
}
