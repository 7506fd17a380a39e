//! Answers that are none of the API server's, and calls that end before there is one (K8-13, K8-14, SV-4).

use std::future::Future;
use std::time::Duration;

use egress_backend_kubernetes::{Budgets, KubernetesBackend};
use egress_protocol::leadership::Fence;
use egress_protocol::provider::ErrorClass;
use egress_provider::{Backend, BackendError, Call};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use crate::support::double::{Double, Reply, SOON, kubeconfig};
use crate::support::kit::{Calls, backend, call, config, key, request};

/// Each operation once, with the call it was given.
async fn each<F: Future<Output = Call>>(backend: &KubernetesBackend, made: impl Fn() -> F) -> Vec<BackendError> {
    let asked = request("team-a", "u-1");
    vec![
        backend.create(&asked, &made().await).await.unwrap_err(),
        backend.get(&key(&asked), &made().await).await.unwrap_err(),
        backend.delete(&key(&asked), &made().await).await.unwrap_err(),
        backend.list_managed(&made().await).await.unwrap_err(),
    ]
}

/// K8-13: the last row; PC-25: never NotFound.
#[tokio::test]
async fn what_is_no_api_status_is_transient() {
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let raw = |code, body: &str| Reply::Raw(code, vec![("content-type", "text/html".to_owned())], body.to_owned());
    for reply in [
        raw(404, "<html>404 page not found</html>"),
        raw(403, "Forbidden"),
        raw(502, "<html>Bad Gateway</html>"),
        raw(503, ""),
        raw(302, ""),
        raw(404, r#"{"kind":"Pod"}"#),
        Reply::Json(404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404})),
        Reply::Break,
    ] {
        double.always(reply.clone());
        for error in each(&backend, || async { call() }).await {
            assert_eq!((error.class, error.environment), (ErrorClass::Transient, false), "{reply:?}: {}", error.message);
            assert!(error.cause.is_some() && !error.message.is_empty(), "{reply:?}");
        }
    }
    // Something was made or not: who knows. What cannot be read is not read as something.
    for body in ["", "{", "[]", r#"{"kind":"Pod","metadata":7}"#, r#"{"kind":"PodList","items":[{"metadata":[]}]}"#] {
        double.always(raw(200, body));
        let error = backend.read(&key(&request("team-a", "u-1"))).await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Transient, "{body}: {}", error.message);
        assert_eq!(backend.all().await.unwrap_err().class, ErrorClass::Transient, "{body}");
    }
    // And the connection is as good as ever.
    double.calm();
    backend.made(&request("team-a", "u-1")).await.unwrap();
}

/// K8-13: up to ten seconds.
#[tokio::test]
async fn a_retry_after_is_honoured_up_to_ten_seconds() {
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    let status = json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "message": "slow down", "code": 429});
    for (header, expected) in
        [(Some("3"), Some(3)), (Some("60"), Some(10)), (Some("0"), Some(1)), (Some("Wed, 21 Oct 2026 07:28:00 GMT"), None), (None, None)]
    {
        let headers = header.iter().map(|value| ("retry-after", (*value).to_owned())).collect();
        double.always(Reply::Raw(429, headers, status.to_string()));
        let error = backend.made(&request("team-a", "u-1")).await.unwrap_err();
        assert_eq!((error.class, error.retry_after), (ErrorClass::Transient, expected.map(Duration::from_secs)), "{header:?}");
    }
    // The body's word counts where there is no header.
    double.always(Reply::status(500, "ServerTimeout", "try again", json!({"retryAfterSeconds": 2})));
    assert_eq!(backend.read(&key(&request("team-a", "u-1"))).await.unwrap_err().retry_after, Some(Duration::from_secs(2)));
    // One request each: nobody here tries again by himself.
    assert_eq!(double.seen().len(), 6);
}

/// K8-13: refused, and K8-14: each request has a budget.
#[tokio::test]
async fn nobody_there_and_nobody_answering_are_transient() {
    let dir = tempfile::tempdir().unwrap();
    let double = Double::start();
    let _ = double.kubeconfig();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = backend(config(), &kubeconfig(dir.path(), &format!("http://127.0.0.1:{port}"), &double.token_file())).await;
    for error in each(&nobody, || async { call() }).await {
        assert_eq!(error.class, ErrorClass::Transient);
        assert!(error.message.to_lowercase().contains("refused"), "{}", error.message);
    }
    assert_eq!(nobody.checked().await.reason, "Unreachable");
    double.always(Reply::Hang);
    let short = Duration::from_millis(150);
    let mut patient = config();
    patient.budgets = Budgets { request: short, list_page: short, version: short, ..Budgets::default() };
    let silent = backend(patient, &double.kubeconfig()).await;
    let started = Instant::now();
    for error in each(&silent, || async { call() }).await {
        assert_eq!(error.class, ErrorClass::Transient);
        assert!(error.message.contains("did not answer within 150ms"), "{}", error.message);
    }
    assert!(started.elapsed() >= 4 * short && started.elapsed() < SOON, "{:?}", started.elapsed());
    assert_eq!(silent.checked().await.reason, "Timeout");
}

