//! What an API server does to its clients on a bad day (OP-24, OP-28, OP-29, O11, O21): no crash, no duplicate, all comes right.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::pods::Kubelet;
use crate::support::cluster::{ControlPlane, Setting};
use crate::support::lab::own_address;
use crate::support::operator::Operator;
use crate::support::origin::{Manner, Origin};
use crate::support::relay::{Act, refusal};
use crate::support::{eventually, long};

/// Lives as long as the setting, under the same process.
fn lives(operator: &mut Operator) {
    assert!(operator.child.try_wait().unwrap().is_none(), "the process lives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_refused_once_is_made_again_whatever_the_answer_op_24() {
    let Some(plane) = ControlPlane::shared("a_write_that_is_refused_once_is_made_again") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let address = own_address();
    let mut operator = setting.site(&address.to_string()).flag("--backoff-max", "1s").start().up().await;
    let answers = [(422, "Invalid"), (409, "Conflict"), (500, "InternalError"), (429, "TooManyRequests"), (401, "Unauthorized")];
    for (n, (code, reason)) in answers.into_iter().enumerate() {
        let name = format!("px-{code}");
        // The first write of each kind about this object is refused.
        let (mut refused, about): (BTreeMap<String, ()>, String) = (BTreeMap::new(), name.clone());
        setting.relay.set(move |call| {
            let ours = call.is_write() && call.resource.starts_with("proxies") && call.name.as_deref() == Some(&about);
            if ours && refused.insert(call.what(), ()).is_none() {
                return Act::Answer(code, refusal(code, reason, "said the relay"));
            }
            Act::Pass
        });
        let port = 3128 + u16::try_from(n).unwrap();
        setting.create(&setting.managed(&name, "lab", port, origin.port)).await;
        let object = setting.phase(&name, "Ready").await;
        assert_eq!(object["metadata"]["finalizers"].as_array().map(Vec::len), Some(1), "{object}");
        setting.delete(&name).await;
        setting.gone(&name).await;
        assert!(TcpStream::connect((address, port)).await.is_err(), "nothing is left of {name}");
        lives(&mut operator);
    }
}

/// 404 after the finalizer went by another hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_somebody_else_let_go_is_no_trouble_op_11() {
    let Some(plane) = ControlPlane::shared("an_object_that_somebody_else_let_go_is_no_trouble") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let address = own_address();
    let mut operator = setting.site(&address.to_string()).start().up().await;
    setting.create(&setting.managed("px-1", "lab", 3128, origin.port)).await;
    setting.phase("px-1", "Ready").await;
    setting.delete("px-1").await;
    setting.admin.try_patch(&setting.path("px-1"), &json!({"metadata": {"finalizers": null}})).await;
    setting.gone("px-1").await;
    let key = format!("{}/px-1", setting.proxies.name);
    operator.wait_gone(&key).await;
    // The same name again is another object, and gets another instance.
    setting.create(&setting.managed("px-1", "lab", 3129, origin.port)).await;
    setting.phase("px-1", "Ready").await;
    lives(&mut operator);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_are_cut_again_and_again_miss_nothing_o11() {
    let Some(plane) = ControlPlane::shared("watches_that_are_cut_again_and_again_miss_nothing") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let address = own_address();
    let mut operator = setting.site(&address.to_string()).start().up().await;
    let (pause, cuts) = if long() { (Duration::from_secs(5), 24) } else { (Duration::from_secs(1), 10) };
    for n in 0..cuts {
        let name = format!("px-{n}");
        setting.create(&setting.managed(&name, "lab", 3128 + n, origin.port)).await;
        if n >= 2 {
            setting.delete(&format!("px-{}", n - 2)).await;
        }
        tokio::time::sleep(pause / 2).await;
        setting.relay.cut();
        tokio::time::sleep(pause / 2).await;
    }
    for n in 0..cuts {
        match n + 2 < cuts {
            true => setting.gone(&format!("px-{n}")).await,
            false => drop(setting.phase(&format!("px-{n}"), "Ready").await),
        }
    }
    lives(&mut operator);
    let listening = operator.sockets().into_keys().filter(|at| *at.ip() == address).count();
    assert_eq!(listening, 2, "one instance for each that is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_stops_and_comes_back_finds_the_fleet_as_it_was_op_29() {
    let Some(plane) = ControlPlane::own("an_api_server_that_stops_and_comes_back") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let mut operator = setting.site(&own_address().to_string()).flag("--backoff-max", "2s").start().up().await;
    for n in 0..3 {
        setting.create(&setting.managed(&format!("px-{n}"), "lab", 3128 + n, origin.port)).await;
    }
    for n in 0..3 {
        setting.phase(&format!("px-{n}"), "Ready").await;
    }
    let before = operator.sockets();
    plane.part("kill", "apiserver");
    let outage = if long() { 60 } else { 8 };
    for _ in 0..outage {
        let lease = operator.api.post("/v1/leases", &json!({"selector": {}, "ttl": "1s"})).await;
        assert_eq!(lease.status, 201, "leases go on without the API server: {}", lease.text());
        operator.api.delete(&format!("/v1/leases/{}", lease.json()["id"].as_str().unwrap())).await;
        let ready = operator.api.get("/readyz").await;
        assert_eq!(ready.status, 200, "{}", ready.text());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    plane.part("start", "apiserver");
    eventually("the API server answers", Duration::from_secs(60), || async { setting.proxy("px-0").await.is_object().then_some(()) }).await;
    setting.create(&setting.managed("px-9", "lab", 3140, origin.port)).await;
    setting.phase("px-9", "Ready").await;
    for n in 0..3 {
        assert_eq!(setting.proxy(&format!("px-{n}")).await["status"]["phase"], "Ready");
    }
    lives(&mut operator);
    let after = operator.sockets();
    assert!(before.iter().all(|(at, inode)| after.get(at) == Some(inode)), "no instance was touched");
}

/// O21: an expired token makes no storm, and the new one is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_refused_makes_no_storm_and_the_next_one_is_read_o21() {
    let Some(plane) = ControlPlane::shared("a_token_that_is_refused_makes_no_storm") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let site = setting.site(&own_address().to_string());
    let mut operator = site.start().up().await;
    setting.create(&setting.managed("px-1", "lab", 3128, origin.port)).await;
    setting.phase("px-1", "Ready").await;
    // Everybody is refused for a while, in which the file gets another token.
    let refused = Arc::new(AtomicUsize::new(0));
    let (counter, until) = (Arc::clone(&refused), tokio::time::Instant::now() + Duration::from_secs(6));
    setting.relay.set(move |_| {
        if tokio::time::Instant::now() < until {
            counter.fetch_add(1, Ordering::SeqCst);
            return Act::Answer(401, refusal(401, "Unauthorized", ""));
        }
        Act::Pass
    });
    setting.relay.cut();
    plane.kubeconfig(crate::support::cluster::NAME, &setting.home.name);
    tokio::time::sleep(Duration::from_secs(6)).await;
    setting.create(&setting.managed("px-2", "lab", 3129, origin.port)).await;
    setting.phase("px-2", "Ready").await;
    let refused = refused.load(Ordering::SeqCst);
    assert!((1..120).contains(&refused), "{refused} calls in 6 s were refused");
    assert_eq!(setting.proxy("px-1").await["status"]["phase"], "Ready");
    lives(&mut operator);
}

/// OP-28: a read that fails, 401 included, shows and takes nothing away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_read_of_the_backend_never_demotes_a_running_proxy_op_28() {
    let Some(plane) = ControlPlane::shared("a_failing_read_of_the_backend_never_demotes_a_running_proxy") else { return };
    let (setting, origin) = (Setting::of(&plane).await, Origin::http(Manner::Fine).await);
    let address = own_address();
    let _kubelet = Kubelet::run(&plane, &setting.proxies.name, address, &[3128]).await;
    let site = setting.site("127.0.0.1").flag("--poll-drift", "300ms");
    site.providers(&json!({"providers": [{"name": "pods", "type": "kubernetes"}]}));
    let mut operator = site.start().up().await;
    setting.create(&setting.managed("px-1", "pods", 3128, origin.port)).await;
    setting.phase("px-1", "Ready").await;
    let uid = setting.pods().await[0]["metadata"]["uid"].clone();
    for (code, reason) in [(401, "Unauthorized"), (403, "Forbidden"), (500, "InternalError"), (429, "TooManyRequests")] {
        setting.relay.set(move |call| match call.resource == "pods" {
            true => Act::Answer(code, refusal(code, reason, "said the relay")),
            false => Act::Pass,
        });
        let shown = |object: &Value| object["status"]["conditions"].to_string().contains("said the relay");
        // How long it takes to show is the machine's pace; that nothing else changes is the promise.
        if code == 500 {
            setting.until("px-1", "the failing read shows", shown).await;
        }
        for _ in 0..10 {
            let object = setting.proxy("px-1").await;
            assert_eq!(
                (&object["status"]["phase"], &object["status"]["ip"]),
                (&json!("Ready"), &json!(address.to_string())),
                "{code}: {object}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        setting.relay.set(|_| Act::Pass);
    }
    let lease = operator.api.post("/v1/leases", &json!({"selector": {}})).await;
    assert_eq!(lease.status, 201, "{}", lease.text());
    assert_eq!(setting.pods().await[0]["metadata"]["uid"], uid, "the same Pod");
    lives(&mut operator);
}
