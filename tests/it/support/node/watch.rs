//! Objects of one kind as the API server tells of them, with everything that was seen since the watch began. One process for
//! any number of tests that wait: asking anew by `kubectl` costs a tenth of a second of a core each time.

use std::io::BufReader;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Node;
use crate::support::eventually;

/// One thing that was told: when, and the object; a deleted one has `deleted: true` beside its fields.
#[derive(Debug, Clone)]
pub struct Seen {
    pub at: Instant,
    pub object: Value,
}

/// A running watch; ends when dropped.
#[derive(Debug)]
pub struct Watch {
    kind: String,
    child: Child,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watch {
    /// Watches a kind in all namespaces.
    pub fn of(node: &Node, kind: &str) -> Self {
        let mut command = std::process::Command::new(super::script("node"));
        command.arg("in-ns").arg(node.state()).args(["kubectl", "get", kind, "-A", "-w", "-o", "json", "--output-watch-events"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let events = serde_json::Deserializer::from_reader(BufReader::new(child.stdout.take().unwrap())).into_iter::<Value>();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        std::thread::spawn(move || {
            for mut event in events.map_while(Result::ok) {
                let deleted = event["type"] == "DELETED";
                let mut object = event["object"].take();
                object["metadata"]["managedFields"].take();
                object["deleted"] = deleted.into();
                sink.lock().unwrap().push(Seen { at: Instant::now(), object });
            }
        });
        Self { kind: kind.to_owned(), child, seen }
    }

    /// All that was seen of the objects that satisfy this, in order.
    pub fn history(&self, of: impl Fn(&Value) -> bool) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|seen| of(&seen.object)).cloned().collect()
    }

    /// All that was seen of one.
    pub fn history_of(&self, namespace: &str, name: &str) -> Vec<Seen> {
        self.history(|object| object["metadata"]["namespace"] == namespace && object["metadata"]["name"] == name)
    }

    /// The object as it is now; nothing when it is not there.
    pub fn now(&self, namespace: &str, name: &str) -> Option<Value> {
        let last = self.history_of(namespace, name).pop()?.object;
        (last["deleted"] == false).then_some(last)
    }

    /// Waits until the object as it is now satisfies this; panics with all that was seen of it.
    pub async fn until<T>(&self, namespace: &str, name: &str, what: &str, limit: Duration, check: impl Fn(&Value) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(answer) = self.now(namespace, name).as_ref().and_then(&check) {
                return answer;
            }
            assert!(
                start.elapsed() < limit,
                "not within {limit:?}: {} {namespace}/{name} {what}\n{}",
                self.kind,
                self.told(namespace, name)
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until anything seen since the beginning satisfies this.
    pub async fn ever<T>(&self, namespace: &str, name: &str, what: &str, limit: Duration, check: impl Fn(&Value) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(answer) = self.history_of(namespace, name).iter().find_map(|seen| check(&seen.object)) {
                return answer;
            }
            assert!(
                start.elapsed() < limit,
                "not within {limit:?}: {} {namespace}/{name} {what}\n{}",
                self.kind,
                self.told(namespace, name)
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn gone(&self, namespace: &str, name: &str, limit: Duration) {
        eventually(&format!("{} {namespace}/{name} is gone", self.kind), limit, || async {
            let last = self.history_of(namespace, name).pop();
            last.is_some_and(|last| last.object["deleted"] == true).then_some(())
        })
        .await;
    }

    /// The statuses that were seen of one, for people.
    pub fn told(&self, namespace: &str, name: &str) -> String {
        let history = self.history_of(namespace, name);
        let Some(first) = history.first().map(|seen| seen.at) else { return "never seen".to_owned() };
        let lines = history.iter().map(|seen| {
            let (object, at) = (&seen.object, seen.at.duration_since(first).as_millis());
            let end = match (object["deleted"] == true, &object["metadata"]["deletionTimestamp"]) {
                (true, _) => " DELETED",
                (false, Value::Null) => "",
                (false, _) => " terminating",
            };
            format!("{at:>7} ms{end} {}\n", object["status"])
        });
        lines.collect()
    }
}
