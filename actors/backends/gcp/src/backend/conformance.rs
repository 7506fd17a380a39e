//! The backend runs the conformance suite (PC-89, GC-1) over the stand-in for Compute Engine, behind the client seam.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use egress_conformance::{
    self as conformance, Alter, AsyncOps, BackendTest, BadPlacement, Captured, ChildSpans, Classified, ClientKind, CreateReturn, CreatedAt,
    Credentials, DeleteReturn, Entry, Fault, Fixture, GcMark, Hook, Intervention, IpSource, ListPartial, Logging, NotApplicable, NotFound,
    Object, PrimaryKey, Profiles, ProvisioningState, Quota, Readiness, Relay, SecondaryResources, Timeouts, Tls, World, cut_by_blocking,
};
use egress_fake_gce::{Answer as FakeAnswer, FakeGce, Hold};
use egress_protocol::Secret;
use egress_protocol::provider::ErrorClass;
use egress_protocol::resource::Placement;
use serde_json::{Map, Value, json};

use super::*;
use crate::client::Answer;
use crate::config::Budgets;
use crate::credentials::Token;
use crate::error::{CallError, TokenError};
use crate::request::ApiRequest;
use crate::testing::{config, request};

const PROJECT: &str = "p-1";
const ZONE: &str = "europe-west1-b";
const PAGE: u32 = 3;
/// What does not apply as a whole; a test that stops applying has to be looked at.
const NOT_AT_ALL: [&str; 5] = ["CT-13", "CT-23", "CT-31", "CT-38", "CT-40"];

#[test]
fn the_gcp_backend_keeps_the_contract() {
    let report = conformance::run(&GcpFixture);
    println!("{report}");
    assert!(report.is_ok(), "{report}");
    let not_at_all: Vec<_> = report.not_applicable.iter().map(|(id, _)| *id).filter(|id| !report.passed.contains(id)).collect();
    assert_eq!(not_at_all, NOT_AT_ALL);
}

fn not<T>(why: &str) -> Hook<T> {
    Err(NotApplicable::because(why))
}

struct GcpFixture;

impl Fixture for GcpFixture {
    fn type_name(&self) -> &'static str {
        crate::TYPE
    }

    fn profiles(&self) -> Profiles {
        Profiles {
            readiness: Readiness::ProvisioningWindow,
            create_return: CreateReturn::Submit,
            delete_return: DeleteReturn::ReturnsEarly,
            ip_source: IpSource::AssignedAtCreate,
            gc_mark: GcMark::NativeLabels,
            created_at: CreatedAt::BackendTimestamp,
            list_partial: ListPartial::OmitUnreachable,
            quota: Quota::Detected,
            not_found: NotFound::Status404,
            primary_key: PrimaryKey::NameIsKey,
            provisioning_state: ProvisioningState::Native,
            async_ops: AsyncOps::TaskHandle,
            secondary_resources: SecondaryResources::Cascade,
            credentials: Credentials::Environment,
            tls: Tls::SystemRoots,
            client_kind: ClientKind::ThinClient,
            timeouts: Timeouts::PerCall,
            logging: Logging::Tiered,
            child_spans: ChildSpans::TransportWrapper,
            backend_test: BackendTest::ManualRunbook,
        }
    }

    fn world(&self) -> Box<dyn World> {
        let fake = FakeGce::new(PROJECT);
        fake.hold(Hold::UntilSettled);
        let tokens = Arc::new(Account::default());
        fake.accept_tokens(&[&tokens.token()]);
        Box::new(Project { fake, relay: Relay::new(), tokens })
    }

    fn classified(&self) -> Hook<Vec<Classified>> {
        use ErrorClass::{NotFound, Permanent, QuotaExceeded, Transient};
        let answers = [
            (404, "notFound", NotFound),
            (409, "alreadyExists", Transient),
            (429, "rateLimitExceeded", QuotaExceeded),
            (403, "quotaExceeded", QuotaExceeded),
            (403, "forbidden", Permanent),
            (403, "accessNotConfigured", Permanent),
            (401, "authError", Permanent),
            (400, "invalid", Permanent),
            (412, "conditionNotMet", Transient),
            (500, "backendError", Transient),
            (503, "backendError", Transient),
        ];
        let row = |what: String, kind, expected, error: &CallError| Classified {
            what,
            kind,
            expected,
            classified: crate::class::classify(error, false).class,
        };
        let mut table: Vec<Classified> = answers
            .into_iter()
            .map(|(status, reason, expected)| {
                let body = FakeAnswer::error(status, reason, "the message").body;
                row(format!("{status} {reason}"), Captured::Response, expected, &CallError::of_answer(status, &body, None))
            })
            .collect();
        let page = CallError::of_answer(502, b"<html>Bad Gateway</html>", None);
        table.push(row("a proxy's page".to_owned(), Captured::Foreign, Transient, &page));
        table.push(row("a broken connection".to_owned(), Captured::Foreign, Transient, &unanswered("connection reset")));
        table.push(row("a call that was cancelled".to_owned(), Captured::Cancellation, Transient, &CallError::Ended));
        Ok(table)
    }
}

