//! `kill -9` at random moments, and what must be true afterwards (OP-2, OP-12, OP-16, PC-51).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::support::lab::{Lab, Mark};
use crate::support::operator::Operator;
use crate::support::rounds;

const PROXIES: u16 = 6;
/// Operators that crash side by side: most of the time is spent waiting.
const WORLDS: u64 = 4;

/// One operator that crashes again and again.
struct World {
    lab: Lab,
    seed: u64,
    rng: StdRng,
    /// What the manifests say: name → port.
    desired: BTreeMap<String, u16>,
    /// UIDs of those that have been there since they were last seen settled.
    uids: BTreeMap<String, String>,
    /// The marks of those that nobody has touched since.
    untouched: BTreeMap<String, Mark>,
    creates: usize,
    kills: usize,
}

impl World {
    async fn new(seed: u64) -> Self {
        let mut lab = Lab::new().await;
        lab.site.flags.extend(["--log-level".to_owned(), "info,egress_backend_local=debug".to_owned()]);
        let (desired, uids, untouched) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { lab, seed, rng: StdRng::seed_from_u64(seed), desired, uids, untouched, creates: 0, kills: 0 }
    }

    /// Creates, replaces or deletes some proxies.
    fn change(&mut self) {
        for number in 0..PROXIES {
            let name = format!("px-{number}");
            if self.rng.random_bool(0.5) {
                continue;
            }
            self.untouched.remove(&name);
            if self.desired.contains_key(&name) && self.rng.random_bool(0.4) {
                self.lab.site.remove(&format!("{name}.yaml"));
                self.desired.remove(&name);
                self.uids.remove(&name);
                continue;
            }
            let port = 3000 + 10 * number + self.rng.random_range(0..10);
            self.lab.site.write(&format!("{name}.yaml"), &self.lab.managed(&name, port));
            self.desired.insert(name, port);
        }
    }

