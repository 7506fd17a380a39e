//! Proxies that we did not write: Debian's squid and tinyproxy as External proxies, good ones and every way to fail, in one
//! process (HE-1, 3, 7, 10, 12, M7, M8).

use std::collections::BTreeMap;
use std::time::Duration;

use egress_manifests::Record;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::documents::{CREDENTIALS, external, proxy, secret};
use crate::support::operator::{Operator, Site};
use crate::support::origin::{Authority, Manner, Origin};
use crate::support::third_party::{SQUID, TINYPROXY, ThirdParty, has, squid, tinyproxy};
use crate::support::{eventually, free_port, skip};

const TOKEN: &str = "token-that-may-do-all";
const PASSWORD: &str = "sw0rdfish";
/// Where squid's connections to targets come from: an address of its own, so that it is seen who fetched.
const EGRESS: &str = "127.0.0.77";

/// What a proxy is to come to: healthy, or the reason and what its message says.
type Expected = Option<(&'static str, &'static str)>;

fn check(url: &str) -> Value {
    json!({"url": url, "intervalSeconds": 3, "timeoutSeconds": 3, "failureThreshold": 1})
}

fn login(name: &str, password: &str) -> String {
    secret(&format!("default/{name}"), CREDENTIALS, &json!({"username": "crawler", "password": password}))
}

/// All that the table below needs.
struct Cast {
    squid: ThirdParty,
    squid_with_login: ThirdParty,
    squid_that_denies: ThirdParty,
    tiny: ThirdParty,
    tiny_with_login: ThirdParty,
    tiny_that_denies: ThirdParty,
    origin: Origin,
    nonsense: Origin,
    untrusted: Origin,
    silent: Origin,
    unavailable: Origin,
    /// Accepts and says nothing, as a proxy.
    mute: Origin,
    closed: u16,
    authority: Authority,
}

impl Cast {
    async fn new() -> Self {
        let authority = Authority::new();
        let login = format!("tcp_outgoing_address {EGRESS}");
        Self {
            squid: squid(None, "").await,
            squid_with_login: squid(Some(PASSWORD), &login).await,
            squid_that_denies: squid(None, "http_access deny CONNECT").await,
            tiny: tinyproxy(None, &[]).await,
            tiny_with_login: tinyproxy(Some(PASSWORD), &[]).await,
            tiny_that_denies: tinyproxy(None, &[1]).await,
            origin: Origin::https(Manner::Fine, &authority).await,
            nonsense: Origin::http(Manner::Nonsense).await,
            untrusted: Origin::https(Manner::Fine, &Authority::new()).await,
            silent: Origin::http(Manner::Silent).await,
            unavailable: Origin::https(Manner::Unavailable, &authority).await,
            mute: Origin::http(Manner::Silent).await,
            closed: free_port(),
            authority,
        }
    }

    /// Name, spec, what becomes of it. Each failing one has a check URL of its own: none is suspect (HE-9).
    fn table(&self) -> Vec<(&'static str, Value, Expected)> {
        let url = |name: &str, origin: &Origin| check(&format!("https://127.0.0.1:{}/{name}/generate_204", origin.port));
        let at = |port: u16, login: Option<&str>, check: Value| external(port, 5, login, &check);
        let plain = |port: u16, name: &str, origin: &Origin| at(port, None, url(name, origin));
        let reports = json!({"url": format!("https://localhost:{}/ip", self.origin.port), "intervalSeconds": 3, "timeoutSeconds": 3,
            "expectedStatus": 200, "reportsAddress": true});
        let mut elsewhere = plain(80, "link-local", &self.origin);
        elsewhere["endpoint"]["host"] = json!("169.254.169.254");
        let (squid, tiny) = (self.squid.port, self.tiny.port);
        vec![
            ("squid", plain(squid, "squid", &self.origin), None),
            ("tiny", plain(tiny, "tiny", &self.origin), None),
            ("squid-login", at(self.squid_with_login.port, Some("right"), reports), None),
            ("tiny-login", at(self.tiny_with_login.port, Some("right"), url("tiny-login", &self.origin)), None),
            (
                "squid-wrong",
                at(self.squid_with_login.port, Some("wrong"), url("squid-wrong", &self.origin)),
                Some(("ProxyAuthRequired", "status 407")),
            ),
            (
                "tiny-wrong",
                at(self.tiny_with_login.port, Some("wrong"), url("tiny-wrong", &self.origin)),
                Some(("ProxyAuthRequired", "status 401")),
            ),
            (
                "squid-anonymous",
                plain(self.squid_with_login.port, "squid-anonymous", &self.origin),
                Some(("ProxyAuthRequired", "asks for credentials")),
            ),
            (
                "tiny-anonymous",
                plain(self.tiny_with_login.port, "tiny-anonymous", &self.origin),
                Some(("ProxyAuthRequired", "asks for credentials")),
            ),
            ("closed", plain(self.closed, "closed", &self.origin), Some(("ConnectFailed", "connection refused"))),
            (
                "squid-denies",
                plain(self.squid_that_denies.port, "squid-denies", &self.origin),
                Some(("ProxyRefused", "was answered with 403")),
            ),
            (
                "tiny-denies",
                plain(self.tiny_that_denies.port, "tiny-denies", &self.origin),
                Some(("ProxyRefused", "was answered with 403")),
            ),
            ("nonsense", plain(squid, "nonsense", &self.nonsense), Some(("TLSFailed", "the peer does not speak TLS"))),
            ("untrusted", plain(tiny, "untrusted", &self.untrusted), Some(("TLSFailed", "not signed by a trusted issuer"))),
            (
                "squid-no-name",
                at(squid, None, check("https://no-such-name.invalid/generate_204")),
                Some(("ProxyRefused", "was answered with 50")),
            ),
            (
                "target-closed",
                at(tiny, None, check(&format!("https://127.0.0.1:{}/generate_204", self.closed))),
                Some(("ProxyRefused", "was answered with 50")),
            ),
            ("link-local", elsewhere, Some(("NotAllowed", "169.254.169.254"))),
            (
                "metadata-url",
                at(squid, None, check("http://169.254.169.254/latest/meta-data")),
                Some(("NotAllowed", "the check URL's host 169.254.169.254")),
            ),
            ("mute", plain(self.mute.port, "mute", &self.origin), Some(("Timeout", "in stage CONNECT"))),
            ("silent", plain(tiny, "silent", &self.silent), Some(("Timeout", "in stage TLS"))),
            ("unavailable", plain(squid, "unavailable", &self.unavailable), Some(("UnexpectedStatus", "status 503 instead of 204"))),
        ]
    }
}

