//! What every request of ours has in common: the fence before a write, and lists page by page.

use egress_kube::ApiError;
use egress_protocol::leadership::Fence;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The guard of a write: behind a closed fence nothing is sent (SV-4).
pub(crate) fn unless_fenced(fence: &Fence) -> Result<(), ApiError> {
    fence.check().map_err(|fenced| ApiError::Withheld(fenced.to_string()))
}

/// What a page of a list says of the list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

impl PageMeta {
    /// Where the next page begins; `None`: this was the last.
    pub(crate) fn next(self) -> Option<String> {
        self.next.filter(|next| !next.is_empty())
    }
}

/// The query of a page.
pub(crate) fn page<'a>(limit: &'a str, selector: Option<&'a str>, next: Option<&'a str>) -> Vec<(&'static str, &'a str)> {
    let parts = [("limit", Some(limit)), ("labelSelector", selector), ("continue", next)];
    parts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A page as it was answered. Nothing of what was answered is in the error: it may hold what nobody may see.
pub(crate) fn read_page<T: DeserializeOwned>(answer: &str) -> Result<T, ApiError> {
    serde_json::from_str(answer)
        .map_err(|error| ApiError::Transport(format!("the list cannot be read: {:?} at {}", error.classify(), error.column())))
}
