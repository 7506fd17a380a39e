//! `--metrics-secure` against a real API server: the reviewer under exactly the rights of IN-5, the listener over TLS, tokens
//! of real ServiceAccounts (OB-1).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use egress_kube::{Access, ApiClient};
use egress_protocol::Clock;
use egress_protocol::metrics::Metrics;
use egress_protocol::review;
use egress_proxies_operator::http::certificate;
use egress_proxies_operator::http::connection::Limits;
use egress_proxies_operator::http::listener::ListenerArgs;
use egress_proxies_operator::http::metrics::Exposition;
use egress_proxies_operator::http::server::Site;
use egress_proxies_operator::http::tls::Tls;
use egress_supervision::{Root, System};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{eventually, skip};

/// A namespace of the shared control plane, with names that no other test has.
struct Cluster {
    folder: PathBuf,
    kubectl: PathBuf,
    namespace: String,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for role in ["operator", "scraper"] {
            let name = self.name(role);
            let _ = self.command(&["delete", "--ignore-not-found", "--wait=false", "clusterrole,clusterrolebinding", &name]).output();
        }
        let _ = self.command(&["delete", "--ignore-not-found", "--wait=false", "namespace", &self.namespace]).output();
    }
}

impl Cluster {
    fn find(test: &str) -> Option<Self> {
        let (Some(folder), Some(kubectl)) = (std::env::var_os("EPO_BED_CONTROLPLANE"), std::env::var_os("KUBECTL")) else {
            skip(test, "no control plane: EPO_BED_CONTROLPLANE and KUBECTL are not set");
            return None;
        };
        let namespace = format!("metrics-{:08x}", rand::random::<u32>());
        let cluster = Self { folder: folder.into(), kubectl: kubectl.into(), namespace };
        cluster.kubectl(&["create", "namespace", &cluster.namespace]);
        for account in ["operator", "scraper", "stranger"] {
            cluster.kubectl(&["-n", &cluster.namespace, "create", "serviceaccount", account]);
        }
        Some(cluster)
    }

