//! The contract over the fake of Compute Engine, behind the client seam.

mod hard;

use std::sync::Mutex;
use std::time::Duration;

use egress_fake_gce::{Answer as FakeAnswer, FakeGce, Fault, Hold};
use egress_protocol::Secret;
use egress_protocol::leadership::Fence;
use egress_protocol::provider::{CreateRequest, ErrorClass};
use egress_protocol::resource::Placement;
use egress_supervision::{Root, System};
use tokio::time::Instant;

use super::*;
use crate::client::Answer;
use crate::credentials::Token;
use crate::error::{CallError, TokenError};
use crate::request::ApiRequest;
use crate::testing::{config, request};

const ZONE: &str = "europe-west1-b";

/// The fake instead of a network.
struct Direct(FakeGce);

impl Wire for Direct {
    fn send<'a>(&'a self, request: &'a ApiRequest, token: &'a Token) -> BoxFuture<'a, Result<Answer, CallError>> {
        let path = match request.url.query() {
            Some(query) => format!("{}?{query}", request.url.path()),
            None => request.url.path().to_owned(),
        };
        let body = request.body.as_ref().map(|body| body.expose().clone()).unwrap_or_default();
        let answer = self.0.handle(request.method.as_str(), &path, Some(token.secret.expose()), &body);
        Box::pin(std::future::ready(Ok(Answer { status: answer.status, retry_after: None, body: answer.body.into() })))
    }
}

/// Gives `token-1`, `token-2` and so on, each for an hour, and counts.
struct Tokens(Mutex<u64>, String);

impl Default for Tokens {
    fn default() -> Self {
        Self::of("token")
    }
}

impl Tokens {
    fn of(account: &str) -> Self {
        Self(Mutex::new(0), account.to_owned())
    }
}

impl TokenSource for Tokens {
    fn fetch(&self) -> BoxFuture<'_, Result<Token, TokenError>> {
        let mut given = self.0.lock().unwrap();
        *given += 1;
        let token = Token { secret: Secret::new(format!("{}-{given}", self.1)), lasts: Duration::from_secs(3600), account: None };
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(token)
        })
    }
}

struct Bed {
    fake: FakeGce,
    tokens: Arc<Tokens>,
    backend: Arc<GcpBackend>,
    system: System,
    _root: Root,
}

impl Bed {
    async fn new() -> Self {
        Self::over(FakeGce::new("p-1")).await
    }

    /// Another process over what is there.
    async fn over(fake: FakeGce) -> Self {
        Self::with(fake, Tokens::default()).await
    }

    async fn with(fake: FakeGce, tokens: Tokens) -> Self {
        let tokens = Arc::new(tokens);
        // The fake says times by the system clock.
        let clock = Clock::system();
        let (of_fake, of_tokens) = (fake.clone(), Arc::clone(&tokens));
        let build = move |ground: &Ground| {
            let (wire, tokens) = (Arc::new(Direct(of_fake.clone())), Arc::clone(&of_tokens));
            GcpBackend::over(config(), ground, clock, wire, tokens).map(Arc::new)
        };
        let (backend, system, root) = egress_conformance::lend("gcp", clock, Fence::open(), build).await.unwrap();
        Self { fake, tokens, backend, system, _root: root }
    }

    async fn create(&self, uid: &str) -> Result<InstanceId, BackendError> {
        self.backend.create(&request(uid, b"#cloud-config"), &call()).await
    }

    async fn get(&self, uid: &str) -> Result<Instance, BackendError> {
        self.backend.get(&key(uid), &call()).await
    }

    async fn delete(&self, uid: &str) -> Result<DeleteOutcome, BackendError> {
        self.backend.delete(&key(uid), &call()).await
    }

    fn asked(&self) -> Vec<String> {
        let shown = |path: &str| path.split('?').next().unwrap_or_default().trim_start_matches("/compute/v1/projects/p-1/").to_owned();
        self.fake.take_log().iter().map(|exchange| format!("{} {}", exchange.method, shown(&exchange.path))).collect()
    }
}

fn call() -> Call {
    Call::until(Instant::now() + Duration::from_secs(60))
}

