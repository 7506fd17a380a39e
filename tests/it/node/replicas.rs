//! Two replicas of the chart with a lease client running in another Pod: what it sees when the leader goes, in three ways.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::task::JoinSet;

use crate::support::node::release::{CHECK_URL, DISCOVERY, NAME, NAMESPACE, TRUST};
use crate::support::node::{Node, Steps};

const CRAWL: &str = "crawl";
const CLIENT: (&str, &str) = ("crawlers", "client");

/// One try to lease: what came back, and when.
#[derive(Debug, Clone)]
struct Try {
    at: Instant,
    /// 0: no answer.
    status: u16,
    retry_after: Option<u32>,
    /// The problem's; empty for a grant.
    code: String,
}

/// A crawler that asks for a lease every 100 ms, in a Pod, until it is dropped.
struct Crawler {
    tries: Arc<Mutex<Vec<Try>>>,
    _reader: JoinSet<()>,
    _process: Child,
}

impl Crawler {
    fn start(node: &Node, token: &str) -> Self {
        let ask = format!(
            "curl -s --max-time 3 -w ' %{{http_code}} %header{{retry-after}}\\n' -X POST -H 'authorization: Bearer {token}' \
             -H 'content-type: application/json' -d '{{\"ttl\": \"1s\"}}' {DISCOVERY}/v1/leases"
        );
        let script = format!("while :; do {ask}; sleep 0.1; done");
        let mut command = node.inside(&["kubectl", "-n", CLIENT.0, "exec", CLIENT.1, "--", "sh", "-c", &script]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = process.stdout.take().unwrap();
        let tries = Arc::new(Mutex::new(Vec::new()));
        let (sink, mut reader) = (Arc::clone(&tries), JoinSet::new());
        reader.spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let (answer, retry) = line.rsplit_once(' ').unwrap_or_default();
                let (body, status) = answer.rsplit_once(' ').unwrap_or_default();
                let body: Value = serde_json::from_str(body).unwrap_or_default();
                let code = body["code"].as_str().unwrap_or_default().to_owned();
                let one = Try { at: Instant::now(), status: status.parse().unwrap_or(0), retry_after: retry.trim().parse().ok(), code };
                sink.lock().unwrap().push(one);
            }
        });
        Self { tries, _reader: reader, _process: process }
    }

    fn since(&self, at: Instant) -> Vec<Try> {
        self.tries.lock().unwrap().iter().filter(|one| one.at >= at).cloned().collect()
    }

    /// Waits until grants have come back after `at` and go on for two seconds; the failures meanwhile, and how long the
    /// longest time between two grants was.
    async fn settled(&self, node: &Node, what: &str, at: Instant, limit: Duration) -> (Vec<Try>, Duration) {
        node.until(what, limit, || async {
            let last = self.since(at).iter().rposition(|one| one.status != 201);
            let tries = self.since(at);
            let good = &tries[last.map_or(0, |last| last + 1)..];
            (at.elapsed() > Duration::from_secs(3) && good.len() > 12).then_some(())
        })
        .await;
        let tries = self.since(at);
        let grants: Vec<Instant> = std::iter::once(at).chain(tries.iter().filter(|one| one.status == 201).map(|one| one.at)).collect();
        let longest = grants.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default();
        (tries.into_iter().filter(|one| one.status != 201).collect(), longest)
    }
}

fn told(failures: &[Try]) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for one in failures {
        *counts.entry((one.status, one.code.as_str(), one.retry_after)).or_insert(0) += 1;
    }
    format!("{counts:?}")
}

/// The Pod that holds the Lease, by its name (SV-4: `<pod name>_<pod UID>`).
async fn leader(node: &Node) -> Option<(String, String)> {
    let lease = node.get(NAMESPACE, "lease", NAME).await?;
    let (name, uid) = lease["spec"]["holderIdentity"].as_str()?.split_once('_')?;
    Some((name.to_owned(), uid.to_owned()))
}

/// Each proxy's Pod, by UID.
async fn squids(node: &Node) -> Vec<Value> {
    let pods = node.list(CRAWL, "pods", "proxy-operator-managed=true").await;
    pods.into_iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
}

async fn both_ready(node: &Node) {
    node.kubectl(&["-n", NAMESPACE, "rollout", "status", "deployment/egress-proxies-operator", "--timeout=60s"]).await;
}

