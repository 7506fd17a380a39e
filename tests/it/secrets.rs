//! No secret anywhere (S7, OB-2): sentinels for every kind of secret in runs at the most verbose level, through grants,
//! probes that pass and fail, bad input and every way to look; and every line of the log parses (OB-6).

use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;
use std::time::Duration;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Value, json};

use crate::support::documents::{CLOUD_INIT, CREDENTIALS, proxy, secret};
use crate::support::eventually;
use crate::support::http::Client;
use crate::support::lab::Lab;
use crate::support::operator::{BINARY, Operator, files_below};
use crate::support::switch::{Pace, Switch};
use crate::support::wire::say;

const TOKEN: &str = "sentinel-token-5f1c";
const OTHER_TOKEN: &str = "sentinel-other-token-77aa";
const GUESS: &str = "sentinel-guessed-token-0b0b";
const PASSWORD: &str = "sentinel-password-91d4";
const WRONG_PASSWORD: &str = "sentinel-wrong-password-ab12";
const LATE_PASSWORD: &str = "sentinel-late-password-c0de";
const INLINE: &str = "sentinel-inline-cloud-init-3e3e";
const USER_DATA: &str = "sentinel-secret-cloud-init-8c8c";
const BROKEN: &str = "sentinel-broken-manifest-d00f";
const UNUSED: &str = "sentinel-unlabelled-secret-4444";
const QUERY: &str = "sentinel-query-of-a-check-url-1234";

const ALL: [&str; 11] = [TOKEN, OTHER_TOKEN, GUESS, PASSWORD, WRONG_PASSWORD, LATE_PASSWORD, INLINE, USER_DATA, BROKEN, UNUSED, QUERY];

/// Every form in which a secret could show.
fn forms(of: &str) -> Vec<String> {
    let as_login = |user: &str| base64(&format!("{user}:{of}"));
    let bytes: Vec<String> = of.bytes().take(12).map(|byte| byte.to_string()).collect();
    let hex: String = of.bytes().map(|byte| format!("{byte:02x}")).collect();
    vec![of.to_owned(), base64(of), as_login("crawler"), hex, bytes.join(", ")]
}

/// As in a `Basic` authorization.
fn base64(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let three = |bytes: &[u8]| {
        let bits = bytes.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - bytes.len()));
        let digits = (0..=bytes.len()).map(|n| char::from(DIGITS[bits >> (18 - 6 * n) & 63])).collect::<String>();
        format!("{digits:=<4}")
    };
    text.as_bytes().chunks(3).map(three).collect()
}

/// The sentinels that a text holds.
fn found(text: &str) -> BTreeSet<&'static str> {
    ALL.into_iter().filter(|sentinel| forms(sentinel).iter().any(|form| text.contains(form.as_str()))).collect()
}

fn assert_clean(whence: &str, text: &str) {
    let found = found(text);
    assert!(
        found.is_empty(),
        "{whence} shows {found:?}:\n{}",
        text.lines().filter(|line| !self::found(line).is_empty()).collect::<Vec<_>>().join("\n")
    );
}

/// A line of the log: its fields as they came, so that a key that occurs twice is seen (OB-2).
struct Line(Vec<(String, Value)>);

impl<'de> serde::Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Line;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Line(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// OB-2, OB-6.
fn assert_is_a_line(line: &str) {
    let Line(fields) = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let keys: Vec<&str> = fields.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys.get(..4), Some(&["time", "level", "message", "target"][..]), "{line}");
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "a key occurs once: {line}");
    let time = fields[0].1.as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z') && time.parse::<jiff::Timestamp>().is_ok(), "{line}");
    let level = fields[1].1.as_str().unwrap();
    assert!(["ERROR", "WARN", "INFO", "DEBUG", "TRACE"].contains(&level), "{line}");
    let ours = fields[3].1.as_str().is_some_and(|target| target.starts_with("egress"));
    if level == "WARN" && ours {
        assert!(fields[2].1.as_str().is_some_and(|message| message.starts_with("WARNING:")), "{line}");
    }
    for (key, value) in &fields {
        assert!(!["duration", "latency"].contains(&key.as_str()) || value.is_number(), "{key} is a number of seconds: {line}");
    }
}

