//! Which document counts for which name: the first in path order.

use std::collections::BTreeMap;

use super::tracker::Tracker;
use super::{Content, Declared, Document, Home, Name};

/// What the files say about one name.
#[derive(Debug, Clone)]
pub(crate) struct Claim<'a> {
    /// Where.
    pub(crate) home: Home,
    /// On which line, where that is known.
    pub(crate) line: Option<usize>,
    /// What; `None` when the document may still be there and cannot be seen: its file cannot be read, or changed or
    /// went less than a second ago. Such a claim keeps what is known and changes nothing.
    pub(crate) declared: Option<&'a Declared>,
}

/// All names with the document that counts, and the faults of those that do not.
#[derive(Debug, Default)]
pub(crate) struct Claims<'a> {
    by_name: BTreeMap<Name, Claim<'a>>,
    pub(crate) faults: Vec<String>,
}

/// As people write it: file, then line where it is known.
pub(crate) fn place(home: &Home, line: Option<usize>) -> String {
    line.map_or_else(|| home.to_string(), |line| format!("{home}:{line}"))
}

impl<'a> Claims<'a> {
    /// Reads all that counts. `homes` are the names that are known with where each was last seen: an unreadable file
    /// keeps what it defined last.
    pub(crate) fn of<'k>(tracker: &'a Tracker, homes: impl Iterator<Item = (Name, &'k Home)>) -> Self {
        let mut by_home: BTreeMap<(&str, &str), Vec<Name>> = BTreeMap::new();
        for (name, home) in homes {
            by_home.entry((&home.folder, &home.file)).or_default().push(name);
        }
        let mut claims = Self::default();
        for (home, settled) in tracker.settled() {
            if settled.present {
                claims.faults.extend(settled.content.faults.iter().cloned());
            }
            if settled.content.unreadable.is_some() {
                for name in by_home.get(&(&*home.folder, &*home.file)).into_iter().flatten() {
                    claims.by_name.entry(name.clone()).or_insert_with(|| Claim { home: home.clone(), line: None, declared: None });
                }
            }
            for (name, line, declared) in &settled.content.documents {
                let Some(first) = claims.by_name.get(name) else {
                    let declared = settled.current.then_some(declared);
                    claims.by_name.insert(name.clone(), Claim { home: home.clone(), line: *line, declared });
                    continue;
                };
                if settled.current && *declared != Declared::Refused {
                    let (here, there) = (place(&home, *line), place(&first.home, first.line));
                    claims.faults.push(format!("{here}: {name} is declared in {there} already; the first in path order counts"));
                }
            }
        }
        claims
    }

    /// What counts for a name.
    pub(crate) fn get(&self, name: &Name) -> Option<&Claim<'a>> {
        self.by_name.get(name)
    }

    /// Every name that is declared, with what counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &Claim<'a>)> {
        self.by_name.iter()
    }
}

/// The unreadable files whose bytes are there.
pub(crate) fn unreadable(tracker: &Tracker) -> Vec<(Home, &str)> {
    tracker
        .settled()
        .into_iter()
        .filter_map(|(home, settled)| Some((home, settled.content.unreadable.as_ref()?.text.as_deref()?)))
        .collect()
}

/// Why a name without a claim may still not be believed removed; `None` when it may.
pub(crate) fn kept_because(tracker: &Tracker, unreadable: &[(Home, &str)], name: &Name, home: &Home) -> Option<Kept> {
    if tracker.is_missing(&home.folder) {
        return Some(Kept::FolderMissing);
    }
    if tracker.settled_at(home).is_some_and(|settled| may_declare(settled.content, name)) {
        return Some(Kept::In(home.clone()));
    }
    unreadable.iter().find(|(_, text)| text.contains(&*name.key.name)).map(|(home, _)| Kept::In(home.clone()))
}

/// A document that is cut off may be this name's: its own name is cut off then, or its namespace does not follow.
fn may_declare(content: &Content, name: &Name) -> bool {
    let cut_off = |(other, _, declared): &Document| {
        *declared == Declared::Refused && other.kind == name.kind && name.key.name.starts_with(&*other.key.name)
    };
    content.nameless || content.documents.iter().any(cut_off)
}

/// What keeps a name that no document declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Its folder is missing.
    FolderMissing,
    /// This file cannot be understood and may declare it.
    In(Home),
}
