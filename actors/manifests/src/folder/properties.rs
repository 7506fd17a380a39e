//! OP-30: whatever is done to the files, nothing is deleted, replaced or changed that they did not say for a second.
//!
//! Files hold text; `p NAME PORT;` is a document. A file cut anywhere is one that is being written.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::tests::{STILL, World, key, proxy};
use super::*;

/// The texts of the files, by folder and file.
type Texts = BTreeMap<(usize, usize), String>;

const FOLDERS: [&str; 2] = ["/m", "/n"];
const FILES: [&str; 3] = ["a.yaml", "b.yaml", "c.yaml"];
const NAMES: [&str; 3] = ["px-1", "px-2", "px-3"];

#[derive(Debug, Clone)]
enum Step {
    /// Replace a file's text.
    Write {
        folder: usize,
        file: usize,
        text: String,
    },
    /// Cut it, as while it is being written.
    Cut {
        folder: usize,
        file: usize,
        at: usize,
    },
    Delete {
        folder: usize,
        file: usize,
    },
    Rename {
        from: (usize, usize),
        to: (usize, usize),
    },
    /// Take a folder away, or bring it back as it was.
    Toggle {
        folder: usize,
    },
    Pass {
        millis: u64,
    },
}

fn text() -> impl Strategy<Value = String> {
    let document = (0..NAMES.len(), 1..4u16).prop_map(|(name, port)| format!("p {} {port};", NAMES[name]));
    proptest::collection::vec(document, 0..4).prop_map(|documents| documents.concat())
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..FOLDERS.len(), 0..FILES.len());
    prop_oneof![
        4 => (place(), text()).prop_map(|((folder, file), text)| Step::Write { folder, file, text }),
        3 => (place(), 0..30usize).prop_map(|((folder, file), at)| Step::Cut { folder, file, at }),
        2 => place().prop_map(|(folder, file)| Step::Delete { folder, file }),
        3 => (place(), place()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => (0..FOLDERS.len()).prop_map(|folder| Step::Toggle { folder }),
        8 => prop_oneof![Just(100), Just(300), Just(700), Just(1300), Just(2500)].prop_map(|millis| Step::Pass { millis }),
    ]
}

/// As a manifest: an unfinished document is invalid, and nameless when its name is not whole.
fn parse(text: &str) -> Content {
    let mut content = Content::default();
    let mut rest = text;
    while !rest.is_empty() {
        let (document, end) = rest.find(';').map_or((rest, rest.len()), |end| (&rest[..end], end + 1));
        let whole = end > document.len();
        let words: Vec<&str> = document.split(' ').collect();
        match words[..] {
            ["p", name, port] if whole => content.documents.push(proxy(name, port.parse().unwrap())),
            // Whoever wrote the blank after the name wrote all of the name.
            ["p", name, _] => content.documents.push((Name { kind: Kind::Proxy, key: key(name) }, None, Declared::Refused)),
            _ => content.nameless = true,
        }
        rest = &rest[end..];
    }
    content
}

/// What is true of the files, and since when.
struct Truth {
    texts: Texts,
    away: [Option<Texts>; 2],
    /// When anything last changed.
    changed: Timestamp,
    /// As it was at the last look, and when that had last changed: what came and went since, nobody can know of.
    looked: (Texts, [Option<Texts>; 2], Timestamp),
}

impl Truth {
    fn stood_still(&self, now: Timestamp) -> bool {
        now.since(self.changed) >= STILL
    }

    fn mentions(&self, name: &str) -> bool {
        self.texts.values().any(|text| text.contains(&format!("p {name} ")))
    }

    fn declares(&self, name: &str, port: u16) -> bool {
        self.texts.values().any(|text| text.contains(&format!("p {name} {port};")))
    }
}

