//! Reads a map of settings key by key: every getter tells its fault and goes on, and [`Keys::finish`] tells what nobody
//! asked for.
//!
//! A fault may show a number, a duration or an address it found, never a text of unknown meaning.

use std::ops::RangeInclusive;
use std::time::Duration;

use egress_protocol::resource::validate::join;
use egress_protocol::time::{format_duration, parse_duration};

use crate::fault::{NO_TEXT, NO_TEXT_BUT_BOOLEAN, NO_TEXT_BUT_NUMBER, Sink};
use crate::yaml::{Data, Entry, Node};

/// A map that is being read.
#[derive(Debug)]
pub(crate) struct Keys<'a> {
    node: &'a Node,
    /// The path of the map, empty for the outermost.
    path: String,
    known: Vec<&'static str>,
}

impl<'a> Keys<'a> {
    /// Begins to read a map; tells its repeated keys (PC-78).
    pub(crate) fn new(node: &'a Node, path: &str, sink: &mut Sink<'_>) -> Option<Self> {
        let Some(entries) = node.entries() else {
            sink.push(node.line, path, "must be a map");
            return None;
        };
        for (i, entry) in entries.iter().enumerate() {
            if entries.iter().take(i).any(|before| before.key == entry.key) {
                sink.push(entry.line, step(path, &entry.key), "is there more than once");
            }
        }
        Some(Self { node, path: path.to_owned(), known: Vec::new() })
    }

    /// The path of a key.
    pub(crate) fn path(&self, key: &str) -> String {
        step(&self.path, key)
    }

    /// The line of a key, or of the map.
    pub(crate) fn line(&self, key: &str) -> Option<usize> {
        self.entries().iter().find(|entry| entry.key == key).map_or(self.node.line, |entry| entry.line)
    }

