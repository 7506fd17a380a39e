//! Bad input of every kind (issue 3): a named field, the right status, and the process lives.

use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::documents;
use crate::support::operator::{BINARY, Operator, Site};
use crate::support::switch::{Pace, Switch};
use crate::support::wire::{Spoken, say};
use crate::support::{eventually, free_port};

const TOKEN: &str = "token-that-may-do-all";

/// Kinds of manifests: the text, and the path that a fault must name.
fn manifests() -> Vec<(&'static str, String, &'static str)> {
    let head = "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\n";
    let proxy = |name: &str, spec: &str| format!("{head}metadata: {{name: {name}}}\nspec: {{{spec}}}\n");
    let managed = |name: &str, more: &str| proxy(name, &format!("mode: Managed, provider: local{more}"));
    let secret = |more: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: bad}}\n{more}\n");
    vec![
        ("a text", "just a text\n".to_owned(), ""),
        ("a list", "[1, 2]\n".to_owned(), ""),
        ("no YAML", "spec: [1, 2\n".to_owned(), ""),
        ("an unknown alias", "a: *nowhere\n".to_owned(), ""),
        ("binary", "\u{0}\u{1}\u{2}".to_owned(), ""),
        ("no kind", "apiVersion: v1\n".to_owned(), "kind"),
        ("a foreign kind", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n".to_owned(), "kind"),
        (
            "a wrong apiVersion",
            "apiVersion: v1\nkind: Proxy\nmetadata: {name: a}\nspec: {mode: Managed, provider: local}\n".to_owned(),
            "apiVersion",
        ),
        ("no name", format!("{head}spec: {{mode: Managed, provider: local}}\n"), "metadata.name"),
        ("a bad name", managed("Px_2", ""), "metadata.name"),
        (
            "a bad namespace",
            format!("{head}metadata: {{name: a, namespace: A}}\nspec: {{mode: Managed, provider: local}}\n"),
            "metadata.namespace",
        ),
        ("no spec", format!("{head}metadata: {{name: bad-1}}\n"), "spec"),
        ("no mode", proxy("bad-2", "provider: local"), "spec.mode"),
        ("an unknown mode", proxy("bad-3", "mode: managed, provider: local"), "spec.mode"),
        ("Managed without a provider", proxy("bad-4", "mode: Managed"), "spec.provider"),
        ("External with a provider", proxy("bad-5", "mode: External, endpoint: {host: a}, provider: x"), "spec.provider"),
        ("External without an endpoint", proxy("bad-6", "mode: External"), "spec.endpoint"),
        ("a host with a scheme", proxy("bad-7", "mode: External, endpoint: {host: 'http://a'}"), "spec.endpoint.host"),
        ("an unknown field", managed("bad-8", ", prot: 1"), "spec.prot"),
        ("a field twice", managed("bad-9", ", port: 1, port: 2"), "spec.port"),
        ("port 0", managed("bad-10", ", port: 0"), "spec.port"),
        ("port 65536", managed("bad-11", ", port: 65536"), "spec.port"),
        ("a port in words", managed("bad-12", ", port: http"), "spec.port"),
        ("negative places", managed("bad-13", ", maxLeases: -1"), "spec.maxLeases"),
        ("an attribute that YAML takes for false", managed("bad-14", ", attributes: {geo: no}"), "spec.attributes.geo"),
        ("an attribute too long", managed("bad-15", &format!(", attributes: {{geo: {}}}", "x".repeat(64))), "spec.attributes.geo"),
        ("timeout above interval", managed("bad-16", ", healthCheck: {timeoutSeconds: 31}"), "spec.healthCheck"),
        ("a check URL of another scheme", managed("bad-17", ", healthCheck: {url: 'ftp://a/'}"), "spec.healthCheck.url"),
        ("a check URL with a password", managed("bad-18", ", healthCheck: {url: 'http://u:p@a/'}"), "spec.healthCheck.url"),
        ("a 1xx as the expected status", managed("bad-19", ", healthCheck: {expectedStatus: 101}"), "spec.healthCheck.expectedStatus"),
        ("an address out of a 204", managed("bad-20", ", healthCheck: {reportsAddress: true}"), "spec.healthCheck"),
        ("two sources of cloud-init", managed("bad-21", ", cloudInit: {inline: a, secretRef: {name: b}}"), "spec.cloudInit"),
        ("an External one with placement", proxy("bad-22", "mode: External, endpoint: {host: a}, placement: {zone: a}"), "spec.placement"),
        ("a Secret that is no Base64", secret("data: {k: 'no base64!'}"), "data.k"),
        ("a Secret of numbers", secret("stringData: {k: 7}"), "stringData.k"),
        ("a List without items", "apiVersion: v1\nkind: List\n".to_owned(), "items"),
    ]
}