/// Ends a process of a container with SIGKILL, from the node.
async fn kill_9(node: &Node, pod_uid: &str) {
    let processes = node.processes(pod_uid).await;
    let pids: Vec<String> = processes.iter().map(ToString::to_string).collect();
    assert!(!pids.is_empty(), "no process of {pod_uid}");
    node.run(&[&["kill", "-9"], &pids.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat()).await;
}

#[tokio::test]
async fn whoever_leads_may_go_in_any_way_and_leases_go_on_within_seconds() {
    let Some(node) = Node::shared("whoever_leads_may_go_in_any_way_and_leases_go_on_within_seconds").await else { return };
    let mut steps = Steps::new();
    node.clean().await;
    node.load_operator().await;
    node.restricted(CRAWL).await;
    node.restricted(CLIENT.0).await;
    let set = [
        &TRUST[..],
        &[
            "replicaCount=2",
            "podDisruptionBudget.enabled=true",
            "settings.leader-election-lease-duration=5s",
            "settings.leader-election-renew-deadline=3s",
            "settings.leader-election-retry-period=500ms",
        ],
    ]
    .concat();
    node.install(&set, None).await;
    node.client(CLIENT.0, CLIENT.1).await;
    for name in ["one", "two"] {
        let proxy = json!({"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": name, "namespace": CRAWL},
            "spec": {"mode": "Managed", "provider": "kubernetes", "maxLeases": 1000, "healthCheck": {"url": CHECK_URL}}});
        node.apply(&proxy.to_string()).await;
    }
    node.ready(CRAWL, "one").await;
    node.ready(CRAWL, "two").await;
    assert_eq!(node.replicas().await.len(), 2);
    let before = squids(&node).await;
    steps.done("two replicas, two proxies");

    let crawler = Crawler::start(&node, &node.token().await);
    let (failures, _) = crawler.settled(&node, "leases by either replica", Instant::now(), Duration::from_secs(30)).await;
    assert!(failures.is_empty(), "followers forward to the leader (LS-10): {failures:?}");
    steps.done("leases through both replicas");

    // The process dies without a word; its container starts again under the same name and may renew its own Lease at once.
    let (name, uid) = leader(&node).await.unwrap();
    let at = Instant::now();
    kill_9(&node, &uid).await;
    let (failures, longest) = crawler.settled(&node, "leases after kill -9", at, Duration::from_secs(40)).await;
    println!("kill -9 of the leader's process: {} ms without a grant, {}", longest.as_millis(), told(&failures));
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    both_ready(&node).await;
    let pod = node.get(NAMESPACE, "pod", &name).await.unwrap();
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1);
    steps.done("kill -9");

    // The whole Pod is gone without a word: nobody gives the Lease back, the other replica takes it when it has run out.
    let (name, uid) = leader(&node).await.unwrap();
    let at = Instant::now();
    kill_9(&node, &uid).await;
    node.kubectl(&["-n", NAMESPACE, "delete", "pod", &name, "--grace-period=0", "--force"]).await;
    let (failures, longest) = crawler.settled(&node, "leases after the loss of the Pod", at, Duration::from_secs(40)).await;
    println!("the leader's Pod lost: {} ms without a grant, {}", longest.as_millis(), told(&failures));
    assert!(longest < Duration::from_secs(12), "{longest:?}");
    let (now, _) = leader(&node).await.unwrap();
    assert_ne!(now, name);
    both_ready(&node).await;
    steps.done("the Pod lost");

    // A clean stop of both, one after the other: the Lease is given back.
    let at = Instant::now();
    node.kubectl(&["-n", NAMESPACE, "rollout", "restart", "deployment/egress-proxies-operator"]).await;
    both_ready(&node).await;
    let (failures, longest) = crawler.settled(&node, "leases after a rollout", at, Duration::from_secs(60)).await;
    println!("rollout restart: {} ms without a grant, {}", longest.as_millis(), told(&failures));
    assert!(failures.iter().all(|one| one.status == 503 && one.retry_after.is_some()), "{failures:?}");
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    steps.done("rollout restart");

    assert_eq!(squids(&node).await, before, "the same Pods, each once");
    assert_eq!(node.forbidden(), Vec::<String>::new());
    assert_eq!(node.warnings().await, Vec::<String>::new());
    drop(crawler);
    node.kubectl(&["-n", CRAWL, "delete", "px", "--all", "--timeout=60s"]).await;
    steps.done("all gone");
}
