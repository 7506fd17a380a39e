//! The actor against an API server that answers as it is told to, over plain HTTP.

mod api;

use std::time::Duration;

use egress_kube::Access;
use egress_protocol::Clock;
use egress_protocol::metrics::Metrics;
use egress_supervision::{Address, Root, System};
use futures::future::join_all;

use super::*;
use api::{Api, Manner};

struct Bed {
    api: Api,
    system: System,
    reviewer: Address<ReviewMessage>,
    _root: Root,
}

async fn bed(api: Api) -> Bed {
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let client = ApiClient::new(Access { kubeconfig: Some(api.kubeconfig()) });
    let root = system.start_root(spec(client)).await.unwrap();
    Bed { api, reviewer: system.address(ACTOR_ID), system, _root: root }
}

impl Bed {
    async fn review(&self, token: &str) -> Verdict {
        let token = Secret::new(token.to_owned());
        let ask = |reply_to| ReviewMessage::Review { token, verb: "get", path: "/metrics", reply_to };
        self.reviewer.call(Duration::from_secs(20), ask).await.unwrap()
    }

    async fn state(&self) -> serde_json::Value {
        self.system.inspect(Some(ACTOR_ID), Some(0)).await.unwrap().state.unwrap()
    }
}

fn allowed(user: &str) -> Verdict {
    Verdict::Allowed { user: user.into() }
}

fn unavailable(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Unavailable { reason } => reason,
        other => panic!("{other:?}"),
    }
}

/// Later, for the actor; connections take part in it by real time.
async fn later(by: Duration) {
    tokio::time::pause();
    tokio::time::advance(by).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_bearer_is_known_by_name_groups_and_extra_and_then_asked_about() {
    let bed = bed(Api::start().await).await;
    assert_eq!(bed.review("scraper-token").await, allowed("scraper"));
    let asked = bed.api.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[0].path, "/apis/authentication.k8s.io/v1/tokenreviews");
    assert_eq!(asked[0].body, json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "scraper-token"}}));
    assert_eq!(asked[1].path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
    let spec = json!({
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        "user": "scraper", "uid": "uid-of-scraper", "groups": ["system:authenticated"], "extra": {"example.com/id": ["1", "2"]},
    });
    assert_eq!(asked[1].body, json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}));
}

#[tokio::test]
async fn a_yes_is_asked_for_again_after_ten_seconds_and_a_no_after_two() {
    let bed = bed(Api::start().await).await;
    for _ in 0..3 {
        assert_eq!(bed.review("scraper-token").await, allowed("scraper"));
        assert_eq!(bed.review("stranger-token").await, Verdict::Forbidden { user: "stranger".into() });
        assert_eq!(bed.review("made-up").await, Verdict::Unknown);
    }
    assert_eq!(bed.api.tokens(), ["scraper-token", "stranger-token", "made-up"]);
    assert_eq!(bed.state().await, json!({"allowed": 1, "refused": 2, "underReview": 0}));
    bed.api.change(|world| {
        world.may.insert("stranger");
        world.users.remove("scraper-token");
    });
    later(verdicts::REFUSED).await;
    assert_eq!(bed.review("stranger-token").await, allowed("stranger"), "a right that was given counts within two seconds");
    assert_eq!(bed.review("scraper-token").await, allowed("scraper"));
    later(verdicts::ALLOWED - verdicts::REFUSED).await;
    assert_eq!(bed.review("scraper-token").await, Verdict::Unknown, "a token that is gone counts ten seconds more at most");
}

#[tokio::test]
async fn what_cannot_be_a_token_is_unknown_without_being_asked_about() {
    let bed = bed(Api::start().await).await;
    for text in ["", "two words", "tab\t", "ünïcode", &"x".repeat(LONGEST_TOKEN + 1)] {
        assert_eq!(bed.review(text).await, Verdict::Unknown, "{text}");
    }
    assert!(bed.api.asked().is_empty());
    assert_eq!(bed.review(&"x".repeat(LONGEST_TOKEN)).await, Verdict::Unknown);
    assert_eq!(bed.api.asked().len(), 1);
}

