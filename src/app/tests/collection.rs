//! Orphan collection and provider checks in the whole process, with the `local` backend (OG-1…6, PH-48).

use std::path::{Path, PathBuf};

use egress_protocol::{InstanceName, Uid};

use super::*;

const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// Not one of those that the kernel gives to whoever asks for any: other tests of this process do.
fn free_port() -> u16 {
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| rand::random_range(12_000..32_000)).find(free).unwrap()
}

/// A mark as `local` keeps it, of an instance made for `uid`; `marked` is what it says of that.
fn mark(state: &Path, uid: &str, marked: &str, installation: &str, created: &str) -> (PathBuf, SocketAddr) {
    let folder = state.join("marks/local");
    std::fs::create_dir_all(&folder).unwrap();
    let (name, port) = (InstanceName::of(&Uid::new(uid)), free_port());
    let mark = serde_json::json!({
        "version": 1,
        "proxy-operator-managed": "true",
        "proxy-operator-uid": marked,
        "proxy-operator-installation": installation,
        "proxy-operator-created-at": created,
        "name": name,
        "namespace": "default",
        "proxyName": "px",
        "listenAddress": "127.0.0.1",
        "port": port,
        "placementHash": "",
    });
    let path = folder.join(format!("{name}.json"));
    std::fs::write(&path, mark.to_string()).unwrap();
    (path, SocketAddr::from(([127, 0, 0, 1], port)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_of_the_local_provider_are_collected_and_everything_else_stays_og_2_og_6() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&state).unwrap();
    let now = Clock::system().now().to_string();
    let (orphan, listens) = mark(&state, "gone", "gone", "ours", LONG_AGO);
    let stays = [
        ("of another installation", mark(&state, "a", "a", "theirs", LONG_AGO).0),
        ("with a damaged mark", mark(&state, "b", "other", "ours", LONG_AGO).0),
        ("without a UID", mark(&state, "c", "", "ours", LONG_AGO).0),
        ("young", mark(&state, "d", "d", "ours", &now).0),
    ];
    let manifests = folder.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    let document = format!(
        "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {{name: px-1}}\nspec: {{mode: Managed, provider: local, port: {}}}\n",
        free_port()
    );
    std::fs::write(manifests.join("px.yaml"), document).unwrap();
    let manifests = manifests.display().to_string();
    let flags = ["--manifests", &manifests, "--installation-id", "ours", "--gc-interval", "1s", "--gc-min-age", "1h"];
    let running = App::start(settings(&state, &flags)).await.unwrap();
    let at = running.addresses;

    eventually("the orphan's mark is gone", async || (!orphan.exists()).then_some(())).await;
    // The mark goes first.
    eventually("and so is its listener", async || tokio::net::TcpStream::connect(listens).await.is_err().then_some(())).await;
    eventually("the live one runs", async || {
        let items = get(at.discovery, "/v1/proxies").await.json()["items"].clone();
        (items[0]["url"].is_string()).then_some(())
    })
    .await;
    let rounds = async || get(at.debug.unwrap(), "/debug/actors?id=sweeper").await.json()["state"]["rounds"].as_u64();
    let seen = rounds().await.unwrap();
    eventually("two more rounds", async || rounds().await.filter(|rounds| *rounds >= seen + 2)).await;
    for (what, path) in &stays {
        assert!(path.exists(), "one {what} stays");
    }
    let marks = std::fs::read_dir(state.join("marks/local")).unwrap().count();
    assert_eq!(marks, stays.len() + 1, "and the live one");

    let text = String::from_utf8(get(at.metrics.unwrap(), "/metrics").await.body).unwrap();
    for line in [
        "# HELP proxy_operator_gc_deletions_total Orphans that collection deleted or tried to, by result; dry_run: it would have.",
        "proxy_operator_gc_deletions_total{provider=\"local\",result=\"ok\"} 1",
        "proxy_operator_provider_target_up{provider=\"local\",target=\"process\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing from\n{text}");
    }
    assert!(!text.contains("op=\"check\""), "HT-11: a check is no request");
    let item = get(at.debug.unwrap(), "/debug/providers").await.json()["items"][0].clone();
    assert_eq!((&item["name"], &item["targetsReady"], &item["conditions"][0]["status"]), (&"local".into(), &"1/1".into(), &"True".into()));
    assert_eq!((&item["type"], &item["targets"][0]["reason"]), (&"local".into(), &"Reachable".into()), "PH-5");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_may_be_off_and_then_there_is_neither_actor_nor_gauge_ph_25() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--gc-interval", "0", "--provider-check-interval", "0"];
    let running = App::start(settings(folder.path(), &flags)).await.unwrap();
    let at = running.addresses;
    for id in ["sweeper", "monitor"] {
        assert_eq!(get(at.debug.unwrap(), &format!("/debug/actors?id={id}")).await.status, 404, "{id}");
    }
    let text = String::from_utf8(get(at.metrics.unwrap(), "/metrics").await.body).unwrap();
    assert!(!text.contains("proxy_operator_provider_target_up"));
    assert!(get(at.debug.unwrap(), "/debug/providers").await.json()["items"][0]["conditions"].is_null());
    running.stop().await;
}