    async fn pause(&mut self, from: u64, to: u64) {
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(from..to))).await;
    }

    /// The UIDs with a mark on disk.
    fn live(&self) -> BTreeSet<String> {
        self.lab.marks().into_iter().map(|mark| mark.uid).collect()
    }

    /// The external log: no create for a UID whose mark is live.
    fn audit(&mut self, live: &mut BTreeSet<String>, log: &[String]) {
        for line in log {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert_ne!(line["level"], "ERROR", "seed {}: {line}", self.seed);
            if line["message"] != "local instance" {
                continue;
            }
            let uid = line["uid"].as_str().unwrap().to_owned();
            match line["event"].as_str().unwrap() {
                "creating" => {
                    assert!(!live.contains(&uid), "seed {}: a second create for {uid}, whose mark is live", self.seed);
                    self.creates += 1;
                }
                "created" => assert!(live.insert(uid)),
                "deleted" => assert!(live.remove(&uid), "seed {}: {line}", self.seed),
                _ => {}
            }
        }
    }

    fn kill(&mut self, operator: Operator, mut live: BTreeSet<String>) {
        let log = operator.kill();
        self.kills += 1;
        self.audit(&mut live, &log);
    }

    /// What differs between the manifests, the API, the records, the marks and the listeners.
    async fn difference(&self, operator: &Operator) -> Option<String> {
        let Ok(list) = operator.api.try_send(http::Method::GET, "/v1/proxies", None).await else { return Some("no answer".to_owned()) };
        let ready = list.json()["items"].as_array().cloned().unwrap_or_default();
        let told: BTreeMap<String, u16> = ready
            .iter()
            .filter(|item| item["phase"] == "Ready")
            .map(|item| (item["name"].as_str().unwrap().to_owned(), u16::try_from(item["port"].as_u64().unwrap()).unwrap()))
            .collect();
        let (marks, objects) = (self.lab.marks(), self.lab.objects());
        let marked: BTreeMap<String, u16> = marks.iter().map(|mark| (mark.proxy.clone(), mark.address.port())).collect();
        let listening: BTreeSet<u16> = self.lab.instances(operator).into_keys().map(|address| address.port()).collect();
        let recorded: BTreeMap<String, u16> = objects
            .iter()
            .filter(|(_, record)| {
                let status = serde_json::to_value(&*record.status).unwrap();
                !record.deleting && status["phase"] == "Ready" && status["providerID"].is_string()
            })
            .map(|(name, record)| (name.clone(), record.spec.port))
            .collect();
        let owners: BTreeMap<&str, &str> = marks.iter().map(|mark| (mark.proxy.as_str(), mark.uid.as_str())).collect();
        let uids: BTreeMap<&str, &str> = objects.iter().map(|(name, record)| (name.as_str(), record.uid.as_str())).collect();
        let same = told == self.desired
            && ready.len() == told.len()
            && marked == self.desired
            && recorded == self.desired
            && listening == self.desired.values().copied().collect()
            && owners == uids;
        (!same).then(|| {
            format!("manifests {:?}\n API {}\n marks {marks:?}\n listening {listening:?}\n records {objects:?}", self.desired, list.text())
        })
    }

    async fn settle(&mut self, operator: &Operator) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while let Some(difference) = self.difference(operator).await {
            assert!(tokio::time::Instant::now() < deadline, "seed {}, after {} kills, not settled:\n{difference}", self.seed, self.kills);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let objects = self.lab.objects();
        for (name, uid) in &self.uids {
            assert_eq!(objects[name].uid.as_str(), uid, "seed {}: {name} was adopted", self.seed);
        }
        let marks: BTreeMap<String, Mark> = self.lab.marks().into_iter().map(|mark| (mark.proxy.clone(), mark)).collect();
        for (name, mark) in &self.untouched {
            assert_eq!(&marks[name], mark, "seed {}: {name} is the instance it was", self.seed);
        }
        self.untouched = marks;
        self.uids = objects.into_iter().map(|(name, record)| (name, record.uid.to_string())).collect();
    }

    async fn run(mut self, kills: usize) -> usize {
        let mut live = self.live();
        let mut operator = self.lab.site.start().up().await;
        while self.kills < kills {
            self.change();
            self.pause(0, 2200).await;
            self.kill(operator, live);
            if self.rng.random_bool(0.4) {
                // Again while it recovers, with or without another change.
                live = self.live();
                let recovering = self.lab.site.start();
                if self.rng.random_bool(0.5) {
                    self.change();
                }
                self.pause(0, 1600).await;
                self.kill(recovering, live);
            }
            live = self.live();
            operator = self.lab.site.start().up().await;
            self.settle(&operator).await;
        }
        for name in std::mem::take(&mut self.desired).into_keys() {
            self.lab.site.remove(&format!("{name}.yaml"));
        }
        self.uids.clear();
        self.untouched.clear();
        self.settle(&operator).await;
        assert!(self.lab.marks().is_empty() && self.lab.objects().is_empty());
        assert_eq!(operator.terminate().await.code(), Some(0));
        let log: Vec<String> = operator.stderr.iter().collect();
        self.audit(&mut live, &log);
        assert!(live.is_empty(), "no mark is left: {live:?}");
        assert!(self.creates > self.kills / 2, "{} creates were seen in the log", self.creates);
        self.kills
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_kill_9_at_random_moments_listeners_marks_and_objects_agree_and_no_uid_has_two_instances_op_2_op_12_op_16() {
    let seed: u64 = rand::random_range(0..1_000_000);
    println!("seed {seed}");
    let kills = rounds(40, 200).div_ceil(usize::try_from(WORLDS).unwrap());
    let worlds = (0..WORLDS).map(|number| async move { World::new(seed * WORLDS + number).await.run(kills).await });
    let killed: usize = futures::future::join_all(worlds).await.into_iter().sum();
    println!("{killed} times killed");
    assert!(killed >= rounds(40, 200));
}
