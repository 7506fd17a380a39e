//! The seam, enumerated (PC-88), over a transport without a network.

#[path = "../../tests/it/support/heard.rs"]
#[allow(dead_code, missing_docs, unreachable_pub, reason = "shared with the integration tests")]
mod heard;

use bytes::Bytes;
use http::Response;
use kube::client::Body;
use serde_json::{Value, json};

use egress_protocol::leadership::Fence;
use egress_protocol::{Clock, InstallationId};

use super::*;
use crate::backend::KubernetesBackend;
use crate::config::KubernetesConfig;
use heard::Heard;

const ALL: [SeamCall; 5] = [SeamCall::CreatePod, SeamCall::GetPod, SeamCall::DeletePod, SeamCall::ListPods, SeamCall::Version];

/// A captured answer as the calls see it.
pub(crate) fn captured(file: &str) -> CallError {
    let file: Value = serde_json::from_str(file).unwrap();
    let answer = Answer {
        code: u16::try_from(file["code"].as_u64().unwrap()).unwrap(),
        retry_after: file["retryAfter"].as_str().map(|seconds| Duration::from_secs(seconds.parse().unwrap())),
        body: Bytes::from(file["body"].as_str().unwrap().to_owned()),
    };
    answer.refused().unwrap()
}

fn call() -> Call {
    Call::until(Instant::now() + Duration::from_secs(60))
}

/// One that answers everything with the same.
async fn pods(code: u16, body: &Value) -> Arc<KubernetesBackend> {
    let body = body.to_string();
    let service = tower::service_fn(move |_: Request<Body>| {
        let response = Response::builder().status(code).body(Body::from(body.clone().into_bytes()));
        async move { response }
    });
    let client = ApiClient::over(Client::new(service, "default"), "https://u:p@api.example:6443/");
    let config = KubernetesConfig::new("pods", InstallationId::new("ours"));
    let build = move |ground: &Ground| Ok(Arc::new(KubernetesBackend::new(config.clone(), client.clone(), ground)));
    let (backend, _, root) = egress_conformance::lend("pods", Clock::system(), Fence::open(), build).await.unwrap();
    // As long as the runtime.
    std::mem::forget(root);
    backend
}

async fn make(api: &Api, what: SeamCall) -> Result<(), CallError> {
    let at = PodRef::new("team-a", "p").unwrap();
    let call = call();
    match what {
        SeamCall::CreatePod => api.create_pod(&at, &Pod::default(), &call).await,
        SeamCall::GetPod => api.get_pod(&at, &call).await.map(drop),
        SeamCall::DeletePod => api.delete_pod(&at, "uid", &call).await,
        SeamCall::ListPods => api.list_pods(None, 1, None, &call).await.map(drop),
        SeamCall::Version => api.version(&call).await.map(drop),
    }
}

#[tokio::test]
async fn every_call_of_the_seam_is_exactly_one_span_and_one_line_pc_88() {
    let good = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {}, "items": [], "gitVersion": "v1.36.3"});
    let bad = json!({"kind": "Status", "status": "Failure", "reason": "InternalError", "message": "broken", "code": 500});
    for (code, body) in [(200, &good), (500, &bad)] {
        let pods = pods(code, body).await;
        for what in ALL {
            let (heard, _guard) = Heard::listen();
            let made = make(&pods.api, what).instrument(tracing::info_span!("provider.test")).await;
            assert_eq!(made.is_ok(), code == 200, "{what:?}: {made:?}");
            let said = heard.take();
            let name = format!("kubernetes.{}", what.as_str());
            let spans: Vec<_> = said.calls().iter().map(|span| (span.name.to_owned(), span.parent)).collect();
            assert_eq!(spans, [(name.clone(), Some("provider.test"))], "{what:?}");
            let lines: Vec<_> = said.told().iter().map(|line| (line.span.unwrap().to_owned(), line.fields["call"].clone())).collect();
            assert_eq!(lines, [(name, what.as_str().to_owned())], "{what:?}");
        }
    }
}

/// PC-75.
#[tokio::test]
async fn the_server_is_told_without_user_info() {
    assert_eq!(pods(200, &json!({})).await.api.server(&call()).await.as_deref(), Some("https://api.example:6443"));
}

/// As the real one was seen to answer when it runs out of time: without `kind`.
#[test]
fn a_status_without_a_kind_is_one_and_a_pod_is_none() {
    let error = captured(include_str!("../../tests/captured/timed-out.json"));
    assert_eq!(error.status().map(|status| (status.code, status.reason.as_str())), Some((504, "Timeout")));
    for body in ["", "{}", r#"{"kind":"Pod","status":"Failure"}"#, r#"{"status":{"phase":"Running"}}"#, r#"{"kind":"Status""#] {
        let answer = Answer { code: 404, retry_after: None, body: Bytes::from_static(body.as_bytes()) };
        assert!(matches!(answer.refused(), Some(CallError::NoStatus { code: 404, .. })), "{body}");
    }
}
