//! The UIDs of all objects, read from the API now and from no cache (OG-3).
//!
//! What must stay true: a set that is handed out is complete: every page was read, by somebody who may read them all. With
//! one namespace in scope that is what "all" means; who collects by it must know (OP-25).

use std::collections::HashSet;
use std::sync::Arc;

use egress_kube::{ApiClient, ApiError, LIST_PAGE, Request};
use egress_protocol::source::LiveSet;
use egress_protocol::{Clock, Uid};
use serde::Deserialize;

use crate::paths::PROXIES;
use crate::sending::{PageMeta, page, read_page};

/// Metadata is small.
const PAGE: &str = "500";

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    /// A list of metadata without any is `null` (seen with 1.36), unlike one of whole objects. It must be there all the same.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMeta,
}

#[derive(Deserialize)]
struct ItemMeta {
    uid: String,
}

/// Without a resource version the answer is what the store holds, not what some cache does.
pub(crate) async fn read(client: &ApiClient, path: &str, clock: &Clock) -> Result<LiveSet, ApiError> {
    let as_of = clock.now();
    let (mut uids, mut next) = (HashSet::new(), None::<String>);
    loop {
        let query = page(PAGE, None, next.as_deref());
        let answer = client.send(LIST_PAGE, || Ok(()), &Request::list_metadata(PROXIES, path, &query)).await?;
        let page: Page = read_page(&answer)?;
        uids.extend(page.items.into_iter().flatten().map(|item| Uid::new(item.metadata.uid)));
        next = page.metadata.next();
        if next.is_none() {
            return Ok(LiveSet { uids: Arc::new(uids), complete: true, as_of });
        }
    }
}
