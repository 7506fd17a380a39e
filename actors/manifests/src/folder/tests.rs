//! OP-30, clause by clause, with synthetic times. [`World`] holds folders, looks at them and keeps objects as the
//! actor would.

use std::collections::BTreeMap;
use std::time::Duration;

use egress_protocol::Secret;
use serde_json::json;

use super::decide::{Decision, Decisions, KnownProxy, KnownSecret, decide};
use super::tracker::Tracker;
use super::*;

pub(super) const STILL: Duration = Duration::from_secs(1);

type Files = BTreeMap<String, (Print, Arc<Content>)>;

/// One object as the actor would keep it.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) uid: u32,
    pub(super) generation: i64,
    pub(super) known: KnownProxy,
}

/// Folders of files, and what became of their documents.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Timestamp,
    /// `None`: missing.
    pub(super) folders: BTreeMap<&'static str, Option<Files>>,
    identity: BTreeMap<&'static str, u128>,
    given: Vec<&'static str>,
    prints: u128,
    uids: u32,
    pub(super) tracker: Tracker,
    pub(super) objects: BTreeMap<ObjectKey, Object>,
    /// Objects whose deletion takes until [`World::release`].
    pub(super) held: bool,
    secrets: BTreeMap<ObjectKey, KnownSecret>,
    pub(super) deleted: Vec<(ObjectKey, u32)>,
    pub(super) last: Decisions,
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("default", name)
}

fn proxy_name(name: &str) -> Name {
    Name { kind: Kind::Proxy, key: key(name) }
}

pub(super) fn spec(port: u16) -> Arc<ProxySpec> {
    Arc::new(serde_json::from_value(json!({"mode": "Managed", "provider": "lab", "port": port})).unwrap())
}

pub(super) fn proxy(name: &str, port: u16) -> Document {
    (proxy_name(name), Some(1), Declared::Proxy(DeclaredProxy { spec: spec(port), annotations: Annotations::default() }))
}

fn external(name: &str) -> Document {
    let spec = Arc::new(serde_json::from_value(json!({"mode": "External", "endpoint": {"host": "192.0.2.1"}})).unwrap());
    (proxy_name(name), Some(1), Declared::Proxy(DeclaredProxy { spec, annotations: Annotations::default() }))
}

fn invalid(name: &str) -> Content {
    let fault = format!("/m/a.yaml:1: Proxy default/{name}: spec.port: is not a number");
    Content { documents: vec![(proxy_name(name), Some(1), Declared::Refused)], faults: vec![fault], ..Content::default() }
}

fn secret(name: &str, value: &str) -> Document {
    let data = BTreeMap::from([("user-data".to_owned(), Arc::new(Secret::new(value.as_bytes().to_vec())))]);
    let secret = SecretContent { for_cloud_init: true, for_credentials: false, data };
    (Name { kind: Kind::Secret, key: key(name) }, Some(1), Declared::Secret(Arc::new(secret)))
}

pub(super) fn holds(documents: impl IntoIterator<Item = Document>) -> Content {
    Content { documents: documents.into_iter().collect(), ..Content::default() }
}

fn broken(text: &str) -> Content {
    Content { faults: vec!["cannot be parsed".to_owned()], unreadable: Some(Unreadable { text: Some(text.into()) }), ..Content::default() }
}