/// Everything that a person or a tool can look at.
async fn all_views(operator: &Operator) -> Vec<(String, String)> {
    let mut views = Vec::new();
    let proxies = ["plain", "inline", "from-secret", "login", "wrong", "unlabelled", "late"];
    let mut paths: Vec<(&Client, String)> = vec![
        (&operator.api, "/v1/proxies".to_owned()),
        (&operator.api, "/v1/leases".to_owned()),
        (&operator.api, "/readyz?verbose".to_owned()),
        (&operator.api, "/openapi.json".to_owned()),
        (&operator.debug, "/debug/actors".to_owned()),
        (&operator.debug, "/debug/providers".to_owned()),
        (&operator.metrics, "/metrics".to_owned()),
        (&operator.health, "/readyz?verbose".to_owned()),
    ];
    for name in proxies {
        paths.push((&operator.api, format!("/v1/proxies/default/{name}")));
        paths.push((&operator.debug, format!("/debug/proxies/default/{name}")));
        paths.push((&operator.debug, format!("/debug/actors?id=proxy/default/{name}")));
    }
    for (client, path) in paths {
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        views.push((path, format!("{:?}\n{}", answer.headers, answer.text())));
    }
    views
}

/// The table of `get`, every kind and form.
fn shown_by_get(operator: &Operator) -> String {
    let mut out = String::new();
    let (api, debug) = (format!("http://{}", operator.api.address), format!("http://{}", operator.debug.address));
    for kind in ["proxies", "leases", "providers", "actors"] {
        for form in ["wide", "json"] {
            let mut command = Command::new(BINARY);
            let command = command.args(["get", kind, "-o", form, "--server", &api, "--debug-server", &debug]).env("DISCOVERY_TOKEN", TOKEN);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
            out += &String::from_utf8_lossy(&[output.stdout, output.stderr].concat());
        }
    }
    out
}

fn login(name: &str, password: &str) -> String {
    secret(&format!("default/{name}"), CREDENTIALS, &json!({"username": "crawler", "password": password}))
}

/// Objects that hold, or refer to, every kind of secret.
struct Stage {
    lab: Lab,
    operator: Operator,
    passing: Switch,
    refusing: Switch,
}

impl Stage {
    async fn new() -> Self {
        let mut lab = Lab::new().await;
        let tokens = lab.site.path("tokens");
        std::fs::write(&tokens, format!("admin {TOKEN}\nother {OTHER_TOKEN} default\n")).unwrap();
        let level = "trace,hyper=trace,hyper_util=trace,rustls=trace,tokio=trace,axum=trace,tower=trace";
        lab.site = lab.site.flag("--log-level", level).flag("--discovery-token-file", tokens.to_str().unwrap());
        let (passing, refusing) = (Switch::start().await, Switch::start().await);
        refusing.set(407);
        let managed = |port: u16, cloud_init: Value| {
            let check = json!({"url": format!("http://127.0.0.1:{}/?key={QUERY}&/generate_204", lab.origin.port)});
            json!({"mode": "Managed", "provider": "lab", "port": port, "cloudInit": cloud_init, "healthCheck": check})
        };
        let site = &lab.site;
        site.write("plain.yaml", &lab.managed("plain", 3001));
        site.write("inline.yaml", &proxy("default/inline", &managed(3002, json!({"inline": format!("#cloud-config\n# {INLINE}\n")}))));
        let user_data = secret("default/boot", CLOUD_INIT, &json!({"user-data": format!("#!/bin/sh\n# {USER_DATA}\n")}));
        site.write(
            "from-secret.yaml",
            &(user_data + &proxy("default/from-secret", &managed(3003, json!({"secretRef": {"name": "boot"}})))),
        );
        site.write("login.yaml", &(login("right", PASSWORD) + &passing.document("default/login", 5, Some("right"), Pace::Quick)));
        site.write("wrong.yaml", &(login("wrong", WRONG_PASSWORD) + &refusing.document("default/wrong", 5, Some("wrong"), Pace::Quick)));
        let unused = login("unlabelled", UNUSED).replace(CREDENTIALS, "example.com/other");
        site.write("unlabelled.yaml", &(unused + &passing.document("default/unlabelled", 5, Some("unlabelled"), Pace::Quick)));
        site.write("late.yaml", &passing.document("default/late", 5, Some("late"), Pace::Quick));
        let mut operator = site.start().up().await;
        operator.api = operator.api.with_token(TOKEN);
        for name in ["plain", "inline", "from-secret", "login"] {
            operator.wait_phase(&format!("default/{name}"), "Ready").await;
        }
        for name in ["wrong", "unlabelled", "late"] {
            operator.wait_phase(&format!("default/{name}"), "Unhealthy").await;
        }
        Self { lab, operator, passing, refusing }
    }

