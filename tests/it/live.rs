//! The providers file, followed while the process runs (OP-20, OP-26, PC-77, PC-83, LO-3).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::http::connect_through;
use crate::support::lab::{Echo, Lab, block, carries, own_address};
use crate::support::operator::{Operator, files_below};
use crate::support::pods::Pods;
use crate::support::{eventually, rounds};

const SOON: Duration = Duration::from_secs(20);

/// Each line a kind of its own: what is wrong, the path a person is told, and its reason.
const FAULTS: [(&str, &str); 12] = [
    ("Lab", "name: must be a DNS-1123 label"),
    ("maxConnections", "local.maxConnections: must be 1-65536"),
    ("conectTimeout", "local.conectTimeout: is not a known key"),
    ("vmware", "is not a type of this version: known are"),
    ("again", "name: is the name of providers[2], too"),
    ("creates", "maxConcurrentCreates: must be 1-64"),
    ("clients", "local.allowedClients[0]: "),
    ("listen", "local.listenAddresses[0]: must be a /16 or smaller"),
    ("idle", "local.idleTimeout: must be a duration"),
    ("twice", "local.faults: is there more than once"),
    ("no map", "must be a map"),
    ("no name", "name: is required"),
];

fn faulty() -> String {
    "providers:
- {name: Lab, type: local, local: {maxConnections: 0, conectTimeout: 1s}}
- {name: b, type: vmware}
- {name: c, type: local}
- {name: c, type: local, maxConcurrentCreates: 65}
- {name: d, type: local, local: {allowedClients: [0.0.0.0/0], listenAddresses: [10.0.0.0/8], idleTimeout: soon}}
- {name: e, type: local, local: {faults: [], faults: []}}
- 7
- {type: local}
"
    .to_owned()
}

/// The faults of the file that some lines tell of.
fn told<'a>(lines: impl Iterator<Item = &'a str>) -> usize {
    let lines: Vec<&str> = lines.collect();
    for (what, fault) in FAULTS {
        let brief = fault.replacen(": ", " ", 1);
        let found = lines.iter().any(|line| line.contains(fault) || line.contains(&brief));
        assert!(found, "{what}: {fault:?} is not told in {lines:#?}");
    }
    lines.len()
}

async fn part(operator: &Operator) -> Value {
    let answer = operator.health.get("/readyz?verbose").await;
    assert_eq!(answer.status, 200, "a faulty file makes nothing unready: {}", answer.text());
    answer.json()["parts"].as_array().unwrap().iter().find(|part| part["name"] == "providersFile").unwrap().clone()
}

async fn metric(operator: &Operator) -> String {
    let text = operator.metrics.get("/metrics").await.text();
    text.lines().find_map(|line| line.strip_prefix("proxy_operator_providers_config_valid ")).unwrap().to_owned()
}