/// The record of a proxy, once its verdict is there.
fn records(site: &Site) -> BTreeMap<String, Record> {
    let inspection = egress_manifests::inspect(&site.path("state")).unwrap();
    inspection.objects.into_iter().map(|record| (record.key.name.to_string(), record)).collect()
}

/// Status, reason and message of the condition `Healthy`.
fn healthy(record: &Record) -> Option<(String, String, String)> {
    let found = record.status.conditions.iter().find(|condition| condition.type_ == "Healthy")?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

async fn wait_until(site: &Site, name: &str, expected: Expected) {
    let mut last = None;
    let seen = std::cell::RefCell::new(&mut last);
    let as_expected = |found: &(String, String, String)| match expected {
        None => found.0 == "True" && found.1 == "ProbeSucceeded",
        Some((reason, words)) => {
            found.0 == "False" && found.1 == "ProbeFailed" && found.2.starts_with(&format!("{reason}: ")) && found.2.contains(words)
        }
    };
    let wait = eventually(name, Duration::from_secs(30), || async {
        let found = records(site).get(name).and_then(healthy);
        let reached = found.as_ref().is_some_and(as_expected);
        **seen.borrow_mut() = found;
        reached.then_some(())
    });
    if tokio::time::timeout(Duration::from_secs(29), wait).await.is_err() {
        panic!("{name} should be {expected:?}, is {:?}", seen.borrow());
    }
}

async fn api_says(operator: &Operator, name: &str, healthy: bool) {
    let item = operator.api.get(&format!("/v1/proxies/default/{name}")).await.json();
    let phase = if healthy { "Ready" } else { "Unhealthy" };
    assert_eq!((&item["healthy"], &item["phase"]), (&json!(healthy), &json!(phase)), "{item}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_proxies_are_healthy_and_every_failure_is_told_apart_he_3_m8() {
    let name = "real_proxies_are_healthy_and_every_failure_is_told_apart_he_3_m8";
    if !has(SQUID) || !has(TINYPROXY) {
        return skip(name, "squid or tinyproxy is not installed");
    }
    let cast = Cast::new().await;
    let table = cast.table();
    let mut site = Site::new();
    let (authority, pem) = (site.path("authority.pem"), cast.authority.pem.clone());
    std::fs::write(&authority, pem).unwrap();
    site = site.flag("--check-ca-file", authority.to_str().unwrap()).flag("--check-url-allow", "127.0.0.0/8");
    site.env.push(("DISCOVERY_TOKEN".to_owned(), TOKEN.to_owned()));
    let documents: String = table.iter().map(|(name, spec, _)| proxy(&format!("default/{name}"), spec)).collect();
    site.write("proxies.yaml", &documents);
    site.write("logins.yaml", &(login("right", PASSWORD) + &login("wrong", "guess")));
    let mut operator = site.start().up().await;
    operator.api = operator.api.with_token(TOKEN);

    // Each reason in the status and, as a label, in the metrics.
    for (name, _, expected) in &table {
        wait_until(&site, name, *expected).await;
        api_says(&operator, name, expected.is_none()).await;
    }
    let metrics = operator.metrics.get("/metrics").await.text();
    for (name, _, expected) in &table {
        for reason in ["ConnectFailed", "ProxyRefused", "ProxyAuthRequired", "TLSFailed", "UnexpectedStatus", "Timeout", "NotAllowed"] {
            let series = format!("proxy_operator_healthcheck_failures_total{{proxy=\"default/{name}\",reason=\"{reason}\"}}");
            let counted = metrics.lines().any(|line| line.starts_with(&series) && !line.ends_with(" 0"));
            assert_eq!(counted, expected.is_some_and(|(expected, _)| expected == reason), "{series}\n{metrics}");
        }
    }

    // None of them took down another: two rounds later everything stands as it did.
    let probed = cast.origin.hits();
    eventually("two more rounds of probes", Duration::from_secs(30), || async { (cast.origin.hits() >= probed + 8).then_some(()) }).await;
    for (name, _, expected) in &table {
        wait_until(&site, name, *expected).await;
        api_says(&operator, name, expected.is_none()).await;
    }
    assert_eq!(operator.health.get("/readyz").await.status, 200);

    the_lease_says_who_answers_and_what_the_target_sees_m7(&operator, &cast, authority.to_str().unwrap()).await;

    // The right password heals; a Secret without its label is none (HE-12).
    site.write("logins.yaml", &(login("right", PASSWORD) + &login("wrong", PASSWORD)));
    wait_until(&site, "squid-wrong", None).await;
    wait_until(&site, "tiny-wrong", None).await;
    site.write("logins.yaml", &(login("right", PASSWORD) + &login("wrong", PASSWORD).replace(CREDENTIALS, "crawl.example.com/cloud-init")));
    eventually("credentials without the label do not resolve", Duration::from_secs(20), || async {
        let (status, reason, message) = healthy(records(&site).get("tiny-wrong")?)?;
        (status == "False" && reason == "CredentialsUnresolved" && message.contains("default/wrong lacks the label")).then_some(())
    })
    .await;
    api_says(&operator, "tiny-login", true).await;
}

/// M7: the grant names the proxy and the address that a target sees, and curl through it shows the same.
async fn the_lease_says_who_answers_and_what_the_target_sees_m7(operator: &Operator, cast: &Cast, authority: &str) {
    let lease = operator.api.post("/v1/leases", &json!({"selector": {"name": "squid-login"}, "target": "localhost"})).await;
    assert_eq!(lease.status, 201, "{}", lease.text());
    let lease = lease.json();
    let proxy = &lease["proxy"];
    assert_eq!((&proxy["name"], &proxy["egressIP"]), (&json!("squid-login"), &json!(EGRESS)), "{lease}");
    let login = format!("{}:{}", proxy["credentials"]["username"].as_str().unwrap(), proxy["credentials"]["password"].as_str().unwrap());
    let fetch = |login: Option<String>| {
        let mut curl = tokio::process::Command::new("curl");
        curl.args(["-sS", "--noproxy", "", "--max-time", "20", "--cacert", authority, "-x", proxy["url"].as_str().unwrap()]);
        curl.args(login.iter().flat_map(|login| ["--proxy-user", login]));
        curl.arg(format!("https://localhost:{}/ip", cast.origin.port)).output()
    };
    let fetched = fetch(Some(login)).await.unwrap();
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    assert_eq!(String::from_utf8_lossy(&fetched.stdout), EGRESS, "the target sees what the lease says");
    let without = fetch(None).await.unwrap();
    assert!(String::from_utf8_lossy(&without.stderr).contains("407"), "the password is what opens it");
}

/// OP-13, HE-1: a proxy that dies and one that comes back, while its neighbour never notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_squid_that_is_killed_turns_unhealthy_alone() {
    if !has(SQUID) {
        return skip("a_squid_that_is_killed_turns_unhealthy_alone", "squid is not installed");
    }
    let (doomed, stays) = tokio::join!(squid(None, ""), squid(None, ""));
    let origin = Origin::http(Manner::Fine).await;
    let site = Site::new();
    for (name, proxied) in [("doomed", &doomed), ("stays", &stays)] {
        let check = check(&format!("http://127.0.0.1:{}/{name}/generate_204", origin.port));
        site.write(&format!("{name}.yaml"), &proxy(&format!("default/{name}"), &external(proxied.port, 1, None, &check)));
    }
    let operator = site.start().up().await;
    for name in ["doomed", "stays"] {
        operator.wait_phase(&format!("default/{name}"), "Ready").await;
    }
    let port = doomed.port;
    drop(doomed);
    wait_until(&site, "doomed", Some(("ConnectFailed", "connection refused"))).await;
    api_says(&operator, "stays", true).await;
    // Anything may listen there now: what answers no HTTP is no proxy.
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let mut garbling = tokio::task::JoinSet::new();
    garbling.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"220 mail.example ESMTP\r\n").await;
        }
    });
    let metric = "proxy_operator_healthcheck_failures_total{proxy=\"default/doomed\",reason=\"ProxyRefused\"}";
    eventually("what is not HTTP is refused", Duration::from_secs(20), || async {
        operator.metrics.get("/metrics").await.text().contains(metric).then_some(())
    })
    .await;
    api_says(&operator, "doomed", false).await;
    api_says(&operator, "stays", true).await;
}