impl World {
    pub(super) fn new(given: &[&'static str]) -> Self {
        Self {
            now: Timestamp::from_millis(1_000_000),
            folders: given.iter().map(|folder| (*folder, Some(BTreeMap::new()))).collect(),
            identity: BTreeMap::new(),
            given: given.to_vec(),
            prints: 0,
            uids: 0,
            tracker: Tracker::new(STILL),
            objects: BTreeMap::new(),
            held: false,
            secrets: BTreeMap::new(),
            deleted: Vec::new(),
            last: Decisions::default(),
        }
    }

    pub(super) fn put(&mut self, folder: &'static str, file: &str, content: Content) {
        self.prints += 1;
        let print = Print(self.prints);
        if let Some(files) = self.folders.entry(folder).or_default() {
            files.insert(file.to_owned(), (print, Arc::new(content)));
        }
    }

    pub(super) fn delete(&mut self, folder: &'static str, file: &str) {
        if let Some(Some(files)) = self.folders.get_mut(folder) {
            files.remove(file);
        }
    }

    fn rename(&mut self, from: (&'static str, &str), to: (&'static str, &str)) {
        let moved = self.folders.get_mut(from.0).unwrap().as_mut().unwrap().remove(from.1).unwrap();
        self.folders.get_mut(to.0).unwrap().as_mut().unwrap().insert(to.1.to_owned(), moved);
    }

    /// Lets time pass, looking every 200 ms.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.now = until.min(self.now + Duration::from_millis(200));
            self.look();
        }
    }

    fn settle(&mut self) {
        self.pass(Duration::from_millis(1600));
    }

    pub(super) fn look(&mut self) {
        let files = |files: &Files| {
            let seen = |(file, (print, content)): (&String, &(Print, Arc<Content>))| FileSeen {
                file: file.as_str().into(),
                print: *print,
                content: Arc::clone(content),
            };
            files.iter().map(seen).collect()
        };
        let folder = |(folder, state): (&&'static str, &Option<Files>)| FolderSeen {
            folder: (*folder).into(),
            identity: Print(self.identity.get(folder).copied().unwrap_or(1)),
            files: state.as_ref().map(files).ok_or_else(|| "No such file or directory".to_owned()),
        };
        let folders = self.folders.iter().filter(|(name, _)| self.given.contains(name)).map(folder).collect();
        let snapshot = Snapshot { began: self.now, ended: self.now + Duration::from_millis(5), folders };
        self.tracker.observe(snapshot);
        if !self.tracker.ready(self.now) {
            return;
        }
        let known = self.objects.iter().map(|(key, object)| (key.clone(), object.known.clone())).collect();
        let given = self.given.clone();
        self.last = decide(&self.tracker, &known, &mut self.secrets, &|folder| given.contains(&folder));
        for decision in self.last.objects.clone() {
            self.apply(decision);
        }
    }

    fn apply(&mut self, decision: Decision) {
        match decision {
            Decision::Create { key, home, declared } => {
                self.uids += 1;
                let known = KnownProxy { home, spec: declared.spec, annotations: declared.annotations, deleting: false };
                assert!(self.objects.insert(key, Object { uid: self.uids, generation: 1, known }).is_none(), "two objects of one name");
            }
            Decision::Update { key, home, declared, spec_changed } => {
                let object = self.objects.get_mut(&key).unwrap();
                object.generation += i64::from(spec_changed);
                object.known = KnownProxy { home, spec: declared.spec, annotations: declared.annotations, deleting: false };
            }
            Decision::Move { key, home } => self.objects.get_mut(&key).unwrap().known.home = home,
            Decision::Delete { key } => {
                let object = self.objects.get_mut(&key).unwrap();
                assert!(!object.known.deleting);
                object.known.deleting = true;
                self.deleted.push((key.clone(), object.uid));
                if !self.held {
                    self.objects.remove(&key);
                }
            }
        }
    }

    fn release(&mut self, name: &str) {
        assert!(self.objects.remove(&key(name)).unwrap().known.deleting);
    }

    /// A new process over the same objects.
    fn restart(&mut self, given: &[&'static str]) {
        self.given = given.to_vec();
        self.tracker = Tracker::new(STILL);
        self.secrets.clear();
    }

    /// (uid, generation, port)
    fn object(&self, name: &str) -> Option<(u32, i64, u16)> {
        self.objects.get(&key(name)).map(|object| (object.uid, object.generation, object.known.spec.port))
    }

    fn home(&self, name: &str) -> String {
        self.objects[&key(name)].known.home.to_string()
    }

    fn faults(&self) -> String {
        self.last.faults.join("\n")
    }
}

/// One folder, one file, two proxies.
fn two() -> World {
    let mut world = World::new(&["/m"]);
    world.put("/m", "a.yaml", holds([proxy("px-1", 1), proxy("px-2", 2)]));
    world.settle();
    assert_eq!((world.object("px-1"), world.object("px-2")), (Some((1, 1, 1)), Some((2, 1, 2))));
    world
}