fn key(uid: &str) -> InstanceKey {
    let CreateRequest { name, uid, installation, namespace, placement, .. } = request(uid, b"");
    let id = VmRef { zone: ZONE.to_owned(), name: name.clone() }.id();
    InstanceKey { id: Some(id), name, uid, installation, namespace, placement }
}

fn name(uid: &str) -> String {
    request(uid, b"").name.to_string()
}

#[tokio::test(start_paused = true)]
async fn one_life_from_create_to_not_found() {
    let bed = Bed::new().await;
    let id = bed.create("u-1").await.unwrap();
    assert_eq!(bed.create("u-1").await.unwrap(), id, "a repeat adopts");
    let first = bed.get("u-1").await.unwrap();
    let read = bed.get("u-1").await.unwrap();
    assert!(matches!(first.state, InstanceState::Provisioning | InstanceState::Running));
    assert_eq!((read.state, read.ip.is_some(), read.created_at.is_some()), (InstanceState::Running, true, true));
    let listed = bed.backend.list_managed(&call()).await.unwrap();
    assert_eq!(listed.instances.iter().map(|instance| &instance.id).collect::<Vec<_>>(), [&id]);
    bed.fake.hold(Hold::UntilSettled);
    assert_eq!(bed.delete("u-1").await.unwrap(), DeleteOutcome::InProgress);
    let dying = bed.get("u-1").await.unwrap();
    assert!(dying.deleting && dying.state != InstanceState::Running);
    bed.asked();
    assert_eq!(bed.delete("u-1").await.unwrap(), DeleteOutcome::InProgress);
    assert!(!bed.asked().iter().any(|asked| asked.starts_with("DELETE")), "GC-13: no second request");
    bed.fake.settle();
    assert_eq!(bed.get("u-1").await.unwrap_err().class, ErrorClass::NotFound);
    assert_eq!(bed.delete("u-1").await.unwrap(), DeleteOutcome::Gone);
    assert_eq!(bed.fake.instances().len(), 0);
}

/// GC-10 to GC-12: told once with its class, then NotFound; made anew as another operation.
#[tokio::test(start_paused = true)]
async fn an_insert_that_fails_late_is_told_once_and_then_not_found() {
    for (code, class) in [
        ("QUOTA_EXCEEDED", ErrorClass::QuotaExceeded),
        ("ZONE_RESOURCE_POOL_EXHAUSTED", ErrorClass::QuotaExceeded),
        ("INVALID_FIELD_VALUE", ErrorClass::Permanent),
        ("SOMETHING_NEW", ErrorClass::Transient),
    ] {
        let bed = Bed::new().await;
        bed.fake.hold(Hold::UntilSettled);
        bed.fake.fail_next_insert(code, "the reason");
        bed.create("u-1").await.unwrap();
        assert_eq!(bed.get("u-1").await.unwrap().state, InstanceState::Provisioning, "{code}: its insert still runs");
        bed.fake.settle();
        let told = bed.get("u-1").await.unwrap_err();
        assert_eq!(told.class, class, "{code}");
        assert!(told.message.contains(&format!("{code}: the reason")), "{}", told.message);
        assert_eq!(bed.get("u-1").await.unwrap_err().class, ErrorClass::NotFound, "{code}: told once");
        bed.create("u-1").await.unwrap();
        bed.fake.settle();
        assert_eq!(bed.get("u-1").await.unwrap().state, InstanceState::Running);
    }
}

