//! The actor in a small tree, with real folders and a paused clock; a stand-in takes the directory's place.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use egress_protocol::message::Never;
use egress_protocol::metrics::Metrics;
use egress_protocol::object::{CloudInit, CredentialsState};
use egress_protocol::resource::ProxyStatus;
use egress_protocol::source::LiveSet;
use egress_supervision::{ChildSpec, Root as Tree, System};
use tokio::sync::mpsc;

use egress_protocol::object::ProxyObject;

use super::*;
use crate::start::{DEMONSTRATION, ManifestFolders};
use crate::state::StateFolder;
use crate::state::disk::Disk;

/// Long enough for a change to be seen, believed and written.
const SETTLED: Duration = Duration::from_secs(3);

type Told = mpsc::UnboundedSender<ProxiesMessage>;

#[derive(Debug)]
struct Directory(Told);

impl Actor for Directory {
    type Message = ProxiesMessage;
    type Internal = Never;
    type Args = Told;
    const KIND: &'static str = "proxies";

    async fn start(ctx: &Context<Self>, told: Told) -> Result<Self, Failure> {
        let _unheard = ctx.system().address::<SourceMessage>(egress_protocol::source::ACTOR_ID).send(SourceMessage::Resend);
        Ok(Self(told))
    }

    fn handle(&mut self, _ctx: &Context<Self>, message: ProxiesMessage) -> Result<(), Failure> {
        self.0.send(message).map_err(Failure::new)
    }

