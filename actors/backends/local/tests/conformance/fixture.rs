//! A state folder and a loopback network of one's own, and what somebody can do to them.
//!
//! There is one backend at a time, as there is one process: building another is a restart, and a crash drops the one there
//! is. Whoever asks meets the one that lives now.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use egress_backend_local::{LocalBackend, LocalConfig, LocalEvent, Outside, TYPE};
use egress_conformance::{
    Alter, AsyncOps, BackendTest, BadPlacement, ChildSpans, Classified, ClientKind, CreateReturn, CreatedAt, Credentials, DeleteReturn,
    Entry, Fault, Fixture, GcMark, Hook, Intervention, IpSource, ListPartial, Logging, NotApplicable, NotFound, Object, PrimaryKey,
    Profiles, ProvisioningState, Quota, Readiness, SecondaryResources, Timeouts, Tls, World,
};
use egress_protocol::provider::{CreateRequest, DeleteOutcome, Instance, InstanceKey, InstanceState, ListResult, Settings, TargetVerdict};
use egress_protocol::resource::Placement;
use egress_protocol::{InstallationId, InstanceId, InstanceName, Uid};
use egress_provider::{Backend, BackendError, Call, Ground, Location, Subject};
use egress_supervision::Failure;
use futures::future::BoxFuture;
use ipnet::Ipv4Net;

const PORT: u16 = 23129;
const SOURCES: [&str; 2] = ["127.0.0.5", "127.0.0.6"];
/// Polls after which a create is cut, each with the process that ran it.
const CRASHES: usize = 8;

fn not<T>(why: &str) -> Hook<T> {
    Err(NotApplicable::because(why))
}

/// The local backend.
pub(crate) struct LocalFixture;

impl Fixture for LocalFixture {
    fn type_name(&self) -> &'static str {
        TYPE
    }

    fn profiles(&self) -> Profiles {
        Profiles {
            readiness: Readiness::Immediate,
            create_return: CreateReturn::Submit,
            delete_return: DeleteReturn::Waits,
            ip_source: IpSource::AssignedAtCreate,
            gc_mark: GcMark::WrittenMetadata,
            created_at: CreatedAt::WrittenAtCreate,
            list_partial: ListPartial::FailWhole,
            quota: Quota::Detected,
            not_found: NotFound::Status404,
            primary_key: PrimaryKey::NameIsKey,
            provisioning_state: ProvisioningState::Native,
            async_ops: AsyncOps::None,
            secondary_resources: SecondaryResources::None,
            credentials: Credentials::None,
            tls: Tls::None,
            client_kind: ClientKind::InProcess,
            timeouts: Timeouts::PerCall,
            logging: Logging::Tiered,
            child_spans: ChildSpans::SpanDecorator,
            backend_test: BackendTest::Own,
        }
    }

    fn world(&self) -> Box<dyn World> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let second = u8::try_from(16 + std::process::id() % 200).unwrap();
        let net = Ipv4Net::new(Ipv4Addr::new(127, second, NEXT.fetch_add(1, Ordering::Relaxed), 0), 24).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let process = Process { dir: dir.path().to_owned(), net, panics: Arc::default(), current: Mutex::default() };
        Box::new(LocalWorld { _dir: dir, net, process: Arc::new(process) })
    }

    fn classified(&self) -> Hook<Vec<Classified>> {
        not("no codes come from outside: classes are assigned where the error arises, see the tests of the backend")
    }
}

/// At which event the change under way panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Panics {
    Next,
    Creating,
    Created,
}

/// The process that runs the backend.
struct Process {
    dir: PathBuf,
    net: Ipv4Net,
    panics: Arc<Mutex<Option<Panics>>>,
    current: Mutex<Option<(Entry, Option<Arc<LocalBackend>>)>>,
}

impl Process {
    fn restart(&self, entry: &Entry) {
        *self.current.lock().unwrap() = Some((entry.clone(), Some(self.made(entry))));
    }

    fn crash(&self) {
        if let Some((_, backend)) = &mut *self.current.lock().unwrap() {
            *backend = None;
        }
    }

