//! `run --metrics-secure` against a real API server: under exactly the chart's rules, over TLS, with tokens of real
//! ServiceAccounts (OB-1, IN-5).

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::support::cluster::{ClusterSite, ControlPlane, NAME, Namespace};
use crate::support::eventually;
use crate::support::lab::own_address;
use crate::support::operator::Operator;

const SECURE: &[&str] = &["metrics.enabled=true", "metrics.secure=true"];
const PLAIN: &[&str] = &["metrics.enabled=true", "metrics.secure=false"];
const SCRAPER: &str = "scraper";
const STRANGER: &str = "stranger";

/// The operator's namespace, with accounts that may ask it and that may not.
struct World<'a> {
    plane: &'a ControlPlane,
    home: Namespace<'a>,
    role: String,
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.plane.try_kubectl(&["delete", "--ignore-not-found", "--wait=false", "clusterrole,clusterrolebinding", &self.role], "");
    }
}

impl<'a> World<'a> {
    fn of(plane: &'a ControlPlane, rules: &[&str]) -> Self {
        let home = plane.namespace("metrics");
        for account in [SCRAPER, STRANGER] {
            plane.kubectl(&["-n", &home.name, "create", "serviceaccount", account]);
        }
        let world = Self { plane, role: home.name.clone(), home };
        world.rules(rules);
        world.allow(&[SCRAPER]);
        world
    }

    /// The operator's own.
    fn rules(&self, values: &[&str]) {
        self.plane.install_rules(&self.home.name, Some(&self.home.name), values);
    }

    /// Who may scrape.
    fn allow(&self, accounts: &[&str]) {
        let (metadata, group) = (json!({"name": self.role}), "rbac.authorization.k8s.io");
        let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
        let subjects: Vec<_> =
            accounts.iter().map(|name| json!({"kind": "ServiceAccount", "name": name, "namespace": self.home.name})).collect();
        let version = format!("{group}/v1");
        self.plane.apply(&json!({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules}).to_string());
        let role = json!({"apiGroup": group, "kind": "ClusterRole", "name": self.role});
        let binding =
            json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata, "subjects": subjects, "roleRef": role});
        self.plane.apply(&binding.to_string());
    }

    fn token(&self, account: &str, more: &[&str]) -> String {
        let args = [&["-n", &self.home.name, "create", "token", account][..], more].concat();
        self.plane.kubectl(&args).trim().to_owned()
    }

    fn site(&self) -> ClusterSite {
        let kubeconfig = self.plane.kubeconfig(NAME, &self.home.name);
        let mut site = ClusterSite::new(kubeconfig, &own_address().to_string())
            .flag("--proxy-namespace", &self.home.name)
            .flag("--pod-namespace", &self.home.name)
            .flag("--pod-name", "op-0")
            .flag("--pod-ip", "192.0.2.7")
            .flag("--log-level", "trace");
        site.env.push(("EPO_METRICS_SECURE".to_owned(), "true".to_owned()));
        site
    }
}

/// Takes any certificate and remembers it: what a person does with `openssl s_client` before they trust it.
#[derive(Debug)]
struct FirstSight(Mutex<Option<CertificateDer<'static>>>);

impl ServerCertVerifier for FirstSight {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.0.lock().unwrap() = Some(certificate.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A scraper that trusts the certificate it was given.
struct Scraper {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    connector: TlsConnector,
}

impl Scraper {
    /// Waits until the listener is there, and takes its certificate.
    async fn of(operator: &Operator) -> Self {
        egress_proxies_operator::tls::install();
        let address: SocketAddr = operator.metrics.address.parse().unwrap();
        let seen = Arc::new(FirstSight(Mutex::default()));
        let config = ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::clone(&seen) as _).with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        eventually("the metrics listener shakes hands", Duration::from_secs(30), || async {
            let stream = tokio::net::TcpStream::connect(address).await.ok()?;
            connector.connect(name("localhost"), stream).await.ok()
        })
        .await;
        let certificate = seen.0.lock().unwrap().clone().unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Self { address, certificate, connector: Arc::new(config).into() }
    }

    async fn ask(&self, host: &str, token: Option<&str>) -> Result<(StatusCode, HeaderMap, String), String> {
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let stream = tokio::net::TcpStream::connect(self.address).await.map_err(|e| told(&e))?;
        let stream = self.connector.connect(name(host), stream).await.map_err(|e| told(&e))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| told(&e))?;
        let driver = tokio::task::spawn(async move { drop(connection.await) });
        let mut request = Request::get("/metrics").header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.map_err(|e| told(&e))?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(|e| told(&e))?.to_bytes();
        driver.abort();
        Ok((parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap()))
    }

    async fn scrape(&self, token: Option<&str>) -> (u16, HeaderMap, String) {
        let (status, headers, text) = self.ask("localhost", token).await.unwrap();
        (status.as_u16(), headers, text)
    }

    async fn status(&self, token: &str) -> u16 {
        self.scrape(Some(token)).await.0
    }

    /// Waits for that status; how long it took.
    async fn becomes(&self, what: &str, token: &str, status: u16) -> Duration {
        let start = Instant::now();
        eventually(what, Duration::from_secs(60), || async {
            tokio::time::sleep(Duration::from_millis(250)).await;
            (self.status(token).await == status).then_some(())
        })
        .await;
        start.elapsed()
    }
}

fn name(host: &str) -> ServerName<'static> {
    ServerName::try_from(host.to_owned()).unwrap()
}

