//! The node with the operator on it, an entry of the providers file for every kind of trouble, and everything that was seen.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::node::release::{CHECK_URL, TRUST};
use crate::support::node::watch::Watch;
use crate::support::node::{Node, condition};

/// How long anything may take that a node does by itself.
pub const PATIENCE: Duration = Duration::from_secs(90);

pub struct Stage {
    pub node: Arc<Node>,
    pub proxies: Watch,
    pub pods: Watch,
}

/// What a Proxy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub phase: String,
    pub provisioned: (String, String, String),
    pub ready: (String, String, String),
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Told {
    pub fn of(proxy: &Value) -> Self {
        let said = |kind| {
            let condition = condition(proxy, kind);
            (text(&condition["status"]), text(&condition["reason"]), text(&condition["message"]))
        };
        Self { phase: text(&proxy["status"]["phase"]), provisioned: said("Provisioned"), ready: said("Ready") }
    }

    /// The phase, status and reason of `Provisioned`.
    pub fn is(&self, phase: &str, status: &str, reason: &str) -> bool {
        (self.phase.as_str(), self.provisioned.0.as_str(), self.provisioned.1.as_str()) == (phase, status, reason)
    }
}

impl Stage {
    pub async fn new(node: Node) -> Self {
        tokio::join!(
            node.load_operator(),
            node.load_stand_in("bed.test/squid-exits:1", "exit 1"),
            node.load_stand_in("bed.test/squid-eats:1", "eat 200"),
            node.load_stand_in("bed.test/squid-prints:1", "print 4"),
            node.load_stand_in("bed.test/squid-prints-stubbornly:1", "stubborn print 4"),
        );
        let entry = |kubernetes: Value| json!({"type": "kubernetes", "kubernetes": kubernetes});
        // What a container logs counts as its ephemeral storage.
        let little_disk = json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi", "ephemeral-storage": "2Mi"}});
        let little_memory = json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}});
        let values = json!({
            "providers": {
                "kubernetes": entry(json!({"resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "256Mi"}}})),
                "absent": entry(json!({"image": "bed.test/absent:1"})),
                "no-squid": entry(json!({"image": "bed.test/tool:1"})),
                "exits": entry(json!({"image": "bed.test/squid-exits:1"})),
                "eats": entry(json!({"image": "bed.test/squid-eats:1", "resources": little_memory})),
                "huge": entry(json!({"resources": {"requests": {"cpu": "1000"}, "limits": {}}})),
                "prints": entry(json!({"image": "bed.test/squid-prints:1", "resources": little_disk})),
                "prints-stubbornly": entry(json!({"image": "bed.test/squid-prints-stubbornly:1", "resources": little_disk})),
            },
            "settings": {
                "poll-provisioning": "1s", "poll-deletion": "1s", "poll-drift": "2s", "quota-retry": "5s", "backoff-max": "5s",
            },
        });
        node.install(&TRUST, Some(&values)).await;
        Self::on(Arc::new(node))
    }

    fn on(node: Arc<Node>) -> Self {
        let (proxies, pods) = (Watch::of(&node, "proxies"), Watch::of(&node, "pods"));
        Self { node, proxies, pods }
    }

    /// The same node seen anew: watches end with the API server that serves them.
    pub fn anew(&self) -> Self {
        Self::on(Arc::clone(&self.node))
    }

    /// A Proxy of that provider, probed every two seconds.
    pub async fn declare(&self, namespace: &str, provider: &str, port: u16) {
        let check = json!({"url": CHECK_URL, "intervalSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 2});
        let proxy = json!({"apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": "px", "namespace": namespace},
            "spec": {"mode": "Managed", "provider": provider, "port": port, "healthCheck": check}});
        self.node.apply(&proxy.to_string()).await;
    }

    /// The same, once it is Ready.
    pub async fn ready(&self, namespace: &str, port: u16) {
        self.declare(namespace, "kubernetes", port).await;
        self.phase(namespace, "Ready").await;
    }

    /// Waits for a phase.
    pub async fn phase(&self, namespace: &str, phase: &str) -> Value {
        self.proxies
            .until(namespace, "px", &format!("is {phase}"), PATIENCE, |proxy| (proxy["status"]["phase"] == phase).then(|| proxy.clone()))
            .await
    }

    /// Waits until it says that; panics with all that it said.
    pub async fn says(&self, namespace: &str, what: &str, check: impl Fn(&Told) -> bool) -> Told {
        self.proxies.until(namespace, "px", what, PATIENCE, |proxy| Some(Told::of(proxy)).filter(&check)).await
    }

    /// Waits until it has ever said that.
    pub async fn has_said(&self, namespace: &str, what: &str, check: impl Fn(&Told) -> bool) -> Told {
        self.proxies.ever(namespace, "px", what, PATIENCE, |proxy| Some(Told::of(proxy)).filter(&check)).await
    }

    /// All that it said, each once.
    pub fn all_said(&self, namespace: &str) -> Vec<Told> {
        let mut said: Vec<Told> = self.proxies.history_of(namespace, "px").iter().map(|seen| Told::of(&seen.object)).collect();
        said.dedup();
        said
    }

    /// All that every Proxy said, for people.
    pub fn tell(&self) {
        let of_all = self.proxies.history(|_| true);
        let namespaces: BTreeSet<String> = of_all.iter().map(|seen| text(&seen.object["metadata"]["namespace"])).collect();
        for namespace in namespaces {
            println!("--- {namespace}");
            for Told { phase, provisioned, ready } in self.all_said(&namespace) {
                println!("{phase}; Provisioned {provisioned:?}; Ready {ready:?}");
            }
        }
    }

    /// The name of its Pod, which every Pod that it ever has bears.
    pub async fn pod_name(&self, namespace: &str) -> String {
        let id = self
            .proxies
            .until(namespace, "px", "has an id", PATIENCE, |proxy| Some(text(&proxy["status"]["providerID"])).filter(|id| !id.is_empty()));
        id.await.split_once('/').unwrap().1.to_owned()
    }

    /// Its Pod as it is now.
    pub async fn pod(&self, namespace: &str) -> Value {
        let name = self.pod_name(namespace).await;
        self.pods.until(namespace, &name, "is there", PATIENCE, |pod| Some(pod.clone())).await
    }

    /// The reasons of its Events.
    pub async fn events(&self, namespace: &str) -> Vec<String> {
        let text = self.node.kubectl(&["-n", namespace, "get", "events.events.k8s.io", "-o", "json"]).await;
        let events = serde_json::from_str::<Value>(&text).unwrap();
        let of_proxies = events["items"].as_array().unwrap().iter().filter(|event| event["regarding"]["kind"] == "Proxy");
        of_proxies
            .map(|event| format!("{}: {}", event["reason"].as_str().unwrap_or_default(), event["note"].as_str().unwrap_or_default()))
            .collect()
    }
}
