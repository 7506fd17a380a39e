//! What happens to files all day and must not touch what runs: slow copies, renames, moves, editors, mistakes (OP-30).

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::eventually;
use crate::support::lab::{Lab, Mark};
use crate::support::operator::{Operator, sockets_of};

/// How long a removal must stand to count (OP-30).
const STILL: Duration = Duration::from_secs(1);
/// Longer than that, and a look.
const BELIEVED: Duration = Duration::from_millis(2200);

/// Everything that a replacement or a deletion would change.
#[derive(Debug, PartialEq)]
struct Life {
    marks: Vec<Mark>,
    sockets: std::collections::BTreeMap<std::net::SocketAddrV4, u64>,
    objects: Vec<(String, String, i64, bool)>,
}

fn life(lab: &Lab, operator: &Operator) -> Life {
    let objects = lab.objects().into_iter().map(|(name, record)| (name, record.uid.to_string(), record.generation, record.deleting));
    Life { marks: lab.marks(), sockets: lab.instances(operator), objects: objects.collect() }
}

/// Watches while the files change and for as long as it takes to believe them. The watch has a thread of its own: the kernel's
/// table of sockets takes up to half a second to read when many connections have just ended, and the files change by the clock.
async fn nothing_changes(lab: &Lab, operator: &Operator, before: &Life, what: &str, change: impl Future<Output = ()>) {
    let over = CancellationToken::new();
    let _also_when_this_fails = over.clone().drop_guard();
    let watch = {
        let (over, pid, address, expected) = (over.clone(), operator.child.id(), lab.address, before.sockets.clone());
        tokio::task::spawn_blocking(move || {
            while !over.is_cancelled() {
                let mut sockets = sockets_of(pid);
                sockets.retain(|at, _| *at.ip() == address);
                if sockets != expected {
                    return Some(sockets);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            None
        })
    };
    change.await;
    tokio::time::sleep(BELIEVED).await;
    over.cancel();
    assert_eq!(watch.await.unwrap(), None, "{what}: the ports stay bound: {:?}", before.sockets);
    assert_eq!(life(lab, operator), *before, "{what}");
    for name in ["px-1", "px-2"] {
        assert_eq!(operator.api.get(&format!("/v1/proxies/default/{name}")).await.json()["phase"], "Ready", "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_copied_slowly_renamed_moved_truncated_rewritten_or_broken_deletes_and_replaces_nothing_op_30() {
    let lab = Lab::new().await;
    let (first, second) = (lab.site.manifests(), lab.site.path("more"));
    std::fs::create_dir(&second).unwrap();
    std::fs::write(second.join("keep.yaml"), "# nothing\n").unwrap();
    let document = lab.managed("px-1", 3128) + &lab.managed("px-2", 3129);
    lab.site.write("a.yaml", &document);
    let operator = lab.site.start_with(&["--manifests", first.to_str().unwrap(), "--manifests", second.to_str().unwrap()]).up().await;
    for name in ["px-1", "px-2"] {
        operator.wait_phase(&format!("default/{name}"), "Ready").await;
    }
    eventually("it is recorded", Duration::from_secs(10), || async {
        lab.objects().values().all(|record| record.status.provider_id.is_some()).then_some(())
    })
    .await;
    let before = life(&lab, &operator);
    assert_eq!((before.marks.len(), before.sockets.len(), before.objects.len()), (2, 2, 2));

    let slowly = |path: std::path::PathBuf| {
        let document = document.clone();
        async move {
            let longest = tokio::task::spawn_blocking(move || copy_slowly(&path, &document)).await.unwrap();
            assert!(longest < BELIEVED / 2, "the machine stood still for {longest:?}: this was no slow copy");
        }
    };
    nothing_changes(&lab, &operator, &before, "copied over itself in small pieces", slowly(first.join("a.yaml"))).await;
    nothing_changes(&lab, &operator, &before, "renamed", async {
        std::fs::rename(first.join("a.yaml"), first.join("b.yaml")).unwrap();
    })
    .await;
    nothing_changes(&lab, &operator, &before, "moved to another folder by a slow copy, the old file removed at once", async {
        std::fs::remove_file(first.join("b.yaml")).unwrap();
        slowly(second.join("c.yaml")).await;
    })
    .await;
    nothing_changes(&lab, &operator, &before, "split over two files of two folders", async {
        std::fs::write(first.join("d.yaml"), lab.managed("px-1", 3128)).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::fs::write(second.join("c.yaml"), lab.managed("px-2", 3129)).unwrap();
    })
    .await;
    nothing_changes(&lab, &operator, &before, "truncated, and rewritten as an editor does", async {
        for (folder, name, text) in [(&first, "d.yaml", lab.managed("px-1", 3128)), (&second, "c.yaml", lab.managed("px-2", 3129))] {
            let (path, emptied) = (folder.join(name), Duration::from_millis(700));
            let longest = tokio::task::spawn_blocking(move || truncate_and_rewrite(&path, &text, emptied)).await.unwrap();
            assert!(longest < STILL, "the machine stood still for {longest:?}: the file was really emptied");
        }
    })
    .await;
    nothing_changes(&lab, &operator, &before, "made invalid", async {
        std::fs::write(first.join("d.yaml"), lab.managed("px-1", 3128).replace("mode: Managed", "mode: Sideways")).unwrap();
        std::fs::write(second.join("c.yaml"), "kind: [Proxy\n  metadata: }{\n").unwrap();
    })
    .await;
    let told = operator.api.get("/readyz?verbose").await;
    assert_eq!(told.status, 200, "faults never make it unready");
    let text = told.text();
    assert!(text.contains("d.yaml") && text.contains("c.yaml"), "both faults are told: {text}");
    nothing_changes(&lab, &operator, &before, "an immutable field changed", async {
        std::fs::write(first.join("d.yaml"), lab.managed("px-1", 3128).replace("provider: lab", "provider: other")).unwrap();
    })
    .await;
    nothing_changes(&lab, &operator, &before, "put right, in another file still", async {
        std::fs::remove_file(second.join("c.yaml")).unwrap();
        std::fs::write(first.join("d.yaml"), lab.managed("px-1", 3128)).unwrap();
        std::fs::write(second.join("z.json"), serde_json::to_vec(&json_of(&lab)).unwrap()).unwrap();
    })
    .await;
    let told = operator.api.get("/readyz?verbose").await.text();
    assert!(!told.contains(".yaml"), "no fault is left: {told}");

    std::fs::remove_file(second.join("z.json")).unwrap();
    operator.wait_gone("default/px-2").await;
    assert_eq!(lab.instances(&operator).into_keys().collect::<Vec<_>>(), [lab.at(3128)], "what is really removed goes");
}

/// Empties a file and fills it again after a while, on a thread of its own; answers how long it was empty.
fn truncate_and_rewrite(path: &Path, text: &str, after: Duration) -> Duration {
    let mut file = std::fs::File::create(path).unwrap();
    let emptied = Instant::now();
    std::thread::sleep(after);
    file.write_all(text.as_bytes()).unwrap();
    emptied.elapsed()
}

/// Writes a file in small pieces, on a thread of its own; answers the longest pause between two.
fn copy_slowly(path: &Path, text: &str) -> Duration {
    let mut file = std::fs::File::create(path).unwrap();
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    for chunk in text.as_bytes().chunks(text.len().div_ceil(40)) {
        file.write_all(chunk).unwrap();
        longest = longest.max(last.elapsed());
        last = Instant::now();
        std::thread::sleep(Duration::from_millis(60));
    }
    longest
}

/// `px-2` as JSON.
fn json_of(lab: &Lab) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "crawl.example.com/v1alpha1", "kind": "Proxy", "metadata": {"name": "px-2"},
        "spec": {"mode": "Managed", "provider": "lab", "port": 3129, "maxLeases": 2, "attributes": {"name": "px-2"},
                 "healthCheck": {"url": format!("http://127.0.0.1:{}/generate_204", lab.origin.port), "intervalSeconds": 5,
                                 "failureThreshold": 1}}
    })
}
