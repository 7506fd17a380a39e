//! Proxies as crawlers see them (LS-1), and taking one out by hand (LS-16).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use egress_protocol::ObjectKey;
use egress_protocol::lease::request::{CordonBody, parse_target};
use egress_protocol::lease::{BrokerMessage, LeaseError, ProxyItem, ProxyList, ProxyWalk, parse_cordon, parse_proxy_query};
use http::StatusCode;

use super::{Discovery, PathOf, no_content, no_query, path, watch};
use crate::http::body;
use crate::http::forward::FromOwnWatch;
use crate::http::problem::Refused;
use crate::http::query::Query;

/// Proxies, ordered by namespace and name. All filters must hold; besides these, `attr.KEY=VALUE` may be repeated.
#[utoipa::path(get, path = "/v1/proxies", tag = "proxies", operation_id = "listProxies",
    params(
        ("healthy" = Option<bool>, Query, description = "Condition `Healthy` is True, neither given up nor paused"),
        ("mode" = Option<String>, Query, description = "`Managed` or `External`"),
        ("provider" = Option<String>, Query, description = "The provider entry"),
        ("namespace" = Option<String>, Query, description = "The namespace"),
        ("phase" = Option<String>, Query, description = "`Deleting`, `Failed`, `Pending`, `Provisioning`, `Running`, `Ready` or `Unhealthy`"),
        ("limit" = Option<u32>, Query, description = "At most so many", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`nextCursor` of the page before; opaque"),
    ),
    responses((status = 200, description = "A page", body = ProxyList,
        headers(("Egress-Stale" = bool, description = "`true`: a replica without a leader answers from its own watch")))))]
pub(crate) async fn list(State(api): State<Arc<Discovery>>, request: Request) -> Result<Response, Refused> {
    let caller = api.admit(request.headers())?;
    let query = parse_proxy_query(request.uri().query().unwrap_or_default())?;
    let filter = Box::new(query.filter);
    let (after, limit) = (query.after, query.limit);
    if request.extensions().get::<FromOwnWatch>().is_some() {
        let mut walk = ProxyWalk::new(*filter, after, limit, caller);
        return Ok(watch::stale(&watch::page(&watch::objects(&api).await?, &mut walk)));
    }
    let page = api.ask(|reply_to| BrokerMessage::ListProxies { filter, after, limit, caller, reply_to }).await?;
    Ok(body::json(StatusCode::OK, &page))
}

/// One proxy.
#[utoipa::path(get, path = "/v1/proxies/{namespace}/{name}", tag = "proxies", operation_id = "getProxy",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "The proxy", body = ProxyItem,
        headers(("Egress-Stale" = bool, description = "`true`: a replica without a leader answers from its own watch")))))]
pub(crate) async fn one(State(api): State<Arc<Discovery>>, parts: PathOf<(String, String)>, request: Request) -> Result<Response, Refused> {
    let caller = api.admit(request.headers())?;
    let key = key(parts)?;
    no_query(request.uri())?;
    if request.extensions().get::<FromOwnWatch>().is_some() {
        let item = watch::one(&watch::objects(&api).await?, &key, &caller).ok_or_else(|| Refused::from(LeaseError::UnknownProxy))?;
        return Ok(watch::stale(&item));
    }
    let item = api.ask(|reply_to| BrokerMessage::GetProxy { key, caller, reply_to }).await?;
    let item = item.ok_or_else(|| Refused::from(LeaseError::UnknownProxy))?;
    Ok(body::json(StatusCode::OK, &item))
}

/// Takes a proxy out by hand: no new leases, for one target or for all. Needs a token that may do all.
#[utoipa::path(post, path = "/v1/proxies/{namespace}/{name}/cordon", tag = "proxies", operation_id = "cordonProxy",
    params(("namespace" = String, Path), ("name" = String, Path)),
    request_body = CordonBody,
    responses((status = 200, description = "The proxy as it is then", body = ProxyItem)))]
pub(crate) async fn cordon(
    State(api): State<Arc<Discovery>>,
    parts: PathOf<(String, String)>,
    request: Request,
) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let key = key(parts)?;
    no_query(request.uri())?;
    let (head, incoming) = request.into_parts();
    let bytes = api.body(&head.headers, incoming).await?;
    let request = parse_cordon(&bytes, api.clock.now())?;
    let item = api.ask(|reply_to| BrokerMessage::Cordon { key, request, caller, reply_to }).await??;
    Ok(body::json(StatusCode::OK, &item))
}

/// Lifts a cordon; one that is not there is lifted too. Needs a token that may do all.
#[utoipa::path(delete, path = "/v1/proxies/{namespace}/{name}/cordon", tag = "proxies", operation_id = "uncordonProxy",
    params(
        ("namespace" = String, Path),
        ("name" = String, Path),
        ("target" = Option<String>, Query, description = "The cordon for this target; default: the one for every target"),
    ),
    responses((status = 204, description = "Lifted")))]
pub(crate) async fn uncordon(
    State(api): State<Arc<Discovery>>,
    parts: PathOf<(String, String)>,
    request: Request,
) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let key = key(parts)?;
    let target = target(&request)?;
    api.ask(|reply_to| BrokerMessage::Uncordon { key, target, caller, reply_to }).await??;
    Ok(no_content())
}

/// Ends a cooldown of a proxy, and of its address; one that is not there is lifted too. Needs a token that may do all.
#[utoipa::path(delete, path = "/v1/proxies/{namespace}/{name}/cooldown", tag = "proxies", operation_id = "liftCooldown",
    params(
        ("namespace" = String, Path),
        ("name" = String, Path),
        ("target" = Option<String>, Query, description = "The cooldown for this target; default: the general one"),
    ),
    responses((status = 204, description = "Lifted")))]
pub(crate) async fn lift_cooldown(
    State(api): State<Arc<Discovery>>,
    parts: PathOf<(String, String)>,
    request: Request,
) -> Result<Response, Refused> {
    let caller = api.admit_lease_call(request.headers())?;
    let key = key(parts)?;
    let target = target(&request)?;
    api.ask(|reply_to| BrokerMessage::LiftCooldown { key, target, caller, reply_to }).await??;
    Ok(no_content())
}

/// The one query parameter of what is lifted by target.
fn target(request: &Request) -> Result<Option<Arc<str>>, Refused> {
    let mut query = Query::parse(request.uri().query());
    let target = query.take_as("target", |text| parse_target(text).map_err(|fault| fault.message));
    query.finish()?;
    Ok(target)
}

fn key(parts: PathOf<(String, String)>) -> Result<ObjectKey, Refused> {
    path(parts).map(|(namespace, name)| ObjectKey::new(namespace, name))
}