async fn reviewer(operator: &Operator) -> Value {
    operator.debug.get("/debug/actors?id=metrics-reviewer").await.json()["state"].clone()
}

#[tokio::test]
async fn a_scrape_is_for_bearers_whom_the_cluster_allows_it_ob_1() {
    let Some(plane) = ControlPlane::shared("a_scrape_is_for_bearers_whom_the_cluster_allows_it_ob_1") else { return };
    let world = World::of(&plane, SECURE);
    let site = world.site();
    let operator = site.start().up().await;
    let scraper = Scraper::of(&operator).await;
    let (token, stranger) = (world.token(SCRAPER, &[]), world.token(STRANGER, &[]));
    // The API server takes a moment to know of rules.
    scraper.becomes("the rules are known", &token, 200).await;

    let (status, headers, text) = scraper.scrape(Some(&token)).await;
    assert_eq!((status, &headers["content-type"]), (200, &"text/plain; version=0.0.4; charset=utf-8".parse().unwrap()));
    assert!(text.contains("# HELP proxy_operator_actors "), "{text}");
    let (status, headers, _) = scraper.scrape(None).await;
    assert_eq!((status, &headers["www-authenticate"]), (401, &"Bearer".parse().unwrap()));
    for unknown in ["made-up", &format!("{token}x"), &token[..token.len() - 4]] {
        assert_eq!(scraper.status(unknown).await, 401, "{unknown}");
    }
    let (status, _, text) = scraper.scrape(Some(&stranger)).await;
    assert_eq!(status, 403, "{text}");
    assert!(text.contains(&format!("system:serviceaccount:{}:stranger may not get /metrics", world.home.name)), "{text}");
    // A token for somebody else's ears is none for ours.
    let foreign = world.token(SCRAPER, &["--audience", "https://vault.example"]);
    assert_eq!(scraper.status(&foreign).await, 401);
    for host in ["localhost", "127.0.0.1", "op-0", "192.0.2.7"] {
        assert_eq!(scraper.ask(host, Some(&token)).await.unwrap().0.as_u16(), 200, "{host}");
    }
    assert!(scraper.ask("192.0.2.8", Some(&token)).await.unwrap_err().contains("not valid for name"));

    world.allow(&[SCRAPER, STRANGER]);
    let took = scraper.becomes("a right that was given counts", &stranger, 200).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    world.allow(&[SCRAPER]);
    let took = scraper.becomes("a right that was taken counts no more", &stranger, 403).await;
    assert!(took < Duration::from_secs(30), "verdicts are kept 10 s: {took:?}");

    let state = reviewer(&operator).await;
    assert!(state["allowed"].as_u64() >= Some(1) && state.get("unavailable").is_none(), "{state}");
    let listener = operator.debug.get("/debug/actors?id=http/metrics").await.json()["state"].clone();
    assert!(listener["certificateUntil"].is_string(), "{listener}");
    let log = operator.kill();
    assert!(log.iter().any(|line| line.contains("scrape refused") && line.contains("stranger")), "{log:?}");
    for line in log {
        for secret in [&token, &stranger, &foreign] {
            assert!(!line.contains(secret.as_str()), "{line}");
        }
    }
}

/// Go's client, as Prometheus has it, trusting that certificate only.
#[tokio::test]
async fn a_go_client_that_was_given_the_certificate_scrapes_ob_1() {
    let Some(plane) = ControlPlane::shared("a_go_client_that_was_given_the_certificate_scrapes_ob_1") else { return };
    let world = World::of(&plane, SECURE);
    let site = world.site();
    let operator = site.start().up().await;
    let scraper = Scraper::of(&operator).await;
    let (token, stranger) = (world.token(SCRAPER, &[]), world.token(STRANGER, &[]));
    scraper.becomes("the rules are known", &token, 200).await;
    let pem = site.dir.path().join("ca.pem");
    let encoded = data_encoding::BASE64.encode(&scraper.certificate);
    std::fs::write(&pem, format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n")).unwrap();
    let raw = |host: &str, token: &str| {
        let mut command = Command::new(std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()));
        let server = format!("https://{host}:{}", scraper.address.port());
        command.args(["--kubeconfig=/dev/null", "--server", &server, "--certificate-authority"]).arg(&pem);
        command.args(["--token", token, "get", "--raw", "/metrics"]).current_dir(site.dir.path());
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    for host in ["localhost", "127.0.0.1"] {
        let got = raw(host, &token).await.unwrap();
        assert!(got.status.success() && got.stdout.starts_with(b"# HELP proxy_operator_"), "{host}: {got:?}");
    }
    let refused = raw("localhost", &stranger).await.unwrap();
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("Forbidden"), "{refused:?}");
}