fn unanswered(why: &str) -> CallError {
    CallError::Unanswered(why.to_owned())
}

/// Gives tokens as long as its credential is there; each rotation makes another.
#[derive(Default)]
struct Account(Mutex<(bool, u32)>);

impl Account {
    fn state(&self) -> std::sync::MutexGuard<'_, (bool, u32)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn token(&self) -> String {
        format!("sentinel-token-{}", self.state().1)
    }
}

impl TokenSource for Account {
    fn fetch(&self) -> BoxFuture<'_, Result<Token, TokenError>> {
        let gone = self.state().0;
        let token = match gone {
            true => Err(TokenError::Missing("/etc/key.json: no such file".to_owned())),
            false => Ok(Token { secret: Secret::new(self.token()), lasts: Duration::from_secs(3600), account: None }),
        };
        Box::pin(std::future::ready(token))
    }
}

/// The stand-in instead of a network, with the suite's hands between.
struct Relayed {
    fake: FakeGce,
    relay: Relay,
}

impl Wire for Relayed {
    fn send<'a>(&'a self, request: &'a ApiRequest, token: &'a Token) -> BoxFuture<'a, Result<Answer, CallError>> {
        let path = match request.url.query() {
            Some(query) => format!("{}?{query}", request.url.path()),
            None => request.url.path().to_owned(),
        };
        let body = request.body.as_ref().map(|body| body.expose().clone()).unwrap_or_default();
        let (fake, method, token) = (self.fake.clone(), request.method.clone(), token.secret.expose().clone());
        let send = move || Ok(answer(fake.handle(method.as_str(), &path, Some(&token), &body)));
        Box::pin(self.relay.carry(request.call.as_str(), fail, send))
    }
}

fn answer(answer: FakeAnswer) -> Answer {
    Answer { status: answer.status, retry_after: None, body: answer.body.into() }
}

fn fail(fault: Fault) -> Result<Answer, CallError> {
    match fault {
        Fault::Unreachable => Err(unanswered("connection refused")),
        Fault::LinkDown => Err(unanswered("connection reset")),
        Fault::Unauthorised => Ok(answer(FakeAnswer::error(401, "authError", "Invalid Credentials"))),
        Fault::Erring => Ok(answer(FakeAnswer::error(500, "backendError", "Backend Error"))),
        Fault::Quota => Ok(answer(FakeAnswer::error(403, "quotaExceeded", "Quota 'CPUS' exceeded."))),
    }
}

/// A project, and what somebody can do to the machines in it.
struct Project {
    fake: FakeGce,
    relay: Relay,
    tokens: Arc<Account>,
}

impl Project {
    fn vm(&self, name: &InstanceName) -> Option<Value> {
        self.fake.instances().into_iter().find(|(_, found, _)| found == name.as_str()).map(|(_, _, vm)| vm)
    }

    fn change(&self, name: &InstanceName, change: impl Fn(&mut Map<String, Value>)) -> Hook {
        match self.vm(name) {
            Some(_) => self.fake.alter(ZONE, name.as_str(), Some(&change)),
            None => return not("there is no such machine"),
        }
        Ok(())
    }
}