#[test]
fn nothing_is_created_before_its_file_stood_still_for_a_second() {
    let mut world = World::new(&["/m"]);
    for port in 1..=10 {
        world.put("/m", "a.yaml", holds([proxy("px-1", port)]));
        world.pass(Duration::from_millis(800));
        assert_eq!(world.object("px-1"), None);
    }
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 1, 10)));
}

#[test]
fn a_changed_spec_counts_the_generation_on_and_an_equal_one_does_not() {
    let mut world = two();
    world.put("/m", "a.yaml", holds([proxy("px-1", 1), proxy("px-2", 22)]));
    world.settle();
    assert_eq!((world.object("px-1"), world.object("px-2")), (Some((1, 1, 1)), Some((2, 2, 22))));
}

#[test]
fn a_changed_annotation_is_an_update_without_a_new_generation() {
    let mut world = two();
    let retry = Annotations { retry: Some("now".to_owned()), ..Annotations::default() };
    let document = (proxy_name("px-1"), None, Declared::Proxy(DeclaredProxy { spec: spec(1), annotations: retry.clone() }));
    world.put("/m", "a.yaml", holds([document, proxy("px-2", 2)]));
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 1, 1)));
    assert_eq!(world.objects[&key("px-1")].known.annotations, retry);
}

#[test]
fn a_removed_document_is_deleted_only_after_a_second_of_stillness() {
    let mut world = two();
    world.put("/m", "a.yaml", holds([proxy("px-2", 2)]));
    world.pass(Duration::from_millis(1000));
    assert!(world.deleted.is_empty());
    world.pass(Duration::from_millis(600));
    assert_eq!(world.deleted, [(key("px-1"), 1)]);
    assert_eq!(world.object("px-2"), Some((2, 1, 2)));
}

#[test]
fn a_file_that_keeps_changing_anywhere_holds_up_deletions_but_no_creations() {
    let mut world = two();
    world.delete("/m", "a.yaml");
    world.put("/m", "c.yaml", holds([proxy("px-3", 3)]));
    for port in 1..=20 {
        world.put("/m", "noise.yaml", holds([proxy("noise", port)]));
        world.pass(Duration::from_millis(400));
    }
    assert!(world.deleted.is_empty());
    assert_eq!(world.object("px-3").map(|(.., port)| port), Some(3));
    assert!(world.tracker.restless_for(world.now) > Duration::from_secs(7));
    world.settle();
    assert_eq!(world.deleted.len(), 2);
}

#[test]
fn a_renamed_file_and_a_document_moved_to_another_file_or_folder_delete_and_replace_nothing() {
    let mut world = World::new(&["/m", "/n"]);
    world.put("/m", "a.yaml", holds([proxy("px-1", 1), proxy("px-2", 2)]));
    world.settle();
    let before = (world.object("px-1"), world.object("px-2"));
    world.rename(("/m", "a.yaml"), ("/m", "b.yaml"));
    world.settle();
    assert_eq!(world.home("px-1"), "/m/b.yaml");
    world.put("/m", "b.yaml", holds([proxy("px-1", 1)]));
    world.put("/m", "c.yaml", holds([proxy("px-2", 2)]));
    world.settle();
    assert_eq!(world.home("px-2"), "/m/c.yaml");
    world.rename(("/m", "c.yaml"), ("/n", "c.yaml"));
    world.settle();
    assert_eq!(world.home("px-2"), "/n/c.yaml");
    assert_eq!((world.object("px-1"), world.object("px-2")), before);
    assert!(world.deleted.is_empty());
}

#[test]
fn a_file_truncated_and_written_again_within_a_second_deletes_and_replaces_nothing() {
    let mut world = two();
    for _ in 0..5 {
        world.put("/m", "a.yaml", holds([]));
        world.pass(Duration::from_millis(900));
        world.put("/m", "a.yaml", holds([proxy("px-1", 1)]));
        world.pass(Duration::from_millis(900));
    }
    world.put("/m", "a.yaml", holds([proxy("px-1", 1), proxy("px-2", 2)]));
    world.settle();
    assert_eq!((world.object("px-1"), world.object("px-2")), (Some((1, 1, 1)), Some((2, 1, 2))));
    assert!(world.deleted.is_empty());
}