fn carry_out(step: &Step, world: &mut World, truth: &mut Truth) {
    let before = (truth.texts.clone(), truth.away.clone());
    match step {
        Step::Write { folder, file, text } if truth.away[*folder].is_none() => {
            truth.texts.insert((*folder, *file), text.clone());
        }
        Step::Cut { folder, file, at } => {
            if let Some(text) = truth.texts.get_mut(&(*folder, *file)) {
                text.truncate(*at);
            }
        }
        Step::Delete { folder, file } => drop(truth.texts.remove(&(*folder, *file))),
        Step::Rename { from, to } if truth.away[to.0].is_none() => {
            if let Some(text) = truth.texts.remove(from) {
                truth.texts.insert(*to, text);
            }
        }
        Step::Toggle { folder } => match truth.away[*folder].take() {
            Some(back) => truth.texts.extend(back),
            None => {
                let (away, here) = std::mem::take(&mut truth.texts).into_iter().partition(|((in_folder, _), _)| in_folder == folder);
                (truth.away[*folder], truth.texts) = (Some(away), here);
            }
        },
        Step::Write { .. } | Step::Rename { .. } | Step::Pass { .. } => {}
    }
    if before == (truth.texts.clone(), truth.away.clone()) {
        return;
    }
    let (texts, away, changed) = &truth.looked;
    truth.changed = if (&truth.texts, &truth.away) == (texts, away) { *changed } else { world.now };
    for (folder, name) in FOLDERS.iter().enumerate() {
        if truth.away[folder].is_some() {
            world.folders.insert(name, None);
            continue;
        }
        if world.folders[name].is_none() {
            world.folders.insert(name, Some(BTreeMap::new()));
        }
        for (file, file_name) in FILES.iter().enumerate() {
            match (truth.texts.get(&(folder, file)), before.0.get(&(folder, file))) {
                (Some(new), old) if old != Some(new) => world.put(name, file_name, parse(new)),
                (None, Some(_)) => world.delete(name, file_name),
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Invariants, checked after every look:
    /// - nothing_is_deleted_that_a_file_may_declare
    /// - nothing_is_deleted_while_files_change
    /// - nothing_changes_to_what_no_file_declares
    /// - nothing_of_a_missing_folder_is_deleted
    /// and at the end, after all is readable and quiet: the_objects_are_the_documents.
    #[test]
    fn nothing_happens_to_an_object_that_its_documents_did_not_say_for_a_second(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new(&FOLDERS);
        let looked = (BTreeMap::new(), [None, None], world.now);
        let mut truth = Truth { texts: BTreeMap::new(), away: [None, None], changed: world.now, looked };
        for step in &steps {
            carry_out(step, &mut world, &mut truth);
            let Step::Pass { millis } = step else { continue };
            let until = world.now + Duration::from_millis(*millis);
            while world.now < until {
                world.now = until.min(world.now + Duration::from_millis(150));
                let before = world.objects.clone();
                world.deleted.clear();
                world.look();
                truth.looked = (truth.texts.clone(), truth.away.clone(), truth.changed);
                for (gone, _) in &world.deleted {
                    let home = &before[gone].known.home;
                    prop_assert!(truth.stood_still(world.now), "{gone} was deleted while files changed");
                    prop_assert!(!truth.mentions(&gone.name), "{gone} was deleted though a file declares it");
                    let folder = FOLDERS.iter().position(|folder| **folder == *home.folder).unwrap();
                    prop_assert!(truth.away[folder].is_none(), "{gone} was deleted though its folder is missing");
                }
                for (key, object) in &world.objects {
                    let port = object.known.spec.port;
                    let same = before.get(key).is_some_and(|before| before.uid == object.uid && before.known.spec.port == port);
                    prop_assert!(same || truth.declares(&key.name, port), "{key} changed to {port}, which no file says");
                }
            }
        }
        for folder in 0..FOLDERS.len() {
            if truth.away[folder].is_some() {
                carry_out(&Step::Toggle { folder }, &mut world, &mut truth);
            }
            carry_out(&Step::Write { folder, file: 0, text: format!("p px-{} 1;", folder + 1) }, &mut world, &mut truth);
            for file in 1..FILES.len() {
                carry_out(&Step::Delete { folder, file }, &mut world, &mut truth);
            }
        }
        world.pass(Duration::from_secs(2));
        let found: Vec<(&str, u16)> = world.objects.iter().map(|(key, object)| (&*key.name, object.known.spec.port)).collect();
        prop_assert_eq!(found, [("px-1", 1), ("px-2", 1)]);
    }
}