    /// Bad manifests around the secrets: each is told of, none is quoted.
    async fn bad_manifests(&self) {
        let site = &self.lab.site;
        site.write("broken-1.yaml", &format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\nstringData: {{k: \"{BROKEN}\n"));
        site.write("broken-2.yaml", &format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\ndata: {{k: '{BROKEN}!'}}\n"));
        site.write("broken-3.yaml", &format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\nstringData: [{BROKEN}]\n"));
        let cloud_init = json!({"inline": BROKEN, "secretRef": {"name": format!("{BROKEN}_")}});
        site.write("broken-4.yaml", &proxy("default/x", &json!({"mode": "Managed", "provider": "lab", "cloudInit": cloud_init})));
        let host = json!({"host": format!("u:{BROKEN}@h")});
        site.write("broken-5.yaml", &proxy("default/x", &json!({"mode": "External", "endpoint": host})));
        site.write("broken-6.yaml", &proxy("default/x", &json!({"mode": "Managed", "provider": "lab", "cloudInit": BROKEN})));
        eventually("every broken file is told of", Duration::from_secs(20), || async {
            let ready = self.operator.health.get("/readyz?verbose").await.text();
            (1..=6).all(|number| ready.contains(&format!("broken-{number}.yaml"))).then_some(())
        })
        .await;
        let files: Vec<String> =
            (1..=6).map(|number| site.manifests().join(format!("broken-{number}.yaml")).display().to_string()).collect();
        let output = Command::new(BINARY).arg("validate").args(&files).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_clean("validate", &String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    }

    /// Good and bad calls; what they answer holds a secret in the grant alone.
    async fn calls(&self) {
        let api = &self.operator.api;
        let grant = api.post("/v1/leases", &json!({"selector": {"name": "login"}, "target": "shop.example"})).await;
        assert_eq!(grant.status, 201, "{}", grant.text());
        assert_eq!(grant.json()["proxy"]["credentials"]["password"], PASSWORD);
        assert_eq!(found(&grant.text()), BTreeSet::from([PASSWORD]));
        let path = format!("/v1/leases/{}", grant.json()["id"].as_str().unwrap());
        let mut answers = vec![
            api.get(&path).await,
            api.post(&format!("{path}/renew"), &json!({})).await,
            api.post(&format!("{path}/report"), &json!({"result": "blocked"})).await,
            api.post("/v1/leases/explain", &json!({})).await,
            api.post("/v1/proxies/default/plain/cordon", &json!({"reason": "r"})).await,
            api.delete("/v1/proxies/default/plain/cordon").await,
            api.post("/v1/leases", &json!({"selector": {"name": "wrong"}})).await,
            api.post("/v1/leases", &json!({"ttl": 7})).await,
            api.with_token(OTHER_TOKEN).get(&path).await,
            api.with_token(GUESS).get("/v1/leases").await,
            api.with_token(GUESS).post("/v1/leases", &json!({})).await,
            api.with_token(&format!("{TOKEN}x")).get("/v1/proxies").await,
        ];
        answers.push(api.delete(&path).await);
        answers.push(api.post(&format!("{path}/renew"), &json!({})).await);
        for answer in answers {
            assert_clean("an answer", &format!("{:?}\n{}", answer.headers, answer.text()));
        }
        for odd in [
            format!("GET /v1/leases HTTP/1.1\r\nHost: {GUESS}.example\r\n\r\n").replace(GUESS, "evil"),
            format!("GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {GUESS}\r\n\r\n"),
            format!("GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"),
            format!("GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\x00\r\n\r\n"),
            format!("GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization Bearer {TOKEN}\r\n\r\n"),
        ] {
            let answer = say(&api.address, odd).await;
            assert_clean("an odd answer", &format!("{}\n{}", answer.head, answer.body));
        }
        // Whoever talks to a local proxy as if it knew a password.
        let login = base64(&format!("crawler:{GUESS}"));
        let instance = self.lab.at(3001).to_string();
        let target = format!("127.0.0.1:{}", self.lab.origin.port);
        for head in [
            format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {login}\r\n\r\n"),
            format!(
                "GET http://{target}/?key={GUESS} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {login}\r\nConnection: close\r\n\r\n"
            ),
            format!("GET http://u:{GUESS}@{target}/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"),
            format!("GET http://127.0.0.1:1/?key={GUESS} HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n"),
        ] {
            let answer = say(&instance, head).await;
            assert_clean("a local proxy", &format!("{}\n{}", answer.head, answer.body));
        }
    }

    /// A proxy fails and recovers; a Secret comes late, changes, and goes.
    async fn changes(&self) {
        let site = &self.lab.site;
        self.passing.set(503);
        self.operator.wait_phase("default/login", "Unhealthy").await;
        self.passing.set(204);
        self.operator.wait_phase("default/login", "Ready").await;
        site.write("late-login.yaml", &login("late", LATE_PASSWORD));
        self.operator.wait_phase("default/late", "Ready").await;
        site.remove("late-login.yaml");
        self.operator.wait_phase("default/late", "Unhealthy").await;
        assert!(self.passing.heads().iter().any(|head| head.contains(&base64(&format!("crawler:{LATE_PASSWORD}")))));
        assert!(self.refusing.heads().iter().any(|head| head.contains(&base64(&format!("crawler:{WRONG_PASSWORD}")))));
    }

    /// OP-2: inline cloud-init and the check URL in the spec of their records, everything else nowhere.
    fn assert_disk_is_clean(&self) {
        let mut inline = 0;
        for (path, content) in files_below(&self.lab.site.path("state")) {
            let whole = String::from_utf8_lossy(&content).into_owned();
            let allowed: BTreeSet<&str> = found(&whole);
            if allowed.is_empty() {
                continue;
            }
            assert!(allowed.is_subset(&BTreeSet::from([INLINE, QUERY])), "{} holds {allowed:?}", path.display());
            let mut record: Value = serde_json::from_str(&whole).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            inline += usize::from(record["spec"]["cloudInit"]["inline"].as_str().is_some_and(|text| text.contains(INLINE)));
            record["spec"] = Value::Null;
            assert_clean(&format!("{} outside of the spec", path.display()), &record.to_string());
        }
        assert_eq!(inline, 1, "the spec of one object is kept as it is");
    }
}

#[test]
fn the_sentinels_are_looked_for_as_logins_too() {
    assert_eq!(["crawler:p", "a", "abc"].map(base64), ["Y3Jhd2xlcjpw", "YQ==", "YWJj"]);
    assert_eq!(found(&format!("Basic {}", base64(&format!("crawler:{PASSWORD}")))), BTreeSet::from([PASSWORD]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_any_log_status_metric_debug_output_or_error_s7() {
    let stage = Stage::new().await;
    stage.bad_manifests().await;
    stage.calls().await;
    stage.changes().await;
    for (path, view) in all_views(&stage.operator).await {
        assert_clean(&path, &view);
    }
    assert_clean("get", &shown_by_get(&stage.operator));
    stage.assert_disk_is_clean();
    let Stage { lab, mut operator, .. } = stage;
    assert_eq!(operator.terminate().await.code(), Some(0));
    let (log, stdout): (Vec<String>, Vec<String>) = (operator.stderr.iter().collect(), operator.stdout.iter().collect());
    assert!(log.len() > 50 && log.iter().any(|line| line.contains("\"level\":\"TRACE\"")), "{} lines", log.len());
    for line in &log {
        assert_is_a_line(line);
        assert_clean("the log", line);
    }
    assert_clean("stdout", &stdout.join("\n"));

    // As text for people, by the variable, and what a refused start says.
    let mut site = lab.site;
    site.flags.clear();
    site.env = vec![("DISCOVERY_TOKEN".to_owned(), TOKEN.to_owned()), ("EPO_LOG_LEVEL".to_owned(), "trace".to_owned())];
    let providers = site.path("providers.yaml").display().to_string();
    let site = site.flag("--log-format", "text").flag("--providers-config", &providers);
    let mut operator = site.start().up().await;
    operator.api = operator.api.with_token(TOKEN);
    operator.wait_phase("default/login", "Ready").await;
    let second = Command::new(BINARY)
        .args(["standalone", "--state", site.path("state").to_str().unwrap(), "--discovery-bind-address", "127.0.0.1:0"])
        .env("DISCOVERY_TOKEN", TOKEN)
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(2), "the state folder is locked");
    assert_clean("a refused start", &String::from_utf8_lossy(&[second.stdout, second.stderr].concat()));
    assert_clean("the log as text", &operator.kill().join("\n"));
}