/// The providers' nodes by name: status and since when, and how often it was restarted.
async fn providers(operator: &Operator) -> BTreeMap<String, (String, String, u64)> {
    let tree = operator.debug.get("/debug/actors?id=providers&depth=1").await.json();
    let node = |node: &Value| {
        let name = node["id"].as_str()?.strip_prefix("provider/")?.to_owned();
        Some((name, (node["status"].as_str()?.to_owned(), node["since"].as_str()?.to_owned(), node["restarts"].as_u64()?)))
    };
    tree["children"].as_array().unwrap().iter().filter_map(node).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_kinds_of_fault_are_told_in_one_run_and_leave_the_last_good_file_in_force_op_26_pc_77() {
    let lab = Lab::new().await;
    let file = lab.site.path("providers.yaml");
    let good = std::fs::read_to_string(&file).unwrap();

    // As a mounted ConfigMap: the file is a link, and so is the folder it leads through.
    let mount = lab.site.path("mount");
    let publish = |version: &str, text: &str| {
        std::fs::create_dir_all(mount.join(version)).unwrap();
        std::fs::write(mount.join(version).join("providers.yaml"), text).unwrap();
        symlink(version, mount.join("..new")).unwrap();
        std::fs::rename(mount.join("..new"), mount.join("..data")).unwrap();
    };
    std::fs::remove_file(&file).unwrap();
    publish("..1", &faulty());
    symlink(Path::new("mount/..data/providers.yaml"), &file).unwrap();

    let mut refused = lab.site.start();
    assert_eq!(refused.exit().await.code(), Some(2));
    let lines: Vec<String> = refused.stderr.iter().collect();
    assert_eq!(told(lines.iter().map(String::as_str)), FAULTS.len(), "one line each: {lines:#?}");

    publish("..2", &good);
    lab.site.write("px.yaml", &lab.managed("px", 3128));
    let operator = lab.site.start().up().await;
    operator.wait_phase("default/px", "Ready").await;
    let before = (lab.marks(), lab.instances(&operator), providers(&operator).await);
    assert_eq!((part(&operator).await["message"].clone(), metric(&operator).await), (Value::Null, "1".to_owned()));

    publish("..3", &faulty());
    let message = eventually("the faults are shown", SOON, || async { part(&operator).await["message"].as_str().map(str::to_owned) }).await;
    assert!(message.starts_with("refused: ") && message.ends_with("; the last good file stays"), "{message}");
    assert_eq!(told(std::iter::once(message.as_str())), 1);
    assert_eq!(metric(&operator).await, "0");
    assert_eq!(before, (lab.marks(), lab.instances(&operator), providers(&operator).await), "and nothing else happened");
    assert_eq!(operator.api.get("/v1/proxies/default/px").await.json()["phase"], "Ready");

    // The good file again, by the link: in force, and one more entry.
    publish("..4", &format!("{good}  - {{name: more, type: local}}\n"));
    eventually("another entry is there", SOON, || async { providers(&operator).await.contains_key("more").then_some(()) }).await;
    assert_eq!((part(&operator).await["message"].clone(), metric(&operator).await), (Value::Null, "1".to_owned()));
    assert_eq!(providers(&operator).await["lab"], before.2["lab"], "the first did not notice");
    std::fs::remove_file(mount.join("..data")).unwrap();
    eventually("a missing file is shown", SOON, || async {
        part(&operator).await["message"].as_str().map(|text| assert!(text.contains("cannot be read")))
    })
    .await;

    let log = operator.kill();
    let warnings: Vec<&str> = log.iter().map(String::as_str).filter(|line| line.contains("WARNING: providers file refused")).collect();
    assert_eq!(told(warnings.into_iter()), FAULTS.len() + 1, "every fault once, and the missing file");
}

/// Entries on addresses of their own, each with what else it says.
fn entries(addresses: &[Ipv4Addr], more: impl Fn(usize) -> String) -> String {
    addresses.iter().enumerate().map(|(at, address)| entry(at, *address, &more(at))).collect()
}

fn entry(at: usize, address: Ipv4Addr, more: &str) -> String {
    format!("  - name: e{at}\n    type: local\n{more}{}", block(&address.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_entries_the_one_that_changed_is_restarted_alone_and_knobs_change_under_an_open_tunnel_op_26_lo_3() {
    let addresses: [Ipv4Addr; 5] = std::array::from_fn(|_| own_address());
    let plain = |_| String::new();
    let lab = Lab::of(addresses[0], &entries(&addresses, plain)).await;
    let write = |text: String| {
        // As an editor does: another file in its place.
        std::fs::write(lab.site.path("providers.new"), format!("providers:\n{text}")).unwrap();
        std::fs::rename(lab.site.path("providers.new"), lab.site.path("providers.yaml")).unwrap();
    };
    let document = |at: usize| lab.document(&format!("px-{at}"), &format!("mode: Managed\n  provider: e{at}\n  port: 3128"));
    lab.site.write("pool.yaml", &(0..5).map(document).collect::<String>());
    let operator = lab.site.start().up().await;
    for at in 0..5 {
        operator.wait_phase(&format!("default/px-{at}"), "Ready").await;
    }
    let echo = Echo::start().await;
    let through = |at: usize| format!("{}:3128", addresses[at]);
    let mut tunnels = Vec::new();
    for at in 0..5 {
        tunnels.push(connect_through(&through(at), &echo.target, None).await.unwrap());
    }
    let (before, sockets) = (providers(&operator).await, operator.sockets());

    // LO-3: knobs of the third, again and again; nobody is restarted, no tunnel is dropped.
    let knobs = |knob: &str| {
        let knob = knob.to_owned();
        entries(&addresses, plain).replacen(
            &block(&addresses[2].to_string()),
            &format!("{}      faults: [{{proxies: \"*\", {knob}}}]\n", block(&addresses[2].to_string())),
            1,
        )
    };
    for _ in 0..rounds(1, 5) {
        for (knob, status) in [("proxyAuth: true", 407), ("refuseAfter: 0", 403)] {
            write(knobs(knob));
            eventually(knob, SOON, || async {
                connect_through(&through(2), &echo.target, None).await.err().filter(|told| *told == status)
            })
            .await;
            assert!(connect_through(&through(1), &echo.target, None).await.is_ok(), "the others serve as before");
        }
    }
    // OP-20, PC-59: a create that fails by a knob is tried again when the knob goes.
    write(knobs("createError: Permanent"));
    eventually("the knob is in force", SOON, || async { connect_through(&through(2), &echo.target, None).await.ok() }).await;
    lab.site.write("late.yaml", &lab.document("late", "mode: Managed\n  provider: e2\n  port: 3129"));
    operator.wait_phase("default/late", "Failed").await;
    write(entries(&addresses, plain));
    operator.wait_phase("default/late", "Ready").await;
    assert_eq!((&providers(&operator).await, operator.sockets().len()), (&before, sockets.len() + 1), "nobody was restarted");
    for tunnel in &mut tunnels {
        carries(tunnel, b"still open").await.unwrap();
    }

    // What instances keep needs a restart: of that one entry. Its tunnel would have ten seconds to end.
    drop(tunnels.remove(3));
    write(entries(&addresses, |at| if at == 3 { "    maxConcurrentCreates: 2\n".to_owned() } else { String::new() }));
    let restarted = || async {
        let now = providers(&operator).await;
        now.get("e3").is_some_and(|node| node.0 == "running" && node.1 != before["e3"].1).then_some(now)
    };
    let after = eventually("the fourth entry is restarted", Duration::from_secs(30), restarted).await;
    for name in ["e0", "e1", "e2", "e4"] {
        assert_eq!(after[name], before[name], "{name} did not notice");
    }
    eventually("its proxy listens again", SOON, || async { connect_through(&through(3), &echo.target, None).await.ok() }).await;
    operator.wait_phase("default/px-3", "Ready").await;
    for tunnel in &mut tunnels {
        carries(tunnel, b"still open").await.unwrap();
    }
    let now = operator.sockets();
    assert!(
        sockets.iter().filter(|(at, _)| *at.ip() != addresses[3]).all(|(at, inode)| now.get(at) == Some(inode)),
        "the others' listeners"
    );

    // An entry that goes takes no instance along (PC-96): the proxy says why it is not asked after, and is back with the entry.
    write(entries(&addresses[..4], plain));
    eventually("the fifth entry is gone", SOON, || async { (!providers(&operator).await.contains_key("e4")).then_some(()) }).await;
    let reason = || async {
        let node = operator.debug.get("/debug/proxies/default/px-4").await;
        node.text().contains("ProviderNotConfigured").then_some(())
    };
    eventually("its proxy says so", SOON, reason).await;
    let marks = lab.site.path("state/marks/e4");
    assert_eq!(std::fs::read_dir(marks).unwrap().count(), 1, "the mark stays");
    write(entries(&addresses, plain));
    eventually("and is back", SOON, || async { connect_through(&through(4), &echo.target, None).await.ok() }).await;
    operator.wait_phase("default/px-4", "Ready").await;
    operator.kill();
}

/// PC-83: a removal plus an addition. What the old type made is none of the new one's (PC-26, PC-38), there and back again;
/// collection runs all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_changes_its_type_leaves_the_old_types_instances_alone_and_others_do_not_notice_pc_83() {
    let addresses: [Ipv4Addr; 2] = std::array::from_fn(|_| own_address());
    let plain = |_| String::new();
    let mut lab = Lab::of(addresses[0], &entries(&addresses, plain)).await;
    let cluster = Pods::start().await;
    let kubeconfig = cluster.kubeconfig(&lab.site.path("kubeconfig"));
    lab.site.env.push(("KUBECONFIG".to_owned(), kubeconfig));
    // Reads soon, whichever of them met an actor that was just being replaced.
    let flags = ["--gc-interval", "1s", "--gc-min-age", "0s", "--poll-drift", "1s", "--poll-provisioning", "1s"];
    lab.site.flags.extend(flags.map(str::to_owned));
    let write = |text: String| {
        std::fs::write(lab.site.path("providers.new"), format!("providers:\n{text}")).unwrap();
        std::fs::rename(lab.site.path("providers.new"), lab.site.path("providers.yaml")).unwrap();
    };
    let document = |at: usize| lab.document(&format!("px-{at}"), &format!("mode: Managed\n  provider: e{at}\n  port: 3128"));
    lab.site.write("pool.yaml", &(0..2).map(document).collect::<String>());
    let operator = lab.site.start().up().await;
    for at in 0..2 {
        operator.wait_phase(&format!("default/px-{at}"), "Ready").await;
    }
    let echo = Echo::start().await;
    let mut tunnel = connect_through(&format!("{}:3128", addresses[1]), &echo.target, None).await.unwrap();
    let (before, sockets) = (providers(&operator).await, operator.sockets());
    let listens = |operator: &Operator, at: usize| operator.sockets().into_iter().find(|(socket, _)| *socket.ip() == addresses[at]);
    let kept = files_below(&lab.site.path("state/marks/e0"));
    assert_eq!(kept.len(), 1);
    let type_of = |name: &'static str| {
        let debug = &operator.debug;
        async move {
            let items = debug.get("/debug/providers").await.json()["items"].clone();
            let entry = items.as_array().unwrap().iter().find(|entry| entry["name"] == name).cloned();
            entry.and_then(|entry| entry["type"].as_str().map(str::to_owned))
        }
    };

    // From `local` to `kubernetes`: the instance is asked after in the cluster, is not there, and is made there.
    write(format!("  - {{name: e0, type: kubernetes}}\n{}", entry(1, addresses[1], "")));
    eventually("the type is another", SOON, || async { type_of("e0").await.filter(|type_| type_ == "kubernetes") }).await;
    let pod = eventually("a Pod is made", SOON, || async { cluster.names().pop() }).await;
    assert!(pod.starts_with("default/proxy-"), "{pod}");
    assert_eq!(listens(&operator, 0), None, "the old actor is gone, and its listener with it");
    cluster.run(&pod, addresses[1]);
    let moved = || async {
        let proxy = operator.api.get("/v1/proxies/default/px-0").await.json();
        (proxy["phase"] == "Ready" && proxy["ip"] == addresses[1].to_string()).then_some(())
    };
    eventually("it is Ready in its new place", SOON, moved).await;
    assert_eq!(files_below(&lab.site.path("state/marks/e0")), kept, "the old type's instance is as it was");

    // And back: what is in the cluster stays, what the old type had made listens again.
    write(entries(&addresses, plain));
    eventually("the type is the first again", SOON, || async { type_of("e0").await.filter(|type_| type_ == "local") }).await;
    eventually("its instance listens again", SOON, || async { listens(&operator, 0) }).await;
    let told = || async {
        let proxy = operator.debug.get("/debug/proxies/default/px-0").await.text();
        proxy.contains("malformed id").then_some(proxy)
    };
    eventually("an id of another type is told of", SOON, told).await;
    let rounds = || async { operator.debug.get("/debug/actors?id=sweeper").await.json()["state"]["rounds"].as_u64() };
    let seen = rounds().await.unwrap();
    eventually("four more rounds of collection", SOON, || async { rounds().await.filter(|now| *now >= seen + 4) }).await;
    assert_eq!((cluster.names(), cluster.deletes()), (vec![pod], 0), "the Pod is none of this type's");
    assert_eq!(files_below(&lab.site.path("state/marks/e0")), kept);

    let now = providers(&operator).await;
    assert_eq!((&now["e1"], now["e0"].2), (&before["e1"], 0), "the other did not notice, and nobody crashed");
    let other = |sockets: &BTreeMap<_, _>| sockets.get(&std::net::SocketAddrV4::new(addresses[1], 3128)).copied();
    assert!(other(&sockets).is_some() && other(&sockets) == other(&operator.sockets()));
    carries(&mut tunnel, b"still open").await.unwrap();
    operator.kill();
}