/// K8-13, K8-14: cancelled in less than a second, in whatever call; PC-64.
#[tokio::test]
async fn a_cancelled_or_overdue_call_answers_at_once() {
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    double.always(Reply::Hang);
    let cancelled = || async {
        let call = call();
        let cancel = call.cancel.clone();
        crate::support::outer().spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cancel.cancel();
        });
        call
    };
    let overdue = || async { Call::until(Instant::now() + Duration::from_millis(100)) };
    let started = Instant::now();
    for error in each(&backend, cancelled).await {
        assert_eq!(error.class, ErrorClass::Transient);
        assert!(error.message.contains("cancelled"), "{}", error.message);
    }
    for error in each(&backend, overdue).await {
        assert_eq!(error.class, ErrorClass::Transient);
        assert!(error.message.contains("deadline"), "{}", error.message);
    }
    assert!(started.elapsed() < Duration::from_millis(8 * 100 + 1000), "{:?}", started.elapsed());
    let verdicts = backend.check(&overdue().await).unwrap().await;
    assert_eq!(verdicts[0].reason, "Timeout");
    // One that was cancelled before sends nothing.
    double.forget();
    let call = call();
    call.cancel.cancel();
    assert_eq!(backend.get(&key(&request("team-a", "u-1")), &call).await.unwrap_err().class, ErrorClass::Transient);
    assert!(double.seen().is_empty());
}

/// SV-4: nothing is sent behind a closed fence, in the middle of an operation either.
#[tokio::test]
async fn a_closed_fence_sends_nothing_sv_4() {
    let double = Double::start();
    let backend = backend(config(), &double.kubeconfig()).await;
    for error in each(&backend, || async { call().with_fence(Fence::closed()) }).await {
        assert_eq!(error.class, ErrorClass::Transient);
        assert!(error.message.contains("leadership"), "{}", error.message);
    }
    assert!(double.seen().is_empty());
    let asked = request("team-a", "u-1");
    backend.made(&asked).await.unwrap();
    double.forget();
    // It closes between the two requests of a delete.
    let fence = Fence::open();
    let closing = fence.clone();
    double.script(move |_, _| {
        closing.close();
        None
    });
    let error = backend.delete(&key(&asked), &call().with_fence(fence)).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transient);
    assert_eq!(double.lines().len(), 1, "{:?}", double.lines());
    assert!(double.pods(|pods| pods.get("team-a", asked.name.as_str()).is_some()));
}

/// SV-4: a connection that takes long to make must not carry a request when it is made at last.
#[tokio::test]
async fn a_fence_that_closes_while_a_connection_is_made_stops_the_request_sv_4() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "t").unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    let backend = backend(config(), &kubeconfig(dir.path(), &server, &token)).await;
    let fence = Fence::closed();
    fence.extend(Instant::now() + Duration::from_millis(300));
    let (asked, call) = (request("team-a", "u-1"), call().with_fence(fence));
    let started = Instant::now();
    let (error, greeting) = tokio::join!(
        async {
            let error = backend.create(&asked, &call).await.unwrap_err();
            (error, started.elapsed())
        },
        async {
            let (mut stream, _) = listener.accept().await.unwrap();
            // The client's greeting comes; the server never answers it.
            let mut buffer = [0; 4096];
            (stream.read(&mut buffer).await.unwrap(), stream)
        }
    );
    let (error, took) = error;
    assert_eq!(error.class, ErrorClass::Transient);
    assert!(error.message.contains("leadership"), "{}", error.message);
    assert!(took >= Duration::from_millis(300) && took < Duration::from_millis(1300), "{took:?}");
    let (greeting, mut stream) = greeting;
    assert!(greeting > 0, "it was connecting");
    // And it hangs up.
    let rest = tokio::time::timeout(SOON, stream.read_to_end(&mut Vec::new())).await;
    assert!(matches!(rest, Ok(Ok(0) | Err(_))), "nothing more came: {rest:?}");
}

/// O11: a network that went away leaves connections that look alive. One call pays for it, not one for each of them.
#[tokio::test]
async fn a_call_that_got_no_answer_leaves_no_half_open_connection_behind_o11() {
    let double = Double::start();
    let mut impatient = config();
    impatient.budgets.request = Duration::from_millis(150);
    let backend = backend(impatient, &double.kubeconfig()).await;
    let asked = request("team-a", "u-1");
    backend.made(&asked).await.unwrap();
    // Several at once make several connections, which then lie idle.
    let reads = (0..4).map(|_| async { backend.read(&key(&asked)).await });
    futures::future::join_all(reads).await.into_iter().for_each(|read| drop(read.unwrap()));
    let last = double.seen().iter().map(|seen| seen.connection).max().unwrap();
    assert!(last > 1, "{last}");
    double.script(move |seen, _| (seen.connection <= last).then_some(Reply::Hang));
    crate::wire::later().await;
    assert_eq!(backend.read(&key(&asked)).await.unwrap_err().class, ErrorClass::Transient);
    backend.read(&key(&asked)).await.expect("by a new connection");
}
