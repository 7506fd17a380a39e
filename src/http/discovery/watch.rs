//! Proxies as a replica without a leader knows them (LS-10): the objects of its own watch, with the status that was written
//! last. What only the leader knows is left out: leases, cooldowns, cordons, and when a probe ended last.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use egress_protocol::ObjectKey;
use egress_protocol::lease::{Caller, ProblemCode, ProxyAvailability, ProxyItem, ProxyList, ProxyWalk};
use egress_protocol::object::ProxyObject;
use egress_protocol::source::SourceMessage;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::Discovery;
use crate::http::body;
use crate::http::forward::STALE;
use crate::http::problem::Refused;

/// They are in memory.
const ANSWER: Duration = Duration::from_secs(2);

/// By namespace and name.
pub(super) async fn objects(api: &Discovery) -> Result<Vec<Arc<ProxyObject>>, Refused> {
    let unknown = |why: &str| Refused::new(ProblemCode::NoLeader, format!("no leader can be asked, and {why}"));
    match api.source.call(ANSWER, |reply_to| SourceMessage::List { reply_to }).await {
        Ok(Some(objects)) => Ok(objects),
        Ok(None) => Err(unknown("the objects were not read yet")),
        Err(error) => Err(unknown(&format!("the own watch is {error}"))),
    }
}

/// One page of them.
pub(super) fn page(objects: &[Arc<ProxyObject>], walk: &mut ProxyWalk) -> ProxyList {
    let from = walk.after().map_or(0, |after| objects.partition_point(|object| object.key <= *after));
    for object in &objects[from..] {
        let proxy = ProxyAvailability::as_written(object);
        if let Some(page) = walk.look(&object.key, Some(&proxy), || Some(ProxyItem::of(&proxy))) {
            return page;
        }
    }
    walk.end()
}

/// One, if the caller may see it.
pub(super) fn one(objects: &[Arc<ProxyObject>], key: &ObjectKey, caller: &Caller) -> Option<ProxyItem> {
    let object = objects.iter().find(|object| object.key == *key)?;
    caller.sees_namespace(&key.namespace).then(|| ProxyItem::of(&ProxyAvailability::as_written(object)))
}

/// The answer, marked.
pub(super) fn stale(value: &impl Serialize) -> Response {
    let mut response = body::json(StatusCode::OK, value);
    response.headers_mut().insert(STALE, HeaderValue::from_static("true"));
    response
}
