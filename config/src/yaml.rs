//! YAML (and JSON, which is YAML) as a tree that knows its lines.
//!
//! What must stay true: bytes of any kind give a tree or one reason, never a panic and never more memory than the
//! file deserves (aliases are replayed within a budget); a reason is one line and shows nothing of the file; every
//! repeated key survives into the tree, so that all of them can be told.

use std::fmt;

use egress_protocol::resource::conditions::cut;
use egress_protocol::resource::validate::join;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_yaml::{DuplicateKeyPolicy, NonFiniteFloatPolicy, Spanned};

/// Larger files are refused.
pub(crate) const FILE_LIMIT: usize = 64 << 20;

/// A value and the line it stands on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) line: Option<usize>,
    pub(crate) data: Data,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One entry of a map, in the file's order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// The line of the key.
    pub(crate) line: Option<usize>,
    pub(crate) value: Node,
}

/// Why a file is no tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) line: Option<usize>,
    pub(crate) reason: String,
}

/// The documents of a file, those without content left out.
pub(crate) fn documents(bytes: &[u8]) -> Result<Vec<Node>, Unreadable> {
    let refused = |line, reason: String| Unreadable { line, reason };
    if bytes.len() > FILE_LIMIT {
        return Err(refused(None, format!("is larger than {} MiB", FILE_LIMIT >> 20)));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes.iter().take(error.valid_up_to()).filter(|b| **b == b'\n').count() + 1;
        refused(Some(line), "is not UTF-8 text".to_owned())
    })?;
    let mut options = serde_yaml::Options::default();
    options.duplicate_keys = DuplicateKeyPolicy::PassThrough;
    options.non_finite_float_policy = NonFiniteFloatPolicy::AsString;
    options.leading_zero_numbers_as_strings = true;
    options.with_snippet = false;
    options.alias_limits.max_total_replayed_events = 200_000;
    options.budget = Some(serde_yaml::Budget::default()).map(|mut budget| {
        // A large fleet in one file; the file's size has its own limit.
        (budget.max_events, budget.max_nodes, budget.max_documents) = (20_000_000, 10_000_000, 500_000);
        budget.max_total_scalar_bytes = FILE_LIMIT;
        budget
    });
    match serde_yaml::from_multiple_with_options::<Spanned<Data>>(text, options) {
        Ok(nodes) => Ok(nodes.into_iter().map(Node::from).filter(|node| node.data != Data::Null).collect()),
        Err(error) => Err(refused(error.location().and_then(|at| line(at.line())), reason(&error))),
    }
}

/// The first line of what the parser says: what follows is a piece of the file. Quoted pieces go, too.
fn reason(error: &serde_yaml::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().next().unwrap_or_default();
    let mut words = String::new();
    let mut quoted = false;
    for c in first.chars() {
        match c {
            '`' | '"' => {
                if !quoted {
                    words.push('…');
                }
                quoted = !quoted;
            }
            c if !quoted => words.push(c),
            _ => {}
        }
    }
    format!("is not YAML: {}", cut(words, 200))
}

fn line(line: u64) -> Option<usize> {
    usize::try_from(line).ok().filter(|line| *line > 0)
}

impl From<Spanned<Data>> for Node {
    fn from(spanned: Spanned<Data>) -> Self {
        Self { line: line(spanned.referenced.line()), data: spanned.value }
    }
}

impl Node {
    /// The entries, if it is a map.
    pub(crate) fn entries(&self) -> Option<&[Entry]> {
        match &self.data {
            Data::Map(entries) => Some(entries),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => None,
        }
    }

    /// The value of the first entry with that key.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.data {
            Data::Text(text) => Some(text),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::List(_) | Data::Map(_) => None,
        }
    }

    /// As JSON; a repeated key counts as it came last, and its path and line are told.
    pub(crate) fn to_json(&self, path: &str, repeated: &mut impl FnMut(String, Option<usize>)) -> Value {
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Number(value) => Value::Number(value.clone()),
            Data::Text(value) => Value::String(value.clone()),
            Data::List(items) => items.iter().enumerate().map(|(i, item)| item.to_json(&format!("{path}[{i}]"), repeated)).collect(),
            Data::Map(entries) => {
                let mut map = Map::new();
                for entry in entries {
                    let path = join(path, &entry.key);
                    let value = entry.value.to_json(&path, repeated);
                    if map.insert(entry.key.clone(), value).is_some() {
                        repeated(path, entry.line);
                    }
                }
                Value::Object(map)
            }
        }
    }

    /// The line of a field, or of the nearest thing around it that is there.
    pub(crate) fn line_of(&self, own: &str, path: &str) -> Option<usize> {
        self.line_below(own, path, self.line)
    }

    fn line_below(&self, own: &str, path: &str, around: Option<usize>) -> Option<usize> {
        let found = |step: &str, line: Option<usize>, value: &Self| match path.strip_prefix(step) {
            Some("") => Some(line),
            Some(rest) if rest.starts_with(['.', '[']) => Some(value.line_below(step, path, line)),
            Some(_) | None => None,
        };
        let below = match &self.data {
            Data::Map(entries) => entries.iter().find_map(|entry| found(&join(own, &entry.key), entry.line, &entry.value)),
            Data::List(items) => items.iter().enumerate().find_map(|(i, item)| found(&format!("{own}[{i}]"), item.line, item)),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) => None,
        };
        below.unwrap_or(around)
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DataVisitor)
    }
}