impl World for Project {
    fn build(&self, entry: &Entry, ground: &Ground) -> Result<Arc<dyn Backend>, Failure> {
        let config = GcpConfig {
            entry: Arc::clone(&entry.name),
            installation: entry.installation.clone(),
            budgets: Budgets { page_size: PAGE, ..Budgets::default() },
            ..config()
        };
        let wire = Arc::new(Relayed { fake: self.fake.clone(), relay: self.relay.clone() });
        let tokens: Arc<dyn TokenSource> = Arc::clone(&self.tokens) as Arc<dyn TokenSource>;
        // The stand-in says times by the system's clock.
        Ok(Arc::new(GcpBackend::over(config, ground, Clock::system(), wire, tokens)?))
    }

    fn placement(&self) -> (Placement, u16) {
        (request("any", b"").placement, 3128)
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        self.relay.wait();
        self.fake.settle();
        Box::pin(std::future::ready(()))
    }

    fn objects(&self) -> Vec<Object> {
        self.relay.wait();
        let instance = |name: &str| serde_json::from_value(name.into()).unwrap();
        let object = |(zone, name, vm): (String, String, Value)| Object {
            kind: Object::INSTANCE,
            instance: instance(&name),
            name: format!("{zone}/{name}"),
            content: vm.to_string(),
        };
        self.fake.instances().into_iter().map(object).collect()
    }

    fn calm(&self) {
        self.relay.calm();
        self.fake.darken(ZONE, false);
    }

    fn bad_placements(&self) -> Hook<Vec<BadPlacement>> {
        let good = self.placement().0;
        let bad = |field, value: &str, change: fn(&mut Placement, String)| {
            let mut placement = good.clone();
            change(&mut placement, value.to_owned());
            BadPlacement { placement, field, value: value.to_owned() }
        };
        Ok(vec![
            bad("zone", "Europe_West", |placement, value| placement.zone = Some(value)),
            bad("machineType", "e2 small", |placement, value| placement.machine_type = Some(value)),
            bad("image", "projects/../images", |placement, value| placement.image = Some(value)),
        ])
    }

    fn malformed_ids(&self) -> Vec<String> {
        [
            "",
            "zones/europe-west1-b/instances",
            "zones/europe-west1-b/instances/",
            "zones//instances/proxy-ck4to7f6pzojj2fh",
            "zones/Europe/instances/proxy-ck4to7f6pzojj2fh",
            "zones/europe-west1-b/disks/proxy-ck4to7f6pzojj2fh",
            "zones/europe-west1-b/instances/proxy-ck4to7f6pzojj2fh/x",
            "projects/p/zones/europe-west1-b/instances/proxy-ck4to7f6pzojj2fh",
            "zones/europe-west1-b/instances/somebody-elses",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn unconfigured_id(&self, _: &InstanceName) -> Hook<InstanceId> {
        not("zones are not configured: every zone of the project is a location")
    }

    fn calls(&self) -> Hook<Vec<String>> {
        Ok(self.relay.calls())
    }

    fn intervene(&self, n: usize, what: Intervention) -> Hook {
        self.relay.intervene(n, what);
        Ok(())
    }

    fn during(&self, n: usize, then: Box<dyn FnOnce() + Send>) -> Hook {
        self.relay.before(n, then);
        Ok(())
    }

    fn fail_all(&self, fault: Fault) -> Hook {
        self.relay.fail_all(fault);
        Ok(())
    }

    fn cut_create<'a>(
        &'a self,
        backend: &'a dyn Backend,
        request: &'a CreateRequest,
        call: &'a Call,
        step: usize,
    ) -> BoxFuture<'a, Hook<bool>> {
        Box::pin(cut_by_blocking(self, backend, request, call, step))
    }

    fn marks(&self, name: &InstanceName) -> Hook<Option<BTreeMap<String, String>>> {
        self.relay.wait();
        Ok(self.vm(name).map(|vm| serde_json::from_value(vm["labels"].clone()).unwrap_or_default()))
    }