    fn made(&self, entry: &Entry) -> Arc<LocalBackend> {
        let mut config = LocalConfig::new(Arc::clone(&entry.name), entry.installation.clone());
        config.listen = vec![self.net];
        config.sources = SOURCES.map(|ip| ip.parse().unwrap()).to_vec();
        config.state_dir = Some(self.dir.clone());
        let mut outside = Outside::system(entry.clock);
        let panics = Arc::clone(&self.panics);
        outside.observer = Some(Arc::new(move |event| {
            let mut panics = panics.lock().unwrap();
            let here = match (*panics, event) {
                (Some(Panics::Next), _)
                | (Some(Panics::Creating), LocalEvent::Creating { .. })
                | (Some(Panics::Created), LocalEvent::Created { .. }) => panics.take(),
                _ => None,
            };
            drop(panics);
            assert!(here.is_none(), "the observer panics");
        }));
        Arc::new(LocalBackend::new(config, outside, egress_conformance::TaskSet::new()))
    }

    /// The backend that lives now; a crashed one comes back when it is asked.
    fn backend(&self) -> Arc<LocalBackend> {
        let mut current = self.current.lock().unwrap();
        let (entry, backend) = current.as_mut().unwrap();
        Arc::clone(backend.get_or_insert_with(|| self.made(entry)))
    }
}

/// Asks the backend that lives now.
struct Now(Arc<Process>);

impl Backend for Now {
    fn type_name(&self) -> &'static str {
        TYPE
    }
    fn location_of(&self, subject: Subject<'_>) -> Location {
        self.0.backend().location_of(subject)
    }
    fn reconfigure(&self, settings: &Settings) -> bool {
        self.0.backend().reconfigure(settings)
    }
    fn start(&self) -> BoxFuture<'_, ()> {
        let backend = self.0.backend();
        Box::pin(async move { backend.start().await })
    }
    fn stop(&self, grace: Duration) -> BoxFuture<'_, ()> {
        let backend = self.0.backend();
        Box::pin(async move { backend.stop(grace).await })
    }
    fn create<'a>(&'a self, request: &'a CreateRequest, call: &'a Call) -> BoxFuture<'a, Result<InstanceId, BackendError>> {
        let backend = self.0.backend();
        Box::pin(async move { backend.create(request, call).await })
    }
    fn get<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<Instance, BackendError>> {
        let backend = self.0.backend();
        Box::pin(async move { backend.get(key, call).await })
    }
    fn delete<'a>(&'a self, key: &'a InstanceKey, call: &'a Call) -> BoxFuture<'a, Result<DeleteOutcome, BackendError>> {
        let backend = self.0.backend();
        Box::pin(async move { backend.delete(key, call).await })
    }
    fn list_managed<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<ListResult, BackendError>> {
        let backend = self.0.backend();
        Box::pin(async move { backend.list_managed(call).await })
    }
    fn check<'a>(&'a self, call: &'a Call) -> Option<BoxFuture<'a, Vec<TargetVerdict>>> {
        let backend = self.0.backend();
        Some(Box::pin(async move { backend.check(call).unwrap().await }))
    }
}

struct LocalWorld {
    _dir: tempfile::TempDir,
    net: Ipv4Net,
    process: Arc<Process>,
}

impl LocalWorld {
    fn folder(&self) -> PathBuf {
        let entry = self.process.current.lock().unwrap().as_ref().map(|(entry, _)| Arc::clone(&entry.name));
        self.process.dir.join("marks").join(entry.as_deref().unwrap_or("none"))
    }

    fn aside(&self) -> PathBuf {
        self.process.dir.join("aside")
    }

    fn file(&self, name: &InstanceName) -> PathBuf {
        self.folder().join(format!("{name}.json"))
    }

    /// A file where the folder was: nothing can be read or written.
    fn break_folder(&self) {
        let folder = self.folder();
        fs::create_dir_all(&folder).unwrap();
        fs::rename(&folder, self.aside()).unwrap();
        fs::write(&folder, "in the way").unwrap();
    }
}

/// Polls a future at most `polls` times, giving the runtime room in between; `None`: it was dropped unfinished.
async fn cut<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Some(done);
        }
        tokio::task::yield_now().await;
    }
    None
}

