//! Spans and lines of the calls (K8-18, K8-19, PC-86 to PC-88, OB-2).

use egress_protocol::provider::ErrorClass;
use serde_json::json;
use tracing::{Instrument, Level};

use crate::support::double::{Double, Reply, TOKEN};
use crate::support::heard::Heard;
use crate::support::kit::{CLOUD_INIT, Calls, backend, config, key, request};

/// K8-18, K8-19: one span below the operation's and one DEBUG line each, with these fields.
#[tokio::test]
async fn every_request_is_one_span_below_its_operation_and_one_line() {
    let (heard, _guard) = Heard::listen();
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let asked = request("team-a", "u-1");
    let name = asked.name.as_str();
    let mut all = Vec::new();
    let mut check = |operation: &'static str, expected: &[(&str, &str, &str)]| {
        let said = heard.take();
        let spans: Vec<_> = said
            .calls()
            .iter()
            .map(|span| {
                assert_eq!(span.parent, Some(operation), "{span:?}");
                (span.name.to_owned(), span.fields["verb"].clone(), span.fields["status"].clone())
            })
            .collect();
        let wanted: Vec<_> =
            expected.iter().map(|(call, verb, status)| (format!("kubernetes.{call}"), (*verb).to_owned(), (*status).to_owned())).collect();
        assert_eq!(spans, wanted, "{operation}");
        let lines = said.told();
        assert_eq!(lines.len(), expected.len(), "{operation}: {lines:?}");
        for (line, (call, _, status)) in lines.iter().zip(expected) {
            assert_eq!((line.level, line.span), (Level::DEBUG, Some(format!("kubernetes.{call}").as_str())));
            assert_eq!((line.fields["call"].as_str(), line.fields["httpStatus"].as_str()), (*call, *status));
            assert_eq!(line.fields["provider"], "pods");
            assert!(line.fields["duration"].parse::<f64>().unwrap() < 10.0, "{line:?}");
            if call.ends_with("_pod") {
                assert_eq!((line.fields["namespace"].as_str(), line.fields["name"].as_str()), ("team-a", name));
            }
        }
        all.push(said);
    };
    backend.made(&asked).instrument(tracing::info_span!("provider.create")).await.unwrap();
    check("provider.create", &[("create_pod", "create", "201")]);
    backend.made(&asked).instrument(tracing::info_span!("provider.create")).await.unwrap();
    check("provider.create", &[("create_pod", "create", "409"), ("get_pod", "get", "200")]);
    backend.read(&key(&asked)).instrument(tracing::info_span!("provider.get")).await.unwrap();
    check("provider.get", &[("get_pod", "get", "200")]);
    backend.all().instrument(tracing::info_span!("provider.list")).await.unwrap();
    check("provider.list", &[("list_pods", "list", "200")]);
    backend.checked().instrument(tracing::info_span!("providerhealth.check")).await;
    check("providerhealth.check", &[("list_pods", "list", "200"), ("version", "get", "200")]);
    backend.gone(&key(&asked)).instrument(tracing::info_span!("provider.delete")).await.unwrap();
    check("provider.delete", &[("get_pod", "get", "200"), ("delete_pod", "delete", "200")]);
    for line in all.iter().flat_map(|said| &said.lines) {
        assert!(line.level > Level::INFO || line.message.starts_with("WARNING:"), "silent at INFO: {line:?}");
    }
    let everything = format!("{all:?}");
    assert!(!everything.contains(CLOUD_INIT) && !everything.contains(TOKEN));
}

/// K8-19: only under an existing parent; a line there is all the same.
#[tokio::test]
async fn what_nobody_asked_for_begins_no_trace() {
    let (heard, _guard) = Heard::listen();
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    backend.all().await.unwrap();
    let said = heard.take();
    assert!(said.calls().is_empty(), "{:?}", said.spans);
    assert_eq!(said.told().len(), 1);
}

/// K8-18: a failed or unanswered call has its line too.
#[tokio::test]
async fn a_failed_call_says_why_in_its_line() {
    let (heard, _guard) = Heard::listen();
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    double.always(Reply::status(500, "InternalError", "etcdserver: leader changed", json!({})));
    let operation = || tracing::info_span!("provider.get");
    backend.read(&key(&request("team-a", "u-1"))).instrument(operation()).await.unwrap_err();
    let said = heard.take();
    assert_eq!(said.told()[0].fields["httpStatus"], "500");
    assert!(said.told()[0].fields["error"].contains("leader changed"), "{:?}", said.told());
    assert_eq!(said.calls()[0].fields["otel.status_code"], "ERROR");
    double.always(Reply::Break);
    backend.read(&key(&request("team-a", "u-1"))).instrument(operation()).await.unwrap_err();
    let said = heard.take();
    assert!(said.told()[0].fields.contains_key("error") && !said.told()[0].fields.contains_key("httpStatus"), "{:?}", said.told());
    // That something is gone is no failure of the call.
    double.calm();
    let error = backend.read(&key(&request("team-a", "u-9"))).instrument(operation()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::NotFound);
    assert!(!heard.take().calls()[0].fields.contains_key("otel.status_code"));
}

/// K8-18: at TRACE, without what others put into our Pods.
#[tokio::test]
async fn a_pod_is_shown_at_trace_without_the_values_of_its_environment() {
    let (heard, _guard) = Heard::listen();
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let asked = request("team-a", "u-1");
    backend.made(&asked).await.unwrap();
    double.pods(|pods| {
        let mut pod = pods.get("team-a", asked.name.as_str()).unwrap().clone();
        let sidecar = json!({"name": "sidecar", "image": "x", "env": [{"name": "PASSWORD", "value": "SENTINEL-env"}]});
        pod["spec"]["containers"].as_array_mut().unwrap().push(sidecar.clone());
        pod["spec"]["initContainers"] = json!([sidecar]);
        pods.put(pod);
    });
    heard.take();
    backend.read(&key(&asked)).await.unwrap();
    let said = heard.take();
    let shown: Vec<_> = said.lines.iter().filter(|line| line.level == Level::TRACE).collect();
    assert_eq!(shown.len(), 1);
    assert!(shown[0].fields["pod"].contains("sidecar") && shown[0].fields["pod"].contains("PASSWORD"), "{shown:?}");
    assert!(!format!("{said:?}").contains("SENTINEL-env"));
}
