//! A document's life: what is applied runs, what is edited is replaced, what is removed leaves nothing (OP-11…16, OP-30),
//! and how a person watches it (OP-31).

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;

use crate::support::cluster::ClusterSite;
use crate::support::eventually;
use crate::support::http::{Client, fetch_through};
use crate::support::lab::Lab;
use crate::support::operator::{BINARY, Operator};

const SOON: Duration = Duration::from_secs(20);

/// Waits until the proxy is Ready on that port.
async fn ready_on(operator: &Operator, name: &str, port: u16) -> Value {
    eventually(&format!("{name} is Ready on {port}"), SOON, || async {
        let answer = operator.api.try_send(http::Method::GET, &format!("/v1/proxies/default/{name}"), None).await.ok()?;
        (answer.status == 200).then(|| answer.json()).filter(|item| item["phase"] == "Ready" && item["port"] == port)
    })
    .await
}

/// The recorded status of an object, as JSON.
fn status(lab: &Lab, name: &str) -> Value {
    lab.objects().get(name).map_or(Value::Null, |record| serde_json::to_value(&*record.status).unwrap())
}

fn condition(status: &Value, kind: &str) -> Value {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_port_replaces_the_instance_under_the_same_name_and_a_removed_document_leaves_nothing_op_16_op_11() {
    let lab = Lab::new().await;
    lab.site.write("px.yaml", &lab.managed("px-1", 3128));
    let operator = lab.site.start().up().await;
    let item = ready_on(&operator, "px-1", 3128).await;
    assert_eq!(item["url"], format!("http://{}:3128", lab.address));
    let page = fetch_through(&lab.at(3128).to_string(), &format!("http://127.0.0.1:{}/", lab.origin.port)).await.unwrap();
    assert_eq!((page.status.as_u16(), page.text().as_str()), (200, "hello"));
    let before =
        eventually("the status is recorded", SOON, || async { lab.objects().remove("px-1").filter(|r| r.status.provider_id.is_some()) })
            .await;

    lab.site.write("px.yaml", &lab.managed("px-1", 3129));
    ready_on(&operator, "px-1", 3129).await;
    assert!(TcpStream::connect(lab.at(3128)).await.is_err(), "the old port is free");
    assert_eq!(lab.instances(&operator).into_keys().collect::<Vec<_>>(), [lab.at(3129)]);
    let after = eventually("the status is recorded", SOON, || async {
        lab.objects().remove("px-1").filter(|r| r.status.provider_id.is_some() && r.generation == 2)
    })
    .await;
    assert_eq!((&after.uid, &after.status.provider_id), (&before.uid, &before.status.provider_id), "the same name");
    assert_ne!(after.status.spec_hash, before.status.spec_hash);
    let marks = lab.marks();
    assert_eq!((marks.len(), marks[0].address), (1, lab.at(3129)));

    lab.site.remove("px.yaml");
    operator.wait_gone("default/px-1").await;
    assert!(TcpStream::connect(lab.at(3129)).await.is_err(), "the port is free");
    assert_eq!((lab.marks(), lab.instances(&operator).len()), (Vec::new(), 0));
    eventually("no record is left", SOON, || async { lab.objects().is_empty().then_some(()) }).await;

    lab.site.write("px.yaml", &lab.managed("px-1", 3128));
    ready_on(&operator, "px-1", 3128).await;
    assert_ne!(lab.objects()["px-1"].uid, before.uid, "the same name again is another object (OP-30)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removing_one_of_two_documents_leaves_the_other_alone_and_external_proxies_follow_their_document_op_30_op_6() {
    let lab = Lab::new().await;
    let external = |port: u16| lab.document("ext", &format!("mode: External\n  port: {port}\n  endpoint: {{host: {}}}", lab.address));
    lab.site.write("two.yaml", &(lab.managed("px-1", 3128) + &lab.managed("px-2", 3129)));
    lab.site.write("ext.yaml", &external(3128));
    let operator = lab.site.start().up().await;
    for (name, port) in [("px-1", 3128), ("px-2", 3129)] {
        ready_on(&operator, name, port).await;
    }
    let item = eventually("the External proxy is Ready", SOON, || async {
        // Its first probe may have met nobody yet.
        Some(operator.api.get("/v1/proxies/default/ext").await.json()).filter(|item| item["phase"] == "Ready")
    })
    .await;
    assert!(item.get("provider").is_none() && item["mode"] == "External", "{item}");
    let (uid, socket) = (lab.objects()["px-1"].uid.clone(), lab.instances(&operator)[&lab.at(3128)]);

    lab.site.write("ext.yaml", &external(3130));
    operator.wait_phase("default/ext", "Unhealthy").await;
    let why = eventually("the reason is recorded", SOON, || async {
        Some(condition(&status(&lab, "ext"), "Healthy")).filter(|healthy| healthy["status"] == "False")
    })
    .await;
    assert!(why["message"].as_str().unwrap().contains("ConnectFailed"), "HE-3: {why}");
    lab.site.write("two.yaml", &lab.managed("px-1", 3128));
    operator.wait_gone("default/px-2").await;
    lab.site.write("ext.yaml", &external(3128));
    ready_on(&operator, "ext", 3128).await;
    lab.site.remove("ext.yaml");
    operator.wait_gone("default/ext").await;

    assert_eq!(lab.objects()["px-1"].uid, uid);
    assert_eq!(lab.instances(&operator), [(lab.at(3128), socket)].into(), "the same listener all the while, and no other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_waits_for_its_secret_and_an_edited_secret_replaces_it_op_21_op_16_he_12() {
    let lab = Lab::new().await;
    let secret = |name: &str, label: &str, data: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, labels: {{crawl.example.com/{label}: \"true\"}}}}\nstringData: {{{data}}}\n---\n"
        )
    };
    let px = lab.document("px-1", "mode: Managed\n  provider: lab\n  cloudInit: {secretRef: {name: init}}\n  port: 3128");
    let ext = format!("mode: External\n  port: 3128\n  endpoint: {{host: {}, credentialsSecretRef: {{name: login}}}}", lab.address);
    lab.site.write("px.yaml", &(px + &lab.document("ext", &ext)));
    let operator = lab.site.start().up().await;
    operator.wait_phase("default/px-1", "Pending").await;
    eventually("both say what is missing", SOON, || async {
        let (init, login) = (condition(&status(&lab, "px-1"), "Provisioned"), condition(&status(&lab, "ext"), "Healthy"));
        let told = |condition: &Value, name: &str| condition["message"].as_str().is_some_and(|text| text.contains(name));
        (init["reason"] == "CloudInitUnresolved"
            && told(&init, "init")
            && login["reason"] == "CredentialsUnresolved"
            && told(&login, "login"))
        .then_some(())
    })
    .await;

    lab.site.write(
        "secrets.yaml",
        &(secret("init", "cloud-init", "user-data: one") + &secret("login", "proxy-credentials", "username: u, password: p")),
    );
    ready_on(&operator, "px-1", 3128).await;
    ready_on(&operator, "ext", 3128).await;
    let (uid, sockets) = (lab.objects()["px-1"].uid.clone(), lab.instances(&operator));
    let hash = eventually("the hash is recorded", SOON, || async { lab.objects()["px-1"].status.spec_hash.clone() }).await;

    lab.site.write(
        "secrets.yaml",
        &(secret("init", "cloud-init", "user-data: two") + &secret("login", "proxy-credentials", "username: u, password: q")),
    );
    eventually("the instance is another one", SOON, || async {
        let now = lab.instances(&operator);
        (now.len() == 1 && now != sockets).then_some(())
    })
    .await;
    ready_on(&operator, "px-1", 3128).await;
    eventually("the new hash is recorded", SOON, || async { lab.objects()["px-1"].status.spec_hash.clone().filter(|now| *now != hash) })
        .await;
    assert_eq!(lab.objects()["px-1"].uid, uid);
}

fn get(args: &[&str]) -> Output {
    Command::new(BINARY).arg("get").args(args).env_remove("DISCOVERY_TOKEN").stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_shows_proxies_leases_providers_and_actors_of_a_running_instance_op_31() {
    let lab = Lab::new().await;
    lab.site.write("px.yaml", &lab.managed("px-1", 3128));
    let operator = lab.site.start().up().await;
    ready_on(&operator, "px-1", 3128).await;
    let lease = operator.api.post("/v1/leases", &serde_json::json!({"owner": "crawler-7"})).await.json();
    let (api, debug) = (format!("http://{}", operator.api.address), format!("http://{}", operator.debug.address));
    let asked = |kind: &str, more: &[&str]| {
        let server = if ["proxies", "leases"].contains(&kind) { ["--server", &api] } else { ["--debug-server", &debug] };
        get(&[&[kind], more, &server].concat())
    };

    let id = lease["id"].as_str().unwrap();
    for (kind, header, cells) in [
        ("proxies", "NAMESPACE", &["px-1", "Ready", "1/2", "lab"][..]),
        ("leases", "ID", &[id, "active", "crawler-7", "default/px-1"]),
        ("providers", "NAME", &["lab", "local"]),
        ("actors", "ACTOR", &["lease-broker", "proxy/default/px-1", "running"]),
    ] {
        for form in [&[][..], &["-o", "wide"]] {
            let output = asked(kind, form);
            let table = text(&output);
            assert_eq!(output.status.code(), Some(0), "{kind}: {output:?}");
            assert!(table.starts_with(header), "{table}");
            for cell in cells {
                assert!(table.contains(cell), "{cell} in {table}");
            }
        }
        let json: Value = serde_json::from_str(&text(&asked(kind, &["-o", "json"]))).unwrap();
        assert!(json["items"].is_array() || json["id"] == "root", "{json}");
    }
    let one: Value = serde_json::from_str(&text(&asked("proxies", &["px-1", "-o", "json"]))).unwrap();
    assert_eq!(one, operator.api.get("/v1/proxies/default/px-1").await.json(), "the API's own answer");

    for (kind, name) in [("proxies", "nobody"), ("leases", "nobody"), ("providers", "nobody"), ("actors", "nobody")] {
        let output = asked(kind, &[name]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "OP-4: {output:?}");
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(get(&["proxies", "--server", "http://127.0.0.1:1"]).status.code(), Some(1), "nobody is there");
    assert_eq!(get(&["nonsense"]).status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn get_follows_what_changes_op_31() {
    let lab = Lab::new().await;
    lab.site.write("px.yaml", &lab.managed("px-1", 3128));
    let operator = lab.site.start().up().await;
    ready_on(&operator, "px-1", 3128).await;
    let mut follower = Command::new(BINARY)
        .args(["get", "proxies", "-w", "--server", &format!("http://{}", operator.api.address)])
        .env_remove("DISCOVERY_TOKEN")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = crate::support::operator::lines(follower.stdout.take().unwrap());
    let line = || lines.recv_timeout(SOON).expect("another line");
    assert!(line().starts_with("NAMESPACE"));
    assert!(line().contains("Ready"));
    lab.site.remove("px.yaml");
    let mut last = line();
    while !last.contains("(gone)") {
        assert!(last.contains("px-1"), "{last}");
        last = line();
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}

/// Issue 10, item 28: an API server that is away at the start left every port closed. OB-5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_api_server_is_away_at_the_start_health_is_answered_and_calls_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let nobody = format!("http://127.0.0.1:{}", crate::support::free_port());
    let document = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": nobody}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&kubeconfig, document.to_string()).unwrap();
    let site = ClusterSite::new(kubeconfig, "127.0.0.1");
    let mut operator = site.start();
    let ask = async |client: &Client, path: &str| Some(client.try_send(http::Method::GET, path, None).await.ok()?.status.as_u16());
    for client in [&operator.health, &operator.api] {
        eventually("health is answered", SOON, async || ask(client, "/healthz").await.filter(|status| *status == 200)).await;
        assert_eq!(ask(client, "/readyz").await, Some(503));
    }
    let call = operator.api.try_send(http::Method::GET, "/v1/proxies", None).await.unwrap();
    assert_eq!((call.status.as_u16(), call.json()["code"].as_str().unwrap()), (503, "no-leader"));
    assert!(operator.child.try_wait().unwrap().is_none(), "it goes on trying");
    assert_eq!(operator.terminate().await.code(), Some(0));
}
