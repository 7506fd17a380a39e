//! Several replicas (LS-10, SV-4, O6, O7, O9): one leads, the others forward; a change of the leader costs moments, and a
//! leader that was frozen past its time does nothing when it wakes.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::pods::Kubelet;
use crate::support::cluster::{ClusterSite, ControlPlane, Setting};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::lab::own_address;
use crate::support::operator::Operator;
use crate::support::origin::{Manner, Origin};
use crate::support::relay::Relay;

/// Leader timings of the tests: 3 s, 2 s, 500 ms.
fn replica(setting: &Setting<'_>, relay: &Relay, name: &str) -> ClusterSite {
    let mut site = setting.site("127.0.0.1");
    let token = setting.plane.kubeconfig(crate::support::cluster::NAME, &setting.home.name).with_extension("token");
    let kubeconfig = site.dir.path().join("kubeconfig");
    relay.kubeconfig(&kubeconfig, &token);
    site.kubeconfig = kubeconfig;
    site.providers(&json!({"providers": [{"name": "pods", "type": "kubernetes"}]}));
    site.flags.push("--leader-elect=true".to_owned());
    site.flag("--pod-name", name)
        .flag("--pod-uid", format!("{name}-uid"))
        .flag("--leader-election-lease-duration", "3s")
        .flag("--leader-election-renew-deadline", "2s")
        .flag("--leader-election-retry-period", "500ms")
}