/// GC-11: from the backend's own list of operations, when the process that began it is gone.
#[tokio::test(start_paused = true)]
async fn an_insert_that_failed_before_a_restart_is_told_after_it() {
    let bed = Bed::new().await;
    bed.fake.hold(Hold::UntilSettled);
    bed.fake.fail_next_insert("QUOTA_EXCEEDED", "no room");
    bed.create("u-1").await.unwrap();
    bed.fake.settle();
    let after = Bed::over(bed.fake.clone()).await;
    assert_eq!(after.get("u-1").await.unwrap_err().class, ErrorClass::QuotaExceeded);
    assert_eq!(after.get("u-1").await.unwrap_err().class, ErrorClass::NotFound);
    assert_eq!(after.get("u-2").await.unwrap_err().class, ErrorClass::NotFound, "nothing was ever begun for it");
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_cannot_be_read_is_transient_and_makes_no_second_machine() {
    let bed = Bed::new().await;
    bed.fake.hold(Hold::UntilSettled);
    bed.fake.fail_next_insert("QUOTA_EXCEEDED", "no room");
    bed.create("u-1").await.unwrap();
    bed.fake.settle();
    let answer = FakeAnswer::error(503, "backendError", "try later");
    bed.fake.fault(Fault { method: "GET", path: "/operations/".to_owned(), times: 3, answer, carried_out: false });
    for _ in 0..3 {
        assert_eq!(bed.get("u-1").await.unwrap_err().class, ErrorClass::Transient);
    }
    assert_eq!(bed.get("u-1").await.unwrap_err().class, ErrorClass::QuotaExceeded);
    assert_eq!(bed.asked().iter().filter(|asked| asked.starts_with("POST ")).count(), 1, "nothing was inserted meanwhile");
    assert!(bed.fake.instances().is_empty());
}

/// GC-7, GC-8: what is not ours is neither adopted, read nor deleted.
#[tokio::test(start_paused = true)]
async fn what_is_not_ours_is_left_alone() {
    for labels in [
        &[][..],
        &[("proxy-operator-managed", "true"), ("proxy-operator-uid", "somebody"), ("proxy-operator-installation", "inst")],
        &[("proxy-operator-managed", "true"), ("proxy-operator-uid", "u-1"), ("proxy-operator-installation", "other")],
    ] {
        let bed = Bed::new().await;
        bed.fake.place(ZONE, &name("u-1"), labels, "RUNNING");
        let before = bed.fake.instances();
        assert_eq!(bed.create("u-1").await.unwrap_err().class, ErrorClass::Permanent);
        assert_eq!(bed.get("u-1").await.unwrap_err().class, ErrorClass::NotFound);
        assert_eq!(bed.delete("u-1").await.unwrap(), DeleteOutcome::Gone);
        assert_eq!(bed.fake.instances(), before);
    }
}

/// GC-5: the answer of an insert is lost; the repeat finds what was made.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_of_an_insert_makes_one_machine() {
    let bed = Bed::new().await;
    let answer = FakeAnswer::error(503, "backendError", "lost");
    bed.fake.fault(Fault { method: "POST", path: "/instances".to_owned(), times: 1, answer, carried_out: true });
    assert_eq!(bed.create("u-1").await.unwrap_err().class, ErrorClass::Transient);
    bed.create("u-1").await.unwrap();
    assert_eq!(bed.fake.instances().len(), 1);
}

/// GC-15: pages are drained, a dark zone is named, other installations are left out.
#[tokio::test(start_paused = true)]
async fn a_list_drains_its_pages_and_names_what_it_left_out() {
    let bed = Bed::new().await;
    for n in 0..1100 {
        let uid = format!("u-{n}");
        let ours = [("proxy-operator-managed", "true"), ("proxy-operator-uid", uid.as_str()), ("proxy-operator-installation", "inst")];
        bed.fake.place(ZONE, &name(&uid), &ours, "RUNNING");
    }
    let other = [("proxy-operator-managed", "true"), ("proxy-operator-uid", "x"), ("proxy-operator-installation", "other")];
    bed.fake.place(ZONE, &name("x"), &other, "RUNNING");
    let listed = bed.backend.list_managed(&call()).await.unwrap();
    assert_eq!((listed.instances.len(), listed.left_out.len(), bed.asked().len()), (1100, 0, 3));
    bed.fake.darken("us-central1-a", true);
    let listed = bed.backend.list_managed(&call()).await.unwrap();
    assert_eq!((listed.instances.len(), listed.left_out[0].0.as_str()), (1100, "zones/us-central1-a"));
}