#[tokio::test]
async fn a_token_ends_with_what_it_was_bound_to_ob_1() {
    let Some(plane) = ControlPlane::shared("a_token_ends_with_what_it_was_bound_to_ob_1") else { return };
    let world = World::of(&plane, SECURE);
    let operator = world.site().start().up().await;
    let scraper = Scraper::of(&operator).await;
    plane.kubectl(&["-n", &world.home.name, "create", "secret", "generic", "bound"]);
    let bound = world.token(SCRAPER, &["--bound-object-kind", "Secret", "--bound-object-name", "bound"]);
    let other = world.token(SCRAPER, &[]);
    for token in [&bound, &other] {
        scraper.becomes("the rules are known", token, 200).await;
    }
    plane.kubectl(&["-n", &world.home.name, "delete", "secret", "bound"]);
    // The API server itself remembers a good token for 10 s, as we do.
    let took = scraper.becomes("a token without its Secret is unknown", &bound, 401).await;
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert_eq!(scraper.status(&other).await, 200, "the account's other token goes on");
    plane.kubectl(&["-n", &world.home.name, "delete", "serviceaccount", SCRAPER]);
    let took = scraper.becomes("a token without its account is unknown", &other, 401).await;
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[tokio::test]
async fn without_its_own_rights_the_operator_answers_503_and_says_once_what_to_do_ob_1_in_5() {
    let Some(plane) = ControlPlane::shared("without_its_own_rights_the_operator_answers_503_and_says_once_what_to_do_ob_1_in_5") else {
        return;
    };
    let world = World::of(&plane, PLAIN);
    let operator = world.site().start().up().await;
    let scraper = Scraper::of(&operator).await;
    let token = world.token(SCRAPER, &[]);
    for _ in 0..3 {
        let (status, headers, text) = scraper.scrape(Some(&token)).await;
        assert_eq!((status, &headers["retry-after"]), (503, &"2".parse().unwrap()), "{text}");
        assert!(!text.contains("tokenreviews"), "why is for the log: {text}");
    }
    let reason = reviewer(&operator).await["unavailable"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains(&format!("system:serviceaccount:{}:{NAME}", world.home.name)) && reason.contains("(403)"), "{reason}");
    world.rules(SECURE);
    scraper.becomes("the rights were given", &token, 200).await;
    let log = operator.kill();
    let said = |text: &str| log.iter().filter(|line| line.contains(text)).count();
    assert_eq!(said("WARNING: the API server does not review tokens, scrapes are answered 503"), 1);
    assert_eq!(said("the API server reviews tokens again"), 1);
}

#[tokio::test]
async fn without_an_api_server_a_scrape_is_503_and_then_200_again_ob_1() {
    let Some(plane) = ControlPlane::own("without_an_api_server_a_scrape_is_503_and_then_200_again_ob_1") else { return };
    let world = World::of(&plane, SECURE);
    let operator = world.site().start().up().await;
    let scraper = Scraper::of(&operator).await;
    let token = world.token(SCRAPER, &[]);
    scraper.becomes("the rules are known", &token, 200).await;
    plane.part("kill", "apiserver");
    scraper.becomes("verdicts do not last", &token, 503).await;
    let start = Instant::now();
    let (status, headers, _) = scraper.scrape(Some(&token)).await;
    assert_eq!((status, &headers["retry-after"]), (503, &"2".parse().unwrap()));
    assert!(start.elapsed() < Duration::from_secs(9), "a scraper waits 10 s: {:?}", start.elapsed());
    plane.part("start", "apiserver");
    scraper.becomes("the API server is back", &token, 200).await;
}

#[test]
fn a_secured_listener_needs_an_address_op_27() {
    let told = Command::new(crate::support::operator::BINARY)
        .args(["run", "--metrics-secure", "--providers-config", "/nonexistent"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(2), "{text}");
    assert!(text.contains("--metrics-secure: ") && text.contains("--metrics-bind-address is 0"), "{text}");
}