    fn handle_internal(&mut self, _ctx: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

#[derive(Debug)]
struct Root;

impl Actor for Root {
    type Message = Never;
    type Internal = Never;
    type Args = (ManifestsArgs, Told, bool);
    const KIND: &'static str = "root";

    async fn start(ctx: &Context<Self>, (args, told, directory_first): Self::Args) -> Result<Self, Failure> {
        if directory_first {
            ctx.start_child_and_wait(ChildSpec::<Directory>::essential(proxies::ACTOR_ID, told.clone())).await?;
        }
        ctx.start_child_and_wait(spec(args)).await?;
        if !directory_first {
            tokio::time::sleep(Duration::from_secs(10)).await;
            ctx.start_child_and_wait(ChildSpec::<Directory>::essential(proxies::ACTOR_ID, told)).await?;
        }
        Ok(Self)
    }

    fn handle(&mut self, _ctx: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn handle_internal(&mut self, _ctx: &Context<Self>, message: Never) -> Result<(), Failure> {
        match message {}
    }

    fn describe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

struct Bed {
    temp: tempfile::TempDir,
}

struct Running {
    tree: Tree,
    system: System,
    source: Address<SourceMessage>,
    told: mpsc::UnboundedReceiver<ProxiesMessage>,
    state: StateFolder,
}

impl Bed {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("m")).unwrap();
        Self { temp }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join("m").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn state(&self) -> StateFolder {
        StateFolder::open(&self.temp.path().join("state"), None).unwrap()
    }

    async fn run(&self) -> Running {
        let state = self.state();
        let folders = ManifestFolders::open(&[self.temp.path().join("m")], &state.objects().unwrap()).unwrap();
        run(state, folders, true).await
    }
}

async fn run(state: StateFolder, folders: ManifestFolders, directory_first: bool) -> Running {
    let system = System::new(Clock::starting_at(Timestamp::from_millis(1_000_000)), Metrics::new(true).shared());
    let (sender, told) = mpsc::unbounded_channel();
    let args = (ManifestsArgs::new(state.clone(), folders), sender, directory_first);
    let tree = system.start_root(ChildSpec::<Root>::essential("root", args)).await.unwrap();
    let source = system.address(egress_protocol::source::ACTOR_ID);
    Running { tree, system, source, told, state }
}

impl Running {
    /// Everything told until all has settled, in short.
    async fn heard(&mut self) -> Vec<String> {
        self.objects().await.0
    }

    /// The same, and the last object of each name.
    async fn objects(&mut self) -> (Vec<String>, BTreeMap<String, Arc<ProxyObject>>) {
        tokio::time::sleep(SETTLED).await;
        let (mut heard, mut objects) = (Vec::new(), BTreeMap::new());
        while let Ok(message) = self.told.try_recv() {
            heard.push(match message {
                ProxiesMessage::Apply { object } => {
                    let marks = [(object.deleting, " deleting"), (object.finalizer, " held"), (object.suspended, " suspended")];
                    let marks: String = marks.into_iter().filter_map(|(set, mark)| set.then_some(mark)).collect();
                    let text = format!("{} {}:{}{marks}", object.key.name, object.generation, object.spec.port);
                    objects.insert(object.key.name.to_string(), object);
                    text
                }
                ProxiesMessage::Gone { key, .. } => format!("gone {}", key.name),
                ProxiesMessage::Synced { live } => format!("synced {}", live.len()),
                other => panic!("{other:?}"),
            });
        }
        (heard, objects)
    }

    async fn hold(&self, object: &ProxyObject) -> Result<(), SourceError> {
        let (key, uid) = (object.key.clone(), object.uid.clone());
        self.source.call(SETTLED, |reply_to| SourceMessage::AddFinalizer { key, uid, span: tracing::Span::none(), reply_to }).await.unwrap()
    }

    async fn release(&self, object: &ProxyObject) -> Result<(), SourceError> {
        let (key, uid) = (object.key.clone(), object.uid.clone());
        self.source
            .call(SETTLED, |reply_to| SourceMessage::RemoveFinalizer { key, uid, span: tracing::Span::none(), reply_to })
            .await
            .unwrap()
    }

    async fn write(&self, object: &ProxyObject, id: &str) -> Result<i64, SourceError> {
        let (key, uid, status) = (object.key.clone(), object.uid.clone(), status(id));
        self.source
            .call(SETTLED, |reply_to| SourceMessage::WriteStatus { key, uid, status, span: tracing::Span::none(), reply_to })
            .await
            .unwrap()
    }

    async fn faults(&self) -> Vec<String> {
        self.source.call(SETTLED, |reply_to| SourceMessage::Faults { reply_to }).await.unwrap()
    }

    async fn live(&self) -> LiveSet {
        self.source.call(SETTLED, |reply_to| SourceMessage::LiveUids { reply_to }).await.unwrap().unwrap()
    }

    async fn stop(self) {
        self.tree.stop().await;
    }
}

fn status(id: &str) -> Arc<ProxyStatus> {
    Arc::new(ProxyStatus { provider_id: Some(id.to_owned()), ..ProxyStatus::default() })
}

fn managed(name: &str, port: u16) -> String {
    let (head, meta) = ("---\napiVersion: crawl.example.com/v1alpha1\nkind: Proxy", format!("metadata: {{name: {name}}}"));
    format!("{head}\n{meta}\nspec: {{mode: Managed, provider: lab, port: {port}}}\n")
}

fn external(name: &str, secret: &str) -> String {
    let (head, meta) = ("---\napiVersion: crawl.example.com/v1alpha1\nkind: Proxy", format!("metadata: {{name: {name}}}"));
    format!("{head}\n{meta}\nspec: {{mode: External, endpoint: {{host: 192.0.2.1, credentialsSecretRef: {{name: {secret}}}}}}}\n")
}

fn secret(name: &str, label: &str, data: &str) -> String {
    format!("---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, labels: {{{label}: 'true'}}}}\nstringData: {{{data}}}\n")
}

#[tokio::test(start_paused = true)]
async fn a_manifest_created_edited_and_deleted_is_followed_live_op_30() {
    let bed = Bed::new();
    let mut running = bed.run().await;
    assert_eq!(running.heard().await, ["synced 0"]);
    bed.write("a.yaml", &(managed("px-1", 3128) + &managed("px-2", 3128)));
    assert_eq!(running.heard().await, ["px-1 1:3128", "px-2 1:3128"]);
    bed.write("a.yaml", &(managed("px-1", 3129) + &managed("px-2", 3128)));
    assert_eq!(running.heard().await, ["px-1 2:3129"]);
    bed.write("a.yaml", &managed("px-1", 3129));
    assert_eq!(running.heard().await, ["gone px-2"], "nothing held it");
    fs::remove_file(bed.path("a.yaml")).unwrap();
    assert_eq!(running.heard().await, ["gone px-1"]);
    assert!(running.state.objects().unwrap().is_empty());
    assert_eq!(running.faults().await, Vec::<String>::new());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_stays_until_its_finalizer_is_released_and_its_successor_waits_for_that_op_11() {
    let bed = Bed::new();
    bed.write("a.yaml", &managed("px-1", 3128));
    let mut running = bed.run().await;
    let first = Arc::clone(&running.objects().await.1["px-1"]);
    assert_eq!(running.hold(&first).await, Ok(()));
    assert_eq!(running.heard().await, ["px-1 1:3128 held"]);
    fs::remove_file(bed.path("a.yaml")).unwrap();
    assert_eq!(running.heard().await, ["px-1 1:3128 deleting held"]);
    bed.write("b.yaml", &managed("px-1", 4000));
    assert_eq!(running.heard().await, Vec::<String>::new(), "the successor waits");
    assert_eq!(running.write(&first, "instance").await, Ok(1), "a deleting object still has a status");
    assert_eq!(running.release(&first).await, Ok(()));
    let (heard, objects) = running.objects().await;
    assert_eq!(heard, ["gone px-1", "px-1 1:4000"]);
    assert_ne!(objects["px-1"].uid, first.uid);
    assert_eq!(objects["px-1"].status, Arc::default());
    for late in [running.write(&first, "late").await.map(|_| ()), running.hold(&first).await, running.release(&first).await] {
        assert_eq!(late, Err(SourceError::Gone));
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_everything_comes_from_the_state_folder() {
    let bed = Bed::new();
    bed.write("a.yaml", &(managed("px-1", 3128) + &managed("px-2", 3128)));
    let mut running = bed.run().await;
    let objects = running.objects().await.1;
    running.hold(&objects["px-1"]).await.unwrap();
    running.write(&objects["px-1"], "instance-1").await.unwrap();
    // The process dies: what was answered is on disk by then.
    drop(running);
    tokio::time::sleep(SETTLED).await;
    bed.write("a.yaml", &managed("px-2", 5000));
    let mut again = bed.run().await;
    let (heard, found) = again.objects().await;
    assert_eq!(heard, ["px-1 1:3128 held", "px-2 1:3128", "synced 2", "px-1 1:3128 deleting held", "px-2 2:5000"]);
    assert_eq!(found["px-1"].status, status("instance-1"));
    assert_eq!((&found["px-1"].uid, &found["px-2"].uid), (&objects["px-1"].uid, &objects["px-2"].uid));
    again.stop().await;
}

/// Also hard case O18: what was asked and not answered is asked again, what was answered is on disk.
#[tokio::test(start_paused = true)]
async fn a_crash_of_the_actor_loses_nothing_that_was_answered_sv_2() {
    let bed = Bed::new();
    bed.write("a.yaml", &managed("px-1", 3128));
    let mut running = bed.run().await;
    let object = Arc::clone(&running.objects().await.1["px-1"]);
    for round in 0..3 {
        running.write(&object, &format!("instance-{round}")).await.unwrap();
        assert!(running.system.crash("source"));
        let (heard, objects) = running.objects().await;
        assert_eq!(heard, ["px-1 1:3128", "synced 1"]);
        assert_eq!((&objects["px-1"].uid, &objects["px-1"].status), (&object.uid, &status(&format!("instance-{round}"))));
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_comes_up_late_or_again_hears_everything() {
    let bed = Bed::new();
    bed.write("a.yaml", &managed("px-1", 3128));
    let state = bed.state();
    let folders = ManifestFolders::open(&[bed.temp.path().join("m")], &[]).unwrap();
    let mut running = run(state, folders, false).await;
    assert_eq!(running.heard().await, ["px-1 1:3128", "synced 1"]);
    assert!(running.system.crash(proxies::ACTOR_ID));
    assert_eq!(running.heard().await, ["px-1 1:3128", "synced 1"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn user_data_resolves_when_its_secret_appears_and_not_without_the_label_op_21() {
    let bed = Bed::new();
    let proxy = managed("px-1", 3128).replace("port: 3128", "cloudInit: {secretRef: {name: boot}}");
    bed.write("a.yaml", &proxy);
    let mut running = bed.run().await;
    let cloud_init = |objects: &BTreeMap<String, Arc<ProxyObject>>| objects["px-1"].cloud_init.clone();
    let unresolved = |message: &str| CloudInit::Unresolved { message: message.to_owned() };
    assert_eq!(cloud_init(&running.objects().await.1), unresolved("Secret default/boot is missing"));
    bed.write("s.yaml", &secret("boot", "unrelated", "user-data: x"));
    assert_eq!(
        cloud_init(&running.objects().await.1),
        unresolved("Secret default/boot lacks the label crawl.example.com/cloud-init: \"true\"")
    );
    bed.write("s.yaml", &secret("boot", "crawl.example.com/cloud-init", "other: x"));
    assert_eq!(cloud_init(&running.objects().await.1), unresolved("Secret default/boot has no key user-data"));
    bed.write("s.yaml", &secret("boot", "crawl.example.com/cloud-init", "user-data: sentinel-one"));
    let (heard, objects) = running.objects().await;
    assert_eq!(heard, ["px-1 1:3128"], "one object, the same generation");
    let CloudInit::Resolved { bytes, secret } = cloud_init(&objects) else { panic!() };
    assert_eq!((bytes.expose().as_slice(), secret.as_deref()), (b"sentinel-one".as_slice(), Some("boot")));
    fs::rename(bed.path("s.yaml"), bed.path("t.yaml")).unwrap();
    assert_eq!(running.heard().await, Vec::<String>::new(), "a renamed file changes nothing");
    fs::remove_file(bed.path("t.yaml")).unwrap();
    assert_eq!(cloud_init(&running.objects().await.1), unresolved("Secret default/boot is missing"));
    assert!(!everything_under(&bed.temp.path().join("state")).contains("sentinel-one"), "contents of Secrets are never kept");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn credentials_resolve_the_moment_their_secret_appears_he_12() {
    let bed = Bed::new();
    bed.write("a.yaml", &(external("px-1", "login") + &external("px-2", "other")));
    let mut running = bed.run().await;
    assert!(matches!(running.objects().await.1["px-1"].credentials, CredentialsState::Unresolved { .. }));
    bed.write("s.yaml", &secret("login", "crawl.example.com/proxy-credentials", "username: u, password: sentinel-two"));
    let (heard, objects) = running.objects().await;
    assert_eq!(heard, ["px-1 1:3128"], "only the one that names it");
    let CredentialsState::Resolved(credentials) = &objects["px-1"].credentials else { panic!() };
    assert_eq!(credentials.password.expose(), "sentinel-two");
    // Known again before anything is told after a restart: a healthy proxy must not flap.
    running.stop().await;
    let mut again = bed.run().await;
    let (heard, objects) = again.objects().await;
    assert_eq!(heard, ["px-1 1:3128", "px-2 1:3128", "synced 2"]);
    assert!(matches!(objects["px-1"].credentials, CredentialsState::Resolved(_)));
    assert!(!everything_under(&bed.temp.path().join("state")).contains("sentinel-two"));
    again.stop().await;
}

fn everything_under(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        all += &if entry.path().is_dir() { everything_under(&entry.path()) } else { fs::read_to_string(entry.path()).unwrap() };
    }
    all
}

#[tokio::test(start_paused = true)]
async fn files_written_slowly_renamed_moved_truncated_or_broken_delete_and_replace_nothing() {
    let bed = Bed::new();
    let text = managed("px-1", 3128) + &managed("px-2", 3129);
    bed.write("a.yaml", &text);
    let mut running = bed.run().await;
    running.heard().await;
    for end in (0..text.len()).step_by(9).chain([text.len()]) {
        bed.write("a.yaml", &text[..end]);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    assert_eq!(running.heard().await, Vec::<String>::new(), "written slowly");
    fs::rename(bed.path("a.yaml"), bed.path("b.yml")).unwrap();
    assert_eq!(running.heard().await, Vec::<String>::new(), "renamed");
    bed.write("b.yml", &managed("px-2", 3129));
    bed.write("c.yaml", &managed("px-1", 3128));
    assert_eq!(running.heard().await, Vec::<String>::new(), "moved to another file");
    bed.write("c.yaml", "");
    tokio::time::sleep(Duration::from_millis(800)).await;
    bed.write("c.yaml", &managed("px-1", 3128));
    assert_eq!(running.heard().await, Vec::<String>::new(), "truncated and rewritten");
    bed.write("c.yaml", "");
    assert_eq!(running.heard().await, Vec::<String>::new(), "left at 0 bytes (issue 10, 28)");
    let faults = running.faults().await;
    assert!(faults.len() == 1 && faults[0].contains("c.yaml: has 0 bytes: what it declared last is kept"), "{faults:?}");
    bed.write("c.yaml", &managed("px-1", 3128).replace("spec: {", "spec: {{"));
    bed.write("b.yml", &managed("px-2", 3129).replace("port: 3129", "port: many"));
    assert_eq!(running.heard().await, Vec::<String>::new(), "made unreadable and invalid");
    let faults = running.faults().await;
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].contains("b.yml") && faults[0].contains("spec.port") && faults[1].contains("c.yaml"), "{faults:?}");
    fs::rename(bed.temp.path().join("m"), bed.temp.path().join("away")).unwrap();
    assert_eq!(running.heard().await, Vec::<String>::new(), "the folder is missing");
    assert!(running.faults().await.iter().any(|fault| fault.contains("the folder is missing")));
    fs::rename(bed.temp.path().join("away"), bed.temp.path().join("m")).unwrap();
    bed.write("b.yml", &managed("px-2", 3129));
    bed.write("c.yaml", &managed("px-1", 3128));
    assert_eq!(running.heard().await, Vec::<String>::new(), "all back");
    assert_eq!(running.faults().await, Vec::<String>::new());
    assert_eq!(running.state.objects().unwrap().len(), 2);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn files_that_never_stand_still_are_shown_after_a_minute() {
    let bed = Bed::new();
    bed.write("a.yaml", &managed("px-1", 3128));
    let mut running = bed.run().await;
    running.heard().await;
    fs::remove_file(bed.path("a.yaml")).unwrap();
    for round in 0..155 {
        bed.write("noise.yaml", &format!("# {round}\n"));
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    assert!(running.told.try_recv().is_err(), "nothing is believed removed");
    let faults = running.faults().await;
    assert!(faults.len() == 1 && faults[0].contains("have not stood still for a minute"), "{faults:?}");
    assert_eq!(running.heard().await, ["gone px-1"]);
    assert_eq!(running.faults().await, Vec::<String>::new());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_folder_that_is_not_given_are_suspended_and_live() {
    let bed = Bed::new();
    bed.write("a.yaml", &(managed("px-1", 3128) + &managed("px-2", 3128)));
    let mut running = bed.run().await;
    let objects = running.objects().await.1;
    running.hold(&objects["px-1"]).await.unwrap();
    running.stop().await;
    let other = bed.temp.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("x.yaml"), managed("px-2", 3128)).unwrap();
    let folders = ManifestFolders::open(&[other], &[]).unwrap();
    let mut running = run(bed.state(), folders, true).await;
    let (heard, found) = running.objects().await;
    assert_eq!(heard[0], "px-1 1:3128 held suspended");
    assert!(heard.contains(&"synced 2".to_owned()), "{heard:?}");
    assert!(found["px-1"].suspended && !found["px-2"].suspended, "a document found in another folder is the same object");
    assert_eq!(found["px-2"].uid, objects["px-2"].uid);
    running.stop().await;
    let mut running = bed.run().await;
    assert!(!running.objects().await.1["px-1"].suspended, "its folder is given again");
    running.stop().await;
}

/// OG-2, OP-30: whatever may still have an instance is live, and nothing is vouched for before the folders are understood.
#[tokio::test(start_paused = true)]
async fn what_is_deleted_suspended_or_unreadable_is_live_og_2() {
    let bed = Bed::new();
    bed.write("a.yaml", &managed("px-deleted", 1));
    bed.write("b.yaml", &managed("px-broken", 2));
    bed.write("c.yaml", &managed("px-gone", 3));
    let mut running = bed.run().await;
    assert!(!running.live().await.complete, "it has not looked yet");
    let objects = running.objects().await.1;
    running.hold(&objects["px-deleted"]).await.unwrap();
    fs::remove_file(bed.path("a.yaml")).unwrap();
    bed.write("b.yaml", "kind: [");
    fs::remove_file(bed.path("c.yaml")).unwrap();
    assert_eq!(running.heard().await.last().unwrap(), "gone px-gone");
    let live = running.live().await;
    let of = |names: &[&str]| names.iter().map(|name| objects[*name].uid.clone()).collect::<std::collections::HashSet<_>>();
    assert_eq!((&*live.uids, live.complete, live.as_of), (&of(&["px-deleted", "px-broken"]), true, running.system.now()));
    running.stop().await;

    let other = tempfile::tempdir().unwrap();
    let state = bed.state();
    let folders = ManifestFolders::open(&[other.path().to_owned()], &state.objects().unwrap()).unwrap();
    let mut running = run(state, folders, true).await;
    running.heard().await;
    let live = running.live().await;
    assert_eq!((&*live.uids, live.complete), (&of(&["px-deleted", "px-broken"]), true), "their folder is not given");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_demonstration_is_there_at_once_and_suspended_when_folders_are_given() {
    let bed = Bed::new();
    let pool = || {
        let spec = |n: u16| serde_json::from_value(serde_json::json!({"mode": "Managed", "provider": "local", "port": 20000 + n})).unwrap();
        ManifestFolders::demonstration((1..=5).map(|n| (ObjectKey::new("default", format!("demo-{n}")), spec(n))))
    };
    let mut running = run(bed.state(), pool(), true).await;
    let began = tokio::time::Instant::now();
    while running.state.objects().unwrap().len() < 5 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(running.objects().await.1.len(), 5);
    assert!(running.state.objects().unwrap().iter().all(|record| *record.home.folder == *DEMONSTRATION));
    running.stop().await;
    let mut again = run(bed.state(), pool(), true).await;
    assert_eq!(again.heard().await.len(), 6, "the same five, and synced");
    again.stop().await;
    bed.write("a.yaml", &managed("px-1", 3128));
    let mut folders = bed.run().await;
    let objects = folders.objects().await.1;
    assert_eq!(objects.values().filter(|object| object.suspended).count(), 5);
    folders.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_refuses_is_an_answer_a_fault_and_no_news_until_it_heals() {
    let bed = Bed::new();
    bed.write("a.yaml", &managed("px-1", 3128));
    let full = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&full);
    let before = move |what: &'static str, _: &Path| {
        if what == "sync" && switch.load(Ordering::SeqCst) { Err(std::io::Error::from(std::io::ErrorKind::StorageFull)) } else { Ok(()) }
    };
    let state = StateFolder::open_on(Disk { before: Some(Arc::new(before)) }, &bed.temp.path().join("state"), None).unwrap();
    let folders = ManifestFolders::open(&[bed.temp.path().join("m")], &[]).unwrap();
    let mut running = run(state, folders, true).await;
    let object = Arc::clone(&running.objects().await.1["px-1"]);
    full.store(true, Ordering::SeqCst);
    assert!(matches!(running.write(&object, "instance").await, Err(SourceError::Unavailable(_))));
    bed.write("a.yaml", &(managed("px-1", 3129) + &managed("px-2", 1)));
    assert_eq!(running.heard().await, Vec::<String>::new(), "nothing is told that is not recorded");
    assert!(running.faults().await[0].contains("state folder"));
    full.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(running.heard().await, ["px-1 2:3129", "px-2 1:1"]);
    assert_eq!(running.faults().await, Vec::<String>::new());
    assert_eq!(running.write(&object, "instance").await, Ok(2), "the answer carries the edit that happened meanwhile");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_thousand_objects_start_in_seconds_and_statuses_that_come_together_share_their_writes_op_24() {
    let bed = Bed::new();
    for file in 0..20 {
        let documents: String = (0..100).map(|n| managed(&format!("px-{}", file * 100 + n), 3128)).collect();
        bed.write(&format!("{file}.yaml"), &documents);
    }
    let batches = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&batches);
    let before = move |what: &'static str, _: &Path| {
        counter.fetch_add(usize::from(what == "sync folder"), Ordering::SeqCst);
        Ok(())
    };
    let state = StateFolder::open_on(Disk { before: Some(Arc::new(before)) }, &bed.temp.path().join("state"), None).unwrap();
    let folders = ManifestFolders::open(&[bed.temp.path().join("m")], &[]).unwrap();
    let at_open = batches.load(Ordering::SeqCst);
    let mut running = run(state, folders, true).await;
    let objects = running.objects().await.1;
    assert_eq!(objects.len(), 2000);
    assert_eq!(batches.swap(0, Ordering::SeqCst) - at_open, 1, "all are recorded in one batch");

    let mut writes = tokio::task::JoinSet::new();
    for object in objects.values().take(500) {
        let (source, key, uid) = (running.source.clone(), object.key.clone(), object.uid.clone());
        writes.spawn(async move {
            source
                .call(SETTLED, |reply_to| SourceMessage::WriteStatus {
                    key,
                    uid,
                    status: status("instance"),
                    span: tracing::Span::none(),
                    reply_to,
                })
                .await
        });
    }
    assert!(writes.join_all().await.iter().all(|answer| *answer == Ok(Ok(1))));
    let recorded = running.state.objects().unwrap();
    assert_eq!(recorded.iter().filter(|record| record.status.provider_id.is_some()).count(), 500);
    assert!(batches.load(Ordering::SeqCst) <= 5, "{batches:?}");
    running.stop().await;
}