    /// Of what has no namespace.
    fn name(&self, role: &str) -> String {
        format!("{}-{role}", self.namespace)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.folder.join("admin.kubeconfig")).args(args);
        command
    }

    fn kubectl(&self, args: &[&str]) -> String {
        output(&mut self.command(args))
    }

    /// Applies an object.
    fn apply(&self, object: &Value) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        self.kubectl(&["apply", "-f", file.path().to_str().unwrap()]);
    }

    /// Rules for some accounts of the namespace.
    fn allow(&self, role: &str, rules: &Value, accounts: &[&str]) {
        let name = self.name(role);
        let meta = json!({"name": name});
        self.apply(&json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules}));
        let subjects: Vec<_> =
            accounts.iter().map(|account| json!({"kind": "ServiceAccount", "name": account, "namespace": self.namespace})).collect();
        self.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta, "subjects": subjects,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        }));
    }

    /// IN-5: what the chart gives the operator with secure metrics, and nothing else.
    fn allow_the_operator(&self) {
        let rules = json!([
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        ]);
        self.allow("operator", &rules, &["operator"]);
    }

    fn allow_to_scrape(&self, accounts: &[&str]) {
        self.allow("scraper", &json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]), accounts);
    }

    fn token(&self, account: &str, more: &[&str]) -> String {
        let args = [&["-n", &self.namespace, "create", "token", account][..], more].concat();
        self.kubectl(&args).trim().to_owned()
    }

    /// Who the operator is there.
    fn access(&self) -> Access {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bed/kubeconfig");
        let path = output(Command::new(script).arg(&self.folder).args(["operator", &self.namespace]));
        Access { kubeconfig: Some(path.trim().into()) }
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The two parts, as `run` starts them.
struct Secured {
    address: SocketAddr,
    tls: Tls,
    connector: tokio_rustls::TlsConnector,
    system: System,
    _roots: [Root; 2],
}

impl Secured {
    async fn start(access: Access) -> Self {
        let clock = Clock::system();
        let system = System::new(clock, Metrics::new(true).shared());
        let reviewer = system.start_root(egress_cluster::reviewer::spec(ApiClient::new(access))).await.unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        let tls = Tls::new(certificate::names("op-0", []), clock.now()).unwrap();
        let site = Site::new(Exposition::new(&system).reviewed(&system).routes(), address, Limits::default());
        let listener = ListenerArgs { name: "metrics", socket: Arc::new(socket), site }.secured(tls.clone());
        let listener = system.start_root(listener.spec()).await.unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(tls.certificate()).unwrap();
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Self { address, tls, connector: Arc::new(config).into(), system, _roots: [reviewer, listener] }
    }

    async fn scrape(&self, token: Option<&str>) -> (StatusCode, HeaderMap, String) {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let stream = self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::task::spawn(async move { drop(connection.await) });
        let mut request = Request::get("/metrics").header("host", "localhost");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        driver.abort();
        (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn status(&self, token: &str) -> u16 {
        self.scrape(Some(token)).await.0.as_u16()
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

#[tokio::test]
async fn a_scrape_is_for_bearers_whom_the_cluster_allows_it_ob_1() {
    let Some(cluster) = Cluster::find("a_scrape_is_for_bearers_whom_the_cluster_allows_it_ob_1") else { return };
    cluster.allow_the_operator();
    cluster.allow_to_scrape(&["scraper"]);
    let secured = Secured::start(cluster.access()).await;
    let (scraper, stranger) = (cluster.token("scraper", &[]), cluster.token("stranger", &[]));
    // The API server takes a moment to know of rules.
    secured.becomes("the rules are known", &scraper, 200).await;

    let (status, headers, text) = secured.scrape(Some(&scraper)).await;
    assert_eq!((status.as_u16(), &headers["content-type"]), (200, &"text/plain; version=0.0.4; charset=utf-8".parse().unwrap()));
    assert!(text.contains("# HELP proxy_operator_actors "), "{text}");
    let (status, headers, _) = secured.scrape(None).await;
    assert_eq!((status.as_u16(), &headers["www-authenticate"]), (401, &"Bearer".parse().unwrap()));
    for unknown in ["made-up", &format!("{}x", scraper), &scraper[..scraper.len() - 4]] {
        assert_eq!(secured.status(unknown).await, 401, "{unknown}");
    }
    let (status, _, text) = secured.scrape(Some(&stranger)).await;
    assert_eq!(status.as_u16(), 403, "{text}");
    assert!(text.contains(&format!("system:serviceaccount:{}:stranger may not get /metrics", cluster.namespace)), "{text}");
    // A token for somebody else's ears is none for ours.
    let foreign = cluster.token("scraper", &["--audience", "https://vault.example"]);
    assert_eq!(secured.status(&foreign).await, 401);

    // A Go client, as Prometheus is, that trusts that certificate only.
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("ca.pem");
    let encoded = data_encoding::BASE64.encode(&secured.tls.certificate());
    std::fs::write(&pem, format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n")).unwrap();
    let raw = |host: &str, token: &str| {
        let mut command = Command::new(&cluster.kubectl);
        let server = format!("https://{host}:{}", secured.address.port());
        command.args(["--kubeconfig=/dev/null", "--server", &server, "--certificate-authority"]).arg(&pem);
        command.args(["--token", token, "get", "--raw", "/metrics"]).current_dir(folder.path());
        tokio::task::spawn_blocking(move || command.output().unwrap())
    };
    for host in ["localhost", "127.0.0.1"] {
        let got = raw(host, &scraper).await.unwrap();
        assert!(got.status.success() && got.stdout.starts_with(b"# HELP proxy_operator_"), "{host}: {got:?}");
    }
    assert!(!raw("localhost", &stranger).await.unwrap().status.success());

    cluster.allow_to_scrape(&["scraper", "stranger"]);
    let took = secured.becomes("a right that was given counts", &stranger, 200).await;
    assert!(took < Duration::from_secs(15), "{took:?}");
    cluster.allow_to_scrape(&["scraper"]);
    let took = secured.becomes("a right that was taken counts no more", &stranger, 403).await;
    assert!(took < Duration::from_secs(30), "verdicts are kept 10 s: {took:?}");
    let state = secured.system.inspect(Some(review::ACTOR_ID), Some(0)).await.unwrap().state.unwrap();
    assert!(!state.to_string().contains(&scraper) && state["allowed"].as_u64() >= Some(1), "{state}");
}

#[tokio::test]
async fn a_token_that_was_deleted_ends_with_what_it_was_bound_to_ob_1() {
    let Some(cluster) = Cluster::find("a_token_that_was_deleted_ends_with_what_it_was_bound_to_ob_1") else { return };
    cluster.allow_the_operator();
    cluster.allow_to_scrape(&["scraper"]);
    let secured = Secured::start(cluster.access()).await;
    cluster.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bound", "namespace": cluster.namespace}}));
    let bound = cluster.token("scraper", &["--bound-object-kind", "Secret", "--bound-object-name", "bound"]);
    let other = cluster.token("scraper", &[]);
    for token in [&bound, &other] {
        secured.becomes("the rules are known", token, 200).await;
    }
    cluster.kubectl(&["-n", &cluster.namespace, "delete", "secret", "bound"]);
    // The API server itself remembers a good token for 10 s, as we do.
    let took = secured.becomes("a token without its Secret is unknown", &bound, 401).await;
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert_eq!(secured.status(&other).await, 200, "the account's other token goes on");
    cluster.kubectl(&["-n", &cluster.namespace, "delete", "serviceaccount", "scraper"]);
    let took = secured.becomes("a token without its account is unknown", &other, 401).await;
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[tokio::test]
async fn without_its_own_rights_or_an_api_server_the_operator_answers_503_ob_1_in_5() {
    let Some(cluster) = Cluster::find("without_its_own_rights_or_an_api_server_the_operator_answers_503_ob_1_in_5") else { return };
    cluster.allow_to_scrape(&["scraper"]);
    let access = cluster.access();
    let secured = Secured::start(access.clone()).await;
    let token = cluster.token("scraper", &[]);
    let (status, headers, text) = secured.scrape(Some(&token)).await;
    assert_eq!((status.as_u16(), &headers["retry-after"]), (503, &"2".parse().unwrap()), "{text}");
    assert!(!text.contains("tokenreviews"), "why is for the log: {text}");
    let state = secured.system.inspect(Some(review::ACTOR_ID), Some(0)).await.unwrap().state.unwrap();
    let reason = state["unavailable"].as_str().unwrap();
    assert!(reason.contains(&format!("system:serviceaccount:{}:operator", cluster.namespace)) && reason.contains("(403)"), "{reason}");
    cluster.allow_the_operator();
    secured.becomes("the rights were given", &token, 200).await;

    // The same credentials, where nobody listens.
    let mut away: Value = serde_json::from_str(&cluster.kubectl(&["config", "view", "--raw", "-o", "json"])).unwrap();
    away["clusters"][0]["cluster"]["server"] = format!("https://127.0.0.1:{}", crate::support::free_port()).into();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), away.to_string()).unwrap();
    let secured = Secured::start(Access { kubeconfig: Some(file.path().to_owned()) }).await;
    assert_eq!(secured.status(&token).await, 503);
}