fn run(args: &[&str], env: &[(&str, &str)], folder: &std::path::Path) -> Output {
    let mut command = Command::new(BINARY);
    command.args(args).env_remove("DISCOVERY_TOKEN").envs(env.iter().copied()).current_dir(folder).output().unwrap()
}

/// OP-3, OP-4: exit 1, and each fault with file, document and path; the valid documents of the same file are counted.
#[test]
fn validate_names_file_document_and_path_of_every_kind_of_bad_manifest_op_3() {
    let folder = tempfile::tempdir().unwrap();
    let good = documents::proxy("default/good", &json!({"mode": "Managed", "provider": "local"}));
    for (number, (kind, text, path)) in manifests().iter().enumerate() {
        let name = format!("bad-{number}.yaml");
        std::fs::write(folder.path().join(&name), format!("{good}{text}")).unwrap();
        let output = run(&["validate", &name], &[], folder.path());
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{kind}: {shown}");
        let unreadable = ["no YAML", "an unknown alias", "binary"].contains(kind);
        let place = format!("{name}:");
        let document = if unreadable { "" } else { "document 2" };
        let named = |line: &str| line.starts_with(&place) && line.contains(document) && line.contains(path) && line.contains(": ");
        assert!(shown.lines().any(named), "{kind}: {path} in\n{shown}");
        assert!(shown.contains("1 file, ") && (unreadable || shown.contains("1 object valid")), "{kind}: {shown}");
        assert!(output.stderr.is_empty(), "{kind}: {}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::write(folder.path().join("good.yaml"), &good).unwrap();
    assert_eq!(run(&["validate", "good.yaml"], &[], folder.path()).status.code(), Some(0));
    let unreadable = run(&["validate", "missing.yaml", "good.yaml"], &[], folder.path());
    assert_eq!(unreadable.status.code(), Some(2), "{}", String::from_utf8_lossy(&unreadable.stdout));
    assert!(String::from_utf8_lossy(&unreadable.stdout).contains("missing.yaml: cannot be read"));
}

/// OP-30: in a watched folder each is a reported fault, and neither the process nor any other object minds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_manifests_in_a_watched_folder_are_reported_and_hurt_nobody_op_30() {
    let switch = Switch::start().await;
    let site = Site::new();
    site.write("a-good.yaml", &switch.document("default/good", 1, None, Pace::Steady));
    let operator = site.start().up().await;
    operator.wait_phase("default/good", "Ready").await;
    let lease = operator.api.post("/v1/leases", &json!({})).await.json();
    let kinds = manifests();
    for (number, (_, text, _)) in kinds.iter().enumerate() {
        site.write(&format!("bad-{number:02}.yaml"), text);
    }
    // The name is taken, and the mode of an object is what it is.
    site.write("z-again.yaml", &switch.document("default/good", 9, None, Pace::Steady));
    let message = eventually("every bad file is told of", Duration::from_secs(30), || async {
        let ready = operator.health.get("/readyz?verbose").await;
        assert_eq!(ready.status, 200, "faults never make it unready: {}", ready.text());
        let ready = ready.json();
        assert_eq!((&ready["parts"][0]["name"], &ready["parts"][0]["ready"]), (&json!("source"), &json!(true)));
        let message = ready["parts"][0]["message"].as_str()?.to_owned();
        let all = (0..kinds.len()).all(|number| message.contains(&format!("bad-{number:02}.yaml")));
        (all && message.contains("z-again.yaml")).then_some(message)
    })
    .await;
    for (number, (kind, _, path)) in kinds.iter().enumerate() {
        let file = format!("bad-{number:02}.yaml");
        assert!(message.split("; ").any(|fault| fault.contains(&file) && fault.contains(path)), "{kind}: {file}, {path} in {message}");
    }
    let mut managed = json!({"mode": "Managed", "provider": "local"});
    managed["maxLeases"] = json!(3);
    site.write("a-good.yaml", &documents::proxy("default/good", &managed));
    eventually("an immutable field is not changed", Duration::from_secs(20), || async {
        let ready = operator.health.get("/readyz?verbose").await.json();
        ready["parts"][0]["message"]
            .as_str()?
            .split("; ")
            .any(|fault| fault.contains("a-good.yaml") && fault.contains("spec.mode"))
            .then_some(())
    })
    .await;

    let proxies = operator.api.get("/v1/proxies").await.json();
    assert_eq!(proxies["items"].as_array().unwrap().len(), 1, "{proxies}");
    let good = &proxies["items"][0];
    assert_eq!((&good["mode"], &good["phase"], &good["maxLeases"]), (&json!("External"), &json!("Ready"), &json!(1)), "{good}");
    let id = lease["id"].as_str().unwrap();
    assert_eq!(operator.api.get(&format!("/v1/leases/{id}")).await.json()["state"], "active");
    let log = operator.kill();
    let warnings = log.iter().filter(|line| line.contains("WARNING: the manifests are not in order")).count();
    assert!(warnings >= kinds.len(), "{warnings} of {}: {log:#?}", kinds.len());
}

/// What a call is answered with: status, code, and a field where one is at fault.
struct Case {
    kind: &'static str,
    request: Vec<u8>,
    status: u16,
    code: &'static str,
    field: &'static str,
}

fn request(method: &str, target: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n{headers}{length}\r\n");
    [head.as_bytes(), body].concat()
}

fn json_post(target: &str, body: &str) -> Vec<u8> {
    request("POST", target, "Content-Type: application/json\r\n", body.as_bytes())
}

/// Bodies of calls.
fn bad_bodies(id: &str) -> Vec<Case> {
    let report = format!("/v1/leases/{id}/report");
    let renew = format!("/v1/leases/{id}/renew");
    let (grant, cordon) = ("/v1/leases", "/v1/proxies/default/good/cordon");
    let long = "x".repeat(254);
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let many = format!(r#"{{"selector": {{"exclude": [{}]}}}}"#, vec![r#""a/b""#; 101].join(","));
    let values = format!(r#"{{"selector": {{"attributes": {{"geo": [{}]}}}}}}"#, vec![r#""a""#; 101].join(","));
    let keys: Vec<String> = (0..33).map(|n| format!(r#""k{n}": "v""#)).collect();
    let bodies: Vec<(&'static str, &str, String, &'static str)> = vec![
        ("an empty body", grant, "  ".to_owned(), "body"),
        ("no JSON", grant, "{".to_owned(), "body"),
        ("a list", grant, "[]".to_owned(), "body"),
        ("a number", grant, "7".to_owned(), "body"),
        ("JSON twice", grant, "{}{}".to_owned(), "body"),
        ("a hundred levels", grant, format!(r#"{{"selector": {deep}}}"#), "body"),
        ("half a surrogate", grant, r#"{"owner": "\ud800"}"#.to_owned(), "body"),
        ("an unknown field", grant, r#"{"nope": 1}"#.to_owned(), "nope"),
        ("an unknown field inside", grant, r#"{"selector": {"nope": 1}}"#.to_owned(), "selector.nope"),
        ("a field twice", grant, r#"{"ttl": "5m", "ttl": "5m"}"#.to_owned(), "ttl"),
        ("a ttl without a unit", grant, r#"{"ttl": "90"}"#.to_owned(), "ttl"),
        ("a ttl as a number", grant, r#"{"ttl": 90}"#.to_owned(), "ttl"),
        ("a ttl of nothing", grant, r#"{"ttl": "0s"}"#.to_owned(), "ttl"),
        ("a negative ttl", grant, r#"{"ttl": "-5m"}"#.to_owned(), "ttl"),
        ("a ttl above a day", grant, r#"{"ttl": "25h"}"#.to_owned(), "ttl"),
        ("a ttl beyond all numbers", grant, r#"{"ttl": "99999999999999999999h"}"#.to_owned(), "ttl"),
        ("a ttl as a list", grant, r#"{"ttl": ["5m"]}"#.to_owned(), "ttl"),
        ("an owner as a number", grant, r#"{"owner": 7}"#.to_owned(), "owner"),
        ("an owner too long", grant, format!(r#"{{"owner": "{long}"}}"#), "owner"),
        ("an empty target", grant, r#"{"target": ""}"#.to_owned(), "target"),
        ("a target with a blank", grant, r#"{"target": "a b"}"#.to_owned(), "target"),
        ("a target with a control", grant, r#"{"target": "a\u0000"}"#.to_owned(), "target"),
        ("a target too long", grant, format!(r#"{{"target": "{long}"}}"#), "target"),
        ("a selector as a text", grant, r#"{"selector": "geo=de"}"#.to_owned(), "selector"),
        ("an attribute as a number", grant, r#"{"selector": {"attributes": {"geo": 7}}}"#.to_owned(), "selector.attributes.geo"),
        ("an attribute with no value", grant, r#"{"selector": {"attributes": {"geo": []}}}"#.to_owned(), "selector.attributes.geo"),
        ("an attribute of objects", grant, r#"{"selector": {"attributes": {"geo": [{}]}}}"#.to_owned(), "selector.attributes.geo[0]"),
        ("too many values", grant, values, "selector.attributes.geo"),
        ("too many attributes", grant, format!(r#"{{"selector": {{"attributes": {{{}}}}}}}"#, keys.join(",")), "selector.attributes"),
        ("an exclude without a slash", grant, r#"{"selector": {"exclude": ["px"]}}"#.to_owned(), "selector.exclude[0]"),
        ("too many excludes", grant, many, "selector.exclude"),
        ("an empty name", grant, r#"{"selector": {"name": ""}}"#.to_owned(), "selector.name"),
        ("a count", grant, r#"{"count": 2}"#.to_owned(), "count"),
        ("explain takes no less", "/v1/leases/explain", r#"{"ttl": "x"}"#.to_owned(), "ttl"),
        ("a renewal in days", &renew, r#"{"ttl": "2days"}"#.to_owned(), "ttl"),
        ("a renewal with a target", &renew, r#"{"target": "a"}"#.to_owned(), "target"),
        ("a report of nothing", &report, "{}".to_owned(), "result"),
        ("a report of another word", &report, r#"{"result": "banned"}"#.to_owned(), "result"),
        ("a cooldown too long", &report, r#"{"result": "blocked", "cooldown": "25h"}"#.to_owned(), "cooldown"),
        ("a message too long", &report, format!(r#"{{"result": "error", "message": "{}"}}"#, "x".repeat(1025)), "message"),
        ("a cordon without a reason", cordon, "{}".to_owned(), "reason"),
        ("a cordon that is over", cordon, r#"{"reason": "r", "until": "2001-01-01T00:00:00Z"}"#.to_owned(), "until"),
        ("a cordon until nobody knows when", cordon, r#"{"reason": "r", "until": "tomorrow"}"#.to_owned(), "until"),
    ];
    let case = |(kind, target, body, field): (&'static str, &str, String, &'static str)| Case {
        kind,
        request: json_post(target, &body),
        status: 400,
        code: "invalid-request",
        field,
    };
    bodies.into_iter().map(case).collect()
}

/// Query strings, headers, methods, hosts, sizes.
fn bad_requests(id: &str, cursor: &str) -> Vec<Case> {
    let case = |kind, request, status, code, field| Case { kind, request, status, code, field };
    let get = |target: &str| request("GET", target, "", b"");
    let field = |kind, target: &str, field| case(kind, get(target), 400, "invalid-request", field);
    let raw = |head: &str| format!("{head}\r\n\r\n").into_bytes();
    let authorised = |value: &[u8]| [b"GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: ", value, b"\r\n\r\n"].concat();
    vec![
        field("limit 0", "/v1/proxies?limit=0", "limit"),
        field("limit 1001", "/v1/leases?limit=1001", "limit"),
        field("a limit in words", "/v1/leases?limit=many", "limit"),
        field("a limit twice", "/v1/proxies?limit=1&limit=2", "limit"),
        field("an unknown parameter", "/v1/proxies?nope=1", "nope"),
        field("a parameter where none is taken", "/healthz?x=1", "x"),
        field("healthy as a number", "/v1/proxies?healthy=1", "healthy"),
        field("an unknown phase", "/v1/proxies?phase=Broken", "phase"),
        field("an unknown mode", "/v1/proxies?mode=managed", "mode"),
        field("an attribute without a key", "/v1/proxies?attr.=x", "attr."),
        field("bad encoding", "/v1/proxies?provider=%zz", "provider"),
        field("encoded bytes that are no text", "/v1/leases?owner=%ff", "owner"),
        field("a proxy without a namespace", "/v1/leases?proxy=px", "proxy"),
        field("a cursor from elsewhere", "/v1/proxies?cursor=AAAA", "cursor"),
        field("an empty cursor", "/v1/leases?cursor=", "cursor"),
        field("the other list's cursor", &format!("/v1/proxies?cursor={cursor}"), "cursor"),
        field("a flipped cursor", &format!("/v1/leases?cursor={}", flipped(cursor)), "cursor"),
        field("verbose as a word", "/readyz?verbose=maybe", "verbose"),
        field("a path that is no text", "/v1/proxies/%ff/x", "path"),
        case(
            "an Idempotency-Key",
            request("POST", "/v1/leases", "Idempotency-Key: k\r\nContent-Type: application/json\r\n", b"{}"),
            400,
            "invalid-request",
            "Idempotency-Key",
        ),
        case("an unknown path", get("/v2/leases"), 404, "not-found", ""),
        case("a path too long", get(&format!("/{}", "x".repeat(9000))), 404, "not-found", ""),
        case("an unknown lease", get("/v1/leases/nope"), 404, "unknown-lease", ""),
        case("an unknown proxy", get("/v1/proxies/default/nope"), 404, "not-found", ""),
        case("a wrong method", request("PUT", "/v1/leases", "", b""), 405, "method-not-allowed", ""),
        case("a method nobody knows", request("BREW", "/v1/proxies", "", b""), 405, "method-not-allowed", ""),
        case("a GET that would end a lease (M27)", get(&format!("/v1/leases/{id}/renew")), 405, "method-not-allowed", ""),
        case(
            "CONNECT",
            raw(&format!("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}")),
            404,
            "not-found",
            "",
        ),
        case("no media type", request("POST", "/v1/leases", "", b"{}"), 415, "unsupported-media-type", ""),
        case(
            "a form",
            request("POST", "/v1/leases", "Content-Type: application/x-www-form-urlencoded\r\n", b"ttl=5m"),
            415,
            "unsupported-media-type",
            "",
        ),
        case(
            "another charset",
            request("POST", "/v1/leases", "Content-Type: application/json; charset=latin1\r\n", b"{}"),
            415,
            "unsupported-media-type",
            "",
        ),
        case("a huge body", json_post("/v1/leases", &"x".repeat(65 * 1024)), 413, "body-too-large", ""),
        case(
            "a body that says it is huge",
            request("POST", "/v1/leases", "Content-Type: application/json\r\nContent-Length: 99999999999\r\n", b""),
            413,
            "body-too-large",
            "",
        ),
        case("a foreign host", raw("GET /v1/proxies HTTP/1.1\r\nHost: evil.example"), 421, "host-not-allowed", ""),
        case("a host that begins well", raw("GET /v1/proxies HTTP/1.1\r\nHost: 127.0.0.1.evil.example:80"), 421, "host-not-allowed", ""),
        case(
            "a foreign host in the target",
            raw("GET http://evil.example/v1/proxies HTTP/1.1\r\nHost: localhost"),
            421,
            "host-not-allowed",
            "",
        ),
        case("no host", raw("GET /v1/proxies HTTP/1.1\r\nX: y"), 400, "invalid-request", "Host"),
        case("two hosts", raw("GET /v1/proxies HTTP/1.1\r\nHost: localhost\r\nHost: localhost"), 400, "invalid-request", "Host"),
        case("no token", raw("GET /v1/proxies HTTP/1.1\r\nHost: localhost"), 401, "unauthorized", ""),
        case("another token", authorised(b"Bearer nope"), 401, "unauthorized", ""),
        case("another scheme", authorised(b"Basic dG9rZW46"), 401, "unauthorized", ""),
        case("a binary token", authorised(b"Bearer \x80\xff"), 401, "unauthorized", ""),
        case("a token too long", authorised(format!("Bearer {}", "x".repeat(10_000)).as_bytes()), 401, "unauthorized", ""),
    ]
}

/// What no HTTP server takes: closed, or 400 and 431 without more words.
fn no_http() -> Vec<(&'static str, Vec<u8>)> {
    let line = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
    vec![
        ("a zero byte in the target", b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("a zero byte in a header", [line.as_bytes(), b"X: a\x00b\r\n\r\n"].concat()),
        ("a header's name in binary", [line.as_bytes(), b"X\x80: a\r\n\r\n"].concat()),
        ("a header without a colon", [line.as_bytes(), b"nothing\r\n\r\n"].concat()),
        ("a TLS greeting", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec()),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("HTTP of the future", b"GET / HTTP/7.0\r\nHost: localhost\r\n\r\n".to_vec()),
        ("a negative length", [line.as_bytes(), b"Content-Length: -1\r\n\r\n"].concat()),
        ("two lengths", [line.as_bytes(), b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"].concat()),
        ("a thousand headers", [line.as_bytes(), "X: y\r\n".repeat(1000).as_bytes(), b"\r\n"].concat()),
        ("a header of a megabyte", [line.as_bytes(), format!("X: {}\r\n\r\n", "x".repeat(1 << 20)).as_bytes()].concat()),
    ]
}

/// Another checksum.
fn flipped(cursor: &str) -> String {
    let first = if cursor.starts_with('A') { 'B' } else { 'A' };
    format!("{first}{}", &cursor[1..])
}

async fn running(site: &mut Site, switch: &Switch) -> Operator {
    site.env.push(("DISCOVERY_TOKEN".to_owned(), TOKEN.to_owned()));
    site.write("good.yaml", &switch.document("default/good", 5, None, Pace::Steady));
    let mut operator = site.start().up().await;
    operator.api = operator.api.with_token(TOKEN);
    operator.wait_phase("default/good", "Ready").await;
    operator
}

/// LS-20, LS-22, §6: the right status and code, the field named, problem+json; then the next request is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_bad_request_is_answered_by_its_name_and_the_next_is_served_ls_20() {
    let (mut site, switch) = (Site::new(), Switch::start().await);
    let operator = running(&mut site, &switch).await;
    let leases: [Value; 2] =
        [operator.api.post("/v1/leases", &json!({})).await.json(), operator.api.post("/v1/leases", &json!({})).await.json()];
    let id = leases[0]["id"].as_str().unwrap();
    let page = operator.api.get("/v1/leases?limit=1").await.json();
    let cases: Vec<Case> = bad_bodies(id).into_iter().chain(bad_requests(id, page["nextCursor"].as_str().unwrap())).collect();
    assert!(cases.len() >= 50, "{} kinds", cases.len());
    for case in cases {
        let answer = say(&operator.api.address, &case.request).await;
        let Spoken { status, head, .. } = &answer;
        assert_eq!((*status, answer.code().as_str()), (case.status, case.code), "{}: {answer:?}", case.kind);
        assert!(head.to_ascii_lowercase().contains("content-type: application/problem+json"), "{}: {head}", case.kind);
        assert!(!head.to_ascii_lowercase().contains("access-control"), "{}: no CORS (LS-22)", case.kind);
        if !case.field.is_empty() {
            assert_eq!(answer.fields(), [case.field], "{}: {answer:?}", case.kind);
        }
        assert_eq!(operator.api.get("/healthz").await.status, 200, "after {}", case.kind);
    }
    for (kind, bytes) in no_http() {
        let answer = say(&operator.api.address, &bytes).await;
        assert!([0, 400, 431].contains(&answer.status), "{kind}: {answer:?}");
        assert_eq!(operator.api.get("/healthz").await.status, 200, "after {kind}");
    }
    let binary = say(&operator.api.address, [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: \x80\xff\r\n\r\n".as_slice()].concat()).await;
    assert_eq!(binary.status, 200, "what nobody reads does no harm (M25)");
    for (address, target) in [
        (&operator.debug.address, "/debug/actors?depth=x"),
        (&operator.debug.address, "/debug/actors?id=nobody"),
        (&operator.debug.address, "/debug/proxies/default/nobody"),
        (&operator.debug.address, "/debug/nothing"),
        (&operator.metrics.address, "/"),
        (&operator.metrics.address, "/metrics?x=1"),
        (&operator.health.address, "/readyz?verbose=7"),
    ] {
        let answer = say(address, format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        assert!([400, 404].contains(&answer.status) && !answer.code().is_empty(), "{target}: {answer:?}");
        let foreign = say(address, format!("GET {target} HTTP/1.1\r\nHost: evil.example\r\n\r\n")).await;
        assert_eq!(foreign.status, 421, "{address}: {foreign:?}");
    }
    for lease in &leases {
        let lease = operator.api.get(&format!("/v1/leases/{}", lease["id"].as_str().unwrap())).await.json();
        assert_eq!(lease["state"], "active", "nothing of it ended a lease: {lease}");
    }
    assert_eq!(operator.api.get("/v1/proxies/default/good").await.json()["activeLeases"], 2, "or made one");
    let log = operator.kill();
    assert!(!log.iter().any(|line| line.contains("\"level\":\"ERROR\"")), "{log:#?}");
}

/// LS-23: a head within 5 s, a body within 10 s; who is slower costs nobody anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_ended_in_time_and_others_are_served_meanwhile_ls_23() {
    let (mut site, switch) = (Site::new(), Switch::start().await);
    let operator = running(&mut site, &switch).await;
    let address = &operator.api.address;
    let half_a_body = request("POST", "/v1/leases", "Content-Type: application/json\r\nContent-Length: 20\r\n", b"");
    let (silent, head, body, dripped, ()) = tokio::join!(
        say(address, ""),
        say(address, "GET /v1/proxies HTTP/1.1\r\nHost: loc"),
        say(address, [&half_a_body[..], b"{\"ttl\":"].concat()),
        drip(address),
        async {
            for _ in 0..20 {
                assert_eq!(operator.api.get("/v1/proxies").await.status, 200);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    );
    let within = |seconds: u64, took: Duration| took >= Duration::from_secs(seconds - 1) && took <= Duration::from_secs(seconds + 3);
    for answer in [&silent, &head] {
        assert!([0, 408].contains(&answer.status) && within(5, answer.after), "{answer:?}");
    }
    assert!(within(5, dripped), "a byte now and then buys no time: {dripped:?}");
    assert_eq!((body.status, body.fields()), (400, vec!["body".to_owned()]), "{body:?}");
    assert!(within(10, body.after), "{body:?}");
    assert_eq!(operator.api.get("/v1/proxies/default/good").await.json()["activeLeases"], 0);
}

/// Sends a head byte by byte; how long the server bore it.
async fn drip(address: &str) -> Duration {
    let start = tokio::time::Instant::now();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET / HTTP/1.1\r\nX: ").await;
    let (mut read, mut write) = stream.into_split();
    let ended = async {
        let mut rest = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut rest).await;
    };
    let dripping = async {
        while tokio::io::AsyncWriteExt::write_all(&mut write, b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = async {
        tokio::select! { () = ended => {}, () = dripping => {} }
    };
    let _ = tokio::time::timeout(Duration::from_secs(20), waited).await;
    start.elapsed()
}

/// OP-4, OP-27: exit 2, the flag or variable named, and nothing started.
#[test]
fn every_kind_of_bad_setting_is_exit_2_and_names_the_flag_or_variable_op_4() {
    const COLLECTOR: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("providers.yaml", "providers: [{name: lab, type: unheard-of}]\n");
    write("good.yaml", "providers: [{name: lab, type: local}]\n");
    write("tokens", "a b c d e\n");
    write("no-tokens", "# nobody\n");
    write("ca.pem", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
    std::fs::create_dir(folder.path().join("manifests")).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).unwrap();
    let some = format!("127.0.0.1:{}", free_port());
    type Env<'a> = &'a [(&'a str, &'a str)];
    let none: Env<'_> = &[];
    let (twice, in_use) =
        (["--health-probe-bind-address", &some, "--metrics-bind-address", &some], ["--discovery-bind-address", taken.1.as_str()]);
    let flags: Vec<(&[&str], Env<'_>, &str)> = vec![
        (&["--no-such-flag"], none, "--no-such-flag"),
        (&["--state"], none, "--state"),
        (&["extra"], none, "extra"),
        (&["--state", ""], none, "--state"),
        (&["--discovery-bind-address", "0"], none, "--discovery-bind-address"),
        (&["--discovery-bind-address", "example.com:80"], none, "--discovery-bind-address"),
        (&["--debug-bind-address", "127.0.0.1"], none, "--debug-bind-address"),
        (&["--debug-bind-address", ":8082"], none, "--debug-bind-address"),
        (&["--metrics-bind-address", "127.0.0.1:99999"], none, "--metrics-bind-address"),
        (&twice, none, "--health-probe-bind-address"),
        (&in_use, none, "--discovery-bind-address"),
        (&["--poll-drift", "10"], none, "--poll-drift"),
        (&["--poll-drift", "1ms"], none, "--poll-drift"),
        (&["--backoff-max", "forever"], none, "--backoff-max"),
        (&["--lease-default-ttl", "48h"], none, "--lease-default-ttl"),
        (&["--drain-timeout", "1m"], none, "--drain-timeout"),
        (&["--lease-queue-limit=-1"], none, "--lease-queue-limit"),
        (&["--lease-queue-limit", "-1"], none, "unexpected argument '-1'"),
        (&["--lease-queue-limit", "many"], none, "--lease-queue-limit"),
        (&["--lease-store", "postgres://u:p4ssw0rd@h/db"], none, "--lease-store"),
        (&["--max-unavailable", "0"], none, "--max-unavailable"),
        (&["--max-unavailable", "101%"], none, "--max-unavailable"),
        (&["--log-format", "xml"], none, "--log-format"),
        (&["--log-level", "loud"], none, "--log-level"),
        (&["--installation-id", "Not_A_Label"], none, "--installation-id"),
        (&["--egress-allow", "10.0.0.0/33"], none, "--egress-allow"),
        (&["--endpoint-allow", "*.example.com"], none, "--endpoint-allow"),
        (&["--check-url-allow", "http://a"], none, "--check-url-allow"),
        (&["--check-ca-file", "missing.pem"], none, "--check-ca-file"),
        (&["--check-ca-file", "ca.pem"], none, "--check-ca-file"),
        (&["--providers-config", "good.yaml"], none, "--providers-config"),
        (&["--providers-config", "missing.yaml", "--manifests", "manifests"], none, "missing.yaml"),
        (&["--providers-config", "providers.yaml", "--manifests", "manifests"], none, "providers[0] \"lab\", type"),
        (&["--manifests", "no-such-folder"], none, "--manifests"),
        (&["--discovery-token-file", "missing"], none, "--discovery-token-file"),
        (&["--discovery-token-file", "tokens"], none, "line 1"),
        (&["--discovery-token-file", "no-tokens"], none, "--discovery-token-file"),
        (&["--discovery-token-file", "no-tokens"], &[("DISCOVERY_TOKEN", "x")], "DISCOVERY_TOKEN"),
        (&[], &[("DISCOVERY_TOKEN", "")], "DISCOVERY_TOKEN"),
        (&[], &[("DISCOVERY_TOKEN", "a b")], "DISCOVERY_TOKEN"),
        (&[], &[("EPO_POLL_DRIFT", "10")], "EPO_POLL_DRIFT"),
        (&[], &[("EPO_LOG_LEVEL", "loud")], "EPO_LOG_LEVEL"),
        (&[], &[("EPO_EGRESS_ALLOW", "10.0.0.0/8,300.1.1.1")], "EPO_EGRESS_ALLOW"),
        (&[], &[("EPO_DISCOVERY_BIND_ADDRESS", "nowhere")], "EPO_DISCOVERY_BIND_ADDRESS"),
        (&[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "u:p4ssw0rd@collector:4318")], "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (&[], &[COLLECTOR, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://collector:4317")], "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
        (&[], &[COLLECTOR, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http")], "OTEL_EXPORTER_OTLP_PROTOCOL"),
        (&[], &[COLLECTOR, ("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer p4ssw0rd")], "OTEL_EXPORTER_OTLP_HEADERS"),
        (&[], &[COLLECTOR, ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s")], "OTEL_EXPORTER_OTLP_TIMEOUT"),
        (&[], &[COLLECTOR, ("OTEL_BSP_SCHEDULE_DELAY", "5s")], "OTEL_BSP_SCHEDULE_DELAY"),
        (&[], &[COLLECTOR, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "10%")], "OTEL_TRACES_SAMPLER_ARG"),
    ];
    for (args, env, named) in flags {
        let output = run(&[&["standalone"], args].concat(), env, folder.path());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?} {env:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
        assert!(said.contains(named), "{args:?} {env:?}: {named} in {said}");
        assert!(!said.contains("p4ssw0rd") && !said.contains("panicked"), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
    for args in [&["validate"][..], &["get"], &["get", "unicorns"], &["no-such-command"], &["get", "leases", "--server", "ftp://x"], &[]] {
        let output = run(args, &[], folder.path());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
    let nobody = format!("http://{some}");
    let unreachable = run(&["get", "proxies", "--server", &nobody], &[], folder.path());
    assert_eq!(unreachable.status.code(), Some(1), "OP-4: the instance was not reached");
    assert!(String::from_utf8_lossy(&unreachable.stderr).contains(&some));
    let state = folder.path().join("egress-state");
    let started = std::fs::read_dir(&state).into_iter().flatten().flatten().any(|entry| entry.path().is_dir());
    assert!(!started || egress_manifests::inspect(&state).unwrap().objects.is_empty(), "nothing half-configured was started");
}
