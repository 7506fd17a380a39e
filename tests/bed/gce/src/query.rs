//! The query of a request: the filters and parameters that the fake knows. An unknown one is an error, as is an unknown filter.

use std::collections::BTreeMap;

use serde_json::Value;

/// The parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self(url::form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// A parameter that is not among the known ones.
    pub(crate) fn unknown(&self, known: &[&str]) -> Option<&str> {
        self.0.keys().map(String::as_str).find(|key| !known.contains(key) && !["alt", "prettyPrint", "$alt"].contains(key))
    }

    pub(crate) fn max_results(&self) -> usize {
        self.get("maxResults").and_then(|text| text.parse().ok()).unwrap_or(500).clamp(1, 500)
    }
}

/// Whether an item passes a filter; `None`: the filter is of no form that is known here.
pub(crate) fn passes(filter: Option<&str>, item: &Value) -> Option<bool> {
    let Some(filter) = filter else { return Some(true) };
    if let Some(pattern) = filter.strip_prefix("targetLink eq .*") {
        return Some(item["targetLink"].as_str().is_some_and(|link| link.ends_with(pattern)));
    }
    let (path, wanted) = filter.split_once(" = ")?;
    let mut value = item;
    for part in path.split('.') {
        value = value.get(part).unwrap_or(&Value::Null);
    }
    Some(value.as_str() == Some(wanted.trim_matches('"')))
}