#[test]
fn an_invalid_document_is_a_fault_keeps_the_last_accepted_spec_and_lets_the_others_apply() {
    let mut world = two();
    let mut content = invalid("px-1");
    content.documents.push(proxy("px-2", 22));
    content.documents.push(proxy("px-3", 3));
    world.put("/m", "a.yaml", content);
    world.settle();
    assert_eq!((world.object("px-1"), world.object("px-2"), world.object("px-3")), (Some((1, 1, 1)), Some((2, 2, 22)), Some((3, 1, 3))));
    assert!(world.faults().contains("spec.port"), "{}", world.faults());
    world.put("/m", "a.yaml", holds([proxy("px-1", 1), proxy("px-2", 22), proxy("px-3", 3)]));
    world.settle();
    assert_eq!(world.faults(), "");
}

#[test]
fn an_invalid_document_of_a_new_name_makes_no_object() {
    let mut world = World::new(&["/m"]);
    world.put("/m", "a.yaml", invalid("px-1"));
    world.settle();
    assert!(world.objects.is_empty());
}

#[test]
fn a_changed_immutable_field_is_refused_and_the_last_accepted_spec_stays() {
    let mut world = two();
    world.put("/m", "a.yaml", holds([external("px-1"), proxy("px-2", 2)]));
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 1, 1)));
    assert!(world.faults().contains("/m/a.yaml:1: Proxy default/px-1: spec.mode"), "{}", world.faults());
    assert!(world.deleted.is_empty());
}

#[test]
fn a_file_that_cannot_be_parsed_keeps_what_it_defined_last_and_other_files_go_on() {
    let mut world = two();
    world.put("/m", "b.yaml", holds([proxy("px-3", 3)]));
    world.settle();
    world.put("/m", "a.yaml", broken("{"));
    world.delete("/m", "b.yaml");
    world.settle();
    assert_eq!((world.object("px-1"), world.object("px-2")), (Some((1, 1, 1)), Some((2, 1, 2))));
    assert_eq!(world.deleted, [(key("px-3"), 3)]);
    assert!(world.faults().contains("cannot be parsed"));
    // Also after a restart: the record knows the file.
    world.restart(&["/m"]);
    world.settle();
    assert_eq!(world.objects.len(), 2);
}

#[test]
fn a_file_that_cannot_be_parsed_keeps_its_objects_from_a_duplicate_elsewhere() {
    let mut world = two();
    world.put("/m", "b.yaml", holds([proxy("px-1", 99)]));
    world.settle();
    world.put("/m", "a.yaml", broken("{"));
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 1, 1)));
}

#[test]
fn a_document_moved_into_a_file_that_cannot_be_parsed_is_not_believed_removed() {
    let mut world = two();
    world.put("/m", "a.yaml", holds([proxy("px-1", 1)]));
    world.put("/m", "b.yaml", broken("kind: Proxy\nmetadata: {name: px-2\n"));
    world.settle();
    assert_eq!(world.object("px-2"), Some((2, 1, 2)));
    assert!(world.faults().contains("/m/b.yaml: may declare Proxy default/px-2"), "{}", world.faults());
    world.put("/m", "b.yaml", broken("kind: Proxy\nmetadata: {name: other\n"));
    world.settle();
    assert_eq!(world.deleted, [(key("px-2"), 2)]);
}

#[test]
fn a_document_without_a_name_may_be_any_that_the_file_held_before() {
    let mut world = two();
    world.put("/m", "a.yaml", Content { nameless: true, ..holds([proxy("px-1", 1)]) });
    world.settle();
    assert_eq!(world.object("px-2"), Some((2, 1, 2)));
    world.put("/m", "a.yaml", holds([proxy("px-1", 1)]));
    world.settle();
    assert_eq!(world.object("px-2"), None);
}

