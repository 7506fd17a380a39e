//! The whole process inside a test: the demonstration on free ports.

mod collection;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use egress_config::cli::{self, Command, StandaloneSettings};
use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::commands::client::Client;
use crate::commands::get::{Kind, Output, run as show_with};
use crate::http::tests::wire::{Answer, Wire, ask, request};

fn settings(state: &Path, more: &[&str]) -> StandaloneSettings {
    let state = state.display().to_string();
    let mut args = vec!["egress-proxies-operator", "standalone", "--state", &state];
    for flag in ["--discovery-bind-address", "--debug-bind-address", "--metrics-bind-address", "--health-probe-bind-address"] {
        args.extend([flag, "127.0.0.1:0"]);
    }
    args.extend(more);
    match cli::parse(args.into_iter().map(OsString::from), |_| None) {
        Ok(Command::Standalone(settings)) => *settings,
        other => panic!("{other:?}"),
    }
}

async fn get(address: SocketAddr, target: &str) -> Answer {
    ask(address, request("GET", target, &[], None)).await
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn pool_is_ready(api: SocketAddr) -> Vec<Value> {
    eventually("five proxies are Ready", async || {
        let items = get(api, "/v1/proxies?phase=Ready").await.json()["items"].as_array().cloned()?;
        (items.len() == 5).then_some(items)
    })
    .await
}

/// A page through a forward proxy.
async fn fetch(proxy: &Value, page: SocketAddr) -> Answer {
    let proxy: SocketAddr = format!("{}:{}", proxy["host"].as_str().unwrap(), proxy["port"]).parse().unwrap();
    ask(proxy, format!("GET http://{page}/ HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demonstration_lists_leases_and_carries_traffic_and_survives_a_restart_op_2() {
    let folder = tempfile::tempdir().unwrap();
    let running = App::start(settings(folder.path(), &[])).await.unwrap();
    let at = running.addresses;
    let ready = get(at.discovery, "/readyz?verbose").await;
    assert_eq!((ready.status, &ready.json()["durable"]), (200, &false.into()), "{ready:?}");
    let mut ports: Vec<Value> = pool_is_ready(at.discovery).await.iter().map(|item| item["port"].clone()).collect();

    let granted =
        ask(at.discovery, request("POST", "/v1/leases", &[], Some(r#"{"selector": {"attributes": {"geo": "de"}}, "ttl": "30s"}"#))).await;
    assert_eq!(granted.status, 201, "{granted:?}");
    let lease = granted.json();
    let page = at.demonstration.unwrap();
    let fetched = fetch(&lease["proxy"], page).await;
    assert_eq!(fetched.status, 200, "{fetched:?}");
    assert!(String::from_utf8_lossy(&fetched.body).contains("demonstration endpoint"));
    let other = at.metrics.unwrap();
    assert_eq!(fetch(&lease["proxy"], other).await.status, 403, "that address and port, nothing else on loopback");

    let id = lease["id"].as_str().unwrap();
    let list = get(at.discovery, "/v1/leases").await.json();
    assert_eq!(list["items"][0]["id"], *id);
    assert_eq!(ask(at.discovery, request("POST", &format!("/v1/leases/{id}/renew"), &[], None)).await.status, 200);
    assert_eq!(ask(at.discovery, request("DELETE", &format!("/v1/leases/{id}"), &[], None)).await.status, 204);
    let ended = ask(at.discovery, request("POST", &format!("/v1/leases/{id}/renew"), &[], None)).await;
    assert_eq!((ended.status, ended.code().as_str()), (410, "lease-ended"));

    debug_shows_every_part(at.debug.unwrap()).await;
    metrics_have_names_and_help(at.metrics.unwrap()).await;
    get_shows_tables(at).await;
    let mut wire = Wire::open(at.discovery).await;
    running.stop().await;
    assert!(wire.closes().await);

    let running = App::start(settings(folder.path(), &[])).await.unwrap();
    let mut again: Vec<Value> = pool_is_ready(running.addresses.discovery).await.iter().map(|item| item["port"].clone()).collect();
    ports.sort_by_key(Value::to_string);
    again.sort_by_key(Value::to_string);
    assert_eq!(ports, again, "the same ports after a restart");
    running.stop().await;
}

async fn debug_shows_every_part(debug: SocketAddr) {
    let tree = get(debug, "/debug/actors").await.json();
    let children: Vec<&str> = tree["children"].as_array().unwrap().iter().map(|c| c["id"].as_str().unwrap()).collect();
    assert_eq!(
        children,
        ["http", "clock", "providers", "lease-journal", "lease-broker", "judge", "proxies", "source", "sweeper", "monitor"]
    );
    let proxies = &tree["children"][6]["children"];
    assert_eq!(proxies.as_array().unwrap().len(), 5);
    assert_eq!(proxies[0]["children"][0]["kind"], "prober");
    assert_eq!(get(debug, "/debug/actors?depth=1").await.json()["children"][6]["children"], serde_json::json!([]));
    assert_eq!(get(debug, "/debug/actors?id=nobody").await.code(), "not-found");
    assert_eq!(get(debug, "/debug/actors?depth=x").await.fields(), ["depth"]);
    let providers = get(debug, "/debug/providers").await.json();
    assert_eq!((&providers["items"][0]["name"], &providers["items"][0]["type"]), (&"local".into(), &"local".into()));
    let machine = get(debug, "/debug/proxies/default/demo-1").await;
    assert_eq!(machine.status, 200);
    assert_eq!(get(debug, "/debug/proxies/default/nobody").await.status, 404);
}

async fn metrics_have_names_and_help(metrics: SocketAddr) {
    let answer = get(metrics, "/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = String::from_utf8(answer.body).unwrap();
    for line in [
        "# HELP proxy_operator_proxies Proxies by phase.",
        "# TYPE proxy_operator_proxies gauge",
        "proxy_operator_proxies{phase=\"Ready\"} 5",
        "# HELP proxy_operator_leases_active Leases that run.",
        "# HELP proxy_operator_lease_slots Places for leases by provider and state; external proxies have no provider.",
        "proxy_operator_lease_slots{provider=\"local\",state=\"free\"} 500",
        "# HELP proxy_operator_lease_grants_total Leases granted.",
        "proxy_operator_lease_grants_total 1",
        "# HELP proxy_operator_provider_requests_total Answered provider calls by operation and result.",
        "proxy_operator_provider_requests_total{provider=\"local\",op=\"create\",result=\"ok\"} 5",
        "# HELP proxy_operator_healthcheck_duration_seconds How long probes through the proxy took, passed ones only.",
        "# HELP proxy_operator_oldest_probe_seconds Seconds since the end of the probe that is longest ago, over the proxies that were probed.",
        "# HELP proxy_operator_providers_config_valid 1 if the providers file on disk is the one in force.",
        "proxy_operator_providers_config_valid 1",
        "# HELP proxy_operator_actors Actors that exist, by kind.",
        "proxy_operator_actors{kind=\"proxy\"} 5",
        "# HELP proxy_operator_actor_mailbox_depth Messages sent to actors and not yet handled, by kind.",
        "# HELP proxy_operator_actor_handle_duration_seconds How long actors took to handle a message, by kind.",
        "# HELP proxy_operator_targets_suspect Targets held to be at fault, not the proxies.",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing from\n{text}");
    }
    assert!(text.contains("proxy_operator_healthcheck_duration_seconds_count{proxy=\"default/demo-1\"}"));
    let open = ask(metrics, request("GET", "/metrics", &[("Accept", "application/openmetrics-text; version=1.0.0")], None)).await;
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(String::from_utf8(open.body).unwrap().ends_with("# EOF\n"));
}

async fn get_shows_tables(at: Addresses) {
    let show = async |address: SocketAddr, kind, name, output| {
        let client = Client::new(&format!("http://{address}"), None).unwrap();
        let mut out = Vec::new();
        let shown = show_with(&client, kind, name, output, false, &mut out).await;
        shown.map(|()| String::from_utf8(out).unwrap())
    };
    let (api, debug) = (at.discovery, at.debug.unwrap());
    let proxies = show(api, Kind::Proxies, None, Output::Table).await.unwrap();
    assert!(proxies.starts_with("NAMESPACE") && proxies.lines().count() == 6, "{proxies}");
    let one = show(api, Kind::Proxies, Some("demo-1"), Output::Json).await.unwrap();
    assert_eq!(serde_json::from_str::<Value>(&one).unwrap()["name"], "demo-1");
    assert!(show(debug, Kind::Actors, None, Output::Wide).await.unwrap().contains("    prober/default/demo-1"));
    assert!(show(debug, Kind::Providers, Some("local"), Output::Table).await.unwrap().contains("local"));
    assert!(show(api, Kind::Leases, None, Output::Table).await.unwrap().starts_with("ID"));
    for (address, kind) in [(api, Kind::Proxies), (api, Kind::Leases), (debug, Kind::Providers), (debug, Kind::Actors)] {
        assert!(show(address, kind, Some("nobody"), Output::Table).await.is_err(), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_the_machine_is_exit_2_before_anything_starts_op_4() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut busy = settings(&folder.path().join("a"), &[]);
    busy.common.discovery = cli::BindAddress::One(taken.local_addr().unwrap());
    busy.common.metrics = Some(busy.common.discovery);
    let error = App::start(busy).await.unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    assert!(text.contains("--discovery-bind-address") && text.contains("--metrics-bind-address") && text.contains(&address), "{text}");

    let running = App::start(settings(&folder.path().join("b"), &[])).await.unwrap();
    let second = App::start(settings(&folder.path().join("b"), &[])).await.unwrap_err();
    assert_eq!(second.exit_code(), 2);
    assert!(second.to_string().contains("in use"), "{second}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_file_is_read_again_and_guards_the_debug_endpoint_off_loopback_ob_4() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    std::fs::write(&file, "shop first\n").unwrap();
    let path = file.display().to_string();
    let flags = ["--discovery-token-file", path.as_str()];
    let mut open_debug = settings(&folder.path().join("state"), &flags);
    open_debug.common.debug = Some(cli::BindAddress::All(0));
    let error = App::start(open_debug.clone()).await.unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("may do all"), "{error}");

    std::fs::write(&file, "shop first\nadmin all\n").unwrap();
    open_debug = settings(&folder.path().join("state"), &flags);
    open_debug.common.debug = Some(cli::BindAddress::All(0));
    let running = App::start(open_debug).await.unwrap();
    let api = running.addresses.discovery;
    let debug = SocketAddr::from(([127, 0, 0, 1], running.addresses.debug.unwrap().port()));
    let with = async |address, token: &str, target: &str| {
        ask(address, request("GET", target, &[("Authorization", &format!("Bearer {token}"))], None)).await.status
    };
    assert_eq!(with(api, "first", "/v1/leases").await, 200);
    assert_eq!((with(debug, "none", "/debug/actors").await, with(debug, "first", "/debug/actors").await), (401, 403));
    assert_eq!(with(debug, "all", "/debug/actors").await, 200);

    std::fs::write(&file, "").unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(with(api, "first", "/v1/leases").await, 200, "a faulty file leaves the last good one");
    std::fs::write(&file, "shop second\nadmin all\n").unwrap();
    eventually("the new token is in force", async || (with(api, "second", "/v1/leases").await == 200).then_some(())).await;
    assert_eq!(with(api, "first", "/v1/leases").await, 401);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_any_part_restarts_it_loses_no_lease_and_the_journal_s_ends_the_process_sv_2() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = App::start(settings(folder.path(), &[])).await.unwrap();
    let at = running.addresses;
    let ports = |items: &[Value]| items.iter().map(|item| item["port"].to_string()).collect::<Vec<_>>();
    let before = ports(&pool_is_ready(at.discovery).await);
    let granted = ask(at.discovery, request("POST", "/v1/leases", &[], Some("{}"))).await.json();
    let lease = format!("/v1/leases/{}", granted["id"].as_str().unwrap());
    for id in [
        "http/discovery",
        "http",
        "provider/local",
        "providers",
        "lease-broker",
        "judge",
        "proxies",
        "proxy/default/demo-1",
        "prober/default/demo-2",
        "source",
        "sweeper",
        "monitor",
    ] {
        let restarts = async || {
            let answer = Wire::try_ask(at.debug.unwrap(), request("GET", &format!("/debug/actors?id={id}&depth=0"), &[], None)).await?;
            let node = answer.json();
            (node["status"] == "running").then(|| node["restarts"].as_u64())?
        };
        let count = eventually(id, restarts).await;
        assert!(running.system().crash(id), "{id} is up");
        eventually(id, async || restarts().await.filter(|now| *now > count)).await;
        let after = eventually(id, async || {
            let answer = Wire::try_ask(at.discovery, request("GET", "/v1/proxies?healthy=true", &[], None)).await?;
            answer.json()["items"].as_array().filter(|items| items.len() == 5).cloned()
        })
        .await;
        assert_eq!(ports(&after), before, "{id}: the same ports");
        let kept = get(at.discovery, &lease).await;
        assert_eq!((kept.status, &kept.json()["state"]), (200, &"active".into()), "{id}: the lease is kept");
    }
    assert!(running.system().kill("lease-journal"));
    let failure = tokio::time::timeout(Duration::from_secs(10), running.failed()).await.unwrap();
    assert!(failure.to_string().contains("lease-journal"), "{failure}");
}
