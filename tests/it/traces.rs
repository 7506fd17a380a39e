//! Spans reach a collector by the standard variables; nothing of it is there without them (OB-3, PC-85, PC-86, HE-8, O19).

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::lab::Lab;
use crate::support::operator::lines;
use crate::support::{eventually, free_port, skip};

const SOON: Duration = Duration::from_secs(20);

/// A span as it came over the wire.
#[derive(Debug, Clone, Default, PartialEq)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
}

/// The fields of a protobuf message: number and content of those that have a length. Ours, so that nothing of the exporter
/// judges the exporter.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        match key & 7 {
            0 => drop(varint(&mut bytes)),
            1 => bytes = &bytes[8..],
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (content, rest) = bytes.split_at(length);
                found.push((key >> 3, content));
                bytes = rest;
            }
            5 => bytes = &bytes[4..],
            other => panic!("wire type {other}"),
        }
    }
    found
}

fn below(messages: Vec<&[u8]>, number: u64) -> Vec<&[u8]> {
    messages.into_iter().flat_map(fields).filter(|(found, _)| *found == number).map(|(_, content)| content).collect()
}

/// `resource_spans` (1) → `scope_spans` (2) → `spans` (2).
fn spans(body: &[u8]) -> Vec<Span> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let span = |message: &[u8]| {
        let mut span = Span::default();
        for (number, content) in fields(message) {
            match number {
                1 => span.trace = hex(content),
                2 => span.id = hex(content),
                4 => span.parent = hex(content),
                5 => span.name = String::from_utf8(content.to_vec()).unwrap(),
                _ => {}
            }
        }
        span
    };
    below(below(below(vec![body], 1), 2), 2).into_iter().map(span).collect()
}