async fn role(api: &Client) -> String {
    match api.try_send(http::Method::GET, "/readyz?verbose", None).await {
        Ok(answer) if answer.status == 200 => answer.json()["role"].as_str().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// Which of them leads, once exactly one does and all are ready.
async fn leader(operators: &[&Operator]) -> usize {
    eventually("one leads, the others follow", Duration::from_secs(30), || async {
        let mut roles = Vec::new();
        for operator in operators {
            roles.push(role(&operator.api).await);
        }
        let leaders: Vec<usize> = (0..roles.len()).filter(|n| roles[*n] == "leader").collect();
        (leaders.len() == 1 && roles.iter().all(|role| !role.is_empty())).then(|| leaders[0])
    })
    .await
}

fn signal(operator: &Operator, signal: Signal) {
    kill(Pid::from_raw(operator.child.id().cast_signed()), signal).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_ready_forwards_every_call_and_without_a_leader_lists_from_its_own_watch_ls_10() {
    let Some(plane) = ControlPlane::shared("a_follower_is_ready_forwards_every_call") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let _kubelet = Kubelet::run(&plane, &setting.proxies.name, own_address(), &[3128]).await;
    let sites = ["a", "b"].map(|name| replica(&setting, &setting.relay, name));
    let operators = [sites[0].start().up().await, sites[1].start().up().await];
    let leads = leader(&[&operators[0], &operators[1]]).await;
    let (first, follower) = (&operators[leads], &operators[1 - leads]);
    setting.create(&setting.managed("px-1", "pods", 3128, origin.port)).await;
    setting.phase("px-1", "Ready").await;

    let lease = follower.api.post("/v1/leases", &json!({"selector": {}, "ttl": "30s"})).await;
    assert_eq!(lease.status, 201, "{}", lease.text());
    let id = lease.json()["id"].as_str().unwrap().to_owned();
    for operator in [first, follower] {
        assert_eq!(operator.api.get(&format!("/v1/leases/{id}")).await.json()["state"], "active");
        let list = operator.api.get("/v1/proxies").await;
        assert_eq!((&list.json()["items"][0]["activeLeases"], list.headers.get("egress-stale")), (&json!(1), None));
    }
    assert_eq!(follower.api.delete(&format!("/v1/leases/{id}")).await.status, 204);

    // The leader is frozen, and nobody can take its place in time to answer.
    signal(first, Signal::SIGSTOP);
    let stale = eventually("the follower lists from its own watch", Duration::from_secs(20), || async {
        let answer = follower.api.try_send(http::Method::GET, "/v1/proxies", None).await.ok()?;
        answer.headers.contains_key("egress-stale").then_some(answer)
    });
    let either = tokio::time::timeout(Duration::from_secs(8), stale).await;
    let refused = follower.api.post("/v1/leases", &json!({"selector": {}})).await;
    match either {
        Ok(answer) => assert_eq!(answer.json()["items"][0]["name"], "px-1", "{}", answer.text()),
        Err(_) => assert_eq!(role(&follower.api).await, "leader", "it took over before anybody asked"),
    }
    assert!(refused.status == 201 || refused.status == 503, "{}", refused.text());
    if refused.status == 503 {
        assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    }
    signal(first, Signal::SIGCONT);
}

/// O7: frozen past its lease and woken again, it makes no provider call and no write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_frozen_past_its_lease_writes_nothing_when_it_wakes_sv_4() {
    let Some(plane) = ControlPlane::shared("a_leader_that_was_frozen_past_its_lease_writes_nothing") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let _kubelet = Kubelet::run(&plane, &setting.proxies.name, own_address(), &[3128, 3129]).await;
    // Each has a relay of its own, which is the log of its calls.
    let (relays, ca) =
        ([Relay::to(plane.api(), &plane.dir.join("ca.crt")).await, Relay::to(plane.api(), &plane.dir.join("ca.crt")).await], ());
    let () = ca;
    let sites = [replica(&setting, &relays[0], "a"), replica(&setting, &relays[1], "b")];
    let mut operators = [sites[0].start().up().await, sites[1].start().up().await];
    let leads = leader(&[&operators[0], &operators[1]]).await;
    setting.create(&setting.managed("px-1", "pods", 3128, origin.port)).await;
    setting.phase("px-1", "Ready").await;
    // In the middle of a replacement, when there is much to do.
    setting.admin.patch(&setting.path("px-1"), &json!({"spec": {"port": 3129}})).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    signal(&operators[leads], Signal::SIGSTOP);
    eventually("the other leads", Duration::from_secs(20), || async { (role(&operators[1 - leads].api).await == "leader").then_some(()) })
        .await;
    setting.until("px-1", "the other replaced it", |object| object["status"]["phase"] == "Ready" && object["spec"]["port"] == 3129).await;
    relays[leads].forget();
    signal(&operators[leads], Signal::SIGCONT);
    eventually("it follows", Duration::from_secs(20), || async { (role(&operators[leads].api).await == "follower").then_some(()) }).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let writes: Vec<String> = relays[leads].calls().iter().filter(|call| call.is_write()).map(|call| call.what()).collect();
    let others: Vec<&String> = writes.iter().filter(|what| !what.ends_with("leases")).collect();
    assert!(others.is_empty(), "woken up, it wrote {others:?}");
    assert_eq!(setting.pods().await.len(), 1);
    for operator in &mut operators {
        assert!(operator.child.try_wait().unwrap().is_none(), "both live");
    }
}

/// O9: a rolling restart with a client at work: nothing fails but 503 with Retry-After, and for less than 3 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_costs_a_lease_client_less_than_three_seconds_o9() {
    let Some(plane) = ControlPlane::shared("a_rolling_restart_costs_a_lease_client_less_than_three_seconds") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let _kubelet = Kubelet::run(&plane, &setting.proxies.name, own_address(), &[3128]).await;
    let sites = ["a", "b"].map(|name| replica(&setting, &setting.relay, name));
    let mut operators = Vec::from([sites[0].start().up().await, sites[1].start().up().await]);
    leader(&[&operators[0], &operators[1]]).await;
    setting.create(&setting.managed("px-1", "pods", 3128, origin.port)).await;
    setting.phase("px-1", "Ready").await;
    let grant = async |api: &Client| api.try_send(http::Method::POST, "/v1/leases", Some(&json!({"selector": {}, "ttl": "1s"}))).await;
    eventually("a lease is granted", Duration::from_secs(10), || async {
        let answer = grant(&operators[0].api).await.ok()?;
        (answer.status == 201).then_some(())
    })
    .await;

    for n in 0..2 {
        // As a Service does: whoever is ready is asked, and that is the other one while this one is away.
        let api = operators[1 - n].api.clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let client = tokio::spawn(async move {
            let (mut gaps, mut since, mut stopped) = (Vec::new(), None::<tokio::time::Instant>, stopped);
            while stopped.try_recv().is_err() {
                let answer = grant(&api).await;
                let now = tokio::time::Instant::now();
                match &answer {
                    Ok(answer) if answer.status == 201 => {
                        gaps.extend(since.take().map(|since| now - since));
                        let id = answer.json()["id"].as_str().unwrap().to_owned();
                        api.try_send(http::Method::DELETE, &format!("/v1/leases/{id}"), None).await.ok();
                    }
                    // The grant before, whose answer was lost with its leader, may still run: never any other refusal.
                    Ok(answer) if answer.status == 409 && answer.json()["code"] == "no-capacity" => drop(since.get_or_insert(now)),
                    Ok(answer) if answer.status == 503 && answer.headers.contains_key("retry-after") => drop(since.get_or_insert(now)),
                    other => panic!("{other:?}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            gaps.extend(since.map(|since| since.elapsed()));
            gaps
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(operators[n].terminate().await.code(), Some(0));
        operators[n] = sites[n].start().up().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        stop.send(()).unwrap();
        let gaps = client.await.unwrap();
        let worst = gaps.iter().max().copied().unwrap_or_default();
        println!("restart {n}: gaps {gaps:?}");
        assert!(worst < Duration::from_secs(3), "{gaps:?}");
    }
}