/// GC-22, GC-17: one fetch for all who wait; a refused token is fetched anew, once, and the request keeps its id.
#[tokio::test(start_paused = true)]
async fn a_token_is_fetched_once_for_all_and_again_when_it_is_refused() {
    let bed = Bed::new().await;
    bed.fake.accept_tokens(&["token-2"]);
    let uids = ["u-1", "u-2", "u-3"];
    let made = futures::future::join_all(uids.iter().map(|uid| bed.create(uid))).await;
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    assert_eq!(*bed.tokens.0.lock().unwrap(), 2);
    let sent = bed.fake.take_log();
    assert_eq!((sent.len(), sent.iter().filter(|exchange| exchange.answer.status == 401).count()), (6, 3));
    let mut ids: Vec<_> = sent.iter().map(|exchange| exchange.path.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3, "the second try is the same request");
    bed.fake.accept_tokens(&[]);
    let error = bed.get("u-1").await.unwrap_err();
    assert_eq!((error.class, error.environment), (ErrorClass::Permanent, true), "{}", error.message);
}

/// GC-3, PC-19.
#[tokio::test(start_paused = true)]
async fn a_placement_that_cannot_be_served_costs_no_call() {
    let bed = Bed::new().await;
    let bad = CreateRequest { placement: Placement::default(), ..request("u-1", b"") };
    assert_eq!(bed.backend.create(&bad, &call()).await.unwrap_err().class, ErrorClass::Permanent);
    assert!(bed.asked().is_empty() && *bed.tokens.0.lock().unwrap() == 0);
}

/// GC-14: without an id the name is looked for where the hint says, or everywhere.
#[tokio::test(start_paused = true)]
async fn a_delete_without_an_id_finds_the_machine_by_its_name() {
    for placement in [Placement { zone: Some(ZONE.to_owned()), ..Placement::default() }, Placement::default()] {
        let bed = Bed::new().await;
        bed.create("u-1").await.unwrap();
        let key = InstanceKey { id: None, placement, ..key("u-1") };
        assert_eq!(bed.backend.delete(&key, &call()).await.unwrap(), DeleteOutcome::InProgress);
        bed.fake.settle();
        assert_eq!(bed.backend.delete(&key, &call()).await.unwrap(), DeleteOutcome::Gone);
    }
}

/// GC-19, GC-20, PH-38.
#[tokio::test(start_paused = true)]
async fn a_check_makes_one_list_request_and_shows_quotas_that_never_decide() {
    let bed = Bed::new().await;
    for n in 0..3 {
        bed.create(&format!("u-{n}")).await.unwrap();
    }
    bed.asked();
    bed.fake.set_quotas(&[("CPUS", 4.0, 24.0), ("INSTANCES", 3.0, 100.0)]);
    let live = Live { disk_size_gb: 10, quota_regions: vec!["europe-west1".to_owned(), "mars".to_owned()] };
    assert!(bed.backend.reconfigure(&(Arc::new(live) as Settings)));
    let verdict = bed.backend.check(&call()).unwrap().await.remove(0);
    assert_eq!((verdict.name.as_str(), verdict.ready, verdict.reason), ("p-1", true, "Reachable"));
    let detail = |key: &str| verdict.details.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    assert_eq!((detail("quota.europe-west1.CPUS"), detail("quota.mars")), (Some("4/24"), Some("unavailable")));
    assert_eq!(bed.asked().iter().filter(|asked| asked.contains("aggregated")).count(), 1);
    let answer = FakeAnswer::error(403, "accessNotConfigured", "the API is off");
    bed.fake.fault(Fault { method: "GET", path: "aggregated".to_owned(), times: 1, answer, carried_out: false });
    assert_eq!(bed.backend.check(&call()).unwrap().await[0].reason, "Forbidden");
}

/// GC-28, PC-101: the operations are found again at the backend.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_killed_forgets_nothing_that_counts() {
    let bed = Bed::new().await;
    bed.fake.hold(Hold::UntilSettled);
    bed.fake.fail_next_insert("QUOTA_EXCEEDED", "no room");
    bed.create("u-1").await.unwrap();
    assert!(bed.system.kill("host/gcp/api"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    bed.fake.settle();
    assert_eq!(bed.get("u-1").await.unwrap_err().class, ErrorClass::QuotaExceeded);
}
