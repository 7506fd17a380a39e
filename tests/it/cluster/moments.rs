//! `kill -9` before and after every write to the API and every provider call of create, replace and delete (O3): not at
//! random, but at each of them in turn. Pods are the instances, so that they outlive the process, and every call of the
//! provider is one of the API too. One instance or none, never two; the finalizer is never lost nor left.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::pods::Kubelet;
use crate::support::cluster::{ClusterSite, ControlPlane, Setting};
use crate::support::lab::own_address;
use crate::support::operator::Operator;
use crate::support::origin::{Manner, Origin};
use crate::support::relay::{Act, Call};

const FINALIZER: &str = "crawl.example.com/instance-cleanup";
const PORTS: [u16; 2] = [3128, 3129];
/// So many moments are tried side by side.
const LANES: usize = 4;

/// The `n`th write of that kind, before or after it was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Moment {
    what: String,
    nth: usize,
    after: bool,
}

/// What counts: the writes about Proxies and Pods. The Lease is renewed all the while, and an Event is only news.
fn counts(call: &Call) -> bool {
    call.is_write() && ["proxies", "proxies/status", "pods"].contains(&call.resource.as_str())
}

/// The operator of a lane: started again whenever it was killed.
struct Lane {
    site: ClusterSite,
    operator: Option<Operator>,
    pid: Arc<AtomicI32>,
}

impl Lane {
    fn start(site: ClusterSite) -> Self {
        let mut lane = Self { site, operator: None, pid: Arc::default() };
        lane.again();
        lane
    }

    /// Whether it had to be started again.
    fn again(&mut self) -> bool {
        let lives = self.operator.as_mut().is_some_and(|operator| operator.child.try_wait().unwrap().is_none());
        if !lives {
            let operator = self.site.start();
            self.pid.store(operator.child.id().cast_signed(), Ordering::SeqCst);
            self.operator = Some(operator);
        }
        !lives
    }
}

/// Looks until it is as wanted, with the operator kept alive and the promise kept at every look.
async fn until(lane: &mut Lane, setting: &Setting<'_>, what: &str, done: impl Fn(&Value, &[Value]) -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        lane.again();
        // Pods first: one that is gone by the second look was there with the finalizer still on.
        let (pods, proxy) = (setting.pods().await, setting.proxy("px-1").await);
        assert!(pods.len() <= 1, "never two: {pods:?}");
        let held = proxy["metadata"]["finalizers"].as_array().is_some_and(|list| list.contains(&json!(FINALIZER)));
        let still = setting.pods().await;
        if !still.is_empty() && still.len() == pods.len() {
            assert!(held, "an instance without the finalizer on its object: {what}: {proxy}");
        }
        if done(&proxy, &pods) {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{what}: {proxy} {pods:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn ready_on(port: u16) -> impl Fn(&Value, &[Value]) -> bool {
    move |proxy, pods| {
        let of_pod = pods.first().map(|pod| pod["spec"]["containers"][0]["ports"][0]["containerPort"].clone());
        proxy["status"]["phase"] == "Ready" && proxy["spec"]["port"] == port && of_pod == Some(json!(port))
    }
}

/// Create, replace, delete; killed once, at the moment. Answers the kinds of the writes in their order, and whether the
/// moment came: how many statuses are written depends on the time between them.
async fn life(plane: &ControlPlane, moment: Option<Moment>) -> (Vec<String>, bool) {
    let (setting, origin) = (Setting::of(plane).await, Origin::http(Manner::Fine).await);
    let address = own_address();
    let _kubelet = Kubelet::run(plane, &setting.proxies.name, address, &PORTS).await;
    let site = setting.site("127.0.0.1");
    site.providers(&json!({"providers": [{"name": "pods", "type": "kubernetes"}]}));
    let mut site = site.flag("--pod-name", "op").flag("--pod-uid", "one").flag("--leader-election-lease-duration", "3s");
    site.flags.push("--leader-elect=true".to_owned());
    let site = site.flag("--leader-election-renew-deadline", "2s").flag("--leader-election-retry-period", "500ms");
    let mut lane = Lane::start(site);
    let pid = Arc::clone(&lane.pid);
    let counted: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let fired = Arc::new(AtomicI32::new(0));
    let (count, hits, wanted) = (Arc::clone(&counted), Arc::clone(&fired), moment.clone());
    setting.relay.set(move |call| {
        let Some(moment) = wanted.as_ref().filter(|_| counts(call) && hits.load(Ordering::SeqCst) == 0) else { return Act::Pass };
        let mut count = count.lock().unwrap();
        let nth = count.entry(call.what()).or_default();
        *nth += 1;
        if call.what() != moment.what || *nth != moment.nth + 1 {
            return Act::Pass;
        }
        hits.store(1, Ordering::SeqCst);
        let pid = Pid::from_raw(pid.load(Ordering::SeqCst));
        let end = move || kill(pid, Signal::SIGKILL).unwrap();
        if moment.after {
            Act::LoseAnswer(Box::new(end))
        } else {
            end();
            Act::Lose
        }
    });
    setting.create(&setting.managed("px-1", "pods", PORTS[0], origin.port)).await;
    until(&mut lane, &setting, "Ready", ready_on(PORTS[0])).await;
    setting.admin.patch(&setting.path("px-1"), &json!({"spec": {"port": PORTS[1]}})).await;
    until(&mut lane, &setting, "replaced", ready_on(PORTS[1])).await;
    setting.delete("px-1").await;
    until(&mut lane, &setting, "gone", |proxy, pods| proxy.is_null() && pods.is_empty()).await;
    assert!(TcpStream::connect((address, PORTS[0])).await.is_ok(), "what stood behind the Pods was there to the end");
    let writes = setting.relay.calls().iter().filter(|call| counts(call)).map(Call::what).collect();
    (writes, fired.load(Ordering::SeqCst) == 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_write_of_create_replace_or_delete_there_is_one_instance_or_none_o3() {
    let Some(plane) = ControlPlane::shared("killed_at_any_write_of_create_replace_or_delete") else { return };
    let (writes, _) = life(&plane, None).await;
    let mut nth: BTreeMap<&String, usize> = BTreeMap::new();
    let mut moments = Vec::new();
    for what in &writes {
        let n = nth.entry(what).or_default();
        moments.extend([false, true].map(|after| Moment { what: what.clone(), nth: *n, after }));
        *n += 1;
    }
    assert!(
        writes.iter().any(|what| what == "POST pods") && writes.iter().filter(|what| *what == "DELETE pods").count() >= 2,
        "{writes:?}"
    );
    let all = moments.len();
    let (moments, missed) = (Mutex::new(moments.into_iter()), Mutex::new(Vec::new()));
    let lanes = (0..LANES).map(|_| async {
        loop {
            let Some(moment) = moments.lock().unwrap().next() else { return };
            let (_, came) = life(&plane, Some(moment.clone())).await;
            if !came {
                missed.lock().unwrap().push(moment);
            }
        }
    });
    futures::future::join_all(lanes).await;
    let missed = missed.into_inner().unwrap();
    println!("{all} moments at {} writes, {} did not come: {missed:?}", writes.len(), missed.len());
    assert!(missed.iter().all(|moment| moment.what == "PATCH proxies/status") && missed.len() * 4 <= all, "{missed:?}");
}