/// Takes what an exporter posts.
struct Collector {
    endpoint: String,
    posts: Arc<Mutex<Vec<(String, String, Bytes)>>>,
    _task: JoinSet<()>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let posts: Arc<Mutex<Vec<_>>> = Arc::default();
        let kept = Arc::clone(&posts);
        let take = move |uri: http::Uri, headers: http::HeaderMap, body: Bytes| async move {
            let media = headers.get("content-type").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
            kept.lock().unwrap().push((uri.path().to_owned(), media, body));
        };
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, axum::Router::new().fallback(take)).await.unwrap() });
        Self { endpoint, posts, _task: task }
    }

    fn spans(&self) -> Vec<Span> {
        self.posts.lock().unwrap().iter().flat_map(|(.., body)| spans(body)).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconcile_its_provider_call_and_its_backend_calls_are_one_trace_and_lines_carry_its_id_ob_3() {
    let collector = Collector::start().await;
    let mut lab = Lab::new().await;
    lab.site.flags.extend(["--trace-health-probes", "--log-level", "debug"].map(str::to_owned));
    lab.site.env.push(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), collector.endpoint.clone()));
    lab.site.env.push(("OTEL_BSP_SCHEDULE_DELAY".to_owned(), "200".to_owned()));
    lab.site.write("px.yaml", &lab.managed("px", 3128));
    let mut operator = lab.site.start().up().await;
    operator.wait_phase("default/px", "Ready").await;
    let lease = operator.api.post("/v1/leases", &serde_json::json!({})).await.json();
    let id = lease["id"].as_str().unwrap().to_owned();
    let renew = http::Request::builder()
        .method("POST")
        .uri(format!("/v1/leases/{id}/renew"))
        .header("host", &operator.api.address)
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .body(http_body_util::Full::default())
        .unwrap();
    assert_eq!(operator.api.exchange(renew).await.unwrap().status, 200);
    for path in ["/healthz", "/readyz?verbose"] {
        operator.api.get(path).await;
    }
    operator.metrics.get("/metrics").await;

    let wanted =
        ["proxy.reconcile", "provider.create", "local.write_mark", "health.probe", "POST /v1/leases", "POST /v1/leases/{id}/renew"];
    let seen = || async {
        let spans = collector.spans();
        wanted.iter().all(|name| spans.iter().any(|span| span.name == *name)).then_some(())
    };
    eventually("every kind of span arrives", SOON, seen).await;
    assert_eq!(operator.terminate().await.code(), Some(0));
    let log: Vec<Value> =
        operator.stderr.iter().map(|line| serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect();

    for (path, media, body) in collector.posts.lock().unwrap().iter() {
        assert_eq!((path.as_str(), media.as_str()), ("/v1/traces", "application/x-protobuf"));
        let has = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(has("egress-proxies-operator"), "the service has a name");
        assert!(!has(&id), "no raw path");
    }
    let spans = collector.spans();
    let by_id: BTreeMap<&str, &Span> = spans.iter().map(|span| (span.id.as_str(), span)).collect();
    let parent = |span: &Span| by_id.get(span.parent.as_str()).map(|parent| parent.name.as_str());
    for span in &spans {
        let expected: Option<&[&str]> = match span.name.as_str() {
            "proxy.reconcile" | "health.probe" | "gc.sweep" | "providerhealth.check" => Some(&[]),
            name if name.starts_with("provider.") => Some(&["proxy.reconcile", "gc.sweep"]),
            name if name.starts_with("local.") => Some(&["provider.create", "provider.get", "provider.delete", "provider.list"]),
            name if name.contains(" /v1/") => None,
            other => panic!("a span nobody asked for: {other}"),
        };
        match (expected, parent(span)) {
            (Some([]), _) => assert_eq!(span.parent, "", "{span:?} begins a trace"),
            (Some(allowed), Some(parent)) => assert!(allowed.contains(&parent), "{span:?} below {parent}"),
            (Some(_), None) => panic!("{span:?} has no parent"),
            (None, _) => {}
        }
    }
    let renewed = spans.iter().find(|span| span.name == "POST /v1/leases/{id}/renew").unwrap();
    assert_eq!((renewed.trace.as_str(), renewed.parent.as_str()), ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"));
    let created = spans.iter().find(|span| span.name == "provider.create").unwrap();
    let line = log.iter().find(|line| line["message"] == "provider call" && line["op"] == "create").unwrap();
    assert_eq!((&line["traceID"], &line["spanID"]), (&created.trace.as_str().into(), &created.id.as_str().into()));
    let line = log.iter().find(|line| line["message"] == "local call" && line["call"] == "write_mark").unwrap();
    assert_eq!((&line["traceID"], &line["provider"]), (&created.trace.as_str().into(), &"lab".into()));
    assert!(log.iter().all(|line| line["level"] != "ERROR" && line.get("otel.kind").is_none()));
    tiers(&log);
}

/// OB-2 over everything that a run said at debug.
fn tiers(log: &[Value]) {
    for line in log {
        let (level, message, target) = (&line["level"], line["message"].as_str().unwrap(), line["target"].as_str().unwrap());
        assert_eq!(level == "WARN" && target.starts_with("egress_"), message.starts_with("WARNING:"), "{line}");
        let provider = target.starts_with("egress_backend_") || target.starts_with("egress_provider::actor");
        assert!(level != "INFO" || !provider, "a provider writes nothing at INFO: {line}");
        for key in ["duration", "latency"] {
            assert!(line.get(key).is_none_or(Value::is_number), "{line}");
        }
    }
    for (message, level) in [("provider call", "DEBUG"), ("local call", "DEBUG"), ("proxy created", "INFO")] {
        assert!(log.iter().any(|line| line["message"] == message && line["level"] == level), "{message} at {level}");
    }
}

/// DO-1: the set-up that the README tells, word for word but for the port, with the collector that `EPO_OTELCOL` names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_collector_set_up_of_the_readme_shows_every_kind_of_span_do_1() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let config = readme.split("```yaml\n# otel-collector.yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(config.contains("\"127.0.0.1:4318\"") && readme.contains("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 "));
    let Some(collector) = std::env::var_os("EPO_OTELCOL") else {
        skip("the_collector_set_up_of_the_readme_shows_every_kind_of_span_do_1", "EPO_OTELCOL names no collector");
        return;
    };
    let mut lab = Lab::new().await;
    let port = free_port();
    let file = lab.site.path("otel-collector.yaml");
    std::fs::write(&file, config.replace("4318", &port.to_string())).unwrap();
    let mut collector = Command::new(collector).arg("--config").arg(file).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = lines(collector.stderr.take().unwrap());
    let _ended = Ended(collector);
    let mut heard = Vec::new();
    let mut hears = |what: &str| {
        heard.extend(said.try_iter());
        heard.iter().any(|line: &String| line.contains(what)).then_some(())
    };
    eventually("the collector is ready", SOON, || std::future::ready(hears("Everything is ready"))).await;
    lab.site.flags.push("--trace-health-probes".to_owned());
    lab.site.env.push(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), format!("http://127.0.0.1:{port}")));
    lab.site.write("px.yaml", &lab.managed("px", 3128));
    let operator = lab.site.start().up().await;
    operator.wait_phase("default/px", "Ready").await;
    for name in ["proxy.reconcile", "provider.create", "local.claim", "local.write_mark", "health.probe"] {
        eventually(name, SOON, || std::future::ready(hears(&format!(": {name}")))).await;
    }
    assert!(hears("service.name: Str(egress-proxies-operator)").is_some());
    operator.kill();
}

/// A process that ends with this value.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_variables_there_is_no_exporter_and_no_id_and_with_a_dead_collector_the_exit_waits_two_seconds_at_most_o19() {
    let threads = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with("OpenTelemetry"))
            .count()
    };
    // Accepts, and never answers.
    let hole = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", hole.local_addr().unwrap());
    let mut exits = Vec::new();
    for dead in [false, true] {
        let mut lab = Lab::new().await;
        lab.site.flags.extend(["--log-level", "debug"].map(str::to_owned));
        if dead {
            lab.site.env.push(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), endpoint.clone()));
            lab.site.env.push(("OTEL_BSP_SCHEDULE_DELAY".to_owned(), "100".to_owned()));
        }
        lab.site.write("px.yaml", &lab.managed("px", 3128));
        let mut operator = lab.site.start().up().await;
        operator.wait_phase("default/px", "Ready").await;
        assert_eq!(operator.api.post("/v1/leases", &serde_json::json!({})).await.status, 201, "work never waits for a collector");
        assert_eq!(threads(operator.child.id()), usize::from(dead));
        let asked = Instant::now();
        assert_eq!(operator.terminate().await.code(), Some(0));
        exits.push(asked.elapsed());
        let log: Vec<Value> = operator.stderr.iter().map(|line| serde_json::from_str(&line).unwrap()).collect();
        assert_eq!(log.iter().any(|line| line.get("traceID").is_some()), dead);
        assert_eq!(log.iter().any(|line| line["message"].as_str().unwrap().contains("collector")), dead, "it is said that spans are lost");
    }
    assert!(exits[1] < exits[0] + Duration::from_secs(4), "{exits:?}");
}
