//! `/metrics` for those only whom a reviewer allows it: what each verdict is on the wire.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egress_protocol::message::Never;
use egress_protocol::metrics::Metrics;
use egress_protocol::review::{ACTOR_ID, ReviewMessage, Verdict};
use egress_protocol::{Clock, Reply};
use egress_supervision::{Actor, ChildSpec, Context, Failure, Root, System};

use super::server::{Server, serve_over};
use super::wire::{Answer, ask, request};
use crate::http::connection::Limits;
use crate::http::metrics::Exposition;

/// Says of each token what it is told to, and nothing of others.
#[derive(Default)]
struct World {
    says: HashMap<&'static str, Verdict>,
    asked: Vec<(String, &'static str, &'static str)>,
    waiting: Vec<Reply<Verdict>>,
}

struct Reviewer(Arc<Mutex<World>>);

impl Actor for Reviewer {
    type Message = ReviewMessage;
    type Internal = Never;
    type Args = Arc<Mutex<World>>;
    const KIND: &'static str = "reviewer";

    async fn start(_: &Context<Self>, world: Self::Args) -> Result<Self, Failure> {
        Ok(Self(world))
    }

    fn handle(&mut self, _: &Context<Self>, message: ReviewMessage) -> Result<(), Failure> {
        let ReviewMessage::Review { token, verb, path, reply_to } = message;
        let mut world = self.0.lock().unwrap();
        world.asked.push((token.expose().clone(), verb, path));
        match world.says.get(token.expose().as_str()).cloned() {
            Some(verdict) => drop(reply_to.send(verdict)),
            None => world.waiting.push(reply_to),
        }
        Ok(())
    }

    fn handle_internal(&mut self, _: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

struct Bed {
    server: Server,
    world: Arc<Mutex<World>>,
    root: Root,
}

async fn bed() -> Bed {
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let world = Arc::new(Mutex::new(World::default()));
    world.lock().unwrap().says = HashMap::from([
        ("may", Verdict::Allowed { user: "scraper".into() }),
        ("may-not", Verdict::Forbidden { user: "system:serviceaccount:shop:crawler".into() }),
        ("made-up", Verdict::Unknown),
        ("bad-times", Verdict::Unavailable { reason: "https://10.0.0.1 did not answer".into() }),
    ]);
    let root = system.start_root(ChildSpec::<Reviewer>::retried(ACTOR_ID, Arc::clone(&world))).await.unwrap();
    let server = serve_over(Exposition::new(&system).reviewed(&system).routes(), Limits::default(), None).await;
    Bed { server, world, root }
}

async fn scrape(address: SocketAddr, authorization: &[&str]) -> Answer {
    let headers: Vec<_> = authorization.iter().map(|value| ("Authorization", *value)).collect();
    ask(address, request("GET", "/metrics", &headers, None)).await
}

#[tokio::test]
async fn each_verdict_has_its_status_and_only_a_yes_has_metrics_ob_1() {
    let bed = bed().await;
    let at = bed.server.address;
    let answer = scrape(at, &["Bearer may"]).await;
    assert_eq!(answer.status, 200);
    assert!(String::from_utf8_lossy(&answer.body).contains("# TYPE proxy_operator_"), "{answer:?}");
    let refused = [
        (&[][..], 401, "unauthorized", "the header Authorization: Bearer TOKEN is missing"),
        (&["Basic bWF5"], 401, "unauthorized", "the header Authorization must be Bearer TOKEN"),
        (&["Bearer may", "Bearer may"], 401, "unauthorized", "the header Authorization must be Bearer TOKEN"),
        (&["Bearer made-up"], 401, "unauthorized", "the token is not known"),
        (
            &["Bearer may-not"],
            403,
            "forbidden",
            "system:serviceaccount:shop:crawler may not get /metrics: no rule of the cluster allows it",
        ),
    ];
    for (authorization, status, code, detail) in refused {
        let answer = scrape(at, authorization).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{authorization:?}");
        assert_eq!(answer.json()["detail"], detail);
        assert_eq!(answer.header("www-authenticate"), (status == 401).then_some("Bearer"));
    }
    let bytes = ask(at, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer m\xe4y\r\n\r\n").await;
    assert_eq!((bytes.status, bytes.code().as_str()), (401, "unauthorized"));
    let asked = bed.world.lock().unwrap().asked.clone();
    assert_eq!(asked, ["may", "made-up", "may-not"].map(|token| (token.to_owned(), "get", "/metrics")));
}

/// Who asks is judged before what they ask.
#[tokio::test]
async fn a_stranger_learns_nothing_from_the_query_or_the_method() {
    let bed = bed().await;
    let ask = async |method: &str, target: &str, token: &str| {
        let authorization = format!("Bearer {token}");
        ask(bed.server.address, request(method, target, &[("Authorization", &authorization)], None)).await.status
    };
    assert_eq!(ask("GET", "/metrics?name=x", "made-up").await, 401);
    assert_eq!(ask("GET", "/metrics?name=x", "may").await, 400);
    assert_eq!((ask("POST", "/metrics", "made-up").await, ask("GET", "/", "made-up").await), (405, 404));
}

fn assert_unavailable(answer: &Answer, detail: &str) {
    assert_eq!(
        (answer.status, answer.header("retry-after"), answer.header("content-type")),
        (503, Some("2"), Some("application/problem+json"))
    );
    let problem = answer.json();
    assert_eq!(problem["detail"], detail);
    assert_eq!((&problem["type"], &problem["retryAfterSeconds"]), (&"about:blank".into(), &2.into()));
}

#[tokio::test]
async fn when_nobody_can_tell_the_answer_is_503_with_a_time_to_come_again_and_no_reason_for_strangers() {
    let bed = bed().await;
    let at = bed.server.address;
    assert_unavailable(&scrape(at, &["Bearer bad-times"]).await, "the API server cannot be asked about the token now");
    let crashed = async {
        while bed.world.lock().unwrap().waiting.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bed.world.lock().unwrap().waiting.clear();
    };
    let (answer, ()) = tokio::join!(scrape(at, &["Bearer never-answered"]), crashed);
    assert_unavailable(&answer, "the token is not reviewed: went away before it answered");
    let (answer, ()) = tokio::join!(scrape(at, &["Bearer never-answered"]), async {
        while bed.world.lock().unwrap().waiting.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::pause();
    });
    assert_unavailable(&answer, "the token is not reviewed: no answer in time");
    tokio::time::resume();
    bed.root.stop().await;
    assert_unavailable(&scrape(at, &["Bearer may"]).await, "the token is not reviewed: not running");
}

#[tokio::test]
async fn without_a_reviewer_everybody_may_scrape() {
    let system = System::new(Clock::system(), Metrics::new(true).shared());
    let server = serve_over(Exposition::new(&system).routes(), Limits::default(), None).await;
    assert_eq!(scrape(server.address, &[]).await.status, 200);
}