#[tokio::test]
async fn when_nobody_can_be_asked_the_verdict_is_that_and_is_not_kept() {
    let bed = bed(Api::start().await).await;
    let status = |code: u16, message: &str| Manner::Says(code, json!({"kind": "Status", "message": message, "code": code}).to_string());
    for (manner, told) in [
        (status(403, "tokenreviews is forbidden"), "tokenreviews is forbidden (403)"),
        (status(401, "Unauthorized"), "Unauthorized (401)"),
        (status(429, "too many requests"), "too many requests (429)"),
        (status(500, "etcd is away"), "etcd is away (500)"),
        (Manner::Says(201, "no JSON".to_owned()), "the answer of tokenreviews cannot be read"),
        (Manner::Says(201, "{}".to_owned()), "the answer of tokenreviews cannot be read"),
        (Manner::HangsUp, "client error"),
    ] {
        bed.api.change(|world| world.manner = manner);
        let verdict = bed.review("scraper-token").await;
        assert!(unavailable(&verdict).contains(told), "{told}: {verdict:?}");
        assert_eq!(bed.state().await["unavailable"], unavailable(&verdict));
    }
    bed.api.change(|world| world.manner = Manner::Answers);
    assert_eq!(bed.review("scraper-token").await, allowed("scraper"));
    assert_eq!(bed.state().await, json!({"allowed": 1, "refused": 0, "underReview": 0}));
}

#[tokio::test]
async fn a_silent_api_server_is_waited_for_five_seconds_in_all() {
    let bed = bed(Api::start().await).await;
    bed.api.change(|world| world.manner = Manner::Silent("SubjectAccessReview"));
    let (began, noted) = (Instant::now(), async {
        bed.api.wait_for(2).await;
        tokio::time::pause();
    });
    let (verdict, ()) = tokio::join!(bed.review("scraper-token"), noted);
    assert!(unavailable(&verdict).contains("did not answer within"), "{verdict:?}");
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_millis(5500), "both questions share it: {took:?}");
}

#[tokio::test]
async fn many_that_ask_about_one_token_at_once_wait_for_one_review() {
    let bed = bed(Api::start().await).await;
    let verdicts = join_all((0..50).map(|_| bed.review("scraper-token"))).await;
    assert!(verdicts.iter().all(|verdict| *verdict == allowed("scraper")));
    assert_eq!(bed.api.tokens(), ["scraper-token"]);
}

#[tokio::test]
async fn a_flood_of_made_up_tokens_is_bounded_and_does_not_keep_a_scraper_out() {
    let bed = bed(Api::start().await).await;
    assert_eq!(bed.review("scraper-token").await, allowed("scraper"));
    later(verdicts::ALLOWED).await;
    let held = bed.api.hold();
    let made_up: Vec<String> = (0..STRANGERS).map(|n| format!("made-up-{n}")).collect();
    let flood = join_all(made_up.iter().map(|token| bed.review(token)));
    let meanwhile = async {
        bed.api.wait_for(2 + STRANGERS).await;
        assert_eq!(unavailable(&bed.review("one-more").await), "too many tokens are under review");
        let scraper = bed.review("scraper-token");
        let release = async {
            bed.api.wait_for(2 + STRANGERS + 1).await;
            drop(held);
        };
        let (verdict, ()) = tokio::join!(scraper, release);
        assert_eq!(verdict, allowed("scraper"));
    };
    let (verdicts, ()) = tokio::join!(flood, meanwhile);
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Unknown), "{verdicts:?}");
    assert!(!bed.api.tokens().contains(&"one-more".to_owned()));
}

/// Everything that is logged at all, the libraries' lines included.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_token_is_in_no_line_no_state_and_no_reason_and_an_outage_is_told_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false).with_writer(move || writer.clone());
    // While only one subscriber exists, a thread that has none switches call sites off for all: so everybody has one.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber.finish());
    let bed = bed(Api::start().await).await;
    let echo = json!({"kind": "TokenReview", "spec": {"token": "scraper-token"}, "status": "scraper-token"}).to_string();
    for manner in [Manner::Says(201, echo), Manner::HangsUp, Manner::Answers] {
        bed.api.change(|world| world.manner = manner);
        for token in ["scraper-token", "stranger-token"] {
            let verdict = bed.review(token).await;
            let message = format!(
                "{verdict:?} {:?} {}",
                ReviewMessage::Review { token: Secret::new(token.to_owned()), verb: "get", path: "/metrics", reply_to: Reply::channel().0 },
                bed.state().await
            );
            assert!(!message.contains("-token"), "{message}");
        }
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(!log.contains("-token"), "{log}");
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(lines("WARNING: the API server does not review tokens, scrapes are answered 503"), 1, "{log}");
    assert_eq!(lines("the API server reviews tokens again"), 1, "{log}");
    assert!(lines("kube_client") > 0, "the libraries were heard too");
}