impl World for LocalWorld {
    fn build(&self, entry: &Entry, _ground: &Ground) -> Result<Arc<dyn Backend>, Failure> {
        self.process.restart(entry);
        Ok(Arc::new(Now(Arc::clone(&self.process))))
    }

    fn placement(&self) -> (Placement, u16) {
        (Placement::default(), PORT)
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
        })
    }

    /// Marks, and what listens.
    fn objects(&self) -> Vec<Object> {
        let mut all = Vec::new();
        let mut holders = BTreeMap::new();
        for file in fs::read_dir(self.folder()).into_iter().flatten() {
            let path = file.unwrap().path();
            let Some(name) = path.file_name().and_then(|file| file.to_str()?.strip_suffix(".json")) else { continue };
            let instance: InstanceName = serde_json::from_value(name.into()).unwrap();
            let content = fs::read_to_string(&path).unwrap_or_default();
            if let Ok(mark) = serde_json::from_str::<serde_json::Value>(&content) {
                holders.insert(mark["listenAddress"].as_str().unwrap_or_default().to_owned(), instance.clone());
            }
            all.push(Object { kind: Object::INSTANCE, name: name.to_owned(), instance, content });
        }
        for ip in self.net.hosts() {
            let address = SocketAddr::V4(SocketAddrV4::new(ip, PORT));
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                let nobody = || InstanceName::of(&Uid::new(""));
                let instance = holders.get(&ip.to_string()).cloned().unwrap_or_else(nobody);
                all.push(Object { kind: "listener", name: ip.to_string(), instance, content: String::new() });
            }
        }
        all.sort();
        all
    }

    fn calm(&self) {
        *self.process.panics.lock().unwrap() = None;
        if self.aside().exists() {
            fs::remove_file(self.folder()).unwrap();
            fs::rename(self.aside(), self.folder()).unwrap();
        }
    }

    fn bad_placements(&self) -> Hook<Vec<BadPlacement>> {
        let of = |zone: &str| BadPlacement {
            placement: Placement { zone: Some(zone.to_owned()), ..Placement::default() },
            field: "zone",
            value: zone.to_owned(),
        };
        Ok(vec![of("192.0.2.9"), of("nowhere")])
    }

    fn malformed_ids(&self) -> Vec<String> {
        ["local/", "local/px-1", "local/proxy-CK4TO7F6PZOJJ2FH", "local/../x", "zones/local/proxy-ck4to7f6pzojj2fh"]
            .map(str::to_owned)
            .to_vec()
    }

    fn unconfigured_id(&self, _: &InstanceName) -> Hook<InstanceId> {
        not("an id has no location: there is this process only")
    }

    fn calls(&self) -> Hook<Vec<String>> {
        not(
            "in-process: nobody is called; the seam is enumerated in the tests of the backend (`every_call_of_the_seam_is_exactly_one_span_and_one_line_pc_88`)",
        )
    }

    fn intervene(&self, n: usize, what: Intervention) -> Hook {
        match what {
            Intervention::Panic if n == 1 => {
                *self.process.panics.lock().unwrap() = Some(Panics::Next);
                Ok(())
            }
            Intervention::Panic => not("in-process: a later step does not panic by itself"),
            Intervention::Fail(_) | Intervention::BlockBefore | Intervention::BlockAfter => not(
                "in-process: there are no single calls to fail or to hold up; `crashes` in the tests of the backend cuts at every await",
            ),
        }
    }

    fn during(&self, _: usize, _: Box<dyn FnOnce() + Send>) -> Hook {
        not("in-process: nothing is sent that another leader could have sent meanwhile")
    }

    fn fail_all(&self, fault: Fault) -> Hook {
        match fault {
            Fault::Unreachable => {
                self.break_folder();
                Ok(())
            }
            Fault::Unauthorised | Fault::Erring | Fault::LinkDown => not("the state folder answers or it does not"),
            Fault::Quota => not("ports: `a_port_is_served_on_the_first_free_address_until_none_is_left`"),
        }
    }

    fn cut_create<'a>(
        &'a self,
        backend: &'a dyn Backend,
        request: &'a CreateRequest,
        call: &'a Call,
        step: usize,
    ) -> BoxFuture<'a, Hook<bool>> {
        Box::pin(async move {
            match step.checked_sub(CRASHES) {
                None => {
                    cut(backend.create(request, call), step).await;
                }
                Some(after @ (0 | 1)) => {
                    *self.process.panics.lock().unwrap() = Some(if after == 0 { Panics::Creating } else { Panics::Created });
                    let failed = backend.create(request, call).await;
                    assert!(failed.is_err(), "it panicked");
                }
                Some(_) => {
                    backend.create(request, call).await.unwrap();
                    return Ok(false);
                }
            }
            self.process.crash();
            self.settle().await;
            Ok(true)
        })
    }

    fn marks(&self, name: &InstanceName) -> Hook<Option<BTreeMap<String, String>>> {
        let Ok(text) = fs::read_to_string(self.file(name)) else { return Ok(None) };
        let all: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        Ok(Some(all.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect()))
    }

    fn alter(&self, name: &InstanceName, change: &Alter) -> Hook {
        let file = self.file(name);
        let mut mark: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        match change {
            Alter::Strip(key) => {
                mark.as_object_mut().unwrap().remove(key.key()).unwrap();
                fs::write(&file, mark.to_string()).unwrap();
            }
            Alter::Set(key, value) => {
                mark[key.key()] = value.as_str().into();
                fs::write(&file, mark.to_string()).unwrap();
            }
            Alter::Corrupt => fs::write(&file, "{").unwrap(),
            Alter::Unreadable => {
                fs::remove_file(&file).unwrap();
                fs::create_dir(&file).unwrap();
            }
        }
        Ok(())
    }

    fn states(&self) -> Hook<Vec<(&'static str, InstanceState)>> {
        not(
            "there are no states of a backend: a proxy listens or its address is taken (`a_port_taken_meanwhile_is_waited_for_and_then_given_up`)",
        )
    }

    fn set_state(&self, _: &InstanceName, _: &str) -> Hook {
        not("there are no states of a backend")
    }

    fn lock(&self, _: &InstanceName, _: bool) -> Hook {
        not("async-ops is none")
    }

    fn fail_task(&self, _: &InstanceName, _: &str) -> Hook {
        not("async-ops is none")
    }

    fn begin_delete(&self, _: &InstanceName) -> Hook {
        not("delete-return is waits, and one change runs at a time: no instance is ever seen half-way deleted")
    }

    fn hide_address(&self, _: &InstanceName) -> Hook {
        not("assigned at create; a taken address: `a_port_taken_meanwhile_is_waited_for_and_then_given_up`")
    }

    fn fail_address_sources(&self, _: Fault) -> Hook {
        not("ip-source is assigned-at-create")
    }

    fn drop_secondary(&self, _: &InstanceName) -> Hook {
        not("secondary-resources is none")
    }

    fn mismatch_disk(&self, _: &InstanceName) -> Hook {
        not("secondary-resources is none")
    }

    fn add_leftover(&self, _: &InstanceName, _: Option<&InstallationId>) -> Hook {
        not("secondary-resources is none")
    }

    fn add_other_type(&self, _: &InstanceName, _: &Uid, _: &InstallationId) -> Hook {
        not("no other type writes into the state folder of an entry")
    }

    fn cut_off_part(&self) -> Hook<String> {
        self.break_folder();
        Ok("marks".to_owned())
    }

    fn more_than_two_pages(&self) -> usize {
        7
    }

    fn remove_credentials(&self, _: bool) -> Hook {
        not("credentials is none")
    }

    fn rotate_credentials(&self) -> Hook {
        not("credentials is none")
    }

    fn targets(&self) -> Hook<Vec<String>> {
        Ok(SOURCES.map(str::to_owned).to_vec())
    }

    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    fn host(&self) -> Hook<String> {
        not("the proxies are in the process: there is no link")
    }

    fn elsewhere(&self) -> Hook<Placement> {
        not("there is no host")
    }

    fn hold_outside(&self, _held: bool) -> Hook {
        not("nothing is waited for outside")
    }
}