    fn alter(&self, name: &InstanceName, change: &Alter) -> Hook {
        match change {
            Alter::Strip(mark) => self.change(name, |vm| {
                vm["labels"].as_object_mut().unwrap().remove(mark.key());
            }),
            Alter::Set(_, value) if !value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-".contains(&b)) => {
                not("Compute Engine refuses such a label: a-z, 0-9, _ and - are all there is")
            }
            Alter::Set(mark, value) => self.change(name, |vm| {
                vm["labels"].as_object_mut().unwrap().insert(mark.key().to_owned(), json!(value));
            }),
            Alter::Corrupt | Alter::Unreadable => {
                not("labels come with their machine and are text: they cannot be unreadable by themselves")
            }
        }
    }

    fn states(&self) -> Hook<Vec<(&'static str, InstanceState)>> {
        use InstanceState::{Paused, Provisioning, Running, Stopped, Terminated};
        Ok(vec![
            ("PENDING", Provisioning),
            ("PROVISIONING", Provisioning),
            ("STAGING", Provisioning),
            ("REPAIRING", Provisioning),
            ("RUNNING", Running),
            ("STOPPING", Stopped),
            ("PENDING_STOP", Stopped),
            ("STOPPED", Stopped),
            ("SUSPENDING", Paused),
            ("SUSPENDED", Paused),
            ("TERMINATED", Terminated),
            ("DEPROVISIONING", Terminated),
            ("DREAMING", Stopped),
        ])
    }

    fn set_state(&self, name: &InstanceName, word: &str) -> Hook {
        self.change(name, |vm| drop(vm.insert("status".to_owned(), json!(word))))
    }

    fn lock(&self, _: &InstanceName, _: bool) -> Hook {
        not("async-ops is task-handle: Compute Engine has no locks on instances")
    }

    fn fail_task(&self, name: &InstanceName, text: &str) -> Hook {
        self.fake.fail_insert_of(ZONE, name.as_str(), "ZONE_RESOURCE_POOL_EXHAUSTED", text);
        Ok(())
    }

    fn begin_delete(&self, name: &InstanceName) -> Hook {
        let path = format!("/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances/{name}");
        self.fake.handle("DELETE", &path, Some(&self.tokens.token()), b"");
        Ok(())
    }

    fn hide_address(&self, name: &InstanceName) -> Hook {
        self.change(name, |vm| {
            vm["networkInterfaces"][0]["accessConfigs"][0].as_object_mut().unwrap().remove("natIP");
        })
    }

    fn fail_address_sources(&self, _: Fault) -> Hook {
        not("ip-source is assigned-at-create")
    }

    fn drop_secondary(&self, _: &InstanceName) -> Hook {
        not("secondary-resources is cascade: disk and address are parts of the machine")
    }

    fn mismatch_disk(&self, _: &InstanceName) -> Hook {
        not("secondary-resources is cascade: disk and address are parts of the machine")
    }

    fn add_leftover(&self, _: &InstanceName, _: Option<&InstallationId>) -> Hook {
        not("secondary-resources is cascade: nothing stays behind")
    }

    fn add_other_type(&self, _: &InstanceName, _: &Uid, _: &InstallationId) -> Hook {
        not("no other type makes machines at Compute Engine")
    }

    fn cut_off_part(&self) -> Hook<String> {
        self.fake.darken(ZONE, true);
        Ok(format!("zones/{ZONE}"))
    }

    fn more_than_two_pages(&self) -> usize {
        2 * usize::try_from(PAGE).unwrap() + 1
    }

    fn remove_credentials(&self, gone: bool) -> Hook {
        self.tokens.state().0 = gone;
        Ok(())
    }

    fn rotate_credentials(&self) -> Hook {
        self.tokens.state().1 += 1;
        self.fake.accept_tokens(&[&self.tokens.token()]);
        Ok(())
    }

    fn targets(&self) -> Hook<Vec<String>> {
        Ok(vec![PROJECT.to_owned()])
    }

    fn secrets(&self) -> Vec<String> {
        vec!["sentinel-token".to_owned()]
    }

    fn host(&self) -> Hook<String> {
        Ok("api".to_owned())
    }

    fn elsewhere(&self) -> Hook<Placement> {
        not("one API is all there is")
    }

    fn hold_outside(&self, _held: bool) -> Hook {
        not("nothing is waited for outside")
    }
}