#[test]
fn a_document_that_is_cut_off_in_its_name_is_not_believed_removed() {
    let mut world = World::new(&["/m"]);
    world.put("/m", "a.yaml", holds([proxy("px-1", 1), proxy("px-10", 10)]));
    world.settle();
    world.put(
        "/m",
        "a.yaml",
        Content { documents: vec![proxy("px-1", 1), (proxy_name("px"), None, Declared::Refused)], ..Content::default() },
    );
    world.settle();
    assert_eq!(world.object("px-10"), Some((2, 1, 10)));
}

#[test]
fn a_missing_folder_deletes_nothing_and_comes_back_as_it_was() {
    let mut world = two();
    let files = world.folders.insert("/m", None).unwrap();
    world.pass(Duration::from_secs(30));
    assert_eq!(world.objects.len(), 2);
    assert!(world.faults().contains("/m: the folder is missing (No such file or directory)"), "{}", world.faults());
    // Back, but empty at first, as a mount point is.
    world.folders.insert("/m", Some(BTreeMap::new()));
    world.pass(Duration::from_secs(30));
    assert_eq!(world.objects.len(), 2);
    assert!(world.faults().contains("/m: the folder holds no manifest and counts as missing; 2"), "{}", world.faults());
    world.folders.insert("/m", files);
    world.settle();
    assert_eq!((world.object("px-1"), world.object("px-2")), (Some((1, 1, 1)), Some((2, 1, 2))));
    assert_eq!(world.faults(), "");
    assert!(world.deleted.is_empty());
}

#[test]
fn an_empty_folder_in_the_place_of_a_full_one_counts_as_missing() {
    let mut world = two();
    world.identity.insert("/m", 2);
    world.folders.insert("/m", Some(BTreeMap::new()));
    world.pass(Duration::from_secs(5));
    assert_eq!(world.objects.len(), 2);
}

#[test]
fn the_last_file_of_a_folder_that_is_seen_to_go_deletes_its_objects() {
    let mut world = two();
    world.delete("/m", "a.yaml");
    world.settle();
    assert!(world.objects.is_empty());
}

#[test]
fn at_start_a_folder_that_had_manifests_and_holds_no_file_counts_as_missing() {
    let mut world = two();
    world.delete("/m", "a.yaml");
    world.restart(&["/m"]);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.objects.len(), 2);
    world.put("/m", "other.yaml", holds([proxy("px-2", 2)]));
    world.settle();
    assert_eq!(world.deleted, [(key("px-1"), 1)]);
}

#[test]
fn a_document_removed_while_the_process_was_down_is_a_deletion() {
    let mut world = two();
    world.put("/m", "a.yaml", holds([proxy("px-2", 2)]));
    world.restart(&["/m"]);
    world.settle();
    assert_eq!(world.deleted, [(key("px-1"), 1)]);
    assert_eq!(world.object("px-2"), Some((2, 1, 2)));
}

#[test]
fn of_two_documents_with_one_name_the_first_in_path_order_counts_and_the_other_is_a_fault() {
    let mut world = World::new(&["/m", "/m-too"]);
    world.put("/m-too", "a.yaml", holds([proxy("px-1", 3)]));
    world.put("/m", "b.yaml", holds([proxy("px-1", 2), proxy("px-1", 4)]));
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 1, 2)));
    assert!(world.faults().contains("/m-too/a.yaml:1: Proxy default/px-1 is declared in /m/b.yaml:1 already"), "{}", world.faults());
    assert_eq!(world.last.faults.len(), 2);
    world.put("/m", "a.yaml", holds([proxy("px-1", 1)]));
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 2, 1)));
    world.delete("/m", "a.yaml");
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 3, 2)), "the next one counts when the first is gone");
}

#[test]
fn a_rewrite_of_the_first_of_two_does_not_let_the_second_in_between() {
    let mut world = two();
    world.put("/m", "b.yaml", holds([proxy("px-1", 99)]));
    world.settle();
    world.put("/m", "a.yaml", holds([]));
    world.pass(Duration::from_millis(800));
    world.delete("/m", "a.yaml");
    world.pass(Duration::from_millis(800));
    world.put("/m", "a.yaml", holds([proxy("px-1", 1), proxy("px-2", 2)]));
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 1, 1)));
}