    fn entries(&self) -> &'a [Entry] {
        self.node.entries().unwrap_or_default()
    }

    /// The value of a key; null is the same as absent.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'a Node> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value).filter(|node| node.data != Data::Null)
    }

    /// A fault of a key.
    pub(crate) fn tell(&self, key: &str, reason: impl Into<String>, sink: &mut Sink<'_>) {
        sink.push(self.line(key), self.path(key), reason);
    }

    /// A text that must be there and have something in it.
    pub(crate) fn required(&mut self, key: &'static str, sink: &mut Sink<'_>) -> Option<&'a str> {
        if self.get(key).is_none() {
            self.tell(key, "is required", sink);
            return None;
        }
        let text = self.text(key, sink)?;
        if text.is_empty() {
            self.tell(key, "must not be empty", sink);
            return None;
        }
        Some(text)
    }

    /// One of a few words; the default stands for none.
    pub(crate) fn word<T: Copy + Default>(&mut self, key: &'static str, words: &[(&str, T)], sink: &mut Sink<'_>) -> T {
        let Some(text) = self.text(key, sink) else { return T::default() };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            self.tell(key, format!("must be {}", words.join(" or ")), sink);
        }
        found.unwrap_or_default()
    }

    /// A text.
    pub(crate) fn text(&mut self, key: &'static str, sink: &mut Sink<'_>) -> Option<&'a str> {
        let node = self.get(key)?;
        if node.text().is_none() {
            self.tell(key, no_text(node), sink);
        }
        node.text()
    }

    /// A whole number.
    pub(crate) fn number(&mut self, key: &'static str, range: RangeInclusive<u64>, sink: &mut Sink<'_>) -> Option<u64> {
        let number = match &self.get(key)?.data {
            Data::Number(number) => number,
            _ => {
                self.tell(key, format!("must be a whole number, {}-{}", range.start(), range.end()), sink);
                return None;
            }
        };
        let found = number.as_u64().filter(|n| range.contains(n));
        if found.is_none() {
            self.tell(key, format!("must be {}-{}, is {number}", range.start(), range.end()), sink);
        }
        found
    }

    /// A share, 0 to 1.
    pub(crate) fn ratio(&mut self, key: &'static str, sink: &mut Sink<'_>) -> Option<f64> {
        let found = match &self.get(key)?.data {
            Data::Number(number) => number.as_f64().filter(|n| (0.0..=1.0).contains(n)),
            _ => None,
        };
        if found.is_none() {
            self.tell(key, "must be a number from 0 to 1", sink);
        }
        found
    }

    /// True or false.
    pub(crate) fn flag(&mut self, key: &'static str, sink: &mut Sink<'_>) -> Option<bool> {
        match self.get(key)?.data {
            Data::Bool(value) => Some(value),
            _ => {
                self.tell(key, "must be true or false", sink);
                None
            }
        }
    }

    /// A human duration.
    pub(crate) fn duration(&mut self, key: &'static str, range: RangeInclusive<Duration>, sink: &mut Sink<'_>) -> Option<Duration> {
        let (least, most) = (format_duration(*range.start()), format_duration(*range.end()));
        let Some(text) = self.get(key)?.text() else {
            self.tell(key, format!("must be a duration such as 90s or 5m, {least} to {most}"), sink);
            return None;
        };
        match parse_duration(text) {
            Ok(found) if range.contains(&found) => Some(found),
            Ok(found) => {
                self.tell(key, format!("must be {least} to {most}, is {}", format_duration(found)), sink);
                None
            }
            Err(fault) => {
                let hint = fault.hint().map(|hint| format!(": {hint}")).unwrap_or_default();
                self.tell(key, format!("must be a duration such as 90s or 5m, {least} to {most}{hint}"), sink);
                None
            }
        }
    }

    /// The items of a list, each read by `read`, which says what an item must be when it is not.
    pub(crate) fn list<T>(
        &mut self,
        key: &'static str,
        sink: &mut Sink<'_>,
        mut read: impl FnMut(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let mut read_items = Vec::new();
        for (path, item) in self.items(key, sink)? {
            match item.text().map(&mut read) {
                Some(Ok(value)) => read_items.push(value),
                Some(Err(reason)) => sink.push(item.line, path, reason),
                None => sink.push(item.line, path, no_text(item)),
            }
        }
        Some(read_items)
    }

    /// The items of a list with their paths.
    pub(crate) fn items(&mut self, key: &'static str, sink: &mut Sink<'_>) -> Option<Vec<(String, &'a Node)>> {
        let Data::List(items) = &self.get(key)?.data else {
            self.tell(key, "must be a list", sink);
            return None;
        };
        let path = self.path(key);
        Some(items.iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item)).collect())
    }

    /// The entries of a map whose keys are the user's own names, with their paths: `kvm.images["debian-12.7"]`.
    pub(crate) fn named(&mut self, key: &'static str, sink: &mut Sink<'_>) -> Option<Vec<Named<'a>>> {
        let node = self.get(key)?;
        let path = self.path(key);
        let Some(entries) = node.entries() else {
            self.tell(key, "must be a map", sink);
            return None;
        };
        let mut named = Vec::new();
        for (i, Entry { key, line, value }) in entries.iter().enumerate() {
            let path = step(&path, key);
            if entries.iter().take(i).any(|before| before.key == *key) {
                sink.push(*line, path, "is there more than once");
            } else {
                named.push(Named { name: key, path, node: value });
            }
        }
        Some(named)
    }

    /// Tells every key that nobody asked for (PC-78).
    pub(crate) fn finish(self, sink: &mut Sink<'_>) {
        for entry in self.entries().iter().filter(|entry| !self.known.contains(&entry.key.as_str())) {
            let reason = match self.known.iter().find(|known| known.eq_ignore_ascii_case(&entry.key)) {
                Some(meant) => format!("is not a known key: write {meant}"),
                None => format!("is not a known key: known are {}", self.known.join(", ")),
            };
            sink.push(entry.line, self.path(&entry.key), reason);
        }
    }
}

/// One entry of a map with free keys.
#[derive(Debug)]
pub(crate) struct Named<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: String,
    pub(crate) node: &'a Node,
}

/// Why a value that has to be a string is none.
fn no_text(node: &Node) -> &'static str {
    match node.data {
        Data::Bool(_) => NO_TEXT_BUT_BOOLEAN,
        Data::Number(_) => NO_TEXT_BUT_NUMBER,
        Data::Null | Data::Text(_) | Data::List(_) | Data::Map(_) => NO_TEXT,
    }
}

fn step(path: &str, key: &str) -> String {
    join(path, key).trim_start_matches('.').to_owned()
}