struct DataVisitor;

impl<'de> Visitor<'de> for DataVisitor {
    type Value = Data;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Data, E> {
        Ok(Data::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Data, E> {
        Ok(Data::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Data, E> {
        Ok(Data::Number(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Data, E> {
        Ok(Data::Text(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Data, E> {
        Ok(Data::Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Data, E> {
        Ok(Number::from_f64(value).map_or_else(|| Data::Text(value.to_string()), Data::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Data, E> {
        Ok(Data::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Data, E> {
        Ok(Data::Text(value))
    }

    fn visit_unit<E>(self) -> Result<Data, E> {
        Ok(Data::Null)
    }

    fn visit_none<E>(self) -> Result<Data, E> {
        Ok(Data::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Data, D::Error> {
        Data::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Data, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<Spanned<Data>>()? {
            items.push(item.into());
        }
        Ok(Data::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Data, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<String>, Spanned<Data>>()? {
            entries.push(Entry { line: line(key.referenced.line()), key: key.value, value: value.into() });
        }
        Ok(Data::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn only(text: &str) -> Node {
        let mut nodes = documents(text.as_bytes()).unwrap();
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        nodes.remove(0)
    }

    fn value(text: &str) -> Value {
        only(text).to_json("", &mut |path, _| panic!("{path} is there twice"))
    }

    #[test]
    fn a_tree_knows_the_lines_of_its_keys() {
        let node = only("a: 1\nb:\n  c:\n    - x\n    - d: 2\n  e f: 3\n");
        for (path, line) in [("a", 1), ("b", 2), ("b.c", 3), ("b.c[0]", 4), ("b.c[1].d", 5), ("b[\"e f\"]", 6), ("b.zzz", 2), ("b.c[9]", 3)]
        {
            assert_eq!(node.line_of("", &format!(".{path}")), Some(line), "{path}");
        }
    }

    #[test]
    fn json_with_tabs_is_read_too() {
        assert_eq!(
            value("{\n\t\"a\": [1, true, null, \"x\\/\\u00e9\"],\n\t\"b\": {\"c\": 1.5}\n}\n"),
            json!({"a": [1, true, null, "x/é"], "b": {"c": 1.5}})
        );
    }

    #[test]
    fn every_repeated_key_is_told() {
        let mut seen = Vec::new();
        only("a: 1\nb: {c: 1, c: 2}\na: 2\na: 3\n").to_json("", &mut |path, line| seen.push((path, line)));
        assert_eq!(seen, [(".b.c".to_owned(), Some(2)), (".a".to_owned(), Some(3)), (".a".to_owned(), Some(4))]);
    }

    /// YAML 1.1 booleans and octal numbers: what `kubectl` would send as a boolean is one here too, what it would send as
    /// another number is none.
    #[test]
    fn yes_is_a_boolean_and_a_leading_zero_no_number() {
        assert_eq!(value("a: yes\nb: \"no\"\nc: 0755\nd: 10\ne: .inf\nf: 99999999999999999999999\n")["a"], json!(true));
        let v = value("b: \"no\"\nc: 0755\nd: 10\ne: .inf\n");
        assert_eq!(v, json!({"b": "no", "c": "0755", "d": 10, "e": v["e"]}));
        assert!(v["e"].is_string());
    }

    #[test]
    fn an_alias_bomb_is_refused_and_a_plain_alias_is_not() {
        assert_eq!(value("a: &x {k: 1}\nb: *x\n"), json!({"a": {"k": 1}, "b": {"k": 1}}));
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for i in 1..9 {
            let refs = vec![format!("*a{}", i - 1); 10].join(",");
            bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(documents(bomb.as_bytes()).is_err());
    }

    #[test]
    fn what_is_no_text_or_too_deep_is_refused_with_its_line() {
        assert_eq!(documents(b"a: 1\nb: \xff\n").unwrap_err(), Unreadable { line: Some(2), reason: "is not UTF-8 text".to_owned() });
        assert!(documents("[".repeat(100_000).as_bytes()).is_err());
        let fault = documents(b"a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(fault.line.is_some() && fault.reason.starts_with("is not YAML: "), "{fault:?}");
    }

    #[test]
    fn documents_without_content_do_not_count() {
        assert_eq!(documents(b"").unwrap(), []);
        assert_eq!(documents(b"# nothing\n---\n---\na: 1\n---\n...\n").unwrap().len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Bytes of any kind give a tree or one line of reason.
        #[test]
        fn any_bytes_are_a_tree_or_a_reason(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Err(fault) = documents(&bytes) {
                prop_assert!(!fault.reason.contains('\n'));
            }
        }

        /// So does text that looks like YAML; and a secret in it never shows in the reason.
        #[test]
        fn any_text_is_a_tree_or_a_reason(text in "[-{}\\[\\]:,&*!|>'\"#%@` \nab0~?]{0,80}") {
            let text = format!("password: hunter2\n{text}");
            if let Err(fault) = documents(text.as_bytes()) {
                prop_assert!(!fault.reason.contains('\n') && !fault.reason.contains("hunter2"), "{}", fault.reason);
            }
        }
    }
}