#[test]
fn the_same_name_again_is_a_new_object_that_waits_until_the_old_one_is_gone() {
    let mut world = two();
    world.held = true;
    world.put("/m", "a.yaml", holds([proxy("px-2", 2)]));
    world.settle();
    world.put("/m", "a.yaml", holds([proxy("px-1", 7), proxy("px-2", 2)]));
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 1, 1)), "the old one is on its way out, untouched");
    world.release("px-1");
    world.look();
    assert_eq!(world.object("px-1"), Some((3, 1, 7)));
    assert_eq!(world.deleted, [(key("px-1"), 1)]);
}

#[test]
fn a_file_that_changes_makes_no_object_from_what_it_said_before() {
    let mut world = two();
    world.held = true;
    world.put("/m", "a.yaml", holds([proxy("px-2", 2)]));
    world.settle();
    world.put("/m", "a.yaml", holds([proxy("px-1", 7), proxy("px-2", 2)]));
    world.settle();
    world.put("/m", "a.yaml", holds([proxy("px-2", 2)]));
    world.release("px-1");
    world.pass(Duration::from_millis(600));
    assert_eq!(world.object("px-1"), None, "its successor's document is gone by now");
    world.settle();
    assert_eq!(world.object("px-1"), None);
}

#[test]
fn objects_of_a_folder_that_is_not_given_stay_untouched_and_a_document_elsewhere_is_the_same_object() {
    let mut world = two();
    world.restart(&["/other"]);
    world.folders.insert("/other", Some(BTreeMap::new()));
    world.put("/other", "x.yaml", holds([proxy("px-2", 2)]));
    world.settle();
    assert_eq!(world.object("px-1"), Some((1, 1, 1)));
    assert_eq!((world.home("px-1").as_str(), world.home("px-2").as_str()), ("/m/a.yaml", "/other/x.yaml"));
    assert_eq!(world.object("px-2"), Some((2, 1, 2)));
    assert!(world.deleted.is_empty());
}

#[test]
fn secrets_follow_the_same_rules() {
    let mut world = World::new(&["/m"]);
    world.put("/m", "s.yaml", holds([secret("boot", "one")]));
    world.settle();
    let value = |world: &World| world.secrets.get(&key("boot")).map(|known| known.secret.data["user-data"].expose().clone());
    assert_eq!(value(&world).as_deref(), Some(b"one".as_slice()));
    world.put("/m", "s.yaml", holds([secret("boot", "two")]));
    world.pass(Duration::from_millis(800));
    assert_eq!(value(&world).as_deref(), Some(b"one".as_slice()));
    world.pass(Duration::from_millis(800));
    assert_eq!(value(&world).as_deref(), Some(b"two".as_slice()));
    world.put("/m", "s.yaml", broken("{"));
    world.settle();
    assert_eq!(value(&world).as_deref(), Some(b"two".as_slice()));
    world.rename(("/m", "s.yaml"), ("/m", "t.yaml"));
    world.put("/m", "t.yaml", holds([secret("boot", "two")]));
    world.settle();
    assert_eq!(value(&world).as_deref(), Some(b"two".as_slice()));
    world.put("/m", "t.yaml", holds([]));
    world.settle();
    assert_eq!(value(&world), None);
}

#[test]
fn a_secret_and_a_proxy_of_one_name_are_two_things() {
    let mut world = World::new(&["/m"]);
    world.put("/m", "a.yaml", holds([proxy("same", 1), secret("same", "x")]));
    world.settle();
    assert_eq!((world.objects.len(), world.secrets.len(), world.faults().as_str()), (1, 1, ""));
}

#[test]
fn one_file_that_never_stands_still_does_not_keep_a_start_from_ending() {
    let mut world = World::new(&["/m"]);
    world.put("/m", "a.yaml", holds([proxy("px-1", 1)]));
    for port in 1..20 {
        world.put("/m", "noise.yaml", holds([proxy("noise", port)]));
        world.pass(Duration::from_millis(200));
    }
    assert!(world.tracker.ready(world.now));
    assert_eq!(world.object("px-1"), Some((1, 1, 1)));
}
